"""*price*: what an island and a stack charge for a demand. Knows the mesh only as degrees and strides; knows no strategy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from shardmeter.core.units import Bytes, BytesPerS, Count, FlopPerS, Fraction, Ratio, Seconds
from shardmeter.physics import attention, collectives, gemm, memory_bound
from shardmeter.specs.accelerator import Accelerator
from shardmeter.specs.demands import FORWARD, Compute, Transfer
from shardmeter.specs.fleet import Island, Tier
from shardmeter.specs.plan import Plan
from shardmeter.specs.stack import Stack

Mask: TypeAlias = np.bool_ | npt.NDArray[np.bool_]

KERNEL_START = 2e-6
"""Seconds a kernel needs to start on the device (H800 and A100 shape sweeps: 2 µs with queued launches)."""
PASSES = {"all_reduce": 1.0, "all_gather": 0.5, "reduce_scatter": 0.5, "all_to_all": 0.5}
"""Latency relative to an all-reduce's."""
OLDER = {"cudnn": "fa3", "fa3": "fa2", "fa2": "fa1"}
"""What a device falls back to when it has no rate for a kernel."""
DEFAULT_ATTENTION = (0.50, 0.42)


@dataclass(frozen=True, slots=True)
class Charge:
    """Seconds of one transfer: alone on the wire, and what it occupies of each channel."""

    seconds: Seconds
    scale_up: Seconds
    fabric: Seconds


NOTHING = Charge(0.0, 0.0, 0.0)
"""A group of one moves nothing."""


@dataclass(frozen=True, slots=True)
class Prices:
    """Price list of one island under one stack for one mesh."""

    island: Island
    stack: Stack
    plan: Plan
    rate: FlopPerS
    peak: FlopPerS
    bandwidth: BytesPerS
    width: Bytes
    depth: Count

    def compute(self, op: Compute) -> Seconds:
        """Device seconds of one kernel demand."""
        if op.kind == "gemm":
            traffic = gemm.gemm_traffic(op.m, op.n, op.k, op.repeats, self.width)
            fill = gemm.gemm_fill(op.m, op.n, op.k, op.repeats, self.island.accelerator.processors, self.depth)
            return gemm.gemm_time(op.flops, traffic, fill, self.rate, self.bandwidth, KERNEL_START)
        if op.kind == "attention":
            return self._attention(op)
        return memory_bound.traffic_time(op.traffic, self.stack.traffic_factor, self.bandwidth)

    def streamed(self, traffic: Bytes) -> Seconds:
        """Seconds of plain streaming through memory (optimizer): no stack factor."""
        return memory_bound.traffic_time(traffic, 1.0, self.bandwidth)

    def _attention(self, op: Compute) -> Seconds:
        kernel, forward = self.stack.attention, op.phase == FORWARD
        if kernel in attention.SCORE_BYTES:
            per_score = attention.SCORE_BYTES[kernel][0 if forward else 1]
            return attention.unfused_attention_time(op.flops, op.n * per_score, self.rate, self.bandwidth)
        share = attention_share(self.island.accelerator, kernel)[0 if forward else 1]
        # op.flops of the backward is twice the forward's; flash kernels also recompute the scores: 2.5 ×.
        done = op.flops * op.repeats * (1.0 if forward else attention.BACKWARD_FLOPS / 2.0)
        return attention.flash_attention_time(
            done, op.seq, op.head_dim, attention.NARROW_HEAD[kernel], self.peak, share, self.stack.attention_factor
        )

    def transfer(self, demand: Transfer) -> Charge:
        """Seconds of `demand.messages` collectives of `demand.size` bytes each (sends: the size is the total)."""
        if demand.collective == "send":
            return self._send(demand)
        double = 2.0 if demand.collective == "all_reduce" else 1.0
        ranks = math.prod(self.plan.degree(axis) for axis in demand.axes)
        if isinstance(ranks, float) and ranks == 1.0:
            return NOTHING
        wire: Seconds = 0.0
        latency: Seconds = 0.0
        innermost: Seconds = 0.0
        crossing: Mask = np.False_
        inside: Count = 1.0
        for index, tier in enumerate(self.island.tiers):
            reached = self._inside(demand.axes, tier.size)
            units = reached / inside
            moved = collectives.shard_traffic(demand.size * double, reached, inside)
            time = collectives.tier_time(moved, tier.bandwidth, tier.share, self._factor(index))
            wire = np.maximum(wire, time)
            base, doubling = (tier.latency_base, tier.latency) if index else (tier.latency_base + tier.latency, 0.0)
            latency = latency + collectives.tier_latency(units, base, doubling, PASSES[demand.collective])
            if index == 0:
                innermost = time
            crossing = np.logical_or(crossing, np.greater(units, 1.0)) if index else np.False_
            inside = reached
        seconds = (wire + latency) * demand.messages
        fabric = np.where(crossing, seconds, 0.0)
        return Charge(seconds, np.where(crossing, innermost * demand.messages, seconds), fabric)

    def _send(self, demand: Transfer) -> Charge:
        span = self.plan.stride("pp") * self.plan.degree("pp")
        inner = self.island.tiers[0]
        time = collectives.send_time(
            demand.size, inner.bandwidth, inner.share, self._factor(0), 0.5 * (inner.latency_base + inner.latency)
        )
        crossing: Mask = np.False_
        for index, tier in enumerate(self.island.tiers[1:], 1):
            over = np.greater(span, self.island.tiers[index - 1].size)
            latency = 0.5 * (tier.latency_base + tier.latency) * demand.messages
            far = collectives.send_time(demand.size, tier.bandwidth, tier.share, self._factor(index), latency)
            time = np.where(over, far, time)
            crossing = over
        return Charge(time, np.where(crossing, 0.0, time), np.where(crossing, time, 0.0))

    def _factor(self, index: int) -> Ratio:
        return self.stack.nic_factor if index else self.stack.scale_up_factor

    def _inside(self, axes: tuple[str, ...], unit: Count) -> Count:
        members: Count = 1.0
        for axis in axes:
            degree = self.plan.degree(axis)
            members = members * collectives.members_inside(degree, self.plan.stride(axis), unit)
        return members


def prices(island: Island, stack: Stack, plan: Plan, width: Bytes) -> Prices:
    """The price list; `width` is bytes per activation element. KeyError-free: the constraints have checked the dtype."""
    device = island.accelerator
    peak = device.peak[plan.precision]
    share = device.matmul_share.get(plan.precision, 0.80)
    power = 1.0 if device.power is None else device.power
    limit = power if device.power_limit is None else device.power_limit
    return Prices(
        island=island, stack=stack, plan=plan,
        rate=gemm.matmul_rate(peak, share, stack.gemm_factor, limit, power),
        peak=peak * np.sqrt(np.minimum(limit / power, 1.0)),
        bandwidth=device.memory_bandwidth * device.memory_share,
        width=width,
        depth=gemm.depth_fill(peak, width, device.memory_bandwidth, gemm.DEPTH_FILL, 1.0),
    )  # fmt: skip


def attention_share(device: Accelerator, kernel: str) -> tuple[Fraction, Fraction]:
    """(forward, backward) share of peak of a kernel on a device, falling back to the next older kernel it has."""
    name: str | None = kernel
    while name is not None:
        if name in device.attention_share:
            return device.attention_share[name]
        name = OLDER.get(name)
    return DEFAULT_ATTENTION


__all__ = ["Charge", "Prices", "Tier", "prices"]
