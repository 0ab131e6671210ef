"""Data parallelism with whole gradients: DDP, ZeRO-1 and ZeRO-2 (Li 2020; Rajbhandari 2020 §5).

ddp: one all-reduce of the gradients a step. zero1: a reduce-scatter, then a gather of the updated parameters. zero2: the
reduce-scatter after every micro-batch, because whole gradients are not kept (DeepSpeed). `accumulate`, a fact of the stack,
changes when: with the last micro-batch everywhere (no_sync), or after every one everywhere (DDP without no_sync).
Leaves out: find-unused-parameters, bucket order.
"""

from __future__ import annotations

from shardmeter.core.units import Bytes, Count
from shardmeter.specs.demands import INPUT_GRAD, OPTIMIZER, Transfer
from shardmeter.specs.plan import Plan

GROUP = ("cp", "dp_shard", "dp_replicate")
EXPERTS = ("edp", "dp_replicate")
"""Routed experts are copied over what the expert mesh leaves of tp · cp · dp_shard, and over the replicas."""


def shards(plan: Plan, experts: bool = False) -> Count:
    """Ways the optimizer state is divided: over cp and dp_shard, that of routed experts over their own copies."""
    if plan.sharding not in ("zero1", "zero2", "zero3", "fsdp"):
        return 1.0
    return plan.degree("edp") if experts else plan.dp_shard * plan.cp


def reduces_each(plan: Plan, accumulate: str) -> bool:
    """Whether gradients are reduced after every micro-batch and not only with the last."""
    usual = plan.sharding in ("zero2", "zero3", "fsdp")
    return {"usual": usual, "last": False, "every": True}[accumulate]


def gradient_transfers(
    parameters: Count, plan: Plan, reduce_width: Bytes, accumulate: str = "usual", experts: bool = False
) -> tuple[Transfer, ...]:
    """Reduction of the gradients of `parameters` (one rank's, after tensor, expert and pipeline cuts)."""
    size = parameters * reduce_width
    group = EXPERTS if experts else GROUP
    scope = "micro_batch" if reduces_each(plan, accumulate) else "step"

    def over(label: str, collective: str, size: Bytes, axes: tuple[str, ...]) -> Transfer:
        return Transfer(
            label=label, collective=collective, size=size, axes=axes, phase=INPUT_GRAD, scope=scope,
            hides_under="backward", messages=1.0,
        )  # fmt: skip

    if plan.sharding in ("none", "ddp"):
        return (over("gradient all-reduce", "all_reduce", size, group),)
    return (
        over("gradient reduce-scatter", "reduce_scatter", size, group[:-1]),
        over("gradient all-reduce over replicas", "all_reduce", size / shards(plan, experts), group[-1:]),
    )


def update_transfers(parameters: Count, plan: Plan, gather_width: Bytes, experts: bool = False) -> tuple[Transfer, ...]:
    """Gather of the updated parameters after a sharded optimizer step."""
    if plan.sharding not in ("zero1", "zero2"):
        return ()
    return (
        Transfer(
            label="parameter gather", collective="all_gather", size=parameters * gather_width,
            axes=(EXPERTS if experts else GROUP)[:-1],
            phase=OPTIMIZER, scope="step", hides_under="forward",
        ),
    )  # fmt: skip
