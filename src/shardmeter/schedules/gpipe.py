"""GPipe: all forwards, then all backwards (Huang 2019 §2.3). Same idle time as 1F1B, every micro-batch in flight."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shardmeter.core.sums import plain_sum
from shardmeter.core.units import Count, Seconds
from shardmeter.schedules import _long
from shardmeter.schedules._links import Hop
from shardmeter.schedules._routes import Traits
from shardmeter.schedules._slots import Op, Slot

TRAITS = Traits(ending=True)


def makespan(slots: Sequence[Slot], micro_batches: Count, virtual_stages: int, hop: Hop) -> Seconds:
    """Two passes of equal jobs through a line of stages and the wires between them: each takes the sum of all, and m − 1 times
    the slowest stage or wire. Of the backwards the last one may be longer (`Slot.ending`): its path leaves a stage with it
    and passes those before.

    Exact: the last stage turns round when all forwards are done. `hop` is one send to a neighbour; a wire serves one at a
    time, so that sends longer than a stage's turn queue. Where every boundary has its own link, `hop` holds them in order."""
    if isinstance(hop, tuple):
        return _long.gpipe(slots, micro_batches, hop)
    pp = plain_sum(slot.count for slot in slots)
    forward: Seconds = 0.0
    backward: Seconds = 0.0
    slowest_forward: Seconds = hop
    ending: Seconds = 0.0
    for slot in slots:
        forward = forward + float(slot.count) * slot.forward
        backward = backward + float(slot.count) * slot.backward
        slowest_forward = np.maximum(slowest_forward, slot.forward)
        ending = ending + float(slot.count) * slot.ending
    # a wire that is slower than every stage: the last backward of the stage before it is done by then
    longest: Seconds = (micro_batches - 1.0) * hop + (ending - slots[-1].ending)
    slowest_backward: Seconds = 0.0
    for slot in reversed(slots):
        slowest_backward = np.maximum(slowest_backward, slot.backward)
        here = np.minimum(micro_batches - 1.0, 1.0) * (slowest_backward - slot.backward)
        longest = np.maximum(longest, (micro_batches - 1.0) * slowest_backward - here + ending)
        ending = ending - float(slot.count) * slot.ending
    hops = 2.0 * hop * float(pp - 1)
    return forward + backward + hops + (micro_batches - 1.0) * slowest_forward + longest


def in_flight(position: int, pp: int, micro_batches: Count, virtual_stages: int) -> Count:
    """Micro-batches whose activations a stage holds at the peak: all."""
    return micro_batches


def order(position: int, pp: int, micro_batches: int, virtual_stages: int) -> tuple[Op, ...]:
    """Turns of the stage at `position`."""
    forward = tuple(Op(kind="forward", micro_batch=k) for k in range(micro_batches))
    return forward + tuple(Op(kind="backward", micro_batch=k) for k in range(micro_batches))
