"""What value of a number makes the prediction equal what was measured: over arrays where that is one island, by roots elsewhere."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from shardmeter.core.record import record
from shardmeter.study.doctor.cause import Numeric
from shardmeter.study.doctor.measured import Measured, Spread
from shardmeter.study.doctor.world import World
from shardmeter.study.roots import zero

Array: TypeAlias = npt.NDArray[np.float64]
Curves: TypeAlias = Callable[[Array], Array]
"""Places on the axis of a number → logarithm of prediction over measured: rows are the low end, the prediction, the high end."""
PLACES, ENDS, WITHIN = 33, 2, 17
"""Places at which a number is tried at first: over arrays, or one by one; and between two of them."""
ROUNDS = 2
STEP = math.log(2.0)
"""How far from what is said the first step goes."""
CLOSE, CLOSE_END = 3e-3, 2e-2
"""Of the logarithm of a value that is found one by one, and of the ends of its interval."""


@record
class Solution:
    """The value at which the prediction is what was measured, and those at which the ends of its interval are."""

    value: float
    low: float
    high: float
    exact: bool
    """Whether the prediction itself gets there; else `value` is where an end of its interval does, or where it comes nearest."""
    reaches: bool
    """Whether any of its 90 % gets there."""


def solved(cause: Numeric, measured: Measured, spread: Spread, base: World) -> Solution:
    """The value nearest to what is said. What cannot move the figure at all comes out as it is said."""
    axis = _axis(cause, base)
    together = len(base.scenario.fleet.islands) == 1
    curves = _curves(cause, measured, spread, axis, together=together)
    places = axis.places(PLACES if together else ENDS)
    values = curves(places)
    home = int(np.argmin(np.abs(places - axis.home)))
    brackets = [_bracket(row, home) for row in values]
    roots = _narrowed(curves, places, brackets) if together else _outward(curves, places, values, axis.home)
    middle = roots[1]
    nearest = float(places[int(np.argmin(np.abs(values[1])))])
    reached = [one for one in roots if one is not None]
    if middle is None:
        middle = min(reached, key=lambda one: abs(one - axis.home)) if reached else nearest
    ends = [axis.value(one) for one in (*reached, middle)]
    return Solution(
        value=axis.value(middle), low=min(ends), high=max(ends), exact=roots[1] is not None, reaches=bool(reached)
    )  # fmt: skip


@record
class Axis:
    """A number on a scale on which it is searched: its logarithm, or log(1 + it/unit) where none of it is said."""

    unit: float
    least: float
    most: float
    home: float

    def places(self, count: int) -> Array:
        """Evenly over the axis, with what is said among them."""
        return np.unique(np.append(np.linspace(self.least, self.most, count), self.home))

    def value(self, place: float) -> float:
        """Of a place."""
        return float(self.values(np.array(place)))

    def values(self, places: Array) -> Array:
        """Of several."""
        return np.exp(places) if self.unit == 0.0 else np.expm1(places) * self.unit


def _axis(cause: Numeric, base: World) -> Axis:
    if cause.least > 0.0:
        least, most, home = (math.log(one) for one in (cause.least, cause.most, cause.said))
        return Axis(unit=0.0, least=least, most=max(most, home), home=home)
    unit = float(base.step) if cause.unit == "s" else 1.0
    return Axis(unit=unit, least=0.0, most=math.log1p(cause.most / unit), home=math.log1p(cause.said / unit))


def _curves(cause: Numeric, measured: Measured, spread: Spread, axis: Axis, *, together: bool) -> Curves:
    def at(places: Array) -> Array:
        made = cause.at(axis.values(places))
        low, high = measured.ends(made, spread)
        rows = [np.broadcast_to(np.asarray(row, dtype=float), places.shape) for row in (low, measured.of(made), high)]
        return np.log(np.stack(rows) / measured.value)

    def each(places: Array) -> Array:
        columns = []
        for place in places.tolist():
            made = cause.at(axis.value(place))
            low, high = measured.ends(made, spread)
            columns.append([math.log(float(one) / measured.value) for one in (low, measured.of(made), high)])
        return np.array(columns).T

    return at if together else each


def _bracket(row: Array, home: int) -> int | None:
    """The place before the change of sign that is nearest to what is said; None where there is none."""
    changes = np.flatnonzero((row[:-1] > 0.0) != (row[1:] > 0.0))
    return None if changes.size == 0 else int(changes[np.argmin(np.abs(changes + 0.5 - home))])


def _narrowed(curves: Curves, places: Array, brackets: Sequence[int | None]) -> list[float | None]:
    """The zeros of the rows, all brackets narrowed in the same evaluations."""
    spans = {row: (places[at], places[at + 1]) for row, at in enumerate(brackets) if at is not None}
    found: list[float | None] = [None] * len(brackets)
    for _ in range(ROUNDS if spans else 0):
        tried = {row: np.linspace(*ends, WITHIN) for row, ends in spans.items()}
        values = curves(np.concatenate(list(tried.values())))
        for place, (row, own) in enumerate(tried.items()):
            line = values[row, place * WITHIN : (place + 1) * WITHIN]
            at = _bracket(line, WITHIN // 2)
            if at is None:  # pragma: no cover  (the ends have unlike signs)
                continue
            left, right = line[at], line[at + 1]
            found[row] = float(own[at] + (own[at + 1] - own[at]) * left / (left - right))
            spans[row] = (own[at], own[at + 1])
    return found


def _outward(curves: Curves, places: Array, values: Array, home: float) -> list[float | None]:
    """The zeros of the rows, the middle one first: what is evaluated for one row narrows the brackets of the others. From what is said
    the search goes outward in steps that double, to the end at which any row has another sign."""
    known = {float(place): values[:, at] for at, place in enumerate(places)}

    def rows(place: float) -> Array:
        if place not in known:
            known[place] = curves(np.array([place]))[:, 0]
        return known[place]

    signs = rows(home) > 0.0
    end = next((float(place) for place in places if np.any((rows(float(place)) > 0.0) != signs)), None)
    if end is None:
        return [None, None, None]
    step = math.copysign(STEP, end - home)
    while abs(step) < abs(end - home) and (rows(home + step)[1] > 0.0) == signs[1]:
        step *= 3.0
    middle = _row_zero(rows, known, 1)
    return [_row_zero(rows, known, 0), middle, _row_zero(rows, known, 2)]


def _row_zero(rows: Callable[[float], Array], known: dict[float, Array], row: int) -> float | None:
    """Where one row changes its sign, between the places that are known."""
    tried = sorted(known)
    signs = [known[place][row] > 0.0 for place in tried]
    at = next((at for at in range(len(tried) - 1) if signs[at] != signs[at + 1]), None)
    if at is None:
        return None

    def error(place: float) -> float:
        return float(rows(place)[row])

    close = CLOSE if row == 1 else CLOSE_END
    return zero(error, tried[at], tried[at + 1], error(tried[at]), error(tried[at + 1]), close)
