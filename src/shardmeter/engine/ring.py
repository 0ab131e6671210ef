"""Which way round a ring goes over unlike links: the order whose narrowest link is widest, of those the shortest.

Exact for few members (dynamic programming over subsets); for more, threshold by threshold, a tour that is improved by reversals,
with the bound that no order exceeds beside it (`bottleneck_bound`).
"""

from __future__ import annotations

import functools
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from shardmeter.core.units import BytesPerS

Matrix: TypeAlias = npt.NDArray[np.float64]
Indices: TypeAlias = npt.NDArray[np.intp]

EXACT = 12
"""Members up to which every order is weighed."""
THRESHOLDS = 8
"""Rates tried for longer rings where the widest that could be is not reached."""
MOVES = 150
"""Reversals tried to shorten a tour."""
FORBIDDEN = 1e6
"""Seconds that a link below the threshold counts as."""
TOLERANCE = 1e-9
"""Seconds that a reversal must gain."""


def ring_order(rates: Matrix, rtt: Matrix) -> tuple[int, ...]:
    """Order in which a ring passes the members: widest narrowest link, ties by the least total round trip.

    `rates` (B/s) and `rtt` (s) have the shape (members, members), from row to column; the diagonal is not read. Exact up to
    EXACT members; beyond, links count as their narrower direction. The order starts at any member; kept for equal matrices."""
    rates = np.ascontiguousarray(rates, dtype=float)
    rtt = np.ascontiguousarray(rtt, dtype=float)
    return _kept(rates.tobytes(), rtt.tobytes(), len(rates))


def bottleneck(rates: Matrix, order: tuple[int, ...]) -> BytesPerS:
    """The narrowest link of a ring in this order."""
    at = np.array(order)
    return float(rates[at, np.roll(at, -1)].min())


def bottleneck_bound(rates: Matrix) -> BytesPerS:
    """What the narrowest link of no order exceeds: every member needs a link in and one out, of different neighbours."""
    if len(rates) < 2:
        return np.inf
    if len(rates) == 2:
        return float(min(rates[0, 1], rates[1, 0]))
    inside = _without_diagonal(rates)
    single = min(inside.max(axis=1).min(), inside.max(axis=0).min())
    both = np.sort(np.maximum(inside, inside.T), axis=1)[:, -2].min()
    return float(min(single, both))


@functools.lru_cache(maxsize=256)
def _kept(rates: bytes, rtt: bytes, members: int) -> tuple[int, ...]:
    shape = (members, members)
    wide, long = np.frombuffer(rates).reshape(shape), np.frombuffer(rtt).reshape(shape)
    if members <= 2:
        return tuple(range(members))
    named = _canonical(wide, long)
    wide, long = wide[np.ix_(named, named)], long[np.ix_(named, named)]
    order = _exact(wide, long) if members <= EXACT else _improved(wide, long)
    return tuple(int(named[place]) for place in order)


def _canonical(rates: Matrix, rtt: Matrix) -> Indices:
    """An order of the members that does not depend on how they are numbered, unless they are alike."""
    keys = [np.sort(_without_diagonal(one, fill=0.0), axis=axis) for one in (rates, rtt) for axis in (0, 1)]
    rows = np.concatenate([keys[0].T, keys[1], keys[2].T, keys[3]], axis=1)
    return np.lexsort(rows.T[::-1])


def _without_diagonal(matrix: Matrix, fill: float = -np.inf) -> Matrix:
    copy = matrix.copy()
    np.fill_diagonal(copy, fill)
    return copy


# Few members: every order, by the best way to have passed a subset and stand at its last member.


def _exact(rates: Matrix, rtt: Matrix) -> list[int]:
    widest, _ = _best_paths(_without_diagonal(rates), np.minimum, np.maximum, -np.inf)
    closed = np.minimum(widest[-1], rates[1:, 0])
    allowed = np.where(rates >= closed.max(), rtt, np.inf)
    shortest, before = _best_paths(_without_diagonal(allowed, fill=np.inf), np.add, np.minimum, np.inf)
    last = int(np.argmin(shortest[-1] + allowed[1:, 0]))
    order, subset = [0], len(shortest) - 1
    while subset:
        order.insert(1, last + 1)
        subset, last = subset & ~(1 << last), int(before[subset, last])
    return order


def _best_paths(cost: Matrix, join: np.ufunc, better: np.ufunc, worst: float) -> tuple[Matrix, Indices]:
    """(subsets, last) → the best path from member 0 through the subset of the others, and the member before the last."""
    others = len(cost) - 1
    subsets = np.arange(1 << others)
    sizes = sum((subsets >> j) & 1 for j in range(others))
    best = np.full((1 << others, others), worst)
    before = np.zeros((1 << others, others), dtype=np.intp)
    best[1 << np.arange(others), np.arange(others)] = cost[0, 1:]
    choose = np.argmax if better is np.maximum else np.argmin
    for size in range(2, others + 1):
        layer = subsets[sizes == size]
        for j in range(others):
            having = layer[(layer >> j) & 1 == 1]
            ways = join(best[having & ~(1 << j)], cost[1:, j + 1])
            found = choose(ways, axis=1)
            before[having, j] = found
            best[having, j] = np.take_along_axis(ways, found[:, None], axis=1)[:, 0]
    return best, before


# Many members: thresholds from the bound down, a tour without forbidden links for each.


def _improved(rates: Matrix, rtt: Matrix) -> Indices:
    wide, long = np.minimum(rates, rates.T), (rtt + rtt.T) / 2.0
    steps = np.unique(wide[np.triu_indices(len(rates), 1)])
    high = int(np.searchsorted(steps, bottleneck_bound(wide)))
    tour = _reversed(_greedy(_cost(wide, long, steps[high])), _cost(wide, long, steps[high]), FORBIDDEN / 2.0)
    low = _narrowest(wide, tour, steps)
    for _ in range(THRESHOLDS):
        if low >= high:
            break
        middle = (low + high + 1) // 2
        candidate = _reversed(tour, _cost(wide, long, steps[middle]), FORBIDDEN / 2.0)
        reached = _narrowest(wide, candidate, steps)
        if reached > low:
            tour, low = candidate, reached
        if reached < middle:
            high = middle - 1
    return _better_direction(rates, rtt, _reversed(tour, _cost(wide, long, steps[low]), 0.0))


def _cost(rates: Matrix, rtt: Matrix, threshold: float) -> Matrix:
    cost = rtt + np.where(rates < threshold, FORBIDDEN, 0.0)
    np.fill_diagonal(cost, np.inf)
    return cost


def _narrowest(rates: Matrix, tour: Indices, steps: Matrix) -> int:
    """The place of a tour's narrowest link among the rates that there are."""
    return int(np.searchsorted(steps, rates[tour, np.roll(tour, -1)].min()))


def _greedy(cost: Matrix) -> Indices:
    """A tour from the member with the fewest links that count, always to the nearest that is left."""
    left = cost.copy()
    tour = np.empty(len(cost), dtype=np.intp)
    tour[0] = int(np.argmin((left < FORBIDDEN).sum(axis=1)))
    for place in range(1, len(cost)):
        left[:, tour[place - 1]] = np.inf
        tour[place] = int(np.argmin(left[tour[place - 1]]))
    return tour


def _reversed(tour: Indices, cost: Matrix, least: float) -> Indices:
    """The tour after reversals of parts, each the one that gains most, while one gains more than `least` (symmetric costs)."""
    tour, members = tour.copy(), len(tour)
    for _ in range(MOVES):
        tail = np.roll(tour, -1)
        here = cost[tour, tail]
        ordered = cost[tour][:, tour]
        after = np.roll(ordered, (-1, -1), (0, 1))
        gain = here[:, None] + here[None, :] - ordered - after
        best = int(np.argmax(gain))
        first, second = sorted(divmod(best, members))
        if gain[first, second] <= least + TOLERANCE:
            break
        tour[first + 1 : second + 1] = tour[first + 1 : second + 1][::-1]
    return tour


def _better_direction(rates: Matrix, rtt: Matrix, tour: Indices) -> Indices:
    def worth(way: Indices) -> tuple[float, float]:
        to = np.roll(way, -1)
        return float(rates[way, to].min()), -float(rtt[way, to].sum())

    return max((tour, tour[::-1]), key=worth)
