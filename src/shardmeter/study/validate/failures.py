"""Configurations that ran out of memory: how many of them the model says do not fit, and how often it says so wrongly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from shardmeter.core.record import changed, record
from shardmeter.scenario.catalog import Catalog
from shardmeter.study.validate.failed import as_measured, other_cause
from shardmeter.study.validate.predictions import Predict, legal
from shardmeter.study.validate.resolve import MappedRow, map_rows
from shardmeter.study.validate.rows import Row
from shardmeter.study.validate.witness import crashed


@record
class Failures:
    """Every row of a file of failures with what became of it; `fits` by line for those that were compared."""

    rows: tuple[MappedRow, ...]
    fits: Mapping[int, bool]

    @property
    def by_source(self) -> dict[str, float]:
        """Share of a source's out-of-memory rows that are said not to fit."""
        parts: dict[str, list[bool]] = {}
        for row in self.rows:
            if row.line in self.fits:
                parts.setdefault(row.source_key, []).append(not self.fits[row.line])
        return {source: float(np.mean(found)) for source, found in parts.items()}


NOTHING = Failures(rows=(), fits={})


def compare(rows: Sequence[Row], catalog: Catalog, predict: Predict, ran: Sequence[MappedRow] = ()) -> Failures:
    """Map and predict the rows of a file of failures; `ran` are rows that may bear witness that memory stopped none of them."""
    adapted = tuple(as_measured(row) for row in rows)
    causes = tuple(other_cause(row) for row in adapted)
    mapped = tuple(
        changed(row, scenario=None, skip="", exclude=cause) if cause else legal(row)
        for row, cause in zip(map_rows(adapted, catalog), causes, strict=True)
    )
    crashes = crashed(mapped, ran)
    mapped = tuple(
        changed(row, scenario=None, exclude=crashes[row.line]) if row.line in crashes else row for row in mapped
    )
    asked = tuple(row for row in mapped if row.scenario is not None)
    answers = predict([row.scenario for row in asked if row.scenario is not None])
    return Failures(rows=mapped, fits={row.line: answer.fits for row, answer in zip(asked, answers, strict=True)})


def summary(found: Failures, alarms: Mapping[str, Sequence[bool]]) -> dict[str, Any]:
    """The `failures` block. `alarms`: by source, whether each row that ran is said not to fit. Means over sources."""
    recall = found.by_source
    false = {source: float(np.mean(alarms[source])) for source in recall if alarms.get(source)}
    return {
        "n": len(found.fits),
        "recall": float(np.mean(list(recall.values()))) if recall else None,
        "false_alarm": float(np.mean(list(false.values()))) if false else None,
        "by_source": {
            source: {
                "n": sum(row.source_key == source and row.line in found.fits for row in found.rows),
                "recall": share,
                "false_alarm": false.get(source),
            }
            for source, share in recall.items()
        },
        "rows": len(found.rows),
        "skipped": [{"id": row.id, "reason": row.skip} for row in found.rows if row.skip],
        "excluded": [{"id": row.id, "reason": row.exclude} for row in found.rows if row.exclude],
    }
