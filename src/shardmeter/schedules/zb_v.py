"""ZB-V: two chunks a device, laid in a V, so that the first device holds both ends of the model (Qi 2024 §6).

A micro-batch's loss is where its input is, gradients start back at once, and all devices hold the same: pp micro-batches, the
memory of 1F1B, without a bubble where forward, input gradient and weight gradient take equally long. The turns are those of
the zero-bubble V schedule released with PyTorch (torch.distributed.pipelining, 2024).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from shardmeter.core.sums import plain_sum
from shardmeter.core.units import Count, Seconds
from shardmeter.schedules._replay import replay
from shardmeter.schedules._routes import Traits
from shardmeter.schedules._slots import Op, Slot

TRAITS = Traits(route="vee", split=True, least_chunks=2, most_chunks=2, rounds=2.0, own_clock=True)


def makespan(slots: Sequence[Slot], micro_batches: Count, virtual_stages: int, hop: Seconds) -> Seconds:
    """The schedule's own turns for 2·pp micro-batches, the longest span of one device; then the slowest device's turns for
    each further one.

    Exact for 2·pp micro-batches. Leaves out: waits that come again with every micro-batch; that a device could begin later
    without delaying any other (so that one slower stage may even shorten the longest span, by 0.2 %)."""
    pp = plain_sum(slot.count for slot in slots)
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
    laid_out = max(2 * pp - 1, micro_batches)
    later = pp - position
    steady = laid_out - (2 * later - 1) - position
    row = _Row(micro_batches)
    row.repeat(2 * later - 1, "F0")
    row.repeat(position, "F1 F0")
    row.repeat(later, "F1 B1 W1")
    row.repeat(steady, "F0 B0 W0 F1 B1 W1")
    row.repeat(laid_out - position - later - steady, "B0 W0 F1 B1 W1")
    row.repeat(position, "B0 B1")
    row.repeat(later, "B0 W0")
    row.repeat(position, "W1")
    row.repeat(position, "W0")
    return tuple(row.turns)


class _Row:
    """The turns of one device as they are written down, each the next micro-batch of its kind and chunk."""

    KINDS: ClassVar = {"F": "forward", "B": "input_grad", "W": "weight_grad"}

    def __init__(self, micro_batches: int) -> None:
        self.micro_batches = micro_batches
        self.turns: list[Op] = []
        self.done: dict[str, int] = {}

    def repeat(self, times: int, pattern: str) -> None:
        """So many times these turns; those of micro-batches that are not there are left out."""
        for turn in times * pattern.split():
            k = self.done.get(turn, 0)
            self.done[turn] = k + 1
            if k < self.micro_batches:
                self.turns.append(Op(kind=self.KINDS[turn[0]], micro_batch=k, chunk=int(turn[1])))
