"""Where something changes along one axis: exact places, each held by an evaluation on either side.

A grid says between which values; inside them a number with parts closes by secants, a whole number by the whole numbers between.
Every place that is sought asks for values, and all that are asked for are evaluated together.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np

from shardmeter.core.record import changed, record
from shardmeter.study.roots import closing
from shardmeter.study.transitions import regimes
from shardmeter.study.transitions.axes import Sought
from shardmeter.study.transitions.reading import Reader, Reading

REGIME, BALANCE, TENTH, FITS, PEAK = "regime", "balance", "tenth", "fits", "peak"
KINDS = {
    REGIME: "another regime takes most of the step",
    BALANCE: "communication, hidden and exposed, takes as long as compute",
    TENTH: "exposed communication takes a tenth of the step",
    FITS: "the plan fits into memory on one side only",
    PEAK: "throughput is highest",
}
"""What a crossing may be of."""
TENTH_SHARE = 0.1
TOLERANCE = 1e-6
"""Of the logarithm of a number, between the two sides of a crossing."""
PEAK_TOLERANCE = 1e-3
"""The same of a peak, where throughput is flat."""
AT_ONCE = 15
"""Whole numbers between two sides that are evaluated together; a peak's are as many of any numbers."""
MOST_LISTED = 512
"""Whole numbers between two sides of which all are tried before a side counts as the nearest legal one."""
RISE = 1e-6
"""Share by which a peak is above both ends of its range."""


@record
class Side:
    """One evaluated value beside a crossing."""

    value: float
    regime: str
    share: float
    """Of the step that this regime takes."""
    margin: float
    """What changes its sign between the two sides: seconds that the regime below is ahead, that communication is longer than compute,
    that exposed communication is above its tenth, share of memory that is left; of a peak, tokens a second."""
    fits: bool
    rate: float
    """Tokens a second."""


@record
class Crossing:
    """A place on an axis: `below` and `above` are the nearest values on either side of it that were evaluated."""

    kind: str
    value: float
    """SI: between the two sides; of whole numbers the first beyond it, as seen from the scenario's own value; of a peak, its place."""
    below: Side
    above: Side
    whole: bool


Asking: TypeAlias = Generator[list[float], list[tuple[float, Reading, int]], "list[Crossing]"]
"""Asks for values; is sent those that are legal, in order, each with the reading and its place there; returns what was found."""


def crossings(reader: Reader, sought: Sought, line: Reading) -> tuple[Crossing, ...]:
    """All crossings along an axis of numbers, of which `line` is a reading; in order of the axis, then of KINDS. None for names."""
    if sought.numbers is None:
        return ()
    order = np.argsort(sought.numbers, kind="stable")
    points = [(sought.numbers[at], line, int(at)) for at in order if line.legal[at]]
    hunts: list[Asking] = []
    for low, high in itertools.pairwise(points):
        hunts += [
            _hunt(kind, sought.whole, low, high, None) for kind in (BALANCE, TENTH, FITS) if _differ(kind, low, high)
        ]
        if _regime(low) != _regime(high):
            hunts.append(_hunt(REGIME, sought.whole, low, high, _regime(low)))
    hunts += _peaks(points, sought.whole)
    found = _run(reader, sought, hunts)
    kinds = list(KINDS)
    placed = [_as_seen(one, sought.own) for one in found]
    return tuple(sorted(placed, key=lambda one: (one.value, kinds.index(one.kind))))


def _run(reader: Reader, sought: Sought, hunts: Iterable[Asking]) -> list[Crossing]:
    """All hunts together, until none asks any more."""
    found: list[Crossing] = []
    waiting: list[tuple[Asking, list[float]]] = []

    def go(hunt: Asking, answer: list[tuple[float, Reading, int]] | None) -> None:
        try:
            waiting.append((hunt, next(hunt) if answer is None else hunt.send(answer)))
        except StopIteration as end:
            found.extend(end.value)

    for hunt in hunts:
        go(hunt, None)
    while waiting:
        asked, waiting = waiting, []
        values = sorted({value for _, some in asked for value in some})
        reading = reader.read([sought.at(values)])
        places = {value: at for at, value in enumerate(values)}
        for hunt, some in asked:
            legal = [(value, reading, places[value]) for value in some if reading.legal[places[value]]]
            go(hunt, legal)
    return found


Place: TypeAlias = tuple[float, Reading, int]


def _regime(place: Place) -> int:
    return int(place[1].ruling[place[2]])


def _margin(kind: str, place: Place, regime: int | None) -> float:
    _, reading, at = place
    if kind == REGIME:
        return float(reading.lead(-1 if regime is None else regime)[at])
    if kind == BALANCE:
        return float(reading.under_way[at] - reading.compute[at])
    if kind == TENTH:
        return float(reading.exposed[at] - TENTH_SHARE * reading.step[at])
    return float(reading.room[at] if kind == FITS else reading.rate[at])


def _positive(kind: str, margin: float) -> bool:
    """A plan that fills the memory to the last byte fits."""
    return margin >= 0.0 if kind == FITS else margin > 0.0


def _differ(kind: str, low: Place, high: Place) -> bool:
    return _positive(kind, _margin(kind, low, None)) != _positive(kind, _margin(kind, high, None))


def _side(kind: str, place: Place, regime: int | None) -> Side:
    value, reading, at = place
    own = _regime(place)
    return Side(
        value=value, regime=list(regimes.REGIMES)[own], share=float(reading.seconds[own, at] / reading.step[at]),
        margin=_margin(kind, place, regime), fits=bool(reading.room[at] >= 0.0), rate=float(reading.rate[at]),
    )  # fmt: skip


def _hunt(kind: str, whole: bool, low: Place, high: Place, regime: int | None) -> Asking:
    """Closes in on a change of sign between two places; of regimes, on every change of the one that rules."""
    close, found = _whole if whole else _parted, []
    while True:
        below, above = yield from close(kind, low, high, regime)
        found.append(_crossed(kind, below, above, regime, whole))
        if kind != REGIME or _regime(above) == _regime(high):
            return found
        low, regime = above, _regime(above)


def _crossed(kind: str, below: Place, above: Place, regime: int | None, whole: bool) -> Crossing:
    sides = _side(kind, below, regime), _side(kind, above, regime)
    middle = above[0] if whole else _middle(below[0], above[0])
    return Crossing(kind=kind, value=middle, below=sides[0], above=sides[1], whole=whole)


def _middle(low: float, high: float) -> float:
    return math.sqrt(low * high) if low > 0.0 else (low + high) / 2.0


Closed: TypeAlias = Generator[list[float], list[Place], tuple[Place, Place]]


def _parted(kind: str, low: Place, high: Place, regime: int | None) -> Closed:
    """Two places not further apart than TOLERANCE, by secants over the logarithm of the number where it has one."""
    there, back = _coordinates(low[0])
    margins = _margin(kind, low, regime), _margin(kind, high, regime)
    steps = closing(there(low[0]), there(high[0]), margins[0], margins[1], TOLERANCE * _unit(low[0], high[0]))
    try:
        guess = next(steps)
        while True:
            answer = yield [back(guess)]
            if not answer:  # between two legal values one that is not: what is known stays
                return low, high
            margin = _margin(kind, answer[0], regime)
            if _positive(kind, margin) == _positive(kind, margins[1]):
                high = answer[0]
            else:
                low = answer[0]
            guess = steps.send(margin)
    except StopIteration:
        return low, high


def _coordinates(least: float) -> tuple[Callable[[float], float], Callable[[float], float]]:
    """In which a bracket closes, and back."""
    return (math.log, math.exp) if least > 0.0 else (float, float)


def _unit(low: float, high: float) -> float:
    """What a tolerance is of: a logarithm, or a number that begins at zero."""
    return 1.0 if low > 0.0 else max(abs(low), abs(high))


def _whole(kind: str, low: Place, high: Place, regime: int | None) -> Closed:
    """Two legal whole numbers with no legal one between them, by whole numbers spread between; of equals the first change."""
    sign = _positive(kind, _margin(kind, low, regime))
    while high[0] - low[0] > 1.0:
        answer = yield _between(low[0], high[0], AT_ONCE)
        if not answer:
            answer = yield _between(low[0], high[0], MOST_LISTED)
        if not answer:
            break
        beyond = [one for one in answer if _positive(kind, _margin(kind, one, regime)) != sign]
        high = beyond[0] if beyond else high
        before = [one for one in answer if one[0] < high[0]]
        low = before[-1] if before else low
    return low, high


def _between(low: float, high: float, most: int) -> list[float]:
    """At most so many whole numbers between two, evenly spread."""
    count = int(high - low) - 1
    if count <= most:
        return [low + 1.0 + at for at in range(count)]
    return sorted({float(round(low + (high - low) * (at + 1) / (most + 1))) for at in range(most)} - {low, high})


# ---- peaks -----------------------------------------------------------------------------------------------------------------------


def _peaks(points: Sequence[Place], whole: bool) -> list[Asking]:
    """The hunt for the highest throughput among points that fit, where it is above both ends of the range."""
    rates = np.array([float(reading.rate[at]) if reading.room[at] >= 0.0 else -np.inf for _, reading, at in points])
    if len(rates) < 3 or not np.any(np.isfinite(rates)):
        return []
    best = int(np.argmax(rates))
    if best in (0, len(rates) - 1) or rates[best] <= max(rates[0], rates[-1], 0.0) * (1.0 + RISE):
        return []
    return [_peak(points[best - 1], points[best], points[best + 1], whole)]


def _peak(low: Place, best: Place, high: Place, whole: bool) -> Asking:
    """Closes in on a highest point between two others. Leaves out: several of them between neighbours of the grid."""
    there, back = _coordinates(low[0])

    def rate(place: Place) -> float:
        return float(place[1].rate[place[2]]) if place[1].room[place[2]] >= 0.0 else -math.inf

    while high[0] - low[0] > 2.0 if whole else there(high[0]) - there(low[0]) > PEAK_TOLERANCE * _unit(low[0], high[0]):
        if whole:
            asked = [one for one in _between(low[0], high[0], AT_ONCE) if one != best[0]]
        else:
            step = (there(high[0]) - there(low[0])) / (AT_ONCE + 1)
            asked = [back(there(low[0]) + step * (at + 1)) for at in range(AT_ONCE)]
        answer = (yield asked) if asked else []
        known = sorted([*answer, best], key=lambda one: one[0])
        places = [low, *known, high]
        at = max(range(1, len(places) - 1), key=lambda one: rate(places[one]))
        if not answer or (places[at - 1][0], places[at + 1][0]) == (low[0], high[0]):
            break
        low, best, high = places[at - 1], places[at], places[at + 1]
    sides = _side(PEAK, low, None), _side(PEAK, high, None)
    return [Crossing(kind=PEAK, value=best[0], below=sides[0], above=sides[1], whole=whole)]


def _as_seen(one: Crossing, own: Any) -> Crossing:
    """Of whole numbers the first beyond the crossing, as seen from the scenario's own."""
    if one.kind == PEAK or not one.whole or not isinstance(own, float) or own <= one.below.value:
        return one
    return changed(one, value=one.below.value)
