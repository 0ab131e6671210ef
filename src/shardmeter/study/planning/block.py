"""One box of a variant: rules as masks, then memory, then time, each only for what is left; what is found goes to a tally."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from shardmeter.core.record import record
from shardmeter.engine.constraints import held
from shardmeter.engine.evaluate import evaluate, footprint, least_step_time
from shardmeter.specs import Plan, Run
from shardmeter.study.planning import boxes
from shardmeter.study.planning.objective import Goal, cost, duration, value
from shardmeter.study.planning.space import NUMBERS, Mask, Picked, Space, Variant, exists, laid
from shardmeter.study.planning.tally import OVER_LIMIT, OVER_MEMORY, Front, Pool, Tally

DEGREES = "the degrees multiply to the GPUs of the island"
PINNED = "dp_shard is as pinned"
MEMORY, LATE, DEAR = "out of memory", "past the deadline", "over the budget"
"""Reasons beside the rules of `engine.constraints`, in the order in which a plan is counted: under the first that holds."""
CHUNK = 1 << 20
"""Points whose rules are asked at once."""
WORTH = 30_000
"""Points that take as long as one more evaluation."""
ROUNDING = 1e-9
"""By how much a bound is lowered so that rounding cannot break it."""
BLOCK = 1 << 17
"""Points of one evaluation: its arrays stay near the processor."""
REPLAYED = ("interleaved", "zb-v")
"""Schedules that are run turn by turn: it pays to ask first whether the work alone is too much."""
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

    def tally(self) -> Tally:
        """An empty one."""
        return Tally(pool=Pool(most=self.most), front=Front.empty(len(self.goal.objectives)))


def search_box(question: Question, variant: Variant, picked: Picked, tally: Tally) -> None:
    """Count, price and keep every plan of a box."""
    space = question.space
    plan, run = laid(space, variant, picked)
    shape = tuple(map(len, picked))
    wide = tuple(length for length in shape if length > 1)
    points = boxes.size(picked)

    def count(mask: Mask) -> int:
        return int(np.count_nonzero(mask)) * (points // mask.size)

    with np.errstate(all="ignore"):
        alive: Mask = np.asarray(exists(variant, plan))
    left = count(alive)
    tally.evaluated += left
    for reason, mask in _rules(space, variant, plan, run):
        alive = alive & mask
        now = count(alive)
        if now != left:
            tally.rejected[reason] += left - now
        left = now
        if not left:
            return
    alive = np.broadcast_to(alive, wide).reshape(shape)
    for box in boxes.alive(alive, WORTH):
        for part in boxes.cut(box, BLOCK):
            _fitting(question, variant, _inside(picked, part), alive[np.ix_(*part)], tally)


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
    island, scenario = space.island(variant), space.scenario
    for constraint, mask in held(scenario.model, island, plan, run, scenario.stack, skip=ASIDE):
        yield constraint.rule, mask


def _whole(number: Any) -> Any:
    return (number >= 1.0) & (np.mod(number, 1.0) == 0.0)


def _inside(picked: Picked, part: Picked) -> Picked:
    """A part of a box, at the positions of the whole mesh."""
    return tuple(positions[some] for positions, some in zip(picked, part, strict=True))


def _fitting(question: Question, variant: Variant, picked: Picked, alive: Mask, tally: Tally) -> None:
    """Ask for the memory first: it is a fraction of the work, and most plans of a large model do not fit."""
    scenario, island = question.space.scenario, question.space.island(variant)
    plan, run = laid(question.space, variant, picked)
    with np.errstate(all="ignore"):
        peak = np.asarray(footprint(scenario.model, plan, run, scenario.stack), dtype=float)
    limit = float(island.accelerator.memory)
    wide = tuple(length for length in alive.shape if length > 1)
    peaks = np.broadcast_to(peak, wide).reshape(alive.shape)
    fits = alive & (peaks <= limit)
    fitting = int(np.count_nonzero(fits))
    out = int(np.count_nonzero(alive)) - fitting
    if out:
        tally.rejected[MEMORY] += out
        if not tally.feasible and not fitting:
            over = np.where(alive, peaks, np.inf)
            least = int(np.argmin(over))
            tally.missed(
                OVER_MEMORY, float(over.flat[least]) / limit, int(_number(variant, picked, np.array([least]))[0])
            )
    tally.feasible += fitting
    for part in boxes.alive(fits, WORTH):
        _promising(question, variant, _inside(picked, part), fits[np.ix_(*part)], tally)


def _promising(question: Question, variant: Variant, picked: Picked, alive: Mask, tally: Tally) -> None:
    """Leave out plans of which the work alone takes too long for the list, the front and the plan to compare with. Where a
    deadline or a budget counts, every plan is priced."""
    goal = question.goal
    limited = goal.deadline is not None or goal.budget is not None
    if limited or variant.plan.schedule not in REPLAYED or not np.isfinite(tally.pool.bound()):
        _pricing(question, variant, picked, alive, tally)
        return
    scenario, island = question.space.scenario, question.space.island(variant)
    plan, run = laid(question.space, variant, picked)
    wide = tuple(length for length in alive.shape if length > 1)
    with np.errstate(all="ignore"):
        least = (1.0 - ROUNDING) * least_step_time(scenario.model, island, plan, run, scenario.stack)
        tokens = run.global_batch * run.seq_len
        lasts = duration(run, least, tokens)
        columns = [np.asarray(value(one, island, lasts, tokens / least), dtype=float) for one in goal.objectives]
        wanted = (columns[0] <= tally.pool.bound()) | ~tally.front.beaten(columns)
        if question.stated is not None:
            wanted = wanted | (columns[0] < question.stated)
    kept = alive & np.broadcast_to(wanted, wide).reshape(alive.shape)
    for part in boxes.alive(kept, WORTH):
        _pricing(question, variant, _inside(picked, part), kept[np.ix_(*part)], tally)


def _pricing(question: Question, variant: Variant, picked: Picked, alive: Mask, tally: Tally) -> None:
    """Price what fits and keep the best of it."""
    scenario, island, goal = question.space.scenario, question.space.island(variant), question.goal
    plan, run = laid(question.space, variant, picked)
    wide = tuple(length for length in alive.shape if length > 1)
    alive = alive.reshape(wide)
    with np.errstate(all="ignore"):
        estimate = evaluate(scenario.model, island, plan, run, scenario.stack)
        lasts = duration(run, estimate.step_time, estimate.tokens)
        rate = estimate.tokens / estimate.step_time
        columns = [np.asarray(value(one, island, lasts, rate), dtype=float) for one in goal.objectives]
        alive = _within(question, variant, picked, lasts, alive, tally)
    if not alive.any():
        return
    first = np.where(alive, columns[0], np.inf)
    if question.stated is not None:
        tally.better += int(np.count_nonzero(first < question.stated))
    levels = np.asarray(complexity(plan))
    near = np.flatnonzero(np.isfinite(first) & (first <= tally.pool.bounds()[levels]))
    if len(near):
        level_of = np.broadcast_to(levels, wide).reshape(-1)[near]
        values = first.reshape(-1)[near]
        for level in np.unique(level_of):
            some = level_of == level
            kept = near[some]
            tally.pool.add(int(level), values[some], _number(variant, picked, kept))
    _onto_front(variant, picked, columns, alive, first, levels, tally)


def _within(question: Question, variant: Variant, picked: Picked, lasts: Any, alive: Mask, tally: Tally) -> Mask:
    """What keeps the deadline and the budget; what does not is counted, and the least of it noted where nothing does."""
    goal, island = question.goal, question.space.island(variant)
    limits = [
        (reason, np.asarray(spent), most)
        for reason, spent, most in ((LATE, lasts, goal.deadline), (DEAR, cost(island, lasts), goal.budget))
        if most is not None
    ]
    kept = alive
    for reason, spent, most in limits:
        left = kept & (spent <= most)
        broken = int(np.count_nonzero(kept)) - int(np.count_nonzero(left))
        if broken:
            tally.rejected[reason] += broken
            tally.feasible -= broken
        kept = left
    if limits and not kept.any():
        over = np.where(
            alive, np.maximum.reduce([np.broadcast_to(spent / most, alive.shape) for _, spent, most in limits]), np.inf
        )
        least = int(np.argmin(over))
        tally.missed(OVER_LIMIT, float(over.flat[least]), int(_number(variant, picked, np.array([least]))[0]))
    return kept


def _onto_front(
    variant: Variant, picked: Picked, columns: list[Any], alive: Mask, first: Any, levels: Any, tally: Tally
) -> None:
    """Offer to the front what neither the best plan of the box nor some members of the front beat."""
    best = np.unravel_index(int(np.argmin(first)), first.shape)
    whole = [np.broadcast_to(column, first.shape) for column in columns]
    better = np.zeros((), dtype=bool)
    for column in columns[1:]:
        better = better | (column < np.broadcast_to(column, first.shape)[best])
    equal = first == first[best]
    offered = alive & (np.broadcast_to(better, first.shape) | equal)
    flat = np.flatnonzero(offered)
    some = [column.reshape(-1)[flat] for column in whole]
    beaten = tally.front.beaten(some)
    if len(columns) == 1 and len(tally.front.points):
        beaten = some[0] > tally.front.points[0, 0]
    elif len(tally.front.points):
        beaten &= ~_equal(some, tally.front.points)
    flat, some = flat[~beaten], [column[~beaten] for column in some]
    if len(flat):
        level_of = np.broadcast_to(levels, first.shape).reshape(-1)[flat].astype(np.int64)
        tally.front.add(np.stack(some, axis=1), level_of, _number(variant, picked, flat))


def _equal(columns: list[Any], members: Any) -> Any:
    """Where a row equals one of the members: the simpler of the two is to be known."""
    found = np.zeros(len(columns[0]), dtype=bool)
    for member in members:
        same = np.ones(len(columns[0]), dtype=bool)
        for column, one in zip(columns, member, strict=True):
            same &= column == one
        found |= same
    return found


def _number(variant: Variant, picked: Picked, flat: Any) -> Any:
    """Numbers of points in the space, from their positions in a box."""
    positions = np.unravel_index(flat, tuple(map(len, picked)))
    own = tuple(some[place] for some, place in zip(picked, positions, strict=True))
    return variant.first + np.ravel_multi_index(own, variant.shape).astype(np.int64)


def complexity(plan: Plan) -> Any:
    """How much there is to a plan: axes in use, and words that are not the usual ones."""
    words = (
        plan.sharding not in ("fsdp", "none"), plan.recompute != "none", bool(plan.offload), not plan.reshard,
        plan.pp > 1, plan.schedule not in ("1f1b", "interleaved"), plan.virtual_stages > 1, not plan.sequence_parallel,
        plan.cp_kind != "ring",
    )  # fmt: skip
    level: Any = sum(words)
    for name in NUMBERS[:5]:
        level = level + np.greater(getattr(plan, name), 1.0).astype(int)
    return level
