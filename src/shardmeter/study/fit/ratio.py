"""How far the measured ratio of two good plans of one question lies from the predicted one: what a planner can tell apart."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from shardmeter.study.fit.spread import Spread, weighted_quantiles
from shardmeter.study.intervals import LEVEL, OTHER, RATIO
from shardmeter.study.validate.ranking import LEAST
from shardmeter.study.validate.resolve import MappedRow
from shardmeter.study.validate.score import grid

NEAR = 0.15
"""Plans so much slower than the predicted best of their grid are still good ones."""


def ratio_spread(rows: Sequence[MappedRow], left_out: Mapping[str, float]) -> Spread:
    """The half-width that holds `LEVEL` of |log(measured ratio / predicted ratio)| of all pairs of good plans of measured grids,
    one vote a grid. `left_out`: id → seconds predicted without the source of the row. What two plans have in common, and what is
    wrong with it, cancels."""
    times: dict[str, dict[str, tuple[float, float]]] = {}
    for row in rows:
        named = grid(row)
        if named is not None and row.step_time is not None and row.id in left_out:
            times.setdefault(named[0], {})[named[1]] = row.step_time, left_out[row.id]
    errors: list[float] = []
    votes: list[float] = []
    told = 0
    for plans in times.values():
        best = min(predicted for _, predicted in plans.values())
        good = [one for one in plans.values() if one[1] <= (1.0 + NEAR) * best]
        pairs = list(itertools.combinations(good, 2)) if len(plans) >= LEAST else []
        errors += [abs(math.log((a[0] / b[0]) / (a[1] / b[1]))) for a, b in pairs]
        votes += [1.0 / len(pairs) for _ in pairs]
        told += bool(pairs)
    (half,) = weighted_quantiles(np.array(errors), np.array(votes), (LEVEL,))
    basis = (
        f"pairs of plans within {100 * NEAR:.0f} % of the predicted best of {told} measured grids, sources left out, "
        f"one vote a grid"
    )
    return Spread(stack=OTHER, quantity=RATIO, low=-half, high=half, rows=len(errors), basis=basis)
