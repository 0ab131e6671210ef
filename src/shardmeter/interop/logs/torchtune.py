"""torchtune's metric files: tokens a second of one device, peaks of memory, no clock."""

from __future__ import annotations

import re

from shardmeter.interop.logs.lines import Log, matches
from shardmeter.interop.logs.record import Reading, Step
from shardmeter.interop.logs.values import GIB, number, positive, times

NAME = "torchtune"
TITLE = "torchtune's metric log"
CLUES = ("Step ", "tokens_per_second_per_gpu:")
SIGN = re.compile(r"Step \d+ \| .{0,300}?tokens_per_second_per_gpu:")
REPORT = re.compile(r"Step (\d{1,12}) \| (.*)")
PAIR = re.compile(r"([a-z_]+):(\S+)")


def reading(log: Log) -> Reading:
    """A report a line."""
    steps = []
    for line, found in matches(log, "Step ", REPORT):
        pairs = dict(PAIR.findall(found[2]))
        if "tokens_per_second_per_gpu" not in pairs and "loss" not in pairs:
            continue
        steps.append(
            Step(
                number=int(found[1]), loss=number(pairs.get("loss")), tokens_per_s_per_gpu=positive(pairs.get("tokens_per_second_per_gpu")),
                allocated=times(pairs.get("peak_memory_alloc"), GIB), reserved=times(pairs.get("peak_memory_reserved"), GIB),
                line=line.number, rank=line.rank,
            )
        )  # fmt: skip
    note = "Before 2025-04-23 torchtune counted tokens once for every tensor-parallel rank: with tp above 1 the rate is too large by it."
    return Reading(steps=tuple(steps), notes=(note,))
