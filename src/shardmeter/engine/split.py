"""The global batch over unlike cells: whole micro-batches, so that the slowest cell is as fast as it can be."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from shardmeter.core.record import record


@record
class Share:
    """What a cell can take of a batch: `least` sequences, then any multiple of `unit`."""

    unit: float
    least: float
    start: float
    """Seconds of a step however few sequences it takes."""
    each: float
    """Seconds that every further sequence adds."""

    def lasts(self, sequences: float) -> float:
        """Seconds of a step of so many sequences."""
        return self.start + self.each * sequences


def by_speed(batch: float, shares: Sequence[Share]) -> tuple[float, ...] | None:
    """Sequences of every cell that add to the batch and make the longest step shortest; None if no whole units do.

    Exact where all units are equal: the next unit goes to whoever ends first with it. Where they are not, the best of all splits
    within some units of that one (`_evened`). Equal cells take equal parts, the earlier ones the rest."""
    given = [share.least for share in shares]
    left = batch - sum(given)
    if left < 0.0:
        return None
    _level(given, shares, left)
    left = batch - sum(given)
    queue = [(share.lasts(given[at] + share.unit), at) for at, share in enumerate(shares)]
    heapq.heapify(queue)
    while queue and left > 0.0:
        _, at = heapq.heappop(queue)
        unit = shares[at].unit
        if unit <= left:
            given[at], left = given[at] + unit, left - unit
            heapq.heappush(queue, (shares[at].lasts(given[at] + unit), at))
    if len({share.unit for share in shares}) == 1:
        return tuple(given) if left == 0.0 else None
    return _evened(given, left, shares)


def equally(batch: float, shares: Sequence[Share]) -> tuple[float, ...] | None:
    """The same number of sequences for every cell; None if that is no whole number of each one's units."""
    part = batch / len(shares)
    fits = all(part >= share.least and part % share.unit == 0.0 for share in shares)
    return (part,) * len(shares) if fits else None


def nearest(
    batch: float, shares: Sequence[Share], rule: Callable[[float, Sequence[Share]], tuple[float, ...] | None] = by_speed
) -> tuple[float, ...]:
    """Batches near one that cannot be split by a rule which can: the next below and the next above."""
    units, least = [int(share.unit) for share in shares], sum(share.least for share in shares)
    step = float(math.gcd(*units))
    start = least + math.floor((batch - least) / step) * step
    most = len(shares) * (math.lcm(*units) + max(share.least for share in shares))
    reach = range(int(most / step) + 1)
    ways = ((start - step * at for at in reach), (max(start + step, least) + step * at for at in reach))
    found = (next((one for one in way if rule(one, shares) is not None), None) for way in ways)
    return tuple(one for one in found if one is not None)


def _level(given: list[float], shares: Sequence[Share], left: float) -> None:
    """Bring every cell, in place, to just below the level at which all would end together: the bulk of a batch in one go."""
    units, start, each = (np.array([getattr(share, name) for share in shares]) for name in ("unit", "start", "each"))
    now = start + each * np.array(given)

    def room(level: float) -> npt.NDArray[np.float64]:
        """Whole units that each may still take to end by a level."""
        more: npt.NDArray[np.float64] = np.maximum(np.floor((level - now) / (each * units)), 0.0) * units
        return more

    low, high = 0.0, float(np.max(now + each * left))
    for _ in range(60):
        middle = (low + high) / 2.0
        if room(middle).sum() <= left:
            low = middle
        else:
            high = middle
    for at, more in enumerate(room(low)):
        given[at] += float(more)


def _evened(given: Sequence[float], left: float, shares: Sequence[Share]) -> tuple[float, ...] | None:
    """The split whose longest step is shortest among those that change what is given by so much that it comes out even: the best way
    to every sum of changes, cell after cell. Changes go as far as the units' common multiple or, where one unit divides all, the
    largest."""
    units = [int(share.unit) for share in shares]
    step, most = math.gcd(*units), max(units)
    span = min(math.lcm(*units) if min(units) > step else most, WINDOW * most) // step
    if left % step or left > span * step:
        return None
    best = np.full(2 * span + 1, np.inf)
    best[span] = 0.0
    picked = []
    for now, unit, share in zip(given, units, shares, strict=True):
        after, pick = np.full_like(best, np.inf), np.zeros(len(best), dtype=int)
        reach = span * step // unit
        for change in sorted(range(-min(reach, int((now - share.least) // unit)), reach + 1), key=abs):
            lasts = np.maximum(_moved(best, change * unit // step), share.lasts(now + change * unit))
            better = lasts < after
            after, pick = np.where(better, lasts, after), np.where(better, change, pick)
        best = after
        picked.append(pick)
    at = span + int(left) // step
    if not np.isfinite(best[at]):
        return None
    made = list(given)
    for number in reversed(range(len(made))):
        change = int(picked[number][at])
        made[number] += change * units[number]
        at -= change * units[number] // step
    return tuple(made)


WINDOW = 8
"""Largest units that a cell's part may change by to come out even."""


def _moved(values: npt.NDArray[np.float64], by: int) -> npt.NDArray[np.float64]:
    """Values a number of places further on; infinite where none came from."""
    moved = np.full_like(values, np.inf)
    if by >= 0:
        moved[by:] = values[: len(values) - by]
    else:
        moved[:by] = values[-by:]
    return moved
