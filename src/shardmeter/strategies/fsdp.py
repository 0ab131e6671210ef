"""Fully sharded data parallelism: FSDP, HSDP, ZeRO-3 (Zhao 2023 §3; Rajbhandari 2020 §5.3).

Every unit's parameters are gathered before its forward pass, freed, gathered again before its backward (unless
`reshard: false`), and its gradients scattered after it: once per micro-batch. With `dp_replicate` > 1 (HSDP) the scattered
gradients are then all-reduced over the replicas. One unit ahead is prefetched. Leaves out: skipping the scatter while
accumulating (no_sync), the rate limiter.
"""

from __future__ import annotations

from shardmeter.core.units import Bytes, Count
from shardmeter.specs.demands import FORWARD, INPUT_GRAD, Transfer
from shardmeter.specs.plan import Plan

SHARD, EXPERTS = ("cp", "dp_shard"), ("edp",)
"""What shards parameters, and what shards those of routed experts."""
REPLICATE = ("dp_replicate",)


def applies(plan: Plan) -> bool:
    """Whether parameters themselves are sharded."""
    return plan.sharding in ("fsdp", "zero3")


def transfers(
    parameters: Count,
    trained: Count,
    plan: Plan,
    gather_width: Bytes,
    reduce_width: Bytes,
    keep: bool,
    experts: bool = False,
) -> tuple[Transfer, ...]:
    """Collectives of one unit of `parameters` per micro-batch. `keep`: its parameters stay gathered until the backward.

    Frozen parameters travel like the others; gradients are those of the `trained` ones, and there are none if nothing of
    the unit is."""
    shards = plan.degree("edp") if experts else plan.dp_shard * plan.cp
    group = EXPERTS if experts else SHARD

    def over(label: str, collective: str, size: Bytes, axes: tuple[str, ...], phase: str) -> Transfer:
        under = "forward" if phase == FORWARD else "backward"
        return Transfer(
            label=label, collective=collective, size=size, axes=axes, phase=phase, scope="layer", hides_under=under
        )

    gather = over("parameter gather", "all_gather", parameters * gather_width, group, FORWARD)
    again = () if keep else (over("parameter gather", "all_gather", parameters * gather_width, group, INPUT_GRAD),)
    if isinstance(trained, float) and trained == 0.0:
        return gather, *again
    return (
        gather,
        *again,
        over("gradient scatter", "reduce_scatter", trained * reduce_width, group, INPUT_GRAD),
        over("gradient reduce over replicas", "all_reduce", trained * reduce_width / shards, REPLICATE, INPUT_GRAD),
    )
