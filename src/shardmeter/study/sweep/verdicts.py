"""Columns that say whether points keep the run's deadline and its budget: what `predict` says of each alone, over arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from shardmeter.core.record import changed
from shardmeter.core.units import Number
from shardmeter.specs import Scenario
from shardmeter.study import intervals, trust
from shardmeter.study.course.ranges import Paces
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
        if most is None or spent is None or scenario is None or point.legs is None:
            return None
        crossed = np.broadcast_to(np.greater(scenario.plan.cp, 1.0), point.count)
        found = np.full(point.count, np.nan)
        for own in np.unique(crossed).tolist():  # the fits saw no context parallelism
            like = scenario if np.ndim(scenario.plan.cp) == 0 else _with(scenario, cp=2.0 if own else 1.0)
            ends = _ends(limit, point, scenario, trust.paces(like))
            if ends is not None:
                each = np.stack([point.wide(one) for one in (spent, *ends)])
                found = np.where(crossed == own, _chances(each, point.wide(most)), found)
        return found

    return chances


def _with(scenario: Scenario, *, cp: float) -> Scenario:
    return changed(scenario, plan=changed(scenario.plan, cp=cp))


def _ends(limit: str, point: Point, scenario: Scenario, paces: Paces | None) -> list[Any] | None:
    """Seconds or dollars of the run with all steps fast, and with all slow; None where no interval is known, or a run has no end."""
    if paces is None or point.legs is None:
        return None
    ends = [slowed(scenario, point.legs, *one) for one in paces]
    runs = [totals(scenario.run, legs) for legs in ends if legs is not None]
    return None if len(runs) < len(paces) else [one.seconds if limit == "deadline" else one.paid for one in runs]


def _chances(each: Floats, most: Floats) -> Floats:
    """The chance of every point; `each` has what it takes, and both ends."""
    known = np.all(np.isfinite(each), axis=0)
    rows = zip(most.tolist(), np.min(each, axis=0).tolist(), np.max(each, axis=0).tolist(), known.tolist(), strict=True)
    return np.array([intervals.probability_between(*row) if sure else np.nan for *row, sure in rows])


def _most(limit: str, point: Point) -> Number | None:
    """The limit that the run is held to, of several islands of all together."""
    most: Number | None = getattr(point.run if point.scenario is None else point.scenario.run, limit)
    return most
