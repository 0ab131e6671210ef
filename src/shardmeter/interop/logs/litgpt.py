"""litgpt's pretrain: `iter` is a micro-batch, `step` an optimizer step."""

from __future__ import annotations

import re
from statistics import median

from shardmeter.core.record import changed
from shardmeter.interop.logs.lines import Log, matches
from shardmeter.interop.logs.record import Reading, Step
from shardmeter.interop.logs.values import number, times

NAME = "litgpt"
TITLE = "litgpt's console"
CLUES = ("iter time:",)
SIGN = re.compile(r"Epoch \d+ \| iter \d+ step \d+ \|")
REPORT = re.compile(r"iter (\d{1,12}) step (\d{1,12}) \| loss train: (-?[\w.+-]+),.*?iter time: (\S+?) ms")


def reading(log: Log) -> Reading:
    """A report an optimizer step: the time of its last micro-batch, times the micro-batches of a step."""
    found = [(line, one) for line, one in matches(log, "iter time:", REPORT)]
    steps = [
        Step(number=int(one[2]), loss=number(one[3]), seconds=times(one[4], 1e-3), line=line.number, rank=line.rank)
        for line, one in found
    ]
    iterations = [int(one[1]) for _, one in found]
    grown = [
        (after - before) / (later.number - sooner.number)
        for before, after, sooner, later in zip(iterations, iterations[1:], steps, steps[1:], strict=False)
        if later.number > sooner.number and after > before
    ]
    whole = [count / step.number for count, step in zip(iterations, steps, strict=True) if step.number > 0]
    of_a_step = max(1, round(median(grown or whole or [1.0])))
    notes: tuple[str, ...] = ()
    if of_a_step > 1:
        notes = (f"litgpt prints the time of a micro-batch; a step has {of_a_step}, and its optimizer is in the last one: steps come out a little long.",)
    made = tuple(
        changed(step, seconds=None if step.seconds is None else step.seconds * of_a_step)
        for step in steps
    )
    return Reading(steps=made, said={"accumulation": str(of_a_step)} if of_a_step > 1 else {}, notes=notes)
