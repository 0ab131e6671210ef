"""Lightning's CSVLogger: metrics.csv, sparse, several rows a step, steps counted from 0."""

from __future__ import annotations

import re

from shardmeter.interop.logs import tables
from shardmeter.interop.logs.lines import Log
from shardmeter.interop.logs.metrics import Meaning, meaning
from shardmeter.interop.logs.record import Reading
from shardmeter.interop.logs.values import positive

NAME = "lightning"
TITLE = "Lightning's metrics.csv"
CLUES = ("epoch", "step")
SIGN = re.compile(r"\A(?=[^\n]{0,5000}?(?:^|,)epoch(?:,|\r?$))(?=[^\n]{0,5000}?(?:^|,)step(?:,|\r?$))[^\n{}=]+$", re.MULTILINE)
OF_ONE = ("device/samples_per_sec", "device|samples_per_sec")


def reading(log: Log) -> Reading:
    """The rows of every step together."""
    header, rows = tables.rows(log)
    meanings: dict[str, Meaning] = {
        name: found for name in header if (found := meaning(name.replace("|", "/"))) is not None
    }
    if "time" in header:  # of the throughput monitor: seconds of training
        meanings["time"] = ("at", positive)
    notes = []
    if any(field == "seconds" for field, _ in meanings.values()):
        notes.append("Lightning counts batches: with accumulate_grad_batches a step is several of these.")
    if any(name in header for name in OF_ONE):
        notes.append("Samples a second are of one device; the file says neither the batch nor the devices.")
    return Reading(steps=tables.steps(rows, "step", meanings, from_zero=True), notes=tuple(notes))
