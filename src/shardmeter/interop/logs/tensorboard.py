"""A scalar of TensorBoard as CSV: clocks of steps; which scalar it is, the name of the file says, if anything."""

from __future__ import annotations

import re
from pathlib import PurePath

from shardmeter.interop.logs import tables
from shardmeter.interop.logs.lines import Log
from shardmeter.interop.logs.metrics import METRICS, Meaning
from shardmeter.interop.logs.record import Reading
from shardmeter.interop.logs.values import positive

NAME = "tensorboard"
TITLE = "CSV of TensorBoard"
CLUES = ("Wall time",)
SIGN = re.compile(r'\A"?Wall time"?,"?Step"?,"?Value"?\s*$', re.MULTILINE)


def reading(log: Log) -> Reading:
    """The clocks; and the values, where the file is named as one of the metrics that are known."""
    _, rows = tables.rows(log)
    meanings: dict[str, Meaning] = {"Wall time": ("at", positive)}
    stem = PurePath(log.name).stem.lower()
    tag = next((key for key in sorted(METRICS, key=len, reverse=True) if stem.endswith(re.sub(r"\W", "_", key))), "")
    if tag:
        meanings["Value"] = METRICS[tag]
    return Reading(steps=tables.steps(rows, "Step", meanings), notes=("TensorBoard keeps 1,000 points of a scalar unless told otherwise.",))
