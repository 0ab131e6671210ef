"""A mesh axis that crosses islands: their accelerators as one island, with the network between them as its outermost tier."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from shardmeter.core.record import changed
from shardmeter.core.sums import plain_sum
from shardmeter.core.units import Bytes, Count
from shardmeter.engine.asked import BACKEND
from shardmeter.engine.chosen import slowest
from shardmeter.engine.demand import Work
from shardmeter.engine.evaluate import demands, evaluate
from shardmeter.engine.wans import Tour
from shardmeter.specs import Estimate, Island, Model, Plan, Run, Stack, Tier
from shardmeter.strategies import fsdp

if TYPE_CHECKING:
    from shardmeter.engine.cells import Cell


def placed(
    model: Model, members: Sequence[Island], cell: Cell, plans: Sequence[Plan], tour: Tour, run: Run, stack: Stack
) -> tuple[Estimate, ...]:
    """The inner step of a cell, once per island: the time is that of the slowest, memory and ends are the island's own.

    A `tour` of networks side by side gives times of shape (networks,). Leaves out: islands of unlike size, of which each is taken to
    be cut as evenly as the axis allows."""
    whole = plain_sum(float(island.gpus) for island in members)
    known: dict[tuple[Any, ...], Estimate] = {}
    found: list[Estimate] = []
    for island, plan in zip(members, plans, strict=True):
        key = id(island.accelerator), island.nodes, island.gpus_per_node, island.tiers, plan
        if key not in known:
            laid = spread(plan, cell.axis, members)
            tiers = (*island.tiers, between(island, tour, whole, stack))
            one = evaluate(
                model, changed(island, nodes=whole / island.gpus_per_node, tiers=tiers), laid, run, stack, meets=True
            )
            sent = _sent(demands(model, laid, run, stack), laid, cell, island, by_gloo=tour.backend == BACKEND)
            known[key] = changed(one, ends=changed(one.ends, sent=sent, egress=sent * tour.egress))
        found.append(known[key])
    latest = slowest(found)
    return tuple(
        changed(latest, memory=one.memory, memory_allocated=one.memory_allocated, memory_first=one.memory_first,
                memory_peak=one.memory_peak, memory_limit=one.memory_limit, ends=one.ends)
        for one in found
    )  # fmt: skip


def spread(plan: Plan, axis: str, members: Sequence[Island]) -> Plan:
    """A plan with one axis over all islands: outermost, of as many steps as the islands have accelerators for."""
    inside: Count = plan.gpus / plan.degree(axis)
    degree = plain_sum(float(island.gpus) for island in members) / inside
    order = (*(name for name in plan.rank_order if name != axis), axis)
    return changed(plan, **{axis: int(degree) if axis == "pp" else degree}, rank_order=order)


def _sent(work: Work, plan: Plan, cell: Cell, island: Island, *, by_gloo: bool) -> Bytes:
    """What every island sends in a step where sharded parameters cross islands: of each gather and each reduction of each group of
    ranks what one island lacks, M − 1 parts of M; NaN for other axes, and for tokens that go to experts elsewhere, whose traffic is
    not counted. Over gloo a reduction is an all-reduce."""
    if cell.axis != "dp_shard" or not fsdp.applies(plan) or plan.ep * plan.etp > island.gpus:
        return math.nan
    groups = {fsdp.SHARD: plan.tp * plan.dp_replicate, fsdp.EXPERTS: plan.ep * plan.etp * plan.dp_replicate}
    islands, edp = float(len(cell.islands)), plan.degree("edp")
    parts = {fsdp.SHARD: islands, fsdp.EXPERTS: np.minimum(edp, islands)}
    total: Bytes = 0.0
    for block in work.blocks.values():
        for one in block.sharded:
            if one.axes in groups:
                lacks = 1.0 - 1.0 / parts[one.axes]
                twice = 2.0 if by_gloo and one.collective == "reduce_scatter" else 1.0
                total = total + float(block.block.count) * one.size * groups[one.axes] * lacks * twice
    return total * work.micro_batches


def between(island: Island, tour: Tour, whole: Count, stack: Stack) -> Tier:
    """The network between the islands of a cell as a tier: what each accelerator has of the slowest link in the best ring order.

    A step of a ring takes a link's delay on the average of the ring; a tree, two for every doubling. The rates hold what
    transports reach, so the stack's own factor for its adapters is taken out again."""
    return Tier(
        name="between islands",
        size=whole,
        bandwidth=tour.rate / island.gpus,
        share=1.0 / stack.nic_factor,
        latency=2.0 * tour.delay,
        latency_base=2.0 * tour.delay,
        latency_step=tour.delay,
        asked=tour.backend == BACKEND,
    )
