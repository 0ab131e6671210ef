"""Writing token by token: what is read again for every token, and how many sequences keep a row of machines busy."""

from __future__ import annotations

import numpy as np

from shardmeter.core.formula import formula
from shardmeter.core.units import Bytes, Count, PerSecond, Seconds


@formula(cite="pope2022")
def cache_traffic(cut: Count, whole: Count, sequences: Count, ranks: Count, width: Bytes) -> Bytes:
    """Bytes that one rank reads of what is kept of its sequences to write one token of each: all of it, the part that is `cut` over
    the ranks which share its heads and the `whole` one on each.

    Leaves out: the one token that is written; prefixes that sequences share."""
    return (cut / ranks + whole) * sequences * width


@formula(cite="shazeer2018")
def experts_touched(experts: Count, chosen: Count, tokens: Count) -> Count:
    """Routed experts whose weights are read when `tokens` tokens choose `chosen` of `experts` each, evenly and apart:
    experts·(1 − (1 − chosen/experts)^tokens).

    Leaves out: tokens of one sequence that choose alike."""
    return experts * (1.0 - np.maximum(1.0 - chosen / experts, 0.0) ** tokens)


@formula(cite="shardmeter")
def groups_to_fill(latency: Seconds, busiest: Seconds) -> Count:
    """Groups of sequences under way that keep the busiest place at work all the time.

    Leaves out: groups that meet and wait for one another before it is full."""
    return np.maximum(np.ceil(latency / busiest * (1.0 - 1e-12)), 1.0)


@formula(cite="shardmeter")
def flight_rate(tokens: Count, groups: Count, latency: Seconds, busiest: Seconds) -> PerSecond:
    """Tokens a second of `groups` under way that each write `tokens`: as many as leave in their latency, no more than the busiest
    place passes.

    Leaves out: queues at uneven arrivals."""
    return tokens * np.minimum(groups / latency, 1.0 / busiest)


@formula(cite="shardmeter")
def mixing_traffic(members: Count, sequences: Count, vocab: Count, width: Bytes) -> Bytes:
    """Bytes through memory to mix the distributions of `members` into one and draw a token: each read, the mean written and read.

    Leaves out: distributions that are cut to their largest entries."""
    return (members + 2.0) * sequences * vocab * width
