"""Breadth-first interleaving: all micro-batches through one chunk before any goes on to the next (Lamy-Poirier 2022 §4.1).

Every micro-batch is in flight, as in GPipe; the fill takes chunks, and a sharded stage gathers each chunk once a step.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shardmeter.core.units import Count, Seconds
from shardmeter.schedules._long import Boundary, Hop
from shardmeter.schedules._routes import Traits
from shardmeter.schedules._slots import Op, Slot, stages

TRAITS = Traits(least_chunks=2, most_chunks=None, rounds=1.0)


def makespan(slots: Sequence[Slot], micro_batches: Count, virtual_stages: int, hop: Hop) -> Seconds:
    """Forwards, then backwards: micro-batches in a row through every chunk on every device, and over the wires between: alike, or that
    behind every stage, the last one's leading back.

    Exact. Leaves out: nothing of the order; gathering each chunk once a step is the sharding strategy's."""
    held = stages(slots)
    line = [[slot.chunk(at, virtual_stages) for slot in held] for at in range(virtual_stages)]
    there = [[slot.forward for slot in row] for row in line]
    back = [[slot.backward for slot in row[::-1]] for row in line[::-1]]
    links = hop if isinstance(hop, tuple) else (Boundary(wire=hop),) * len(held)
    returning = (*links[-2::-1], links[-1])
    return _through(there, micro_batches, links) + _through(back, micro_batches, returning)


def _through(rounds: Sequence[Sequence[Seconds]], micro_batches: Count, links: Sequence[Boundary]) -> Seconds:
    """All micro-batches round all devices, as often as there are rounds. Along the longest path two things are kept: when
    the first micro-batch is done at a place, and when the last; a place begins its next round when its last is done."""
    first: Seconds = 0.0
    last: Seconds = 0.0
    left: list[Seconds] = [0.0] * (2 * len(rounds[0]))
    for at, row in enumerate(rounds):
        ends = at == len(rounds) - 1
        places = [one for own, link in zip(row, links, strict=True) for one in ((own, 0.0), (link.wire, link.delay))]
        for i, (seconds, delay) in enumerate(places[: -1 if ends else None]):
            first = np.maximum(first, left[i]) + seconds
            last = left[i] = np.maximum(last + seconds, first + (micro_batches - 1.0) * seconds)
            first, last = first + delay, last + delay
    return last


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
