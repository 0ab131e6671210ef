"""Numbers of the plan and of the run. A degree that grows takes its ranks from dp_shard; batches stay as they are said."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from shardmeter.core.record import changed
from shardmeter.specs import Plan, Run, Scenario
from shardmeter.study.levers.lever import Lever
from shardmeter.study.moves import resized
from shardmeter.study.relief import batch_unsaid
from shardmeter.sync import laid, method

_PLAN = (
    ("micro_batch", "micro-batch", "sequences"),
    ("expert_skew", "imbalance of experts", ""),
)
_DEGREES = ("tp", "pp", "cp", "dp_replicate")
_SYNC = (
    ("sync_every", "inner steps of a round (H)", "steps", True),
    ("num_fragments", "fragments (P)", "", True),
    ("fragment_sync_delay", "steps between sending and applying (tau)", "steps", False),
    ("bits", "bits of a value on the wire", "bits", False),
    ("top_k", "share of the values that is sent", "", False),
    ("rank", "rank of what is sent", "", True),
    ("perturbations", "perturbations", "", True),
)
_RUN = (("seq_len", "sequence", "tokens", True), ("global_batch", "global batch", "sequences", True))
_LENGTH = (("tokens", "tokens of the run", "tokens", False), ("steps", "steps of the run", "steps", True))


def levers(scenario: Scenario) -> Iterator[Lever]:
    """Of the plan (every island's), of the synchronisation where there is one, of the run."""
    for name, title, unit in _PLAN:
        yield _lever(f"plan.{name}", title, unit, "plan", getattr(scenario.plan, name), _of_plans(scenario, name))
    for axis in _DEGREES:
        if not scenario.plan.placement:
            value = scenario.plan.degree(axis)
            yield _lever(f"plan.{axis}", axis, "", "plan", value, _of_degree(scenario, axis))
    if len(scenario.fleet.islands) > 1:
        reads = method(scenario.plan.sync.method).FIELDS
        for name, title, unit, whole in _SYNC:
            if name in reads:
                value = getattr(scenario.plan.sync, name)
                yield _lever(f"plan.sync.{name}", title, unit, "plan", value, _of_sync(scenario, name), whole=whole)
    if not scenario.plan.placement:
        nodes = scenario.fleet.islands[0].nodes
        yield _lever("fleet.islands.nodes", "nodes of every island", "", "plan", nodes, _of_nodes(scenario))
    for name, title, unit, whole in (*_RUN, *_LENGTH):
        value = getattr(scenario.run, name)
        if value is not None and not (scenario.run.phases and name != "tokens"):
            yield _lever(f"run.{name}", title, unit, "run", value, _of_run(scenario, name), whole=whole)


def _lever(
    name: str, title: str, unit: str, kind: str, value: Any, scaled: Callable[[float], Scenario | None], *, whole: bool = True
) -> Lever:  # fmt: skip
    return Lever(name=name, title=title, unit=unit, kind=kind, value=float(value), whole=whole, scaled=scaled)


def _of_plans(scenario: Scenario, name: str) -> Callable[[float], Scenario | None]:
    def scaled(factor: float) -> Scenario | None:
        return _with_plans(scenario, lambda plan: changed(plan, **{name: getattr(plan, name) * factor}))

    return scaled


def _of_degree(scenario: Scenario, axis: str) -> Callable[[float], Scenario | None]:
    def one(plan: Plan, factor: float) -> Plan | None:
        size, shard = plan.degree(axis) * factor, plan.dp_shard / factor
        if not (float(size).is_integer() and float(shard).is_integer() and size >= 1.0 and shard >= 1.0):
            return None
        return changed(plan, **{axis: int(size) if axis == "pp" else size, "dp_shard": shard})

    return lambda factor: _with_plans(scenario, lambda plan: one(plan, factor))


def _of_nodes(scenario: Scenario) -> Callable[[float], Scenario | None]:
    def scaled(factor: float) -> Scenario | None:
        islands = [resized(island, float(island.gpus) * factor) for island in scenario.fleet.islands]
        moved = _with_plans(scenario, lambda plan: _wider(plan, factor))
        if moved is None or any(island is None for island in islands):
            return None
        return changed(moved, fleet=changed(scenario.fleet, islands=tuple(one for one in islands if one is not None)))

    return scaled


def _wider(plan: Plan, factor: float) -> Plan | None:
    """The plan on so many times the ranks: those that shard take them, copies where those cannot."""
    for name in ("dp_shard", "dp_replicate"):
        ranks = getattr(plan, name) * factor
        if float(ranks).is_integer() and ranks >= 1.0:
            return changed(plan, **{name: ranks})
    return None


def _with_plans(scenario: Scenario, change: Callable[[Plan], Plan | None]) -> Scenario | None:
    """Every island's plan changed, the batch with it where it follows the plan."""
    plan, plans = change(scenario.plan), [change(one) for one in scenario.plans]
    if plan is None or any(one is None for one in plans):
        return None
    run = scenario.run
    if batch_unsaid(scenario):
        before = sum(one.dp * one.micro_batch for one in scenario.plans or (scenario.plan,))
        after = sum(one.dp * one.micro_batch for one in (plans or [plan]) if one is not None)
        run = changed(run, global_batch=run.global_batch * after / before)
    return changed(scenario, plan=plan, plans=tuple(one for one in plans if one is not None), run=run)


def _of_sync(scenario: Scenario, name: str) -> Callable[[float], Scenario | None]:
    def scaled(factor: float) -> Scenario | None:
        value = getattr(scenario.plan.sync, name) * factor
        if name == "num_fragments":
            if not float(value).is_integer() or value < 1.0:
                return None
            value = int(value)
        sync = changed(scenario.plan.sync, **{name: value})
        return changed(
            scenario, plan=laid(scenario.plan, sync), plans=tuple(laid(plan, sync) for plan in scenario.plans)
        )

    return scaled


def _of_run(scenario: Scenario, name: str) -> Callable[[float], Scenario]:
    def scaled(factor: float) -> Scenario:
        run: Run = changed(scenario.run, **{name: getattr(scenario.run, name) * factor})
        return changed(scenario, run=run)

    return scaled
