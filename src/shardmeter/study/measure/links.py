"""What collectives of measured sizes say of the links between ranks of one machine, so that the engine prices them as they were timed.

Rates are of what grows with the size: the start is taken off. A ring's step is what a gather of the least size takes beyond the start
that the engine counts for any (`Tier.latency_start`); an all-reduce of that size is its own start.
Leaves out: sizes between the least and the most, where protocols change; more ranks than were timed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from shardmeter.engine.price import prices
from shardmeter.physics.collectives import SWITCH_LEAST
from shardmeter.scenario.islands import build_island
from shardmeter.specs import Accelerator, Plan, Stack, Transfer
from shardmeter.specs.fleet import Tier
from shardmeter.study.measure.record import Measured, Timing

SHORTEST = 1e-7
"""Seconds of a ring's step where a gather takes no longer than any start."""
SUMS = "all_reduce"
Bounds = Mapping[str, tuple[float, float]]


def links(measured: Measured, like: Accelerator | None) -> tuple[dict[str, Any], dict[str, tuple[float, float]]]:
    """The columns of the domain, and (low, high) of those that were timed; nothing where no collective was."""
    timed = measured.of("collective")
    if not timed:
        return {}, {}
    ranks = float(max(one.task.sizes["ranks"] for one in timed))
    rates = {name: _rates(measured, name, ranks) for name in dict.fromkeys(one.task.name for one in timed)}
    summed = rates.get(SUMS)
    passed = [rate for name, rate in rates.items() if name != SUMS]
    by_switch = summed is not None and bool(passed) and ranks >= SWITCH_LEAST and summed[0] > _middle(passed, 0)
    ringed = passed if by_switch or summed is None else [*passed, summed]
    top = max(rate[0] for rate in rates.values())
    share = [_middle(ringed, at) / top for at in range(3)]
    found: dict[str, Any] = {
        "scale_up": "measured", "scale_up_bandwidth": top, "scale_up_share": share[0],
        "scale_up_reduce_share": summed[0] / top if by_switch and summed is not None else None,
        "scale_up_domain": max(ranks, 0.0 if like is None else float(like.scale_up_domain)),
        "node_size": max(ranks, 0.0 if like is None else float(like.node_size)),
    }  # fmt: skip
    bounds = {"scale_up_share": (share[1], min(share[2], 1.0))}
    if by_switch and summed is not None:
        bounds["scale_up_reduce_share"] = (summed[1] / top, summed[2] / top)
    gathers = [one for name in rates if name != SUMS for one in _least(measured, name)]
    begun = float(Tier(name="", size=1.0, bandwidth=1.0, share=1.0, latency=0.0).latency_start)
    if gathers:
        steps = [max((float(np.median([getattr(one, of) for one in gathers])) - begun) / (ranks - 1.0), SHORTEST)
                 for of in ("seconds", "low", "high")]  # fmt: skip
        found["scale_up_step"], bounds["scale_up_step"] = steps[0], (steps[1], steps[2])
    for one in _least(measured, SUMS):
        found["scale_up_latency"], bounds["scale_up_latency"] = one.seconds, (one.low, one.high)
        found.setdefault("scale_up_step", max((one.seconds - begun) / (2.0 * ranks - 2.0), SHORTEST))
    return found, bounds


def _middle(rates: list[tuple[float, float, float]], at: int) -> float:
    return float(np.median([one[at] for one in rates]))


def _least(measured: Measured, name: str) -> tuple[Timing, ...]:
    """The timing of a collective's least size, as one or none."""
    return tuple(sorted(measured.of("collective", name), key=lambda one: one.task.sizes["bytes"])[:1])


def _rates(measured: Measured, name: str, ranks: float) -> tuple[float, float, float]:
    """Bytes a second through a rank's links, (usual, lowest, highest): those of the largest size over its time without the least one's."""
    ordered = sorted(measured.of("collective", name), key=lambda one: one.task.sizes["bytes"])
    most, least = ordered[-1], ordered[0]
    moved = (2.0 if name == SUMS else 1.0) * most.task.sizes["bytes"] * (ranks - 1.0) / ranks
    start = least.seconds if least.seconds < most.low and least is not most else 0.0
    return moved / (most.seconds - start), moved / (most.high - start), moved / (most.low - start)


def seconds_between(one: Timing, device: Accelerator, stack: Stack) -> float:
    """What the engine says of a collective over the ranks of one machine."""
    ranks = float(one.task.sizes["ranks"])
    island = build_island(accelerator=device, nodes=1.0, gpus_per_node=ranks, fabric=None)
    demand = Transfer(label="benchmark", collective=one.task.name, size=float(one.task.sizes["bytes"]), axes=("dp_shard",),
                      phase="forward", scope="step")  # fmt: skip
    plan = Plan(sharding="fsdp", dp_shard=ranks, precision=next(iter(device.peak)))
    return float(prices(island, stack, plan, 4.0, next(iter(device.peak))).transfer(demand).seconds)
