"""What interrupts a run, by name or by numbers: which row it is, and how much was seen of it."""

from __future__ import annotations

from pydantic import BaseModel

from shardmeter.core.quantity import show
from shardmeter.scenario.parts import Findings, Rows, part
from shardmeter.scenario.yaml_reader import Path
from shardmeter.specs import Failures


def failing(asked: str | BaseModel, rows: Rows, path: Path, found: Findings) -> Failures | None:
    """The failures of a name or of an inline mapping, the row that they rest on said with what was counted; None after noting why
    there are none."""
    made = part(Failures, asked, rows, path, found)
    row = asked if isinstance(asked, str) else getattr(asked, "base", None)
    if made is None or not isinstance(row, str) or not rows.knows("failures", row):
        return made
    counted = rows.failures(row)
    own = "" if isinstance(asked, str) else ", with what is changed"
    seen = "; ".join(filter(None, (counted.data, counted.notes, counted.source)))
    says = f"{path[-1]} {counted.name}{own}: {show(float(made.mtbf), 's')} a {made.per}, from {seen}"
    if says not in found.assumptions:
        found.assumptions.append(says)
    return made
