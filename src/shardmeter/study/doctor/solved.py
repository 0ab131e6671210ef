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
CLOSE, CLOSE_END = 1e-3, 1e-2
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
    roots = _narrowed(curves, places, brackets) if together else _one_by_one(curves, places, values)
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


def _one_by_one(curves: Curves, places: Array, values: Array) -> list[float | None]:
    """The zeros of the rows, the middle one first: what is evaluated for one row narrows the brackets of the others."""
    known = {float(place): values[:, at] for at, place in enumerate(places)}

    def rows(place: float) -> Array:
        if place not in known:
            known[place] = curves(np.array([place]))[:, 0]
        return known[place]

    found: list[float | None] = [None, None, None]
    for row in (1, 0, 2):
        tried = sorted(known)
        signs = [known[place][row] > 0.0 for place in tried]
        bracket = next((at for at in range(len(tried) - 1) if signs[at] != signs[at + 1]), None)
        if bracket is not None:
            low, high = tried[bracket], tried[bracket + 1]

            def error(place: float, row: int = row) -> float:
                return float(rows(place)[row])

            found[row] = zero(error, low, high, error(low), error(high), CLOSE if row == 1 else CLOSE_END)
    return found
