"""The global batch over unlike cells: whole micro-batches, so that the slowest cell is as fast as it can be."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from shardmeter.core.record import record
from shardmeter.core.sums import plain_sum
from shardmeter.engine.rules import divisors

Units: TypeAlias = tuple[float, float]
"""(sequences that a cell takes more at a time, the least that it takes)."""
ROUNDING = 0.05
"""How far a batch said in tokens may be moved so that it divides among the GPUs."""


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


def in_sequences(tokens: float, seq_len: float, gpus: float) -> float:
    """So many tokens as whole sequences: of the numbers within 5 %, the nearest of those that most divisors of the GPUs divide."""
    wanted = tokens / seq_len
    best = max(1.0, math.floor(wanted + 0.5))
    shared = 0
    for step in divisors(gpus):
        near = math.floor(wanted / step + 0.5) * step
        if near >= 1.0 and abs(near - wanted) <= ROUNDING * wanted:
            count = sum(1 for one in divisors(gpus) if near % one == 0.0)
            if (count, -abs(near - wanted)) > (shared, -abs(best - wanted)):
                best, shared = near, count
    return best


def by_speed(batch: float, shares: Sequence[Share]) -> tuple[float, ...] | None:
    """Sequences of every cell that add to the batch and make the longest step shortest; None if no whole units do.

    Exact where all units are equal: the next unit goes to whoever ends first with it. Where they are not, the best of all splits
    within some units of that one (`_evened`). Equal cells take equal parts, the earlier ones the rest."""
    given = [share.least for share in shares]
    left = batch - plain_sum(given)
    if left < 0.0:
        return None
    _level(given, shares, left)
    left = batch - plain_sum(given)
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
    return _evened(given, left, shares) or _anyhow(batch, shares)


def equally(batch: float, shares: Sequence[Share]) -> tuple[float, ...] | None:
    """The same number of sequences for every cell; None if that is no whole number of each one's units."""
    part = batch / len(shares)
    fits = all(part >= share.least and part % share.unit == 0.0 for share in shares)
    return (part,) * len(shares) if fits else None


def nearest(batch: float, units: Sequence[Units], rule: str = "speed") -> tuple[float, ...]:
    """The largest batch below one that can be split and the smallest above it; the batch alone where it can be split itself.

    `units` are (unit, least) of every cell. Where parts may differ, a batch can be split if what is left of it after every
    cell's least is a sum of units: from some size on every multiple of what divides all of them is."""
    if rule == "equal":
        step = float(math.lcm(*(max(int(unit), 1) for unit, _ in units))) * len(units)
        floor = math.ceil(max(least for _, least in units) * len(units) / step) * step
        below, above = math.floor(batch / step) * step, math.ceil(batch / step) * step
        return tuple(sorted({below, max(above, floor)} if below >= floor else {max(above, floor)}))
    fewest = plain_sum(least for _, least in units)
    left = batch - fewest
    if left < 0.0:
        return (fewest,)
    sums, modulus = _sums(sorted({max(int(unit), 1) for unit, _ in units}))
    classes = np.arange(len(sums))
    scale = modulus / len(sums)
    rest = left / scale
    smaller = np.where(sums <= rest, rest - (rest - classes) % len(sums), -np.inf)
    larger = np.maximum(sums, rest + (classes - rest) % len(sums))
    return tuple(sorted({fewest + float(smaller.max()) * scale, fewest + float(larger.min()) * scale}))


def _sums(units: Sequence[int]) -> tuple[npt.NDArray[np.float64], int]:
    """(over the residues of the smallest unit, all divided by what divides every unit: the least sum of units that has the residue;
    the smallest unit). Each further unit goes round the cycles that it makes of the residues, twice."""
    common, modulus = math.gcd(*units), units[0]
    size = modulus // common
    sums = [0.0, *(math.inf,) * (size - 1)]
    for unit in (one // common for one in units[1:]):
        for first in range(math.gcd(unit, size)):
            at = first
            for _ in range(2 * size // math.gcd(unit, size)):
                after = (at + unit) % size
                sums[after] = min(sums[after], sums[at] + unit)
                at = after
    return np.array(sums), modulus


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


def _anyhow(batch: float, shares: Sequence[Share]) -> tuple[float, ...] | None:
    """Some split, where units are so unlike that exchanges between two cells find none: the largest unit given up one by one until
    what is left can be split among the others."""
    left = batch - plain_sum(share.least for share in shares)
    order = sorted(range(len(shares)), key=lambda at: -shares[at].unit)
    given = [share.least for share in shares]
    for place, at in enumerate(order):
        others = [(shares[other].unit, 0.0) for other in order[place + 1 :]]
        if not others:
            given[at] += left
            return tuple(given) if left % shares[at].unit == 0.0 else None
        count = next(
            (n for n in range(int(left // shares[at].unit) + 1)
             if left - n * shares[at].unit in nearest(left - n * shares[at].unit, others)), None
        )  # fmt: skip
        if count is None:
            return None
        given[at], left = given[at] + count * shares[at].unit, left - count * shares[at].unit
    return None


def _evened(given: Sequence[float], left: float, shares: Sequence[Share]) -> tuple[float, ...] | None:
    """The split whose longest step is shortest among those that change what is given by so much that it comes out even; of several
    the one whose steps are most alike (the least sum of their squares), whichever cell comes first. Changes go as far as the units'
    common multiple or, where one unit divides all, the largest."""
    units = [int(share.unit) for share in shares]
    step, most = math.gcd(*units), max(units)
    span = min(math.lcm(*units) if min(units) > step else most, WINDOW * most) // step
    if left % step or left > span * step:
        return None
    longest = _ways(given, left, shares, step, span, np.maximum, math.inf)
    if longest is None:
        return None
    limit = max(share.lasts(part) for share, part in zip(shares, longest, strict=True)) * (1.0 + SAME)
    return _ways(given, left, shares, step, span, lambda sums, lasts: sums + lasts * lasts, limit)


def _ways(
    given: Sequence[float], left: float, shares: Sequence[Share], step: int, span: int,
    join: Callable[[npt.NDArray[np.float64], float], npt.NDArray[np.float64]], limit: float,
) -> tuple[float, ...] | None:  # fmt: skip
    """The best way to every sum of changes, cell after cell, `join` telling what a cell's step adds to those before it; none longer
    than the limit. Changes are counted in `step`, as far as `span`."""
    size = 2 * span + 1
    best = np.full(size, np.inf)
    best[span] = 0.0
    picked = []
    for now, share in zip(given, shares, strict=True):
        unit = int(share.unit)
        after, pick = np.full_like(best, np.inf), np.zeros(size, dtype=int)
        reach = span * step // unit
        for change in sorted(range(-min(reach, int((now - share.least) // unit)), reach + 1), key=abs):
            lasts = share.lasts(now + change * unit)
            if lasts > limit:
                continue
            by = change * unit // step
            to = slice(max(by, 0), size + min(by, 0))
            joined = join(best[max(-by, 0) : size - max(by, 0)], lasts)
            better = joined < after[to]
            np.copyto(after[to], joined, where=better)
            np.copyto(pick[to], change, where=better)
        best = after
        picked.append(pick)
    at = span + int(left) // step
    if not np.isfinite(best[at]):
        return None
    made = list(given)
    for number in reversed(range(len(made))):
        change, unit = int(picked[number][at]), int(shares[number].unit)
        made[number] += change * unit
        at -= change * unit // step
    return tuple(made)


SAME = 1e-12
"""Share by which two steps may differ and still be the same."""
WINDOW = 8
"""Largest units that a cell's part may change by to come out even."""
