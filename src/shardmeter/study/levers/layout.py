"""Numbers of the plan and of the run. A degree that grows takes its ranks from dp_shard; batches stay as they are said."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

from shardmeter.core.record import changed
from shardmeter.core.sums import plain_sum
from shardmeter.core.units import Number
from shardmeter.schedules import traits
from shardmeter.specs import Plan, Run, Scenario
from shardmeter.study.levers.lever import Lever, product, products
from shardmeter.study.moves import resized
from shardmeter.study.relief import batch_unsaid
from shardmeter.sync import laid, method

_PLAN = (
    ("micro_batch", "micro-batch", "sequences", True),
    ("virtual_stages", "virtual stages of a rank", "", True),
    ("ahead", "micro-batches ahead of a boundary between islands", "", True),
    ("ep", "expert parallelism (ep)", "", True),
    ("expert_skew", "imbalance of experts", "", False),
    ("offload_layers", "layers whose activations go to the host", "", True),
)
_LENGTHS = ("virtual_stages", "num_fragments", "blocks", "levels", "pp")
"""Numbers that set the length of an axis, and are whole by type."""
_ROUTED = ("ep", "expert_skew")
"""Of models with experts."""
_NEEDS: dict[str, Callable[[Plan], bool]] = {
    "virtual_stages": lambda plan: plan.pp > 1,
    "ahead": lambda plan: traits(plan.schedule).ahead and any(axis == "pp" for axis, _ in plan.placement),
}
"""What a plan must have for a number of it to mean something."""
_DEGREES = {
    "tp": "tensor parallelism (tp)", "pp": "pipeline stages (pp)", "cp": "context parallelism (cp)", "dp_replicate": "replicas (dp_replicate)",
}  # fmt: skip
"""Degrees with what people call them."""
_SYNC = (
    ("sync_every", "inner steps of a round (H)", "steps", True),
    ("num_fragments", "fragments (P)", "", True),
    ("fragment_sync_delay", "steps between sending and applying (tau)", "steps", True),
    ("fragment_update_alpha", "weight of the local parameters (alpha)", "", False),
    ("bits", "bits of a value on the wire", "bits", False),
    ("top_k", "share of the values that is sent", "", False),
    ("lead", "share of a step behind which messages may pass already", "", False),
    ("grace", "wait for late islands", "s", False),
    ("rank", "rank of what is sent", "", True),
    ("perturbations", "perturbations", "", True),
    ("together", "passes side by side", "", True),
    ("experts", "experts that are trained apart", "", True),
)
_MOST = {"bits": 32.0, "top_k": 1.0, "lead": 1.0, "fragment_update_alpha": 1.0}
"""Largest values; of others none."""
_RUN = (
    ("seq_len", "sequence length", "tokens", True),
    ("global_batch", "global batch", "sequences", True),
    ("document_len", "mean document", "tokens", False),
)
_LENGTH = (
    ("tokens", "tokens of the run", "tokens", False),
    ("steps", "steps of the run", "steps", True),
    ("target_loss", "loss to reach", "nats", False),
)


def levers(scenario: Scenario) -> Iterator[Lever]:
    """Of the plan (every island's), of the synchronisation where there is one, of the run."""
    plan, islands = scenario.plan, scenario.fleet.islands
    for name, title, unit, whole in _PLAN:
        value, needs = getattr(plan, name), _NEEDS.get(name)
        if (scenario.model.experts or name not in _ROUTED) and (needs is None or needs(plan)):
            yield _lever(f"plan.{name}", title, unit, "plan", value, _of_plans(scenario, name), whole=whole)
    for axis, title in () if plan.placement else _DEGREES.items():
        yield _lever(f"plan.{axis}", title, "", "plan", plan.degree(axis), _of_degree(scenario, axis))
    if len(islands) > 1:
        reads = method(plan.sync.method).FIELDS
        for name, title, unit, whole in _SYNC:
            if name in reads:
                yield _lever(
                    f"plan.sync.{name}", title, unit, "plan", getattr(plan.sync, name), _of_sync(scenario, name),
                    whole=whole, most=_MOST.get(name, math.inf),
                )  # fmt: skip
    if not plan.placement:
        yield from _of_nodes(scenario)
    for name, title, unit, whole in (*_RUN, *_LENGTH):
        value = getattr(scenario.run, name)
        if value is not None and not (scenario.run.phases and name != "tokens"):
            yield _lever(f"run.{name}", title, unit, "run", value, _of_run(scenario, name), whole=whole)


def _lever(
    name: str, title: str, unit: str, kind: str, value: Any, scaled: Callable[[float], Scenario | None], *, whole: bool = True,
    most: float = math.inf, part: bool = False,
) -> Lever:  # fmt: skip
    return Lever(
        name=name,
        title=title,
        unit=unit,
        kind=kind,
        value=float(value),
        whole=whole,
        scaled=scaled,
        most=most,
        part=part,
    )


def _moved(record: Any, name: str, factor: Number) -> dict[str, Any]:
    """So many times a number of a record, of the type that it has there."""
    value = products(getattr(record, name), factor)
    return {name: int(value) if name in _LENGTHS else value}


def _of_plans(scenario: Scenario, name: str) -> Callable[[float], Scenario | None]:
    def scaled(factor: float) -> Scenario | None:
        return _with_plans(scenario, lambda plan: changed(plan, **_moved(plan, name, factor)))

    return scaled


def _of_degree(scenario: Scenario, axis: str) -> Callable[[float], Scenario | None]:
    def one(plan: Plan, factor: float) -> Plan | None:
        size, shard = product(float(plan.degree(axis)), factor), product(float(plan.dp_shard), 1.0 / factor)
        if not (size.is_integer() and shard.is_integer() and size >= 1.0 and shard >= 1.0):
            return None
        return changed(plan, **{axis: int(size) if axis in _LENGTHS else size, "dp_shard": shard})

    return lambda factor: _with_plans(scenario, lambda plan: one(plan, factor))


def _of_nodes(scenario: Scenario) -> Iterator[Lever]:
    """Nodes of all islands, and of one island of every kind where there are several."""
    islands, plans = scenario.fleet.islands, scenario.plans or (scenario.plan,)
    every = tuple(range(len(islands)))
    yield _lever(
        "fleet.islands.nodes", "nodes of every island", "", "plan", islands[0].nodes,
        functools.partial(_with_nodes, scenario, every),
    )  # fmt: skip
    if not 1 < len(islands) <= MOST:
        return
    kinds: dict[str, list[int]] = {}
    for at in every:
        same = changed(islands[at], name="", region=""), plans[at]
        kinds.setdefault(repr(same), []).append(at)
    for first, *others in kinds.values():
        alike = f", one of {len(others) + 1} alike" if others else ""
        yield _lever(
            f"fleet.islands.{islands[first].name}.nodes", f"nodes of {islands[first].name}{alike}", "", "plan",
            islands[first].nodes, functools.partial(_with_nodes, scenario, (first,)), part=True,
        )  # fmt: skip


MOST = 8
"""Islands up to which one of each kind is moved by itself too."""


def _with_nodes(scenario: Scenario, places: tuple[int, ...], factor: float) -> Scenario | None:
    """The fleet with so many times the nodes at these places; the ranks of their plans grow with them."""
    islands, plans = list(scenario.fleet.islands), list(scenario.plans or (scenario.plan,))
    for at in places:
        island, plan = resized(islands[at], product(float(islands[at].gpus), factor)), _wider(plans[at], factor)
        if island is None or plan is None:
            return None
        islands[at], plans[at] = island, plan
    return _laid(changed(scenario, fleet=changed(scenario.fleet, islands=tuple(islands))), plans)


def _wider(plan: Plan, factor: float) -> Plan | None:
    """The plan on so many times the ranks: those that shard take them, copies where those cannot."""
    for name in ("dp_shard", "dp_replicate"):
        ranks = product(getattr(plan, name), factor)
        if ranks.is_integer() and ranks >= 1.0:
            return changed(plan, **{name: ranks})
    return None


def _with_plans(scenario: Scenario, change: Callable[[Plan], Plan | None]) -> Scenario | None:
    """Every island's plan changed."""
    plans = [change(one) for one in scenario.plans or (scenario.plan,)]
    whole = change(scenario.plan)
    if whole is None or any(one is None for one in plans):
        return None
    return changed(_laid(scenario, [one for one in plans if one is not None]), plan=whole)


def _laid(scenario: Scenario, plans: list[Plan]) -> Scenario:
    """The scenario with these plans of its islands, the batch with them where it follows the plan."""
    run, several = scenario.run, len(scenario.fleet.islands) > 1
    if batch_unsaid(scenario):
        before = plain_sum(one.dp * one.micro_batch for one in scenario.plans or (scenario.plan,))
        after = plain_sum(one.dp * one.micro_batch for one in plans)
        run = changed(run, global_batch=run.global_batch * after / before)
    return changed(scenario, plan=plans[0], plans=tuple(plans) if several else (), run=run)


def _of_sync(scenario: Scenario, name: str) -> Callable[[float], Scenario | None]:
    def scaled(factor: float) -> Scenario | None:
        sync = changed(scenario.plan.sync, **_moved(scenario.plan.sync, name, factor))
        plans = tuple(laid(plan, sync) for plan in scenario.plans)
        return changed(scenario, plan=laid(scenario.plan, sync), plans=plans)

    return scaled


def _of_run(scenario: Scenario, name: str) -> Callable[[float], Scenario]:
    def scaled(factor: float) -> Scenario:
        run: Run = changed(scenario.run, **_moved(scenario.run, name, factor))
        return changed(scenario, run=run)

    return scaled
