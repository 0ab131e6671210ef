"""Pipelines side by side whose stages share a line and send over it in turn, each with all of it (Atlas 2024, temporal sharing)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shardmeter.core.units import Count, Seconds
from shardmeter.schedules._long import Boundary
from shardmeter.schedules._routes import Traits
from shardmeter.schedules._slots import Slot, stages


def in_turn(
    alone: Seconds,
    traits: Traits,
    slots: Sequence[Slot],
    micro_batches: Count,
    virtual_stages: int,
    links: tuple[Boundary, ...],
) -> Seconds:
    """Duration of a step of the last of several pipelines, one of which would take `alone`: its first message waits until the others'
    have passed, and as they then stay apart, none waits again. Where the line is busy all the time, a step is as long as it takes
    all messages of a boundary, between the first micro-batch's way there and the last one's way on.

    Exact for pipelines that are alike, on a line that one boundary has for itself. Leaves out: several boundaries on one line that is
    not busy all the time."""
    if not any(np.any(np.greater(link.others, 0.0)) for link in links):
        return alone
    later: Seconds = 0.0
    busy: Seconds = 0.0
    passes = micro_batches * float(virtual_stages)
    for link in links[:-1] if virtual_stages == 1 else links:
        later = np.maximum(later, link.others)
        busy = np.maximum(busy, np.where(np.greater(link.others, 0.0), passes * (link.wire + link.others), 0.0))
    return np.maximum(alone + later, busy + (0.0 if traits.own_clock else _ways(slots, virtual_stages, links)))


def _ways(slots: Sequence[Slot], virtual_stages: int, links: tuple[Boundary, ...]) -> Seconds:
    """The first micro-batch to the first message and, from the last message, the last micro-batch to its end: forward through every
    stage once, back through all chunks."""
    total: Seconds = 0.0
    for slot in stages(slots):
        total = total + slot.forward / virtual_stages + slot.backward
    for link in links[:-1]:
        total = total + (1.0 + virtual_stages) * (link.wire + link.delay)
    return total
