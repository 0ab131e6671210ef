"""The global batch over unlike cells: whole micro-batches, so that the slowest cell is as fast as it can be."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence

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

    Exact where all units are equal (the next unit goes to whoever ends first with it); where they are not, the same with the
    largest units first, and what is then left given to those whose unit fits it. Equal cells take equal parts, the earlier ones
    the rest."""
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
    return tuple(given) if left == 0.0 else _repaired(given, left, shares)


def equally(batch: float, shares: Sequence[Share]) -> tuple[float, ...] | None:
    """The same number of sequences for every cell; None if that is no whole number of each one's units."""
    part = batch / len(shares)
    fits = all(part >= share.least and part % share.unit == 0.0 for share in shares)
    return (part,) * len(shares) if fits else None


def nearest(batch: float, shares: Sequence[Share]) -> tuple[float, ...]:
    """Batches near one that cannot be split which can."""
    least = sum(share.least for share in shares)
    unit = min(share.unit for share in shares)
    below = least + math.floor(max(batch - least, 0.0) / unit) * unit
    return tuple(sorted({one for one in (below, below + unit) if one >= least}))


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


def _repaired(given: list[float], left: float, shares: Sequence[Share]) -> tuple[float, ...] | None:
    """What is left over given by taking units back from one cell to fill another's: of the exchanges that come out even, the one
    after which the taker ends first, the smallest of these."""
    unit, least, start, each = (
        np.array([getattr(share, name) for share in shares]) for name in ("unit", "least", "start", "each")
    )
    had = np.array(given)
    rounds = unit[None, :] / np.gcd(unit.astype(int)[:, None], unit.astype(int)[None, :])
    apart = ~np.eye(len(given), dtype=bool)
    best: tuple[float, float, int, int] | None = None
    for back in range(1, int(rounds.max()) + 1):
        freed = left + back * unit[:, None]
        even = apart & (back <= rounds) & (freed % unit[None, :] == 0.0) & (had - back * unit >= least)[:, None]
        ends = np.where(even, start + each * (had + freed), np.inf)
        giver, taker = np.unravel_index(int(np.argmin(ends)), ends.shape)
        found = float(ends[giver, taker]), float(back), int(giver), int(taker)
        best = found if np.isfinite(found[0]) and (best is None or found < best) else best
    if best is None:
        return None
    _, times, source, target = best
    given[source] -= times * shares[source].unit
    given[target] += left + times * shares[source].unit
    return tuple(given)
