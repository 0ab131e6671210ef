"""Collectives over a hierarchy of tiers: latency plus bytes over rate, the slowest tier sets the pace.

Legend: a group of `ranks` members has `inside` of them in one unit of the tier below; `units` such units take part.
"""

from __future__ import annotations

import numpy as np

from shardmeter.core.formula import formula
from shardmeter.core.units import Bytes, BytesPerS, Count, Fraction, Ratio, Seconds

EXCHANGE_SHARE = 0.87
"""Rate of an all-to-all inside the scale-up domain over that of a ring: 0.70-0.71 of the wire on NVLink 3, 4 and 5, where a
ring reaches 0.78-0.82 (NCCL bus bandwidths, GTC 2025 S72583); between nodes an all-to-all reaches what others reach."""
SWITCH_LEAST = 5.0
"""Ranks from which a summing switch beats the ring inside a domain (H200: from 5, B200: from 6 measured)."""
PHASES_IN_LINE = 0.15
"""Share of the shorter phases of a hierarchical collective that does not run behind the longest."""


@formula(cite="shardmeter")
def members_inside(degree: Count, stride: Count, unit: Count) -> Count:
    """Members of a mesh axis that one unit of a tier holds: neighbours are `stride` ranks apart.

    Leaves out: groups that straddle units unevenly (the whole number below is taken)."""
    return np.minimum(degree, np.maximum(np.floor(unit / stride), 1.0))


@formula(cite="patarasuk2009")
def shard_traffic(size: Bytes, ranks: Count, inside: Count) -> Bytes:
    """Bytes each accelerator moves through a tier in a gather or a scatter of `size` over `ranks` members.

    Every unit of `inside` members must receive what it does not hold, shared by its members: size·(1 − inside/ranks)/inside;
    for the innermost tier inside = 1 and this is the ring's size·(ranks − 1)/ranks.
    Leaves out: trees, in-network reduction."""
    return size * (1.0 - inside / ranks) / inside


@formula(cite="trtllm")
def one_shot_traffic(size: Bytes, ranks: Count) -> Bytes:
    """Bytes each accelerator reads in a one-shot all-reduce: the whole buffer of every other rank, size·(ranks − 1).

    More than a ring's 2·size·(ranks − 1)/ranks, in one step instead of 2·(ranks − 1). Leaves out: the flags that say that a
    buffer is ready."""
    return size * (ranks - 1.0)


@formula(cite="shardmeter")
def exchange_traffic(size: Bytes, ranks: Count, inside: Count, reached: Count) -> Bytes:
    """Bytes each accelerator sends through a tier in an all-to-all of its `size` bytes over `ranks` members.

    An equal part goes to every member, its own included. Of a unit of `inside` members, what goes to the other members
    among `reached` leaves: size·(reached − inside)/ranks. A port out of a unit carries all that leaves it, however far.
    Leaves out: parts that are not equal, one copy for all receivers in a unit (`copies_share`)."""
    return size * (reached - inside) / ranks


@formula(cite="deepep")
def copies_share(units: Count, copies: Count) -> Ratio:
    """Copies of a token that leave its unit when every unit is sent one at most, over those sent when every receiver has its own.

    `copies` receivers drawn from `units` equal units lie in units·(1 − (1 − 1/units)^copies) of them on average. Leaves out:
    receivers drawn from few units on purpose (routing limited to groups), receivers that are never the same."""
    return units * (1.0 - np.maximum(1.0 - 1.0 / units, 0.0) ** copies) / copies


@formula(cite="nccl-tuning")
def tier_time(traffic: Bytes, bandwidth: BytesPerS, share: Fraction, factor: Ratio) -> Seconds:
    """Time for `traffic` through one tier at the plateau share of the wire rate, times the stack's factor.

    Leaves out: protocol switches at small sizes (they appear as latency)."""
    return traffic / (bandwidth * share * factor)


@formula(cite="nccl-tuning")
def ring_steps(ranks: Count, inside: Count, reached: Count) -> Count:
    """Steps of a ring over `ranks` members that cross a tier: from units of `inside` members to units of `reached`.

    A ring passes every member once: ranks/inside − ranks/reached of its steps leave a unit below and stay in one above.
    Leaves out: the step that is saved at the end (n − 1 instead of n)."""
    return ranks / inside - ranks / reached


@formula(cite="nccl-tuning")
def tree_latency(units: Count, base: Seconds, per_doubling: Seconds) -> Seconds:
    """Start-up of an all-reduce by trees over `units` units: base + per_doubling · log2(units); nothing for one unit.

    Leaves out: jitter of the members."""
    return np.where(np.greater(units, 1.0), base + per_doubling * np.log2(units), 0.0 * base)


@formula(cite="shardmeter")
def wire_time(longest: Seconds, total: Seconds) -> Seconds:
    """Time of the phases of one collective in several tiers: the longest, and a share of what else there is.

    Measured all-reduces lie between the maximum and the sum: 0.15 of the rest fits 4 and 512 nodes of 8 H100.
    Leaves out: chunk sizes, on which the share depends."""
    return longest + PHASES_IN_LINE * (total - longest)


@formula(cite="hockney1994")
def send_time(size: Bytes, bandwidth: BytesPerS, share: Fraction, factor: Ratio, latency: Seconds) -> Seconds:
    """Point-to-point send of `size` bytes.

    Leaves out: several senders on one adapter."""
    return size / (bandwidth * share * factor) + latency
