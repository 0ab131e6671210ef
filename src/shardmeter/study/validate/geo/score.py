"""Judged rows to scores, intervals, ranking and the parts of a report."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from shardmeter.study.validate import fates
from shardmeter.study.validate.geo.account import TOLERANCE, Judged
from shardmeter.study.validate.geo.bandwidth import grid_step
from shardmeter.study.validate.geo.cells import written
from shardmeter.study.validate.metrics import Score
from shardmeter.study.validate.ranking import Candidate, ranking

LEVEL = 0.90
FEWEST = 8
"""Residuals that an interval needs."""
PLAN_QUANTITY, GRID_QUANTITY = "iteration_time", "wan_bandwidth"

Residuals = Mapping[str, Sequence[tuple[str, float]]]
"""By quantity: (fold, log of measured over predicted)."""


def residuals(judged: Iterable[Judged]) -> Residuals:
    """What the predictions of scored rows miss, each by constants that have not seen the row's case where those are known."""
    found: dict[str, list[tuple[str, float]]] = {}
    for one in judged:
        if one.predicted is not None:
            found.setdefault(one.quantity, []).append(
                (one.fold, math.log(one.measured / (one.left_out or one.predicted)))
            )
    return found


def factors(one: Judged, known: Residuals) -> tuple[float, float] | None:
    """(low, high) factors of the 90 % interval, from residuals of the same quantity in other cases; None where they are few.

    The ends are order statistics one further out than the quantile, for samples are finite."""
    own = one.fold
    others = np.sort([value for fold, value in known.get(one.quantity, ()) if fold != own])
    if len(others) < FEWEST:
        return None
    out = math.floor((len(others) + 1) * (1.0 - LEVEL) / 2.0)
    low, high = others[max(out - 1, 0)], others[len(others) - max(out, 1)]
    return math.exp(float(low)), math.exp(float(high))


def scores(judged: Iterable[Judged], known: Residuals) -> tuple[Score, ...]:
    """One score for every predicted row."""
    made = []
    for one in judged:
        if one.predicted is None:
            continue
        found = factors(one, known)
        made.append(
            Score(
                id=one.id,
                source=one.source,
                quantity=one.quantity,
                measured=one.measured,
                predicted=one.predicted,
                loso=one.left_out,
                low=None if found is None else one.predicted * found[0],
                high=None if found is None else one.predicted * found[1],
                groups=one.groups,
            )
        )
    return tuple(made)


def accounting(judged: Sequence[Judged]) -> dict[str, Any]:
    """Every row once: scored, skipped, excluded or an identity."""
    return fates.accounting(judged, lambda one: one.predicted is not None, lambda one: max(TOLERANCE, one.rounding))


def cells(judged: Iterable[Judged]) -> tuple[Candidate, ...]:
    """Systems that trained one model with one batch in one emulated case: candidates of the `ranking` block."""
    return tuple(
        Candidate(
            grid=" | ".join(
                (one.source, one.case, one.row.text("model"), f"{written(one.row, 'global_batch_tokens')} tokens")
            ),
            plan=one.row.text("method"),
            measured=one.measured,
            predicted=one.predicted,
        )
        for one in judged
        if one.predicted is not None and one.case and one.quantity == PLAN_QUANTITY
    )


def grids(judged: Iterable[Judged]) -> dict[str, dict[str, Any]]:
    """The `ranking` block of the cells."""
    return ranking(cells(judged))


def pairs_right(judged: Iterable[Judged]) -> tuple[int, int]:
    """(pairs of systems of one cell put in the measured order, all such pairs)."""
    by_grid: dict[str, list[Candidate]] = {}
    for one in cells(judged):
        by_grid.setdefault(one.grid, []).append(one)
    pairs = [pair for found in by_grid.values() for pair in itertools.combinations(found, 2)]
    right = sum((a.measured < b.measured) == (a.predicted < b.predicted) for a, b in pairs)
    return right, len(pairs)


def on_grid(found: Iterable[Score]) -> dict[str, float]:
    """Of bandwidths from a table's grid: the share met exactly, and within one grid step; empty without any."""
    steps = [
        abs(grid_step(one.predicted) - grid_step(one.measured)) if not math.isclose(one.predicted, one.measured) else -1
        for one in found
        if one.quantity == GRID_QUANTITY
    ]
    if not steps:
        return {}
    return {
        "exact": float(np.mean([step < 0 for step in steps])),
        "within_step": float(np.mean([step <= 1 for step in steps])),
    }
