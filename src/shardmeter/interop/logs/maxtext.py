"""MaxText's console: `completed step:` lines. A device is a chip on TPU v4 and later, and a core before."""

from __future__ import annotations

import re

from shardmeter.interop.logs.lines import Line, Log, joined
from shardmeter.interop.logs.record import Reading, Step
from shardmeter.interop.logs.values import clock, number, positive, word

NAME = "maxtext"
TITLE = "MaxText's console"
CLUES = ("completed step:",)
SIGN = re.compile(r"completed step: \d+, seconds:")
BEGINS = re.compile(r"completed step: (\d{1,12}), seconds:")


def reading(log: Log) -> Reading:
    """A report a step."""
    steps = tuple(_step(line, found) for line, found in joined(log, BEGINS, "completed step:", _is_whole))
    first = next((line.text for line in log.having("completed step:")), "")
    age = "2024-08 or later" if "total_weights" in first else "2024-07" if "Tokens/s/device" in first else "2023"
    notes = ("The batch grows at the start of the run: steps of that phase are shorter.",) if "[Rampup Batch Size Phase]" in log.text else ()
    devices = re.search(r"\bNum_devices: (\d+)", log.text)
    return Reading(
        steps=steps, version=age, said={"gpus": devices[1]} if devices else {}, notes=notes,
        pauses=tuple(line.number for mark in ("eval metrics after step", "saved a checkpoint") for line in log.having(mark)),
    )  # fmt: skip


def _is_whole(text: str) -> bool:
    return ", loss: " in text


def _step(line: Line, found: re.Match[str]) -> Step:
    text = line.text
    return Step(
        number=int(found[1]) + 1, seconds=positive(word(text, "seconds:")), tokens=positive(word(text, "total_weights:")),
        tokens_per_s_per_gpu=positive(word(text, "Tokens/s/device:")), loss=number(word(text, ", loss:")), at=clock(text), line=line.number, rank=line.rank,
    )  # fmt: skip
