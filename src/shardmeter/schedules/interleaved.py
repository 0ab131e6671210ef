"""Interleaved 1F1B: each device owns v chunks, so the pipe fills v times faster (Narayanan 2021 §2.2.2)."""

from __future__ import annotations

import numpy as np

from shardmeter.core.units import Count, Ratio


def idle(pp: int, virtual_stages: int) -> Ratio:
    """The fill takes chunks, not whole stages: 1/v of 1F1B's idle time.

    Leaves out: the stall when micro-batches are no multiple of pp."""
    return 1.0 / virtual_stages


def in_flight(position: int, pp: int, micro_batches: Count, virtual_stages: int) -> Count:
    """Warm-up chunks 2(pp − position − 1) + (v − 1)·pp + 1, in units of whole stages."""
    chunks = 2.0 * (pp - position - 1) + (virtual_stages - 1.0) * pp + 1.0
    return np.minimum(micro_batches, chunks / virtual_stages)
