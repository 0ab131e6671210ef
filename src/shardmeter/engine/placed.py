"""A mesh axis that crosses islands: their accelerators as one island, with the network between them as its outermost tier."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from shardmeter.core.record import changed
from shardmeter.core.units import Bytes, Count, UsdPerByte
from shardmeter.engine.demand import Work
from shardmeter.engine.evaluate import demands, evaluate
from shardmeter.engine.links import links_of
from shardmeter.engine.ring import ring_order
from shardmeter.specs import Estimate, Island, Model, Plan, Run, Stack, Tier, Wan
from shardmeter.strategies import fsdp

if TYPE_CHECKING:
    from shardmeter.engine.cells import Cell


def placed(
    model: Model, members: Sequence[Island], cell: Cell, plans: Sequence[Plan], wan: Wan | None, run: Run, stack: Stack
) -> tuple[Estimate, ...]:
    """The inner step of a cell, once per island: the time is that of the slowest, memory and ends are the island's own.

    Raises ValueError without a network. Leaves out: islands of unlike size, of which each is taken to be cut as evenly as the
    axis allows."""
    if wan is None:
        raise ValueError("an axis crosses islands and no network joins them")
    whole = sum(float(island.gpus) for island in members)
    found: list[Estimate] = []
    for island, plan in zip(members, plans, strict=True):
        laid = spread(plan, cell.axis, members)
        tier = between(island, cell, wan, whole, stack)
        wide = changed(island, nodes=whole / island.gpus_per_node, tiers=(*island.tiers, tier))
        one = evaluate(model, wide, laid, run, stack)
        sent = _sent(demands(model, laid, run, stack), laid, cell, island)
        found.append(changed(one, ends=changed(one.ends, sent=sent, egress=sent * _price(cell, wan))))
    slowest = max(found, key=lambda one: float(one.step_time))
    return tuple(
        changed(slowest, memory=one.memory, memory_allocated=one.memory_allocated, memory_first=one.memory_first,
                memory_peak=one.memory_peak, memory_limit=one.memory_limit, ends=one.ends)
        for one in found
    )  # fmt: skip


def spread(plan: Plan, axis: str, members: Sequence[Island]) -> Plan:
    """A plan with one axis over all islands: outermost, of as many steps as the islands have accelerators for."""
    inside: Count = plan.gpus / plan.degree(axis)
    degree = sum(float(island.gpus) for island in members) / inside
    order = (*(name for name in plan.rank_order if name != axis), axis)
    return changed(plan, **{axis: int(degree) if axis == "pp" else degree}, rank_order=order)


def _sent(work: Work, plan: Plan, cell: Cell, island: Island) -> Bytes:
    """What every island sends in a step where sharded parameters cross islands: of each gather and each reduction of each group of
    ranks what one island lacks, M − 1 parts of M; NaN for other axes, and for tokens that go to experts elsewhere, whose traffic is
    not counted."""
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
                total = total + float(block.block.count) * one.size * groups[one.axes] * lacks
    return total * work.micro_batches


def _price(cell: Cell, wan: Wan) -> UsdPerByte:
    """USD a byte on the mean of the links of the ring over a cell's islands."""
    links = links_of(wan).among(list(cell.islands))
    order = ring_order(np.asarray(links.rate), np.asarray(links.rtt))
    prices = np.asarray(links.egress)
    return float(np.mean([prices[a, b] for a, b in zip(order, (*order[1:], order[0]), strict=True)]))


def between(island: Island, cell: Cell, wan: Wan, whole: Count, stack: Stack) -> Tier:
    """The network between the islands of a cell as a tier: what each accelerator has of the slowest link in the best ring order.

    A step of a ring takes a link's delay on the average of the ring; a tree, two for every doubling. The rates hold what
    transports reach, so the stack's own factor for its adapters is taken out again."""
    links = links_of(wan).among(list(cell.islands))
    rates, trips = np.asarray(links.rate), np.asarray(links.rtt)
    order = ring_order(rates, trips)
    pairs = [(a, b) for a, b in zip(order, (*order[1:], order[0]), strict=True) if a != b]
    rate = min(float(rates[pair]) for pair in pairs)
    delay = float(np.mean([trips[pair] for pair in pairs])) / 2.0
    return Tier(
        name="between islands",
        size=whole,
        bandwidth=rate / island.gpus,
        share=1.0 / stack.nic_factor,
        latency=2.0 * delay,
        latency_base=2.0 * delay,
        latency_step=delay,
    )
