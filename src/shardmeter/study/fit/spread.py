"""How far one future run may lie from its prediction: quantiles of log(measured / predicted) on rows the fit had not seen.

A stack with at least `MANY` rows gets its own quantiles, from five folds of its rows; a smaller fitted stack shares the
pooled folds of all stacks; any other stack gets the residuals of whole sources left out. Memory has no fitted number, so
its residuals are out of fold as they stand. Leaves out: widening outside the range of the data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from shardmeter.core.record import changed, record
from shardmeter.study.fit.batch import Floats, batches, step_times
from shardmeter.study.fit.leave_out import FitRow, fit_rows
from shardmeter.study.intervals import FITTED, LEVEL, OTHER

MANY = 40
FOLDS = 5


@record
class Spread:
    """A central `LEVEL` interval of log(measured / predicted), and what it rests on."""

    stack: str
    quantity: str
    low: float
    high: float
    rows: int
    basis: str


def out_of_fold(rows: Sequence[FitRow]) -> Floats:
    """log(measured / predicted) of every row, predicted by a fit of its stack without its fold. Seeded."""
    order = np.random.default_rng(0).permutation(len(rows))
    residuals = np.empty(len(rows))
    start = (fit_rows(rows).numbers["launch_overhead"],)
    for fold in range(FOLDS):
        held = [int(i) for i in order[fold::FOLDS]]
        seen = [rows[int(i)] for i in order if int(i) not in set(held)]
        numbers = fit_rows(seen, starts=start).numbers
        told = [changed(rows[i].scenario, stack=changed(rows[i].scenario.stack, **numbers)) for i in held]
        predicted = step_times(batches(told), len(told))
        residuals[held] = np.log(np.array([rows[i].step_time for i in held]) / predicted)
    return residuals


def spread(stack: str, quantity: str, residuals: Floats, weights: Floats, basis: str) -> Spread:
    """The weighted central interval of `residuals`."""
    low, high = weighted_quantiles(residuals, weights, ((1.0 - LEVEL) / 2.0, (1.0 + LEVEL) / 2.0))
    return Spread(stack=stack, quantity=quantity, low=low, high=high, rows=len(residuals), basis=basis)


def weighted_quantiles(values: Floats, weights: Floats, at: Sequence[float]) -> tuple[float, ...]:
    """Quantiles of a weighted sample, between the sample's points by linear interpolation."""
    order = np.argsort(values)
    heights = np.cumsum(weights[order]) - 0.5 * weights[order]
    return tuple(float(np.interp(q * weights.sum(), heights, values[order])) for q in at)


def step_time_spreads(rows: Sequence[FitRow], left_out: Mapping[str, float]) -> list[Spread]:
    """The spreads of step time: per large stack, for small fitted ones, and for any other. `left_out`: id → prediction."""
    by_stack: dict[str, list[FitRow]] = {}
    for row in rows:
        by_stack.setdefault(row.stack, []).append(row)
    folds = {stack: out_of_fold(some) for stack, some in by_stack.items() if len(some) >= MANY}
    found = [
        spread(stack, "step_time", residuals, np.ones(len(residuals)), f"{FOLDS} folds of the stack's rows")
        for stack, residuals in folds.items()
    ]
    pooled = np.concatenate(list(folds.values()))
    votes = np.concatenate([np.full(len(r), 1.0 / len(r)) for r in folds.values()])
    found.append(spread(FITTED, "step_time", pooled, votes, "folds of all larger stacks, one vote each"))
    errors = np.array([np.log(row.step_time / left_out[row.id]) for row in rows])
    found.append(
        spread(
            OTHER, "step_time", errors, source_votes([r.source for r in rows]), "whole sources left out, one vote each"
        )
    )
    return found


def source_votes(sources: Sequence[str]) -> Floats:
    """Weights that give every source one vote, however many rows it has."""
    count = {source: sources.count(source) for source in set(sources)}
    return np.array([1.0 / count[source] for source in sources])
