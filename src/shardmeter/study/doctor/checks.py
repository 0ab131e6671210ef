"""What to measure next: runs that have room and benchmarks, for which the leading causes predict unlike numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from shardmeter.core.record import changed, record
from shardmeter.core.units import Number
from shardmeter.specs import Plan, Scenario
from shardmeter.study import moves
from shardmeter.study.doctor.benchmarks import bus, communication, product
from shardmeter.study.doctor.cause import Cause, Misread, Named, Numeric
from shardmeter.study.doctor.findings import POSSIBLE, Finding
from shardmeter.study.doctor.measured import MEMORY, Measured
from shardmeter.study.doctor.numbers import numeric
from shardmeter.study.doctor.room import has_room
from shardmeter.study.doctor.settings import named
from shardmeter.study.doctor.world import World, world
from shardmeter.study.levers import levers

LEADING = 4
"""Causes that are told apart."""
APART = math.log(1.15)
"""Two predictions that differ less are not told apart by a measurement."""
MOST = 5
LEAST = 1e-3
"""Share of the largest prediction below which one counts as nothing."""
AS_SAID = Cause(name="as-said", title="as said", means="", touches=())
"""Beside the causes: the scenario as it is."""


@record
class Check:
    """One thing to measure, with what each leading cause predicts."""

    name: str
    title: str
    unit: str
    expected: tuple[tuple[str, float], ...]
    """(cause, prediction)."""

    @property
    def apart(self) -> float:
        """Logarithm of the largest prediction over the smallest."""
        values = [value for _, value in self.expected]
        most = max(values)
        return math.log(most / max(min(values), LEAST * most)) if most > 0.0 else 0.0

    def entry(self) -> dict[str, Any]:
        """`next[]` of the answer."""
        expected = [{"cause": cause, "value": value} for cause, value in self.expected]
        return {"name": self.name, "title": self.title, "unit": self.unit, "expected": expected}


def checks(scenario: Scenario, base: World, found: Sequence[Finding], primary: Measured) -> tuple[Check, ...]:
    """Those that tell the leading causes apart, or the only one from the scenario as it was said, the sharpest first."""
    sure = [one for one in found if one.plausibility >= POSSIBLE]
    leading = [one for one in sure or found[:1] if not isinstance(one.cause, Misread)][:LEADING]
    if not leading:
        return ()
    made = [one for one in _all(scenario, base, leading, primary) if one.apart >= APART]
    return tuple(sorted(made, key=lambda one: -one.apart)[:MOST])


def _all(scenario: Scenario, base: World, leading: Sequence[Finding], primary: Measured) -> Iterator[Check]:
    said = Finding(cause=AS_SAID, world=base, solution=None, left=0.0, unexplained=1.0, plausibility=0.0)

    def check(name: str, title: str, unit: str, of: Callable[[Finding], Number]) -> Check:
        expected = tuple((one.cause.name, float(of(one))) for one in (said, *leading))
        return Check(name=name, title=title, unit=unit, expected=expected)

    twice, alone = _twice(scenario), _one_node(scenario)
    doubled = has_room(world(twice), base)
    if primary.quantity.kind == MEMORY:
        yield from _of_memory(twice if doubled else None, check)
        return
    island = scenario.fleet.islands[0]
    if len(island.tiers) > 1 and float(island.nodes) > 1.0:
        yield check(
            "all-reduce-between-nodes",
            "busbw: nccl-tests all_reduce of 1 GB over all GPUs",
            "B/s",
            lambda one: bus(one.world, across=True),
        )
    if float(island.gpus_per_node) > 1.0:
        yield check(
            "all-reduce-in-node",
            "busbw_node: the same inside one node",
            "B/s",
            lambda one: bus(one.world, across=False),
        )
    yield check(
        "matrix-benchmark", "matmul: a matrix product of 8192 × 8192 × 8192", "FLOP/s", lambda one: product(one.world)
    )
    yield check("profile", "communication_share: of a step, by the profiler", "%", lambda one: communication(one.world))
    if doubled:
        yield check(
            "twice-the-micro-batch",
            "time of a step at twice the micro-batch, over that of one now",
            "×",
            lambda one: _ratio(one, twice),
        )
    if alone is not None and has_room(world(alone), base):
        yield check(
            "one-node", "tokens/s of a GPU on one node alone", "tokens/s", lambda one: _rate(applied(one, alone))
        )
    yield check(
        "synthetic-data",
        "tokens/s of a GPU with data that is made on the device",
        "tokens/s",
        lambda one: _rate(_without_wait(one)),
    )


def _of_memory(twice: Scenario | None, check: Callable[..., Check]) -> Iterator[Check]:
    """`twice`: the run at twice the micro-batch; None where that has no room."""
    if twice is not None:
        yield check(
            "twice-the-micro-batch", "memory at twice the micro-batch, over that now", "×",
            lambda one: float(applied(one, twice).estimate.memory_peak / one.world.estimate.memory_peak),
        )  # fmt: skip
    yield check(
        "allocated", "torch.cuda.max_memory_allocated", "B", lambda one: float(one.world.estimate.memory_allocated)
    )
    yield check(
        "before-the-first-step",
        "memory before the first step (parameters and states)",
        "B",
        lambda one: float(one.world.estimate.memory_exact),
    )


def applied(found: Finding, scenario: Scenario) -> World:
    """A cause as it was found, in another scenario; the scenario as it is where the cause means nothing there."""
    base, cause = world(scenario), found.cause
    if isinstance(cause, Numeric) and found.solution is not None:
        value = found.solution.value
        same = next((one for one in numeric(scenario, base) if one.name == cause.name), None)
        if same is None:
            return base
        grown = same.said / cause.said if cause.said and cause.kind in MOVED else 1.0
        return same.at(value * grown)
    if isinstance(cause, Named):
        there = next((one for one in named(scenario) if one.name == cause.name), None)
        return base if there is None else there.world()
    return base


MOVED = ("micro-batch", "global-batch")
"""Numbers that the check itself moves: the cause multiplies what is said then."""


def _ratio(found: Finding, twice: Scenario) -> float:
    return float(applied(found, twice).step / found.world.step)


def _rate(one: World) -> float:
    return float(one.estimate.tokens / one.step / one.estimate.gpus)


def _without_wait(found: Finding) -> World:
    return changed(found.world, extra=0.0) if found.cause.kind == "wait" else found.world


def _twice(scenario: Scenario) -> Scenario:
    """Twice the sequences of every pass, and of the step."""
    lever = next(one for one in levers(scenario) if one.name == "plan.micro_batch")
    moved = lever.scaled(2.0)
    if moved is None:  # pragma: no cover  (a micro-batch can be scaled)
        raise AssertionError
    if moved.run.global_batch != scenario.run.global_batch:
        return moved
    return changed(moved, run=changed(moved.run, global_batch=2.0 * scenario.run.global_batch))


def _one_node(scenario: Scenario) -> Scenario | None:
    """One node of the only island, the batch of a GPU kept; None where there is one already, or the plan does not fit into it."""
    island, plan = scenario.fleet.islands[0], scenario.plan
    if len(scenario.fleet.islands) > 1 or float(island.nodes) <= 1.0 or plan.placement:
        return None
    nodes = float(island.nodes)
    small = moves.resized(island, float(island.gpus_per_node))
    if small is None:
        return None
    shard, copies = float(plan.dp_shard), float(plan.dp_replicate)
    copies_left = max(copies / nodes, 1.0)
    shard_left = shard / (nodes / (copies / copies_left))
    if not (copies_left.is_integer() and shard_left.is_integer() and shard_left >= 1.0):
        return None
    less: Plan = changed(plan, dp_shard=shard_left, dp_replicate=copies_left)
    run = changed(scenario.run, global_batch=scenario.run.global_batch / nodes)
    return changed(scenario, plan=less, plans=(), run=run, fleet=changed(scenario.fleet, islands=(small,)))
