"""OLMo-core's console: `[step=…]` and a line a metric below it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from shardmeter.interop.logs.blocks import blocks, step_of
from shardmeter.interop.logs.lines import Log
from shardmeter.interop.logs.metrics import meaning
from shardmeter.interop.logs.record import Reading, Step

NAME = "olmo-core"
TITLE = "OLMo-core's console"
CLUES = ("[step=", "throughput/")
SIGN = re.compile(r"\[step=\d+/\d+[^\]\n]{0,200}\]")
HEADER = re.compile(r"\[step=(\d+)(?:/(\d+))?[^\]]*\]")
METRIC = re.compile(r"^\s+([\w/() .%-]+?)\s*=\s*([-+\w.,]+)\s*$")


def reading(log: Log) -> Reading:
    """A report a block. `(actual avg)` counts evaluations and checkpoints too and is not read."""
    total = next((found[2] for line in log.having("[step=") if (found := HEADER.search(line.text)) is not None and found[2]), None)
    pauses = tuple(sorted(line.number for word in ("Saving checkpoint", "Running in-loop evals", "eval batch") for line in log.having(word)))
    return Reading(steps=tuple(_steps(log)), said={"run.steps": total} if total else {}, pauses=pauses)


def _steps(log: Log) -> Iterator[Step]:
    for line, metrics in blocks(log, "[step=", HEADER, METRIC):
        if (found := HEADER.search(line.text)) is not None and len(found[1]) < 16:
            yield step_of(int(found[1]), line, {key: known for key in metrics if (known := meaning(key)) is not None}, metrics)
