"""1F1B (PipeDream-Flush): after a warm-up each stage alternates one forward and one backward (Narayanan 2021 §2.2.1)."""

from __future__ import annotations

import numpy as np

from shardmeter.core.units import Count, Ratio


def idle(pp: int, virtual_stages: int) -> Ratio:
    """The critical stage idles once for the slot of every other stage: (m − 1) · longest + sum of all slots."""
    return 1.0


def in_flight(position: int, pp: int, micro_batches: Count, virtual_stages: int) -> Count:
    """A stage holds one micro-batch for every stage from itself to the end, at most all of them."""
    return np.minimum(micro_batches, float(pp - position))
