"""GPipe: all forwards, then all backwards (Huang 2019 §2.3). Same idle time as 1F1B, every micro-batch in flight."""

from __future__ import annotations

from shardmeter.core.units import Count, Ratio


def idle(pp: int, virtual_stages: int) -> Ratio:
    """The critical stage idles once for the slot of every other stage."""
    return 1.0


def in_flight(position: int, pp: int, micro_batches: Count, virtual_stages: int) -> Count:
    """Micro-batches whose activations a stage holds at the peak."""
    return micro_batches
