"""Charts of Weights & Biases as CSV, a column a run and metric; and its history, a column a metric."""

from __future__ import annotations

import re
from collections import Counter

from shardmeter.interop.logs import tables
from shardmeter.interop.logs.lines import Log
from shardmeter.interop.logs.metrics import meaning
from shardmeter.interop.logs.record import Reading

NAME = "wandb"
TITLE = "CSV of Weights & Biases"
CLUES = (",",)
COUNTS = ("trainer/global_step", "train/global_step", "global_step", "Step", "_step")
SIGN = re.compile(r'\A"?(?:Step|Relative Time \(Process\)|train/tokens|train/global_step|trainer/global_step)"?,[^\n]{0,5000}? - |\A[^\n{]{0,5000}?\b_step\b[^\n]*,')
SIDES = ("__MIN", "__MAX")


def reading(log: Log) -> Reading:
    """The run with most metrics that are known."""
    header, rows = tables.rows(log)
    runs = Counter(_run(name) for name in header if not name.endswith(SIDES) and meaning(name) is not None)
    chosen = max(runs, key=lambda run: runs[run], default="")
    meanings = {
        name: found
        for name in header
        if not name.endswith(SIDES) and _run(name) in (chosen, "") and (found := meaning(name)) is not None
    }
    count = next((name for name in COUNTS if name in header), header[0] if header else "")
    notes = ["Charts are thinned to some hundred points."] if " - " in "".join(header) else []
    if len(runs) > 1:
        notes.append(f"The chart has {len(runs)} runs; {chosen!r} was read.")
    if count in ("Step", "_step"):
        notes.append("W&B's step counts calls of log, which need not be optimizer steps.")
    return Reading(steps=tables.steps(rows, count, meanings), notes=tuple(notes))


def _run(name: str) -> str:
    return name.rpartition(" - ")[0]
