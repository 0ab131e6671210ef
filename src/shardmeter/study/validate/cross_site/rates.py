"""What one adapter carries over a distance by what it may have under way: the line of a scenario, read where the arithmetic is known."""

from __future__ import annotations

import numpy as np

from shardmeter.core.units import Bytes, BytesPerS, Count, Fraction, Seconds
from shardmeter.engine.links import links_of
from shardmeter.specs.wan import Wan

CHANNELS = (1, 2, 4, 8, 16)
DISTANCES = (10.0, 50.0, 100.0, 500.0, 1000.0)
"""Kilometres of fibre."""
BUFFER = 4.0 * 2**20
"""Bytes that a channel of NCCL has under way."""
ADAPTER = 50e9


def line_rate(
    transport: str, rtt: Seconds, streams: Count, window: Bytes, loss: Fraction = 0.0, capacity: BytesPerS = ADAPTER
) -> BytesPerS:
    """B/s of one transfer between two sites that have the line to themselves."""
    free = np.full(2, np.inf)
    line = Wan(
        islands=("north", "south"), bandwidth=capacity, rtt=rtt, loss=loss, window=window, streams=streams, lanes=1.0, egress=0.0,
        up=free, down=free, transport=(transport, transport),
    )  # fmt: skip
    return float(links_of(line).rate[0, 1])


def channel_rates(channels: Count) -> list[BytesPerS]:
    """Of an adapter of 400 Gbit/s, over each distance."""
    return [line_rate("rdma", 20e-6 + 10e-6 * at, channels, BUFFER) for at in DISTANCES]
