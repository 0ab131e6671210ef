"""The knee: where more of an axis begins to buy less than half of what it bought so far.

The rule. On an axis x with the rate R(x), going on to x′ buys (R(x′) - R(x)) / (x′ - x) a unit; what is there bought R(x) / x a unit on
average. The knee is the first x from which no step ahead buys HALF of that average: of a size not the next legal one, nor those 2, 4, 8 …
units further up to twice the size, beyond the last point too, nor where the rate jumps between these, nor a further point of the curve
(rates of sizes go in stairs, where a batch is no multiple of the machines: a flat stretch is no knee); of a number not a hair more (NUDGE). On a smooth curve that is where its slope on log-log paper falls under 1/2.

Why half: there doubling x gives less than 1.41 times the rate, and a token takes over 1.41 times as many accelerators. The rule has no
unit and needs no largest x (as the distance to a chord does); it is the same for sizes and for bandwidths, and every slope is two
predictions: nothing is fitted."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence

from shardmeter.core.record import record
from shardmeter.core.sums import plain_sum

HALF = 0.5
"""Of the average: what a unit beyond the knee buys less than."""
NOTHING = 1e-3
"""A rate that changes by less over a whole axis does not depend on it: there is no knee."""
NUDGE = 1e-4
"""Relative step by which the slope along a number is taken."""
CLOSE = 1e-6
"""Relative width of the bracket in which the knee along a number is found."""
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

    `following` finds the next legal size; a slope needs one, so that the last point is past the knee only where a size follows it. None
    where no point is past the knee."""

    def past(place: float) -> tuple[float, float] | None:
        """(place, slope) of the best step ahead where the rule holds; None where it does not, or nothing follows."""
        known = [one for one in points if one > place]
        best: tuple[float, float] | None = None
        for one in itertools.chain(known, _ahead(rate, x, following, place, points[-1])):
            here = slope(rate, x, place, one)
            if here >= HALF:
                return None
            best = (one, here) if best is None or here > best[1] else best
        return best

    low: float | None = None
    for place in points:
        if (found := past(place)) is None:
            low = place
            continue
        if low is None:
            return Knee(place=place, of_average=found[1], next_place=found[0], before=None, at_start=True)
        high, best = place, found
        while (middle := _between(rate, following, low, high)) is not None:
            if (here := past(middle)) is None:
                low = middle
            else:
                high, best = middle, here
        return Knee(place=high, of_average=best[1], next_place=best[0], before=low)
    return None


def _ahead(rate: Rate, x: Callable[[float], float], following: Next, place: float, last: float) -> Iterator[float]:
    """The legal sizes that are looked at beyond one: the first (which may be beyond twice the size, up to `last`), and the first ones that
    are 2, 4, 8 … units further, up to twice the size; between two of them where the rate jumps, if a step to there could buy HALF."""
    before = following(place, max(last, 2.0 * place))
    if before is None:
        return
    yield before
    units = 2.0
    while units <= place:
        further = following(max(place + units - 1.0, before), 2.0 * place)
        if further is None:
            return
        yield further
        nearest = x(before) - x(place)
        if nearest > 0.0 and slope(rate, x, place, further) * (x(further) - x(place)) >= HALF * nearest:
            yield _jump(rate, following, before, further)
        before, units = further, 2.0 * units


def _jump(rate: Rate, following: Next, low: float, high: float) -> float:
    """The legal size between two from which on most of what the rate rises between them is there."""
    ends = rate(low), rate(high)
    half = plain_sum(one or 0.0 for one in ends) / 2.0
    while (middle := _between(rate, following, low, high)) is not None:
        if (rate(middle) or 0.0) >= half:
            high = middle
        else:
            low = middle
    return high


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
