"""Which way round a ring goes over unlike links: by the widest narrowest link, by the least way round, or in between.

What a ring takes falls with its narrowest link and grows with its way round, so the best order is one that no other beats in both:
the front. Every order is weighed for few members, every subset for some more (dynamic programming, at some thresholds); beyond,
tours are improved by reversals, with the bound that no order exceeds beside them (`bottleneck_bound`).
"""

from __future__ import annotations

import functools
import itertools
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from shardmeter.core.record import record
from shardmeter.core.sums import plain_sum
from shardmeter.core.units import BytesPerS, Seconds

Matrix: TypeAlias = npt.NDArray[np.float64]
Indices: TypeAlias = npt.NDArray[np.intp]

EVERY = 8
"""Members up to which every order is weighed."""
EXACT = 12
"""Members up to which the widest and the shortest order are exact."""
BETWEEN = 2
"""Thresholds between the widest order and the shortest at which the shortest is sought, beyond EVERY members."""
THRESHOLDS = 8
"""Rates tried for the widest order, beyond EXACT members."""
MOVES = 150
"""Reversals tried to shorten a tour."""
FORBIDDEN = 1e6
"""Seconds that a link below the threshold counts as."""
TOLERANCE = 1e-9
"""Seconds that a reversal must gain."""


@record
class Ring:
    """One order of a ring."""

    order: tuple[int, ...]
    narrowest: BytesPerS
    """Of its links."""
    rtt: Seconds
    """Sum of the round trips of its links."""


def ring_order(rates: Matrix, rtt: Matrix) -> tuple[int, ...]:
    """The order whose narrowest link is widest; ties by the least total round trip. Arguments as of `ring_front`."""
    return ring_front(rates, rtt)[0].order


def ring_front(rates: Matrix, rtt: Matrix) -> tuple[Ring, ...]:
    """The orders that no other beats in both narrowest link and way round, the widest first.

    `rates` (B/s) and `rtt` (s) have the shape (members, members), from row to column; the diagonal is not read. Beyond EXACT
    members, links count as their narrower direction. Kept for equal matrices."""
    rates = np.ascontiguousarray(rates, dtype=float)
    rtt = np.ascontiguousarray(rtt, dtype=float)
    return _kept(rates.tobytes(), rtt.tobytes(), len(rates))


def ring_ways(rates: Matrix, rtt: Matrix) -> list[tuple[int, ...] | None]:
    """Of networks side by side, (networks, members, members), the one order on the front of each; None where there are several."""
    members = rates.shape[-1]
    apart = ~np.eye(members, dtype=bool)
    rows = [np.ascontiguousarray(one[:, apart]) for one in (rates, rtt)]
    alike = np.all([np.all(row == row[:, :1], axis=1) for row in rows], axis=0)
    found: list[tuple[int, ...] | None] = []
    for at, one in enumerate(alike.tolist()):
        front = () if one else ring_front(rates[at], rtt[at])
        found.append(tuple(range(members)) if one else front[0].order if len(front) == 1 else None)
    return found


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


@functools.lru_cache(maxsize=1024)
def _kept(rates: bytes, rtt: bytes, members: int) -> tuple[Ring, ...]:
    shape = (members, members)
    wide, long = np.frombuffer(rates).reshape(shape), np.frombuffer(rtt).reshape(shape)
    if _alike(wide) and _alike(long):
        return _front(wide, long, np.arange(members, dtype=np.intp)[None])
    named = _canonical(wide, long)
    inner, outer = wide[np.ix_(named, named)], long[np.ix_(named, named)]
    if members <= EVERY:
        return _front(wide, long, named[_orders(members)])
    return _front(wide, long, named[(_exact if members <= EXACT else _improved)(inner, outer)])


def _alike(matrix: Matrix) -> bool:
    """Whether all links are: then no order is better than another."""
    inside = matrix[~np.eye(len(matrix), dtype=bool)]
    return bool(np.all(inside == inside[:1]))


def _front(rates: Matrix, rtt: Matrix, orders: Indices) -> tuple[Ring, ...]:
    """Of some orders (orders, members), those that none beats in both."""
    after = np.roll(orders, -1, axis=1)
    narrowest, around = rates[orders, after].min(axis=1), rtt[orders, after].sum(axis=1)
    found: list[Ring] = []
    for at in np.lexsort((around, -narrowest)):
        if not found or around[at] < found[-1].rtt:
            order = tuple(int(member) for member in orders[at])
            found.append(Ring(order=order, narrowest=float(narrowest[at]), rtt=float(around[at])))
    return tuple(found)


def _canonical(rates: Matrix, rtt: Matrix) -> Indices:
    """An order of the members that does not depend on how they are numbered, unless they are alike."""
    keys = [np.sort(_without_diagonal(one, fill=0.0), axis=axis) for one in (rates, rtt) for axis in (0, 1)]
    rows = np.concatenate([keys[0].T, keys[1], keys[2].T, keys[3]], axis=1)
    return np.lexsort(rows.T[::-1])


def _without_diagonal(matrix: Matrix, fill: float = -np.inf) -> Matrix:
    copy = matrix.copy()
    np.fill_diagonal(copy, fill)
    return copy


# Few members: every order; some more: the best way to have passed a subset and stand at its last member.


@functools.cache
def _orders(members: int) -> Indices:
    rest = list(itertools.permutations(range(1, members)))
    return np.array([(0, *one) for one in rest], dtype=np.intp)


def _exact(rates: Matrix, rtt: Matrix) -> Indices:
    widest, _ = _best_paths(_without_diagonal(rates), np.minimum, np.maximum, -np.inf)
    most = float(np.minimum(widest[-1], rates[1:, 0]).max())
    shortest = _shortest(rates, rtt, 0.0)
    least = float(rates[shortest, np.roll(shortest, -1)].min())
    return np.stack([shortest, *(_shortest(rates, rtt, rate) for rate in _between(rates, least, most))])


def _between(rates: Matrix, least: float, most: float) -> list[float]:
    """Some of the rates above `least` up to `most`, `most` always."""
    steps = np.unique(rates[(rates > least) & (rates <= most)])
    if not len(steps):
        return []
    return [float(steps[at]) for at in np.unique(np.linspace(0, len(steps) - 1, BETWEEN + 2).astype(int))]


def _shortest(rates: Matrix, rtt: Matrix, threshold: float) -> Indices:
    """The shortest order without links below the threshold."""
    allowed = np.where(rates >= threshold, rtt, np.inf)
    shortest, before = _best_paths(_without_diagonal(allowed, fill=np.inf), np.add, np.minimum, np.inf)
    last = int(np.argmin(shortest[-1] + allowed[1:, 0]))
    order, subset = [0], len(shortest) - 1
    while subset:
        order.insert(1, last + 1)
        subset, last = subset & ~(1 << last), int(before[subset, last])
    return np.array(order, dtype=np.intp)


def _best_paths(cost: Matrix, join: np.ufunc, better: np.ufunc, worst: float) -> tuple[Matrix, Indices]:
    """(subsets, last) → the best path from member 0 through the subset of the others, and the member before the last."""
    others = len(cost) - 1
    subsets = np.arange(1 << others)
    sizes = plain_sum((subsets >> j) & 1 for j in range(others))
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
    shortest = _reversed(tour, _cost(wide, long, 0.0), 0.0)
    least = float(steps[_narrowest(wide, shortest, steps)])
    tours = [shortest, _reversed(tour, _cost(wide, long, steps[low]), 0.0)]
    for rate in _between(wide, least, float(steps[low]))[:-1]:
        tours.append(_reversed(tours[-1] if len(tours) > 2 else shortest, _cost(wide, long, rate), 0.0))
    return np.stack([*tours, *(one[::-1] for one in tours)])


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
    laid = cost[tour][:, tour]
    for _ in range(MOVES):
        after = np.roll(laid, -1, axis=1)
        here = after.diagonal()
        gain = here[:, None] + here - laid
        gain[:-1] -= after[1:]
        gain[-1] -= after[0]
        first, second = sorted(divmod(int(gain.argmax()), members))
        if gain[first, second] <= least + TOLERANCE:
            break
        part = slice(first + 1, second + 1)
        tour[part], laid[part] = tour[part][::-1].copy(), laid[part][::-1].copy()
        laid[:, part] = laid[:, part][:, ::-1].copy()
    return tour
