"""Columns that say whether points keep the run's deadline and its budget: what `predict` says of each alone, over arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from shardmeter.core.units import Number
from shardmeter.study import intervals, trust
from shardmeter.study.course.totals import slowed, totals

if TYPE_CHECKING:
    from shardmeter.study.sweep.figures import Point

Floats = npt.NDArray[np.float64]
Spent = Callable[["Point"], Any]
"""Seconds or dollars of the runs of a point; NaN of those that do not end."""


def verdict(limit: str, used: Spent, of: Callable[[Number, Floats], Any]) -> Callable[[Point], Any]:
    """A figure of (limit, what is `used` of it); null where that limit is not asked, or the run has no end."""

    def found(point: Point) -> Any:
        most, spent = _most(limit, point), used(point)
        return None if most is None or spent is None else of(most, point.wide(spent))

    return found


def met(most: Number, spent: Floats) -> npt.NDArray[np.object_]:
    """Whether a limit is kept; None of a run that does not end, or has no known cost."""
    kept = np.less_equal(spent, most).astype(object)
    kept[np.isnan(spent)] = None
    return kept


def probability(limit: str, used: Spent) -> Callable[[Point], Any]:
    """How likely a limit is kept, by the run with all steps fast and all slow; null where no interval is known."""

    def chances(point: Point) -> Any:
        most, spent, scenario = _most(limit, point), used(point), point.scenario
        paces = None if scenario is None else trust.paces(scenario)
        if most is None or spent is None or scenario is None or point.legs is None or paces is None:
            return None
        ends = [slowed(scenario, point.legs, *one) for one in paces]
        runs = [totals(scenario.run, legs) for legs in ends if legs is not None]
        found = [one.seconds if limit == "deadline" else one.paid for one in runs]
        if len(found) < len(paces):
            return None
        each = np.stack([point.wide(one) for one in (spent, *found)])
        known = np.all(np.isfinite(each), axis=0)
        lows, highs, limits = np.min(each, axis=0), np.max(each, axis=0), point.wide(most)
        rows = zip(limits.tolist(), lows.tolist(), highs.tolist(), known.tolist(), strict=True)
        return np.array([intervals.probability_between(*row) if sure else np.nan for *row, sure in rows])

    return chances


def _most(limit: str, point: Point) -> Number | None:
    """The limit that the run is held to, of several islands of all together."""
    most: Number | None = getattr(point.run if point.scenario is None else point.scenario.run, limit)
    return most
