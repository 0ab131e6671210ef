"""How well plans are ordered: on a measured grid (one source, model, accelerator, size, sequence and batch; many plans)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from shardmeter.core.record import record

LEAST = 5


@record
class Candidate:
    """One plan of a grid, measured and predicted."""

    grid: str
    plan: str
    measured: float
    predicted: float


def ranks(values: Sequence[float]) -> npt.NDArray[np.float64]:
    """Ranks from 1, equal values sharing the mean of theirs."""
    array = np.asarray(values, dtype=float)
    ordered = np.sort(array)
    below = np.searchsorted(ordered, array, side="left")
    equal = np.searchsorted(ordered, array, side="right") - below
    return np.asarray(below + (equal + 1) / 2.0, dtype=float)


def spearman(left: Sequence[float], right: Sequence[float]) -> float | None:
    """Rank correlation; None where one side has a single value."""
    a, b = ranks(left), ranks(right)
    a, b = a - a.mean(), b - b.mean()
    size = float(np.sqrt((a * a).sum() * (b * b).sum()))
    return None if size == 0.0 else float((a * b).sum() / size)


def regret(measured: Sequence[float], predicted: Sequence[float]) -> float:
    """How much slower the plan predicted to be the fastest ran than the fastest measured."""
    return float(measured[int(np.argmin(predicted))] / min(measured) - 1.0)


def ranking(candidates: Iterable[Candidate]) -> dict[str, dict[str, Any]]:
    """Rank correlation and regret of every grid with at least `LEAST` different plans."""
    grids: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        grids.setdefault(candidate.grid, []).append(candidate)
    answer = {}
    for grid, rows in grids.items():
        if len({row.plan for row in rows}) >= LEAST:
            measured, predicted = [row.measured for row in rows], [row.predicted for row in rows]
            answer[grid] = {
                "n": len(rows),
                "spearman": spearman(measured, predicted),
                "regret": regret(measured, predicted),
            }
    return answer
