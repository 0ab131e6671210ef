"""1F1B (PipeDream-Flush): after a warm-up each stage alternates one forward and one backward (Narayanan 2021 §2.2.1)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shardmeter.core.units import Count, Seconds
from shardmeter.schedules._routes import Traits
from shardmeter.schedules._slots import Op, Slot, places

TRAITS = Traits(ending=True)


def makespan(slots: Sequence[Slot], micro_batches: Count, virtual_stages: int, hop: Seconds) -> Seconds:
    """Duration of one step: the longest path that stays at one stage and waits for micro-batches to come back to it.

    At a stage, w warm-up forwards fill the wait R for the round trip of the first micro-batch through the later stages, and
    w backwards the wait for the last one; in between, a round trip that outlasts w whole slots stalls every (w + 1)th
    micro-batch: m·s + max(R − w·f, 0) + max(R − w·b, 0) + (K − 1)·max(R − w·s, 0) with K = ⌊(m − 1)/(w + 1)⌋ windows. The
    step is the largest over stages, plus the way to the stage and back. The last micro-batch's backward may be longer
    (`Slot.ending`) on every stage: so are its wait and its way back. `hop` is one send to a neighbour.
    Exact for equal stages, and for one slow stage at either end, without hops; never too long. Leaves out: paths that wait
    at two stages (hops of the order of a forward: up to 8 % short)."""
    pp = sum(slot.count for slot in slots)
    longest: Seconds = 0.0
    endings = places(slots, lambda slot: slot.ending)
    for place, ending in zip(places(slots), endings, strict=True):
        slot, later = place.slot, float(pp - 1 - place.position)
        warm = np.minimum(micro_batches - 1.0, later)
        away = place.after + 2.0 * hop * later
        first = np.maximum(away - warm * slot.forward, 0.0)
        last = np.maximum(away + ending.after - warm * slot.backward, 0.0)
        between = np.maximum(away - warm * slot.whole, 0.0)
        windows = np.floor((micro_batches - 1.0) / (warm + 1.0))
        waits = np.where(
            np.greater_equal(windows, 1.0), first + last + (windows - 1.0) * between, np.maximum(first, last)
        )
        way = place.before + 2.0 * hop * float(place.position)
        longest = np.maximum(longest, way + micro_batches * slot.whole + waits + (ending.before + slot.ending))
    return longest


def in_flight(position: int, pp: int, micro_batches: Count, virtual_stages: int) -> Count:
    """A stage holds one micro-batch for every stage from itself to the end, at most all of them."""
    return np.minimum(micro_batches, float(pp - position))


def order(position: int, pp: int, micro_batches: int, virtual_stages: int) -> tuple[Op, ...]:
    """Turns of the stage at `position`."""
    warm = min(pp - 1 - position, micro_batches)
    turns = [Op(kind="forward", micro_batch=k) for k in range(warm)]
    for k in range(micro_batches - warm):
        turns += [Op(kind="forward", micro_batch=warm + k), Op(kind="backward", micro_batch=k)]
    turns += [Op(kind="backward", micro_batch=k) for k in range(micro_batches - warm, micro_batches)]
    return tuple(turns)
