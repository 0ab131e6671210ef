"""A point of the space as a scenario that can be written down, and what two of them differ in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shardmeter.core.record import changed
from shardmeter.specs import Plan, Scenario, Stack
from shardmeter.specs.plan import AXES
from shardmeter.study.planning.space import Space

FIELDS = (
    "sharding", "tp", "pp", "cp", "ep", "etp", "dp_shard", "dp_replicate", "reshard", "micro_batch", "schedule",
    "virtual_stages", "ahead", "stagger", "recompute", "cp_kind", "sequence_parallel", "async_tp", "offload", "precision", "gather_dtype",
    "reduce_dtype", "optimizer", "master_dtype", "trainable", "expert_skew", "rank_order",
)  # fmt: skip
"""Fields of a plan, in the order in which it is told."""


def plan_document(plan: Plan) -> dict[str, Any]:
    """Every field of a plan that means something in it, as a scenario says it: nothing is left to a default that could change."""
    idle = _idle(plan)
    if plan.probes is not None:
        plan = changed(plan, trainable=plan.probes.of)
    return {name: _said(name, getattr(plan, name)) for name in FIELDS if name not in idle}


def _idle(plan: Plan) -> set[str]:
    """Fields that change nothing in this plan."""
    sharded, alone = plan.sharding in ("fsdp", "zero3"), Plan()
    found = set() if sharded else {"reshard"}
    found |= set() if sharded or plan.sharding in ("zero1", "zero2") else {"gather_dtype"}
    found |= {"schedule", "virtual_stages"} if plan.pp == 1 else set()
    found |= {"cp_kind"} if plan.cp == 1 else set()
    found |= {"sequence_parallel", "async_tp"} if plan.tp == 1 else set()
    found |= {"ep", "etp", "expert_skew"} if plan.ep == 1 and plan.etp == 1 and plan.expert_skew == 1 else set()
    usual = ("ahead", "stagger", "offload", "trainable", "rank_order")
    found |= {"trainable"} if plan.probes is not None and plan.probes.of == alone.trainable else set()
    return found | {name for name in usual if getattr(plan, name) == getattr(alone, name)}


def told(plan: Plan, stack: Stack) -> str:
    """A plan on one line, as `--plan` takes it, without what a scenario would default to anyway."""
    usual = {name: _said(name, getattr(Plan(), name)) for name in FIELDS} | {
        "gather_dtype": stack.gather_dtype, "reduce_dtype": stack.reduce_dtype, "async_tp": stack.async_tp,
        "sharding": None, "dp_shard": plan.dp_shard,
    }  # fmt: skip
    kept = {name: value for name, value in plan_document(plan).items() if value != usual[name]}
    kept.pop("sharding", None)
    return ",".join([plan.sharding, *(f"{name}={_word(value)}" for name, value in kept.items())])


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"[{','.join(value)}]" if isinstance(value, list) else str(value)


def _said(name: str, value: Any) -> Any:
    if name in ("offload", "rank_order"):
        return list(value)
    if isinstance(value, float) and value == int(value):
        return int(value)
    return value


def document_of(space: Space, scenario: Scenario) -> dict[str, Any]:
    """The whole scenario of a point: the document it came from with its fleet, plan, sequence and batch. Of a record, which has
    no document, only plan and run."""
    choices, island = space.choices, scenario.fleet.islands[0]
    said: Mapping[str, Any] = {}
    if choices.said:
        place = choices.islands.index(island) if island in choices.islands else 0
        said = choices.said[place]
    run = dict(said.get("run") or {})
    run |= {"seq_len": int(scenario.run.seq_len), "global_batch": int(scenario.run.global_batch)}
    if scenario.run.phases:
        run["phases"] = [
            {"tokens": one.tokens, "seq_len": int(one.seq_len), "global_batch": int(one.global_batch)}
            for one in scenario.run.phases
        ]
    return {**said, "plan": plan_document(scenario.plan), "run": run}


def differing(first: Scenario, other: Scenario) -> dict[str, Any]:
    """What the other has that differs from the first: fields of the plan, GPUs, sequence, batch."""
    here, there = plan_document(first.plan), plan_document(other.plan)
    idle = Plan()
    usual = {name: _said(name, getattr(idle, name)) for name in FIELDS}
    found = {
        name: there.get(name, usual[name])
        for name in FIELDS
        if here.get(name, usual[name]) != there.get(name, usual[name]) and (name in there or name in AXES)
    }
    had, has = _sizes(first), _sizes(other)
    return found | {name: size for name, size in has.items() if size != had[name]}


def _sizes(scenario: Scenario) -> dict[str, int]:
    """What belongs to no plan and may be open all the same."""
    run = scenario.run
    sizes = {"gpus": scenario.fleet.islands[0].gpus, "seq_len": run.seq_len, "global_batch": run.global_batch}
    return {name: int(float(size)) for name, size in sizes.items()}
