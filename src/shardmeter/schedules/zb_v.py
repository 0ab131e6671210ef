"""ZB-V: two chunks a device, laid in a V, so that the first device holds both ends of the model (Qi 2024 §6).

A micro-batch's loss is where its input is, gradients start back at once, and all devices hold the same: pp micro-batches, the
memory of 1F1B, without a bubble where forward, input gradient and weight gradient take equally long. The turns are those of
the zero-bubble V schedule released with PyTorch (torch.distributed.pipelining, 2024).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shardmeter.core.units import Count, Seconds
from shardmeter.schedules._replay import replay
from shardmeter.schedules._routes import Traits
from shardmeter.schedules._slots import Op, Slot

TRAITS = Traits(route="vee", split=True, least_chunks=2, most_chunks=2, rounds=2.0, own_clock=True)


def makespan(slots: Sequence[Slot], micro_batches: Count, virtual_stages: int, hop: Seconds) -> Seconds:
    """The schedule's own turns for 2·pp micro-batches, the longest span of one device; then the slowest device's turns for
    each further one.

    Exact for 2·pp micro-batches. Leaves out: waits that come again with every micro-batch."""
    pp = sum(slot.count for slot in slots)
    slowest: Seconds = 0.0
    for slot in slots:
        slowest = np.maximum(slowest, slot.whole)
    return replay(order, TRAITS, slots, 2 * pp, 2, hop) + (micro_batches - 2.0 * pp) * slowest


def in_flight(position: int, pp: int, micro_batches: Count, virtual_stages: int) -> Count:
    """In units of whole devices (two chunks): pp on every device, at most all."""
    return np.minimum(micro_batches, float(pp))


def order(position: int, pp: int, micro_batches: int, virtual_stages: int) -> tuple[Op, ...]:
    """Turns of the device at `position`: chunk 0 goes down the line, chunk 1 comes back. Laid out for at least 2·pp − 1
    micro-batches; turns of those that are not there are left out."""
    turns: list[Op] = []
    done = {kind: [0, 0] for kind in ("forward", "input_grad", "weight_grad")}

    def turn(kind: str, chunk: int) -> None:
        k = done[kind][chunk]
        done[kind][chunk] = k + 1
        if k < micro_batches:
            turns.append(Op(kind=kind, micro_batch=k, chunk=chunk))

    def both(chunk: int) -> None:
        turn("input_grad", chunk)
        turn("weight_grad", chunk)

    laid_out = max(2 * pp - 1, micro_batches)
    for _ in range(2 * (pp - position) - 1):
        turn("forward", 0)
    for _ in range(position):
        turn("forward", 1)
        turn("forward", 0)
    for _ in range(pp - position):
        turn("forward", 1)
        both(1)
    forward = done["forward"]
    while forward[1] < forward[0] or forward[0] < laid_out:
        if forward[0] < laid_out:
            turn("forward", 0)
        both(0)
        turn("forward", 1)
        both(1)
    for _ in range(position):
        turn("input_grad", 0)
        turn("input_grad", 1)
    for _ in range(pp - position):
        both(0)
    for chunk in (1, 0):
        while done["weight_grad"][chunk] < done["input_grad"][chunk]:
            turn("weight_grad", chunk)
    return tuple(turns)
