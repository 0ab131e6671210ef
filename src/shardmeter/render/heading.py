"""The question in one line: what is trained, on what, how laid out, with which software."""

from __future__ import annotations

from shardmeter.core.units import Count
from shardmeter.specs import Plan, Scenario

USUAL = {"precision": "bf16", "optimizer": "adamw", "trainable": "all"}
"""Words that are said where they differ."""
DEGREES = ("tp", "pp", "cp", "ep", "etp", "dp_shard", "dp_replicate")


def heading(scenario: Scenario) -> str:
    """`llama-3.1-8b on 64 × H100-SXM5-80GB · fsdp, dp_shard 64, micro-batch 1 · seq 8,192, batch 64 · titan-compile`."""
    fleet = " + ".join(f"{_count(island.gpus)} × {island.accelerator.name}" for island in scenario.fleet.islands)
    run = f"seq {_count(scenario.run.seq_len)}, batch {_count(scenario.run.global_batch)}"
    if scenario.run.document_len is not None:
        run = f"{run}, documents of {_count(scenario.run.document_len)}"
    if scenario.run.reference is not None:
        run = f"{run}, reference {scenario.run.reference.name}"
    return f"{scenario.model.name} on {fleet} · {plan_text(scenario.plan)} · {run} · {scenario.stack.name}"


def plan_text(plan: Plan) -> str:
    """The sharding, the degrees that are not 1, the micro-batch, and what is not as usual."""
    degrees = [f"{name} {_count(getattr(plan, name))}" for name in DEGREES if not _is_one(getattr(plan, name))]
    rest = [f"micro-batch {_count(plan.micro_batch)}"]
    if plan.recompute != "none":
        rest.append(f"recompute {plan.recompute}")
    if plan.pp > 1:
        rest.append(plan.schedule + (f" of {plan.virtual_stages}" if plan.virtual_stages > 1 else ""))
    for name, usual in USUAL.items():
        if getattr(plan, name) != usual:
            rest.append(f"{name} {getattr(plan, name)}")
    if plan.offload:
        rest.append(f"offload {' and '.join(plan.offload)}")
    return ", ".join([plan.sharding, *degrees, *rest])


def _is_one(value: Count) -> bool:
    return isinstance(value, int | float) and value == 1


def _count(value: Count) -> str:
    return f"{value:,.0f}" if isinstance(value, int | float) else "(several)"
