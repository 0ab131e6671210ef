"""One box of a variant: rules as masks, then memory, then time, each only for what is left; what is found goes to a tally."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardmeter.core.record import changed, record
from shardmeter.core.sums import plain_sum
from shardmeter.core.units import Fraction, Seconds
from shardmeter.engine import add
from shardmeter.engine.constraints import held
from shardmeter.engine.demand import Work
from shardmeter.engine.evaluate import Priced, demands, footprint, least_step_time, priced, timed, updated
from shardmeter.engine.sharing import unit
from shardmeter.schedules import traits
from shardmeter.specs import Island, Plan, Run, Scenario
from shardmeter.study.planning import boxes
from shardmeter.study.planning.objective import Goal, Spent, spent
from shardmeter.study.planning.space import NUMBERS, Mask, Picked, Space, Variant, exists, laid, phased
from shardmeter.study.planning.tally import OVER_LIMIT, OVER_MEMORY, Floats, Front, Numbers, Pool, Tally

DEGREES = "the degrees multiply to the GPUs of the island"
PINNED = "dp_shard is as pinned"
INDIVISIBLE = "whole micro-batches of the islands make up the batch"
MEMORY, LATE, DEAR = "out of memory", "past the deadline", "over the budget"
ENDLESS = "a restart ends before the next interruption"
"""Reasons beside the rules of `engine.constraints`, in the order in which a plan is counted: under the first that holds."""
CHUNK = 1 << 20
"""Points whose rules are asked at once."""
WORTH = 30_000
"""Points that take as long as one more evaluation."""
ROUNDING = 1e-9
"""By how much a bound is lowered so that rounding cannot break it."""
BLOCK = 1 << 17
"""Points of one evaluation: its arrays stay near the processor."""
CROSSING = "crossing"
"""The route of schedules that join turns: what one hides of the other lowers their work."""
ASIDE = ("whole", "degrees")
"""Rules that hold by construction once the degrees multiply."""


@record
class Question:
    """What a search looks for in a space."""

    space: Space
    goal: Goal
    most: int
    """Plans that are wanted."""
    stated: float | None = None
    """Value of the plan to compare with."""
    beside: float = 0.0
    """Bytes that every rank keeps for each parameter that it updates, beside the plan's own (outer state between islands)."""

    def tally(self) -> Tally:
        """An empty one."""
        return Tally(pool=Pool(most=self.most), front=Front.empty(len(self.goal.objectives)))


@dataclass(slots=True)
class _Box:
    """Some plans of a variant: values of every axis, and which of their crossings are still in question."""

    question: Question
    variant: Variant
    picked: Picked
    alive: Mask
    """At the lengths of all axes."""
    plan: Plan
    run: Run
    work: Work | None = None
    ready: Priced | None = None

    @classmethod
    def of(cls, question: Question, variant: Variant, picked: Picked, alive: Mask) -> _Box:
        """A box with its plans laid out."""
        plan, run = laid(question.space, variant, picked)
        return cls(question, variant, picked, alive, plan, run)

    def parts(self, alive: Mask, most: float = math.inf) -> Iterator[_Box]:
        """The boxes that hold what is alive; what is known of this one stays known where that is all of it."""
        for box in boxes.alive(alive, WORTH):
            for part in boxes.cut(box, most):
                if boxes.size(part) == alive.size:
                    self.alive = alive
                    yield self
                else:
                    inside = tuple(positions[some] for positions, some in zip(self.picked, part, strict=True))
                    yield _Box.of(self.question, self.variant, inside, alive[np.ix_(*part)])

    @property
    def scenario(self) -> Scenario:
        """What all plans of the space share."""
        return self.question.space.scenario

    @property
    def island(self) -> Island:
        """Where the plans run."""
        return self.question.space.island(self.variant)

    def demands(self) -> Work:
        """What the plans demand."""
        if self.work is None:
            self.work = demands(self.scenario.model, self.plan, self.run, self.scenario.stack)
        return self.work

    def priced(self) -> Priced:
        """The same at the prices of the island."""
        if self.ready is None:
            scenario = self.scenario
            self.ready = priced(scenario.model, self.island, self.plan, self.run, scenario.stack, self.demands())
        return self.ready

    def whole(self, values: Any) -> Floats:
        """Numbers of the open mesh at the lengths of all axes."""
        wide = tuple(length for length in self.alive.shape if length > 1)
        return np.broadcast_to(np.asarray(values, dtype=float), wide).reshape(self.alive.shape)

    def spent(self, step_time: Seconds, busy: Fraction = 0.0) -> Spent:
        """What runs take of plans that take so long a step and compute the share `busy` of it. Without `busy` these are bounds."""
        fleet = changed(self.scenario.fleet, islands=(self.island,))
        return spent(changed(self.scenario, fleet=fleet, plan=self.plan, run=self.run), step_time, busy)

    def columns(self, spent: Spent) -> list[Floats]:
        """The objectives."""
        return [self.whole(spent.value(one)) for one in self.question.goal.objectives]

    def numbers(self, flat: Any) -> Numbers:
        """Numbers of plans in the space, from their positions in the box."""
        positions = np.unravel_index(flat, self.alive.shape)
        own = tuple(some[place] for some, place in zip(self.picked, positions, strict=True))
        return np.asarray(self.variant.first + np.ravel_multi_index(own, self.variant.shape), dtype=np.int64)


def search_box(question: Question, variant: Variant, picked: Picked, tally: Tally) -> None:
    """Count, price and keep every plan of a box."""
    space, points = question.space, boxes.size(picked)
    shape = tuple(map(len, picked))
    plan, run = laid(space, variant, picked)

    def count(mask: Mask) -> int:
        return int(np.count_nonzero(mask)) * (points // mask.size)

    with np.errstate(all="ignore"):
        alive: Mask = np.asarray(exists(variant, plan))
        left = count(alive)
        tally.evaluated += left
        for reason, mask in _rules(space, variant, plan, run):
            if mask.all():
                continue
            alive = alive & mask
            now = count(alive)
            if now != left:
                tally.rejected[reason] += left - now
            left = now
            if not left:
                return
        whole = np.broadcast_to(alive, tuple(length for length in shape if length > 1)).reshape(shape)
        for box in _Box(question, variant, picked, whole, plan, run).parts(whole, BLOCK):
            _fitting(box, tally)


def legal_somewhere(space: Space) -> bool:
    """Whether any plan of a space keeps every rule; memory is no rule."""
    for variant in space.variants:
        for picked in boxes.cut(boxes.whole(variant.shape), CHUNK):
            plan, run = laid(space, variant, picked)
            with np.errstate(all="ignore"):
                alive: Mask = np.asarray(exists(variant, plan))
            for _, mask in _rules(space, variant, plan, run):
                alive = alive & mask
                if not alive.any():
                    break
            else:
                return True
    return False


def _rules(space: Space, variant: Variant, plan: Plan, run: Run) -> Iterator[tuple[str, Mask]]:
    """Every rule with where it holds, in order."""
    with np.errstate(all="ignore"):
        yield (
            DEGREES,
            np.asarray((plan.dp_shard >= 1.0) & (np.mod(plan.dp_shard, 1.0) == 0.0) & _whole(plan.dp_replicate)),
        )
    wanted = space.choices.plan.get("dp_shard", ())
    if wanted:
        yield PINNED, np.isin(plan.dp_shard, wanted)
    if space.part is not None:
        yield INDIVISIBLE, np.asarray(unit(plan)[1] <= space.part[1])
    island, scenario = space.island(variant), space.scenario
    for one in (run, *phased(run)):
        for constraint, mask in held(scenario.model, island, plan, one, scenario.stack, skip=ASIDE):
            yield constraint.rule, mask


def _whole(number: Any) -> Any:
    return (number >= 1.0) & (np.mod(number, 1.0) == 0.0)


def _fitting(box: _Box, tally: Tally) -> None:
    """Ask for the memory first: it is a fraction of the work, and most plans of a large model do not fit."""
    scenario, limit = box.scenario, float(box.island.accelerator.memory)
    peaks = box.whole(footprint(scenario.model, box.demands(), box.plan, box.run, scenario.stack))
    for run in phased(box.run):
        work = demands(scenario.model, box.plan, run, scenario.stack)
        peaks = np.maximum(peaks, box.whole(footprint(scenario.model, work, box.plan, run, scenario.stack)))
    if box.question.beside:
        peaks = peaks + box.whole(box.question.beside * updated(box.demands(), box.plan))
    fits = box.alive & (peaks <= limit)
    fitting = int(np.count_nonzero(fits))
    out = int(np.count_nonzero(box.alive)) - fitting
    if out:
        tally.rejected[MEMORY] += out
        if not tally.feasible and not fitting:
            _miss(box, OVER_MEMORY, np.where(box.alive, peaks / limit, np.inf), tally)
    tally.feasible += fitting
    for part in box.parts(fits):
        _promising(part, tally)


def _miss(box: _Box, kind: int, over: Floats, tally: Tally) -> None:
    """Note the plan of a box that misses least."""
    least = int(np.argmin(over))
    tally.missed(kind, float(over.flat[least]), int(box.numbers(np.array([least]))[0]))


def _promising(box: _Box, tally: Tally) -> None:
    """Leave out plans of which the work alone takes too long for the list, the front and the plan to compare with. Where a
    deadline, a budget or a phase counts, every plan is priced to the end."""
    goal, stated = box.question.goal, box.question.stated
    limited = goal.deadline is not None or goal.budget is not None or bool(box.run.phases)
    if limited or traits(box.plan.schedule).route == CROSSING or not np.isfinite(tally.pool.bound()):
        _pricing(box, tally)
        return
    columns = box.columns(box.spent((1.0 - ROUNDING) * least_step_time(box.priced(), box.plan)))
    wanted = (columns[0] <= tally.pool.bound()) | ~tally.front.beaten(columns)
    if stated is not None:
        wanted = wanted | (columns[0] < stated)
    for part in box.parts(box.alive & wanted):
        _pricing(part, tally)


def _pricing(box: _Box, tally: Tally) -> None:
    """Price to the end, and keep the best."""
    ledger, computing, _ = timed(box.priced(), box.plan, box.run, box.scenario.stack)
    step = add.total(ledger)
    found = box.spent(step, computing / step)
    columns = box.columns(found)
    alive = _within(box, found, tally)
    if not alive.any():
        return
    first = np.where(alive, columns[0], np.inf)
    if box.question.stated is not None:
        tally.better += int(np.count_nonzero(first < box.question.stated))
    levels = box.whole(complexity(box.plan)).astype(np.int64)
    near = np.flatnonzero(np.isfinite(first) & (first <= tally.pool.bounds()[levels]))
    level_of, values = levels.reshape(-1)[near], first.reshape(-1)[near]
    for level in np.unique(level_of):
        some = level_of == level
        tally.pool.add(int(level), values[some], box.numbers(near[some]))
    _onto_front(box, columns, alive, first, levels, tally)


def _within(box: _Box, found: Spent, tally: Tally) -> Mask:
    """What comes to its end and keeps the deadline and the budget; what does not is counted, and the least of it noted where nothing
    does."""
    goal = box.question.goal
    asked = [(LATE, found.lasts, goal.deadline), (DEAR, None if goal.budget is None else found.paid, goal.budget)]
    limits = [(reason, box.whole(used), most) for reason, used, most in asked if most is not None]
    if found.together is not None:
        limits.insert(0, (ENDLESS, box.whole(np.where(found.ends, 0.0, 2.0)), 1.0))
    kept = box.alive
    for reason, used, most in limits:
        left = kept & (used <= most)
        broken = int(np.count_nonzero(kept)) - int(np.count_nonzero(left))
        if broken:
            tally.rejected[reason] += broken
            tally.feasible -= broken
        kept = left
    if limits and not kept.any():
        over = np.maximum.reduce([used / most for _, used, most in limits])
        _miss(box, OVER_LIMIT, np.where(box.alive, over, np.inf), tally)
    return kept


def _onto_front(box: _Box, columns: list[Floats], alive: Mask, first: Floats, levels: Numbers, tally: Tally) -> None:
    """Offer to the front what neither the best plan of the box nor some members of the front beat."""
    best = np.unravel_index(int(np.argmin(first)), first.shape)
    offered = first == first[best]
    for column in columns[1:]:
        offered = offered | (column < column[best])
    flat = np.flatnonzero(alive & offered)
    some = [column.reshape(-1)[flat] for column in columns]
    beaten = tally.front.beaten(some)
    if len(columns) == 1 and len(tally.front.points):
        beaten = some[0] > tally.front.points[0, 0]
    elif len(tally.front.points):
        beaten &= ~_equal(some, tally.front.points)
    flat, some = flat[~beaten], [column[~beaten] for column in some]
    if len(flat):
        tally.front.add(np.stack(some, axis=1), levels.reshape(-1)[flat], box.numbers(flat))


def _equal(columns: list[Floats], members: Floats) -> Mask:
    """Where a row equals one of the members: the simpler of the two is to be known."""
    found = np.zeros(len(columns[0]), dtype=bool)
    for member in members:
        same = np.ones(len(columns[0]), dtype=bool)
        for column, one in zip(columns, member, strict=True):
            same &= column == one
        found |= same
    return found


def complexity(plan: Plan) -> Any:
    """How much there is to a plan: axes in use, and words that are not the usual ones."""
    words = (
        plan.sharding not in ("fsdp", "none"), plan.recompute != "none", bool(plan.offload), not plan.reshard,
        plan.pp > 1, plan.schedule not in ("1f1b", "interleaved"), plan.virtual_stages > 1, not plan.sequence_parallel,
        plan.cp_kind != "ring",
    )  # fmt: skip
    level: Any = plain_sum(words)
    for name in NUMBERS[:5]:
        level = level + np.greater(getattr(plan, name), 1.0).astype(int)
    return level
