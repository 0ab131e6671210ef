"""The knee: where more of an axis begins to buy less than half of what it bought so far.

The rule. On an axis x with the rate R(x), the next unit buys (R(x′) - R(x)) / (x′ - x); what is there bought R(x) / x on average. The knee
is the first x at which the next unit buys less than HALF of that average: the slope of the curve on log-log paper falls under 1/2. Why
half: there doubling x gives less than 1.41 times the rate, and a token costs over 1.41 times as many accelerators; the rule has no unit,
needs no largest x (as the distance to a chord does), and holds for sizes and for bandwidths alike. Sizes go from one legal size to the
next legal one, numbers by a hair (NUDGE), so that every slope is two predictions and nothing is fitted."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from shardmeter.core.record import record

HALF = 0.5
"""Of the average: what a unit beyond the knee buys less than."""
NUDGE = 1e-4
"""Relative step by which the slope along a number is taken."""
CLOSE = 1e-6
"""Relative width of the bracket in which the knee along a number is found."""
MOST_BEYOND = 8.0
"""Units beyond the last point in which the next legal size is looked for."""

Rate = Callable[[float], float | None]
"""Tokens a second at a place; None where nothing can run."""
Next = Callable[[float, float], float | None]
"""The next place beyond one, not beyond another, where something can run."""


@record
class Knee:
    """A place, what its next unit buys over the average so far, and the last place known to lie before it; `at_start`: the rule holds
    at the first point already, so that the knee lies there or before it."""

    place: float
    of_average: float
    next_place: float
    before: float | None
    at_start: bool = False


def slope(rate: Rate, x: Callable[[float], float], place: float, further: float) -> float:
    """What one more of x buys between two places, over what x bought on average up to the first."""
    low, high = rate(place), rate(further)
    if low is None or high is None:  # pragma: no cover  (asked where something runs)
        raise AssertionError
    return (high - low) / (x(further) - x(place)) / (low / x(place))


def knee_of_sizes(rate: Rate, x: Callable[[float], float], following: Next, points: Sequence[float]) -> Knee | None:
    """The knee among whole units: of the points the first that is past it, then by halving between that and the one before.

    `following` finds the next legal size; a slope needs one. None where no point is past the knee."""

    def past(place: float, until: float) -> tuple[float, float] | None:
        """(next place, slope) where the rule holds; None where it does not, or nothing follows."""
        further = following(place, until)
        found = None if further is None else slope(rate, x, place, further)
        return (further, found) if further is not None and found is not None and found < HALF else None

    low: float | None = None
    for at, place in enumerate(points):
        until = points[at + 1] if at + 1 < len(points) else place + MOST_BEYOND
        if (found := past(place, until)) is None:
            low = place
            continue
        if low is None:
            return Knee(place=place, of_average=found[1], next_place=found[0], before=None, at_start=True)
        high, best = place, found
        while (middle := _between(rate, following, low, high)) is not None:
            if (here := past(middle, high)) is None:
                low = middle
            else:
                high, best = middle, here
        return Knee(place=high, of_average=best[1], next_place=best[0], before=low)
    return None


def _between(rate: Rate, following: Next, low: float, high: float) -> float | None:
    """A legal size near the middle of two, or None where there is none between them."""
    middle = math.floor((low + high) / 2.0)
    found = following(max(middle - 1.0, low), high - 1.0)
    if found is None and middle - 1.0 > low:
        return next((at for at in _down(middle - 1.0, low) if rate(at) is not None), None)
    return found


def _down(first: float, last: float) -> list[float]:
    return [first - step for step in range(int(first - last))]


def knee_of_number(rate: Rate, points: Sequence[float]) -> Knee | None:
    """The knee along a number: the first point that is past it, then by halving of the logarithm until the bracket is CLOSE."""

    def past(place: float) -> float | None:
        low, high = rate(place), rate(place * (1.0 + NUDGE))
        found = None if low is None or high is None else math.log(high / low) / math.log1p(NUDGE)
        return found if found is not None and found < HALF else None

    low: float | None = None
    for place in points:
        if (found := past(place)) is None:
            low = place
            continue
        if low is None:
            return Knee(place=place, of_average=found, next_place=place * (1.0 + NUDGE), before=None, at_start=True)
        high = place
        while high / low - 1.0 > CLOSE:
            middle = math.sqrt(low * high)
            here = past(middle)
            if here is None:
                low = middle
            else:
                high, found = middle, here
        return Knee(place=high, of_average=found, next_place=high * (1.0 + NUDGE), before=low)
    return None
