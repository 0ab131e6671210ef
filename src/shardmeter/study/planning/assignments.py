"""Which plan every kind of islands of a team has: best-first over the choices, with a bound; exact unless it is cut short."""

from __future__ import annotations

import functools
import heapq
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from shardmeter.core.record import record
from shardmeter.core.sums import plain_sum
from shardmeter.core.units import Fraction, Number, Seconds, Usd
from shardmeter.engine.fleet import Whole
from shardmeter.physics import money
from shardmeter.specs import Island
from shardmeter.study.course import hours, is_apart, step_times, step_tokens
from shardmeter.study.course.dollars import cost
from shardmeter.study.course.energy import KWH, busy_share, joules
from shardmeter.study.course.phases import Leg
from shardmeter.study.course.totals import has_length, is_plain, totals
from shardmeter.study.islands import egress
from shardmeter.study.planning.block import DEAR, ENDLESS, INDIVISIBLE, LATE, MEMORY, ROUNDING
from shardmeter.study.planning.floors import least_value
from shardmeter.study.planning.lengths import Length, length_of
from shardmeter.study.planning.objective import Goal, is_simple
from shardmeter.study.planning.syncs import TOO_LATE, TOO_MANY, Way
from shardmeter.study.planning.tally import OVER_LIMIT, OVER_MEMORY, Floats
from shardmeter.study.planning.team import Bound, Chosen, Team

PRICED = 12_000
"""Islands that are priced for one team and one way of synchronisation, at most: so many choices of plans times its islands.
Beyond, the gap is told."""
PRICED_RUNS = 3_000
"""The same where a run is more than so many steps, each of which takes longer to price."""
RUNNERS = 64
"""Choices that are priced for the list once the first of it is known to be the best."""
UNREACHED = "the loss is reached, by what is known of the method"
SAME = 1e-8
"""Share by which a bound counts as reached."""


@record
class Figures:
    """What a fleet's round means for the run, of the shape of the synchronisation's numbers."""

    columns: tuple[Floats, ...]
    """The objectives, as numbers to minimise."""
    lasts: Seconds
    paid: Usd | None
    ends: Any = True
    """Whether the run comes to its end."""


def spent(joint: Whole) -> tuple[Seconds | Sequence[Seconds], Number]:
    """The steps of `figures` and their tokens."""
    return step_times(joint) if is_apart(joint) else joint.estimate.step_time, step_tokens(joint)


def figures_of(goal: Goal, joint: Whole, whole: Number) -> Figures:
    """The objectives of a run of `whole` tokens of a fleet that was evaluated."""
    islands, run = [part.island for part in joint.parts], joint.parts[0].run
    if not has_length(run) or is_plain(run, islands):
        busy = tuple(busy_share(joint, part) for part in joint.parts)
        return figures(goal, islands, whole, *spent(joint), egress(joint)[1], busy)
    leg = Leg(whole=joint, steps=whole / step_tokens(joint))
    found = totals(run, [leg])
    known: dict[str, Any] = {
        "time": found.seconds, "throughput": -1.0 * joint.estimate.tokens / joint.estimate.step_time, "cost": found.paid,
        "energy": found.drawn * KWH,
    }  # fmt: skip
    return Figures(
        columns=tuple(np.asarray(known[one], dtype=float) for one in goal.objectives),
        lasts=found.seconds,
        paid=found.paid,
        ends=hours.ends(leg.whole, leg.steps),
    )


def figures(
    goal: Goal,
    islands: Sequence[Island],
    whole: Number,
    steps: Seconds | Sequence[Seconds],
    tokens: Number,
    egress: Usd,
    busy: Sequence[Fraction] = (),
) -> Figures:
    """The objectives of a run of `whole` tokens, at so many `tokens` an inner step, `egress` (USD) an inner step.

    `steps`: seconds of an inner step, where islands go on apart those of each: an island is paid until it is done, and the run
    lasts as long as the slowest. Without `busy` cost and energy are bounds: an island that computes less draws less."""
    each = list(steps) if isinstance(steps, Sequence) else [steps] * len(islands)
    owns = [money.run_time(whole / np.asarray(tokens, dtype=float), one) for one in each]
    lasts: Seconds = functools.reduce(np.maximum, owns)
    rate = whole / lasts
    shares = busy or (0.0,) * len(islands)
    rents = [cost(island, own, share) for island, own, share in zip(islands, owns, shares, strict=True)]
    known_rents = [one for one in rents if one is not None]
    paid = plain_sum(known_rents) + egress * whole / tokens if len(known_rents) == len(rents) else None
    drawn = [joules(island, own, share) for island, own, share in zip(islands, owns, shares, strict=True)]
    known: dict[str, Any] = {
        "time": lasts, "throughput": -1.0 * rate, "cost": paid,
        "energy": None if any(one is None for one in drawn) else plain_sum(one for one in drawn if one is not None),
    }  # fmt: skip
    return Figures(
        columns=tuple(np.asarray(known[one], dtype=float) for one in goal.objectives), lasts=lasts, paid=paid
    )


@dataclass(slots=True)
class Found:
    """The best choices of plans of one team under one way of synchronisation, for every point of its mesh."""

    team: Team
    way: Way
    values: Floats
    """(most, *mesh) of the first objective; inf where there are fewer."""
    which: npt.NDArray[np.intp]
    """Places in `leaves`."""
    leaves: list[Chosen] = field(default_factory=list)
    levels: list[int] = field(default_factory=list)
    """Complexity of each."""
    columns: list[Floats] = field(default_factory=list)
    """Of every leaf (objectives, *mesh), inf where it is not feasible; none where there is one objective."""
    priced: list[int] = field(default_factory=list)
    """The leaves of `columns`."""
    evaluated: int = 0
    feasible: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    bound: float = math.inf
    """Least first objective of what was not looked at; inf where all was, or could not matter."""
    miss: tuple[int, float, Chosen, int] | None = None
    """(kind, how many times what there is, choice, point) of what misses least, as long as nothing is feasible."""

    @classmethod
    def empty(cls, team: Team, way: Way, most: int) -> Found:
        """Nothing found yet."""
        return cls(
            team=team, way=way, values=np.full((most, *way.shape), np.inf),
            which=np.full((most, *way.shape), -1, dtype=np.intp),
        )  # fmt: skip

    def points(self) -> tuple[Floats, npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        """(every objective, leaf, point of the mesh) of what may be on a front."""
        if not self.columns:
            value, leaf = self.values[0].reshape(-1), self.which[0].reshape(-1)
            point = np.flatnonzero(np.isfinite(value))
            return value[point][:, None], leaf[point], point
        flat = np.stack([one.reshape(len(one), -1) for one in self.columns])
        leaf, point = np.nonzero(np.isfinite(flat[:, 0]))
        return flat[leaf, :, point], np.array(self.priced)[leaf], point

    def rows(self) -> list[tuple[float, Chosen, int]]:
        """(value, choice, point of the mesh) of all, unordered."""
        flat, leaf = self.values.reshape(len(self.values), -1), self.which.reshape(len(self.which), -1)
        return [
            (float(flat[row, point]), self.leaves[int(leaf[row, point])], int(point))
            for row, point in np.argwhere(np.isfinite(flat))
        ]


def search(team: Team, way: Way, goal: Goal, most: int, bar: float = math.inf, leaves: int | None = None) -> Found:
    """The best choice for every point of a way, and with it up to `most` good ones (the best, where there are no more than
    RUNNERS). Values beyond `bar` need not be found; `leaves` is how many choices are priced at most."""
    found = Found.empty(team, way, most)
    if len(goal.objectives) > 1 and all(len(inside.tables) == 1 for inside in team.insides):
        length = length_of(team.scenario, len(team.places), team.batch, way)
        _price(found, goal, (0,) * len(team.insides), length)  # one choice: nothing to bound
        return found
    bound = Bound(team, way)
    most_priced = PRICED if is_simple(team.scenario) else PRICED_RUNS
    leaves = max(most_priced // len(team.places), 1) if leaves is None else leaves
    alone = len(goal.objectives) == 1 or bound.agrees
    queue: list[tuple[float, Chosen]] = [(bound.key(()), ())]
    while queue:
        key, chosen = heapq.heappop(queue)
        least = floor(bound, goal, chosen, key)
        if alone and np.all(least >= np.minimum(found.values[-1], bar)):
            break
        if len(chosen) < len(team.insides):
            for place in range(len(team.insides[len(chosen)].tables)):
                child = (*chosen, place)
                heapq.heappush(queue, (max(key, bound.key(child)), child))
            continue
        if alone and len(found.leaves) >= RUNNERS and np.all(reached(found.values[0], least)):
            break
        if len(found.leaves) >= leaves:
            found.bound = float(np.min(least))
            break
        _price(found, goal, chosen, bound.length)
    return found


def reached(value: Floats, bound: Floats) -> Any:
    """Whether a value is as low as its bound, but for rounding."""
    return value - bound <= SAME * np.abs(bound)


def floor(bound: Bound, goal: Goal, chosen: Chosen, key: float | None = None) -> Floats:
    """The first objective that no plans fall below which begin with those chosen, of the shape of the way."""
    team = bound.team
    step = (1.0 - ROUNDING) * bound.step(bound.key(chosen) if key is None else key)
    whole = bound.least
    if bound.apart and goal.objectives[0] not in ("time", "throughput"):
        return np.asarray(cheapest(goal, team, float(np.min(whole))))
    if bound.waits and not is_simple(team.scenario):
        lowest: Floats = np.asarray(least_value(goal, bound, step, whole), dtype=float)
        return np.asarray(lowest - ROUNDING * np.abs(lowest))
    return figures(goal, team.islands, whole, step, team.tokens, bound.egress).columns[0]


def cheapest(goal: Goal, team: Team, whole: float) -> float:
    """What any tokens cost at least, of the islands of a team: all of them on the one that makes the most of its price or power."""
    best = {number: max(table.rate() for table in team.insides[number].tables) / team.blocks for number in team.kind}
    return min(
        float(figures(goal, [island], whole, team.batch / best[number], team.tokens, 0.0).columns[0])
        for island, number in zip(team.islands, team.kind, strict=True)
    )


def _price(found: Found, goal: Goal, chosen: Chosen, length: Length) -> None:
    """One choice of plans, for all numbers of the way."""
    way, team = found.way, found.team
    found.leaves.append(chosen)
    found.levels.append(team.level(chosen))
    found.evaluated += way.size
    joint = team.whole(chosen, way)
    if joint is None:
        found.rejected[INDIVISIBLE] += way.size
        return
    paid = figures_of(goal, joint, length.of(step_tokens(joint)))
    kept = _kept(found, goal, joint, paid, chosen)
    found.feasible += int(np.count_nonzero(kept))
    columns = [np.broadcast_to(one, way.shape) for one in paid.columns]
    value = np.where(kept, columns[0], np.inf)
    if len(columns) > 1:
        found.columns.append(np.where(kept, np.stack(columns), np.inf))
        found.priced.append(len(found.leaves) - 1)
    values = np.concatenate((found.values, value[None]))
    which = np.concatenate((found.which, np.full((1, *way.shape), len(found.leaves) - 1)))
    order = np.lexsort((np.array(found.levels)[which], values), axis=0)[:-1]
    found.values, found.which = np.take_along_axis(values, order, 0), np.take_along_axis(which, order, 0)


def _kept(found: Found, goal: Goal, joint: Whole, paid: Figures, chosen: Chosen) -> npt.NDArray[np.bool_]:
    """Where the round is legal, every island fits, and the run keeps the deadline and the budget; the rest is counted."""
    way = found.way
    many = way.sync.num_fragments > found.team.scenario.model.layers
    full = np.maximum.reduce(
        [np.asarray(part.estimate.memory_peak / part.estimate.memory_limit, dtype=float) for part in joint.parts]
    )
    limits = [
        (LATE, paid.lasts, goal.deadline, OVER_LIMIT),
        (DEAR, paid.paid, goal.budget, OVER_LIMIT),
    ]
    ratios = [(MEMORY, full, OVER_MEMORY)]
    if found.team.scenario.run.target_loss is not None:
        ratios.append((UNREACHED, np.where(np.isnan(paid.lasts), 2.0, 0.0), OVER_LIMIT))
    if np.any(np.logical_not(paid.ends)):
        ratios.append((ENDLESS, np.where(paid.ends, 0.0, 2.0), OVER_LIMIT))
    ratios += [(reason, np.asarray(spent) / most, kind) for reason, spent, most, kind in limits if most is not None]
    kept = np.broadcast_to(way.legal, way.shape)
    broken = way.size - int(np.count_nonzero(kept))
    if broken:
        found.rejected[TOO_MANY if many else TOO_LATE] += broken
    for reason, ratio, kind in ratios:
        left = kept & (np.broadcast_to(ratio, way.shape) <= 1.0)
        broken = int(np.count_nonzero(kept)) - int(np.count_nonzero(left))
        if broken:
            found.rejected[reason] += broken
            over = np.where(kept, np.broadcast_to(ratio, way.shape), np.inf)
            missed = (kind, float(np.min(over)), chosen, int(np.argmin(over)))
            found.miss = missed if found.miss is None else min(found.miss, missed)
        kept = left
    return kept
