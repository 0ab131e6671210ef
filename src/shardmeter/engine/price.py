"""*price*: what an island and a stack charge for a demand. Knows the mesh only as degrees and strides; knows no strategy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from shardmeter.core.units import Bytes, BytesPerS, Count, Flop, FlopPerS, Fraction, Ratio, Seconds, Watts
from shardmeter.engine import asked, torus
from shardmeter.physics import attention, collectives, gemm, host, memory_bound
from shardmeter.specs.accelerator import Accelerator
from shardmeter.specs.demands import FORWARD, Compute, Transfer
from shardmeter.specs.fleet import Island, Tier
from shardmeter.specs.plan import Plan
from shardmeter.specs.stack import Stack

Mask: TypeAlias = np.bool_ | npt.NDArray[np.bool_]

KERNEL_START = 2e-6
"""Seconds a kernel needs to start on the device (H800 and A100 shape sweeps: 2 µs with queued launches)."""
OLDER = {"cudnn": "fa3", "fa3": "fa2", "fa2": "fa1"}
"""What a device falls back to when it has no rate for a kernel."""
DEFAULT_ATTENTION = (0.50, 0.42)


@dataclass(frozen=True, slots=True)
class Charge:
    """Seconds of one transfer: alone on the wire, and what it occupies of each channel."""

    seconds: Seconds
    scale_up: Seconds
    fabric: Seconds

    def times(self, count: Count) -> Charge:
        """So many of it, one after the other."""
        return Charge(self.seconds * count, self.scale_up * count, self.fabric * count)

    def plus(self, other: Charge, times: Count = 1.0) -> Charge:
        """`times` × another after this one."""
        return Charge(
            self.seconds + times * other.seconds,
            self.scale_up + times * other.scale_up,
            self.fabric + times * other.fabric,
        )


NOTHING = Charge(0.0, 0.0, 0.0)
"""A group of one moves nothing."""


@dataclass(frozen=True, slots=True)
class Format:
    """What products in one number format cost: rate, bytes of an operand, depth that the start of a tile is worth."""

    rate: FlopPerS
    width: Bytes
    depth: Count


OPERAND = {"fp32": 4.0, "tf32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "fp4": 0.5}
"""Bytes of one operand element."""


OF_FP32 = ("tf32", "fp32", "bf16", "fp16")
"""Formats in which products of fp32 numbers are done: the first that a device has."""


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
    formats: dict[tuple[str, str], Format]
    """By (number format, scaling), each priced when first asked for."""

    def compute(self, op: Compute) -> Seconds:
        """Device seconds of one kernel demand."""
        if op.kind == "gemm":
            form = self._format(op.dtype, op.scaling)
            traffic = gemm.gemm_traffic(op.m, op.n, op.k, op.repeats, form.width, self.width)
            at_once = op.repeats / op.serial
            fill = gemm.gemm_fill(op.m, op.n, op.k, at_once, self.island.accelerator.processors, form.depth)
            return gemm.gemm_time(op.flops, traffic, fill, form.rate, self.bandwidth, KERNEL_START * op.serial)
        if op.kind == "attention":
            return self._attention(op)
        streaming = memory_bound.traffic_time(op.traffic, self.stack.traffic_factor, self.bandwidth)
        if isinstance(op.serial, float) and op.serial == 1.0:
            return streaming
        return memory_bound.serial_time(streaming, op.serial, KERNEL_START)

    def waits(self, collectives: Count) -> Seconds:
        """Seconds of the host for `collectives` of tensor parallelism: none unless pipeline stages lie on several nodes."""
        each = self.stack.collective_overhead
        if self.plan.pp == 1 or (isinstance(each, float) and each == 0.0):
            return 0.0
        apart = np.greater(self.island.gpus, self.island.gpus_per_node)
        return np.where(apart, collectives * self.plan.tp * each, 0.0)

    def streamed(self, traffic: Bytes) -> Seconds:
        """Seconds of plain streaming through memory (optimizer): no stack factor."""
        return memory_bound.traffic_time(traffic, 1.0, self.bandwidth)

    def host_copy(self, size: Bytes) -> Seconds:
        """Seconds to copy bytes between device and host, one direction; NaN where the link is not known."""
        link = self.island.accelerator.host_link
        return host.copy_time(size, math.nan if link is None else link, host.LINK_SHARE)

    def host_update(self, traffic: Bytes) -> Seconds:
        """Seconds of streaming through the host's memory; NaN where its rate is not known."""
        rate = self.island.accelerator.host_memory_bandwidth
        return host.update_time(traffic, math.nan if rate is None else rate, host.MEMORY_SHARE)

    def _format(self, dtype: str, scaling: str) -> Format:
        if (dtype, scaling) not in self.formats:
            self.formats[dtype, scaling] = _format(self.island.accelerator, self.stack, dtype, scaling)
        return self.formats[dtype, scaling]

    def _attention(self, op: Compute) -> Seconds:
        kernel, forward = self.stack.attention, op.phase == FORWARD or op.replay
        if kernel in attention.SCORE_BYTES:
            per_score = attention.SCORE_BYTES[kernel][0 if forward else 1]
            return attention.unfused_attention_time(op.flops, op.n * per_score, self.rate, self.bandwidth)
        device = self.island.accelerator
        kernel, shares = attention_share(device, kernel)
        share = shares[0 if forward else 1]
        # op.flops of the backward is twice the forward's; flash kernels also recompute the scores: 2.5 ×.
        done = op.flops * op.repeats * (1.0 if forward else attention.BACKWARD_FLOPS / 2.0)
        return attention.flash_attention_time(
            done, op.seq, op.head_dim, attention.NARROW_HEAD[kernel], device.attention_half, self.peak, share,
            self.stack.attention_factor,
        )  # fmt: skip

    def transfer(self, demand: Transfer) -> Charge:
        """Seconds of `demand.messages` collectives of `demand.size` bytes each; a send goes to the axis's next rank."""
        ranks = math.prod(self.plan.degree(axis) for axis in demand.axes)
        if isinstance(ranks, float) and ranks == 1.0:
            return NOTHING
        if demand.collective == "send":
            return self._send(demand, ranks)
        if demand.collective == "all_to_all":
            return self._all_to_all(demand, ranks)
        double = 2.0 if demand.collective == "all_reduce" else 1.0
        longest: Seconds = 0.0
        total: Seconds = 0.0
        ring: Seconds = 0.0
        tree: Seconds = 0.0
        innermost: Seconds = 0.0
        crossing: Mask = np.False_
        inside: Count = 1.0
        at_once: Seconds = math.inf
        for index, tier in enumerate(self.island.tiers):
            reached = self._inside(demand.axes, tier.size)
            units = reached / inside
            parts = self._along(tier, demand.axes)
            # a port out of a unit carries all that leaves it, however far it goes
            moved = collectives.shard_traffic(demand.size * double, ranks if index else reached, inside)
            share = self._share(tier, demand, ranks, reached)
            rate = torus.rate(tier, parts) if parts else self._bandwidth(tier, reached)
            time = collectives.tier_time(moved, rate, share, self._factor(index))
            longest, total = np.maximum(longest, time), total + time
            steps = torus.hops(parts) if parts else collectives.ring_steps(ranks, inside, reached)
            ring = ring + double * tier.latency_step * steps
            if index == 0:
                tree = collectives.tree_latency(units, tier.latency_base + tier.latency, 0.0)
                if parts:  # no trees over a torus
                    tree = np.where(np.greater(units, 1.0), math.inf, 0.0)
                if not parts and "direct" in self.stack.collectives:
                    at_once = np.where(np.equal(ranks, reached), self._at_once(demand, tier, ranks), math.inf)
                innermost = time
            else:
                # the fit over nodes holds the start inside them; tiers further out only add their doublings
                base = tier.latency_base if index == 1 else tree
                tree = np.where(np.greater(units, 1.0), collectives.tree_latency(units, base, tier.latency), tree)
                crossing = np.logical_or(crossing, np.greater(units, 1.0))
            inside = reached
        latency = np.where(np.greater(ranks, 1.0), self.island.tiers[0].latency_start + ring, 0.0)
        if demand.collective == "all_reduce" and "tree" in self.stack.collectives:
            latency = np.minimum(latency, tree)
        seconds = np.minimum(collectives.wire_time(longest, total) + latency, at_once) * demand.messages
        if self.island.tiers[-1].asked:
            seconds = np.where(crossing, self._asked(demand, ranks) * demand.messages, seconds)
        fabric = np.where(crossing, seconds, 0.0)
        return Charge(seconds, np.where(crossing, innermost * demand.messages, seconds), fabric)

    def _asked(self, demand: Transfer, ranks: Count) -> Seconds:
        """One collective over islands by gloo: one ring through all ranks, which leaves every island once and so has the parts of the line of
        all its ranks there. Leaves out: hops inside an island, which take no time; the delay of those that cross is spread over all."""
        tier, inside = self.island.tiers[-1], self._inside(demand.axes, self.island.tiers[-2].size)
        rate = inside * tier.bandwidth * tier.share * self._factor(len(self.island.tiers) - 1)
        return asked.passed(demand.collective, demand.size, ranks, rate, tier.latency_step / inside)

    def _at_once(self, demand: Transfer, tier: Tier, ranks: Count) -> Seconds:
        """Every rank reads what it needs from all others at once: a gather or a scatter in one step; an all-reduce in one step
        that reads whole buffers, or as a scatter and a gather in two, whichever is shorter. Nothing for one rank."""
        rate, share, factor = self._bandwidth(tier, ranks), tier.share, self._factor(0)
        parts = collectives.tier_time(collectives.shard_traffic(demand.size, ranks, 1.0), rate, share, factor)
        once: Seconds = parts + tier.latency_step
        if demand.collective == "all_reduce":
            whole = collectives.one_shot_traffic(demand.size, ranks)
            once = np.minimum(collectives.tier_time(whole, rate, share, factor) + tier.latency_step, 2.0 * once)
        return np.where(np.greater(ranks, 1.0), tier.latency_start + once, 0.0)

    def _along(self, tier: Tier, axes: tuple[str, ...]) -> tuple[torus.Along, ...]:
        """What a group has of a tier's axes, where the tier is a torus."""
        rows = [row for axis in axes for row in self.plan.spans(axis)]
        return torus.along(tier, rows) if tier.torus else ()

    def _share(self, tier: Tier, demand: Transfer, ranks: Count, reached: Count) -> Fraction:
        """Plateau share of a tier: that of its switch for an all-reduce of a large enough group that stays inside."""
        if tier.reduce_share is None or "nvls" not in self.stack.collectives or demand.collective != "all_reduce":
            return tier.share
        whole = np.logical_and(np.equal(ranks, reached), np.greater_equal(ranks, collectives.SWITCH_LEAST))
        return np.where(whole, np.maximum(tier.reduce_share, tier.share), tier.share)

    def _bandwidth(self, tier: Tier, members: Count) -> BytesPerS:
        """Rate of a tier for a group: all of it through a switch, at most members − 1 pairs through a mesh."""
        if tier.pair_bandwidth is None:
            return tier.bandwidth
        return np.minimum(tier.bandwidth, np.maximum(members - 1.0, 1.0) * tier.pair_bandwidth)

    def _all_to_all(self, demand: Transfer, ranks: Count) -> Charge:
        """Every rank sends an equal part of its buffer to every other: what stays in a unit does not use its ports. Where a node
        is sent a token once, the fabric carries only the copies for unlike nodes, and its own links those for unlike ranks."""
        longest: Seconds = 0.0
        total: Seconds = 0.0
        innermost: Seconds = 0.0
        latency: Seconds = self.island.tiers[0].latency_start
        crossing: Mask = np.False_
        inside: Count = 1.0
        own = self._inside(demand.axes, self.island.tiers[0].size)
        once = not (isinstance(demand.copies, float) and demand.copies == 0.0)
        for index, tier in enumerate(self.island.tiers):
            reached = self._inside(demand.axes, tier.size)
            moved = collectives.exchange_traffic(demand.size, ranks, inside, ranks if index else reached)
            if once and index:
                moved = moved * collectives.copies_share(ranks / own, demand.copies)
            elif once:
                moved = collectives.exchange_traffic(demand.size, reached, inside, reached)
                moved = moved * collectives.copies_share(ranks, demand.copies)
            share = tier.share if index else tier.share * collectives.EXCHANGE_SHARE
            parts = self._along(tier, demand.axes)
            time = collectives.tier_time(moved, self._bandwidth(tier, reached), share, self._factor(index))
            if tier.exchange_bandwidth is not None:
                slow = collectives.tier_time(moved, tier.exchange_bandwidth, 1.0, self._factor(index))
                halves = np.greater(reached, self.island.accelerator.node_size / 2.0)
                time = np.where(halves, np.maximum(time, slow), time)
            if parts:
                time = self._across(tier, parts, demand.size * reached / ranks, moved)
            longest, total = np.maximum(longest, time), total + time
            steps = torus.hops(parts) if parts else np.where(np.greater(reached, inside), 1.0, 0.0)
            latency = latency + tier.latency_step * steps
            if index == 0:
                innermost = time
            else:
                crossing = np.logical_or(crossing, np.greater(reached, inside))
            inside = reached
        latency = np.where(np.greater(ranks, 1.0), latency, 0.0)
        seconds = (collectives.wire_time(longest, total) + latency) * demand.messages
        fabric = np.where(crossing, seconds, 0.0)
        return Charge(seconds, np.where(crossing, innermost * demand.messages, seconds), fabric)

    def _across(self, tier: Tier, parts: tuple[torus.Along, ...], size: Bytes, sent: Bytes) -> Seconds:
        """An all-to-all over a torus: as long as the axis takes whose middle is the narrowest, and at least as long as all its
        links take for what a rank sends. Axes pass their parts at the same time."""
        longest = collectives.tier_time(sent, tier.bandwidth, tier.share, self._factor(0))
        for traffic, rate in torus.exchanged(parts, size):
            longest = np.maximum(longest, collectives.tier_time(traffic, rate, tier.share, self._factor(0)))
        return longest

    def _send(self, demand: Transfer, ranks: Count) -> Charge:
        """Between neighbours of an axis: the slowest tier that any pair of them crosses. Nothing where there is one rank."""
        span = self.plan.stride(demand.axes[0]) * ranks
        inner = self.island.tiers[0]
        start = inner.latency_start
        parts = torus.along(inner, [(2.0, self.plan.stride(demand.axes[0]))])
        rate = torus.rate(inner, parts) if parts else self._bandwidth(inner, 2.0)
        steps = torus.hops(parts) if parts else 1.0
        time = collectives.send_time(
            demand.size, rate, inner.share, self._factor(0), start + inner.latency_step * steps
        )
        crossing: Mask = np.False_
        for index, tier in enumerate(self.island.tiers[1:], 1):
            over = np.greater(span, self.island.tiers[index - 1].size)
            far = collectives.send_time(
                demand.size, self._alone(tier), tier.share, self._factor(index), start + tier.latency_step
            )
            time = np.where(over, far, time)
            crossing = np.logical_or(crossing, over)
        time = np.where(np.greater(ranks, 1.0), time, 0.0) * demand.messages
        return Charge(time, np.where(crossing, 0.0, time), np.where(crossing, time, 0.0))

    def _alone(self, tier: Tier) -> BytesPerS:
        """Rate of a sender out of a node: one adapter, or its part of all of them. As many accelerators of a node send to the
        next stage as lie between neighbouring stages."""
        if tier.adapter is None:
            return tier.bandwidth
        node = self.island.gpus_per_node
        senders = np.minimum(self.plan.stride("pp"), node)
        return np.minimum(tier.adapter, tier.bandwidth * node / senders)

    def _factor(self, index: int) -> Ratio:
        return self.stack.nic_factor if index else self.stack.scale_up_factor

    def _inside(self, axes: tuple[str, ...], unit: Count) -> Count:
        members: Count = 1.0
        for axis in axes:
            for degree, stride in self.plan.spans(axis):
                members = members * collectives.members_inside(degree, stride, unit)
        return members


def prices(island: Island, stack: Stack, plan: Plan, width: Bytes, dtype: str = "bf16") -> Prices:
    """The price list; `width` is bytes per activation element and `dtype` its format, in which products are done that name
    none. KeyError-free: the constraints have checked the dtypes."""
    device = island.accelerator
    power, limit = _power(device)
    base = _format(device, stack, dtype, "")
    return Prices(
        island=island, stack=stack, plan=plan, rate=base.rate,
        peak=device.peak[dtype] * np.sqrt(np.minimum(limit / power, 1.0)),
        bandwidth=device.memory_bandwidth * device.memory_share, width=width, formats={("", ""): base},
    )  # fmt: skip


def products_time(device: Accelerator, flops: Flop) -> Seconds:
    """Seconds of large products of fp32 numbers whose bytes are counted elsewhere: in tf32 where the device has it, at no stack's factor."""
    dtype = next(one for one in OF_FP32 if one in device.peak)
    power, limit = _power(device)
    rate = gemm.matmul_rate(device.peak[dtype], device.matmul_share[dtype], 1.0, limit, power)
    return gemm.gemm_time(flops, 0.0, 1.0, rate, device.memory_bandwidth, 0.0)


def _power(device: Accelerator) -> tuple[Watts, Watts]:
    power = 1.0 if device.power is None else device.power
    return power, power if device.power_limit is None else device.power_limit


def _format(device: Accelerator, stack: Stack, dtype: str, scaling: str) -> Format:
    """What products in a number format cost on a device under a stack."""
    power, limit = _power(device)
    peak, width = device.peak[dtype], OPERAND[dtype]
    factor = stack.gemm_factor * gemm.SCALED.get((scaling, device.arch), 1.0)
    return Format(
        rate=gemm.matmul_rate(peak, device.matmul_share.get(dtype, 0.80), factor, limit, power),
        width=width,
        depth=gemm.depth_fill(peak, width, device.memory_bandwidth, gemm.DEPTH_FILL, 1.0),
    )


def attention_share(device: Accelerator, kernel: str) -> tuple[str, tuple[Fraction, Fraction]]:
    """The kernel a device really has — the asked one or the next older — and its (forward, backward) share of peak."""
    name: str | None = kernel
    while name is not None:
        if name in device.attention_share:
            return name, device.attention_share[name]
        name = OLDER.get(name)
    return "fa1", DEFAULT_ATTENTION


__all__ = ["Charge", "Prices", "Tier", "prices"]
