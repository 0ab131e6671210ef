"""nanoGPT's console. Its mfu is against 312 TFLOP/s whatever the device."""

from __future__ import annotations

import re

from shardmeter.interop.logs.lines import Log, matches
from shardmeter.interop.logs.record import Reading, Step
from shardmeter.interop.logs.values import number, times

NAME = "nanogpt"
TITLE = "nanoGPT's console"
CLUES = ("iter ", ", time ")
SIGN = re.compile(r"iter \d+: loss \S+, time ")
REPORT = re.compile(r"iter (\d{1,12}): loss (-?[\w.+-]+), time (\S+?)ms")
TOKENS = re.compile(r"tokens per iteration will be: ([\d,]+)")


def reading(log: Log) -> Reading:
    """A report a line: the time of that one step, with its evaluation where it has one."""
    steps = tuple(
        Step(number=int(found[1]) + 1, loss=number(found[2]), seconds=times(found[3], 1e-3), line=line.number, rank=line.rank)
        for line, found in matches(log, "iter ", REPORT)
    )
    tokens = next((found[1].replace(",", "") for _, found in matches(log, "tokens per iteration", TOKENS)), None)
    pauses = sorted(line.number for word in ("val loss", "saving checkpoint") for line in log.having(word))
    return Reading(steps=steps, said={"tokens_per_step": tokens} if tokens else {}, pauses=tuple(pauses))
