"""Errors of many predictions as a few numbers. Sources weigh the same: what stands over several is the mean over them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from shardmeter.core.record import record

STEP_TIME, MEMORY = "step_time", "memory"
QUANTITIES = (STEP_TIME, MEMORY)
KEYS = ("mape", "median_ape", "p90_ape", "bias", "within_10pct", "coverage_90", "loso_mape")
CLOSE = 0.10


@record
class Score:
    """One prediction beside its measurement. `loso` is what was predicted without the row's source, where known."""

    id: str
    source: str
    quantity: str
    measured: float
    predicted: float
    loso: float | None = None
    low: float | None = None
    high: float | None = None
    groups: tuple[str, ...] = ()
    in_metrics: bool = True
    """False for rows that count in `by_group` only."""

    @property
    def error(self) -> float:
        """Predicted over measured, minus one."""
        return self.predicted / self.measured - 1.0


def quantities(scores: Iterable[Score]) -> tuple[str, ...]:
    """Step time and memory, which every report has, and after them what else occurs."""
    return tuple(dict.fromkeys((*QUANTITIES, *(score.quantity for score in scores))))


def summary(scores: Sequence[Score]) -> dict[str, Any]:
    """The metrics of the scores of one source; null where nothing can be said."""
    if not scores:
        return {"n": 0, **dict.fromkeys(KEYS)}
    errors = np.array([score.error for score in scores])
    sizes = np.abs(errors)
    return {
        "n": len(scores),
        "mape": float(sizes.mean()),
        "median_ape": float(np.median(sizes)),
        "p90_ape": float(np.quantile(sizes, 0.9)),
        "bias": float(errors.mean()),
        "within_10pct": float((sizes <= CLOSE).mean()),
        "coverage_90": _coverage(scores),
        "loso_mape": _left_out(scores),
    }


def over_sources(scores: Sequence[Score]) -> dict[str, Any]:
    """The mean over sources of every metric; n counts rows. A metric that one source lacks is the mean over the others."""
    parts = [summary(part) for part in by_source(scores).values()]
    known = {key: [part[key] for part in parts if part[key] is not None] for key in KEYS}
    means = {key: float(np.mean(values)) if values else None for key, values in known.items()}
    return {"n": len(scores), **means}


def by_source(scores: Iterable[Score]) -> dict[str, list[Score]]:
    """The scores of every source, sources in order of appearance."""
    parts: dict[str, list[Score]] = {}
    for score in scores:
        parts.setdefault(score.source, []).append(score)
    return parts


def entry(found_by: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Metrics by quantity, with those of the first quantity that has rows repeated at the top."""
    leading = next((found for found in found_by.values() if found["n"]), found_by[STEP_TIME])
    return {**leading, **found_by}


def _coverage(scores: Sequence[Score]) -> float | None:
    inside = [
        score.low <= score.measured <= score.high
        for score in scores
        if score.low is not None and score.high is not None
    ]
    return float(np.mean(inside)) if len(inside) == len(scores) else None


def _left_out(scores: Sequence[Score]) -> float | None:
    """Mean error with the source left out, over the rows that the fit has written one for; null where it has for none."""
    found = [abs(score.loso / score.measured - 1.0) for score in scores if score.loso is not None]
    return float(np.mean(found)) if found else None
