"""Breadth-first interleaving: all micro-batches through one chunk before any goes on to the next (Lamy-Poirier 2022 §4.1).

Every micro-batch is in flight, as in GPipe; the fill takes chunks, and a sharded stage gathers each chunk once a step.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shardmeter.core.units import Count, Seconds
from shardmeter.schedules._routes import Traits
from shardmeter.schedules._slots import Op, Slot

TRAITS = Traits(least_chunks=2, most_chunks=None, rounds=1.0)


def makespan(slots: Sequence[Slot], micro_batches: Count, virtual_stages: int, hop: Seconds) -> Seconds:
    """Forwards, then backwards: v − 1 rounds, each as long as all micro-batches on the slowest device or one micro-batch
    round all devices, and a last one through the line of devices, as GPipe's.

    Exact. Leaves out: nothing of the order; gathering each chunk once a step is the sharding strategy's."""
    pp = float(sum(slot.count for slot in slots))
    chunks = float(virtual_stages)
    result: Seconds = 0.0
    for backward in (False, True):
        around: Seconds = 0.0
        slowest: Seconds = 0.0
        for slot in slots:
            seconds = (slot.backward if backward else slot.forward) / chunks
            around = around + float(slot.count) * seconds
            slowest = np.maximum(slowest, seconds)
        rounds = (chunks - 1.0) * np.maximum(micro_batches * slowest, around + pp * hop)
        result = result + rounds + around + (pp - 1.0) * hop + (micro_batches - 1.0) * slowest
    return result


def in_flight(position: int, pp: int, micro_batches: Count, virtual_stages: int) -> Count:
    """Micro-batches whose activations a stage holds at the peak: all."""
    return micro_batches


def order(position: int, pp: int, micro_batches: int, virtual_stages: int) -> tuple[Op, ...]:
    """Turns of the stage at `position`."""
    chunks = range(virtual_stages)
    forward = [Op(kind="forward", micro_batch=k, chunk=c) for c in chunks for k in range(micro_batches)]
    return (
        *forward,
        *(Op(kind="backward", micro_batch=k, chunk=c) for c in chunks[::-1] for k in range(micro_batches)),
    )
