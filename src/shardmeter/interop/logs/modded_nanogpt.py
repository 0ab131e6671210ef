"""modded-nanogpt: a clock of training alone, and the mean over its steps. Compilation is not in it."""

from __future__ import annotations

import re

from shardmeter.interop.logs.lines import Log, matches
from shardmeter.interop.logs.record import Reading, Step
from shardmeter.interop.logs.values import number, times

NAME = "modded-nanogpt"
TITLE = "modded-nanogpt's log"
CLUES = ("train_time:", "step_avg:")
SIGN = re.compile(r"step:\d+/\d+ .{0,80}?train_time:\d")
REPORT = re.compile(r"step:(\d{1,12})/(\d{1,12}) (?:(?:val|train)_loss:(\S+) )?train_time:(\S+?)ms step_avg:(\S+?)ms")


def reading(log: Log) -> Reading:
    """A report a line: the growth of the clock since the last one."""
    steps: list[Step] = []
    clocks: list[float | None] = []
    for line, found in matches(log, "train_time:", REPORT):
        count, passed = int(found[1]), times(found[4], 1e-3)
        before = steps[-1].number if steps else 0
        since = clocks[-1] if clocks else 0.0
        seconds = times(found[5], 1e-3)
        if passed is not None and since is not None and count > before and passed > since and steps:
            seconds = (passed - since) / (count - before)
        steps.append(
            Step(number=count, loss=number(found[3]), seconds=seconds, over=max(1, count - before) if steps else 1, line=line.number, rank=line.rank)
        )  # fmt: skip
        clocks.append(passed)
    return Reading(steps=tuple(steps))
