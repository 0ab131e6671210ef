"""A mesh axis that crosses islands: their accelerators as one island, with the network between them as its outermost tier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from shardmeter.core.record import changed
from shardmeter.core.units import Count
from shardmeter.engine.evaluate import evaluate
from shardmeter.engine.links import links_of
from shardmeter.engine.ring import ring_order
from shardmeter.specs import Estimate, Island, Model, Plan, Run, Stack, Tier, Wan

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
        found.append(evaluate(model, wide, laid, run, stack))
    slowest = max(found, key=lambda one: float(one.step_time))
    return tuple(
        changed(slowest, memory=one.memory, memory_allocated=one.memory_allocated, memory_first=one.memory_first,
                memory_peak=one.memory_peak, memory_limit=one.memory_limit)
        for one in found
    )  # fmt: skip


def spread(plan: Plan, axis: str, members: Sequence[Island]) -> Plan:
    """A plan with one axis over all islands: outermost, of as many steps as the islands have accelerators for."""
    inside: Count = plan.gpus / plan.degree(axis)
    degree = sum(float(island.gpus) for island in members) / inside
    order = (*(name for name in plan.rank_order if name != axis), axis)
    return changed(plan, **{axis: int(degree) if axis == "pp" else degree}, rank_order=order)


def between(island: Island, cell: Cell, wan: Wan, whole: Count, stack: Stack) -> Tier:
    """The network between the islands of a cell as a tier: what each accelerator has of the slowest link in the best ring order.

    A step of a ring takes a link's delay on the average of the ring; a tree, two for every doubling. The rates hold what
    transports reach, so the stack's own factor for its adapters is taken out again."""
    links = links_of(wan).among(list(cell.islands))
    order = ring_order(links.rate, links.rtt)
    pairs = [(a, b) for a, b in zip(order, (*order[1:], order[0]), strict=True) if a != b]
    rate = min(float(links.rate[pair]) for pair in pairs)
    delay = float(np.mean([links.rtt[pair] for pair in pairs])) / 2.0
    return Tier(
        name="between islands",
        size=whole,
        bandwidth=rate / island.gpus,
        share=1.0 / stack.nic_factor,
        latency=2.0 * delay,
        latency_base=2.0 * delay,
        latency_step=delay,
    )
