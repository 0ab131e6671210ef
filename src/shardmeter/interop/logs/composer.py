"""Composer's and llm-foundry's console: a header, and a line a metric below it. Memory is in 10^9 bytes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from shardmeter.interop.logs.blocks import blocks, step_of
from shardmeter.interop.logs.lines import Log
from shardmeter.interop.logs.metrics import meaning
from shardmeter.interop.logs.record import Reading, Step
from shardmeter.interop.logs.values import whole

NAME = "composer"
TITLE = "Composer's console"
CLUES = ("time/batch:",)
SIGN = re.compile(r"\[(?:epoch|batch|token|sample|iteration)=\d+(?:/\d+)?\]:?")
HEADER = re.compile(r"\[batch=(\d+)(?:/(\d+))?\]|\[(?:epoch|token|sample|iteration)=\d+(?:/\d+)?\]:?\s*$")
METRIC = re.compile(r"^\s*(?:Train |Eval )?([\w/().-]+(?: [\w/().-]+){0,3}): (\S+)\s*$")


def reading(log: Log) -> Reading:
    """A report a block; throughput is the mean over a window of batches, and missing before that is full."""
    notes = ("Composer's throughput is a mean over the last 100 batches (or its window_size).",)
    return Reading(steps=tuple(_steps(log)), notes=notes, resolution=1e-3)


def _steps(log: Log) -> Iterator[Step]:
    for line, metrics in blocks(log, "[", HEADER, METRIC):
        found = HEADER.search(line.text)
        batches = whole(metrics.get("time/batch"))
        number = whole(found[1]) if found and found[1] else None if batches is None else batches + 1
        if number is not None and metrics and not any(key.startswith("metrics/eval") for key in metrics):
            yield step_of(number, line, {key: known for key in metrics if (known := meaning(key)) is not None}, metrics)
