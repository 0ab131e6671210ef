"""DualPipe: two copies of the model in opposite directions; micro-batches are fed from both ends (DeepSeek-AI 2024 §3.2.1).

Half of the micro-batches enter at each end. A device holds its own stage of one copy and the mirrored stage of the other;
a forward of one direction runs joined with a backward of the other. The turns are those of the released code (DualPipe 2025).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shardmeter.core.units import Count, Seconds
from shardmeter.schedules._replay import replay
from shardmeter.schedules._routes import Traits
from shardmeter.schedules._slots import Op, Slot, stages

TRAITS = Traits(route="crossing", split=True, copies=2.0, rounds=2.0, even=True)


def makespan(slots: Sequence[Slot], micro_batches: Count, virtual_stages: int, hop: Seconds) -> Seconds:
    """The schedule's own turns for 2·pp micro-batches, then half a turn of both its stages on the slowest device for each
    further one. For equal stages m·(F + B) + (pp/2 − 1)·(F + 2·B − 3·W), with W in B (DeepSeek-AI 2024 Table 2).

    A joined pair takes both turns, less what the two hide of each other's all-to-all (`Slot.joined`). Exact for 2·pp
    micro-batches. Leaves out: waits that come again with every micro-batch."""
    held = stages(slots)
    if len(held) % 2:
        return micro_batches * np.nan  # no such schedule
    slowest: Seconds = 0.0
    for own, mirrored in zip(held, held[::-1], strict=True):
        both = own.whole + mirrored.whole - own.joined - mirrored.joined
        slowest = np.maximum(slowest, both / 2.0)
    passes = 2 * len(held)
    return replay(order, TRAITS, slots, passes, 1, hop) + (micro_batches - float(passes)) * slowest


def in_flight(position: int, pp: int, micro_batches: Count, virtual_stages: int) -> Count:
    """On every device pp + 1, both directions together (DeepSeek-AI 2024 Table 2), at most all."""
    return np.minimum(micro_batches, pp + 1.0)


def joins(position: int, pp: int, micro_batches: Count) -> tuple[Count, Count]:
    """Joined pairs of the device at `position` by chunk of their forward, as `order` has them."""
    half, each = pp // 2, micro_batches / 2.0
    depth = min(position, pp - 1 - position)
    middle = each - float(pp - depth - 1)
    entering, coming = middle - float(depth == half - 1), middle + float(half - depth - 1)
    return (entering, coming) if position < half else (coming, entering)


def order(position: int, pp: int, micro_batches: int, virtual_stages: int) -> tuple[Op, ...]:
    """Turns of the device at `position`. Chunk 0 goes down the line, chunk 1 (the second half of the micro-batches) up;
    direction 0 is the one that enters on the device's side of the middle."""
    half, each = pp // 2, micro_batches // 2
    depth = min(position, pp - 1 - position)
    far, late = half - depth - 1, (depth + 1) // 2
    row = _Row(each, upper=position >= half)
    for _ in range(2 * far):
        row.turn("forward", 0)
    for _ in range(depth + 1):
        row.turn("forward", 0)
        row.turn("forward", 1)
    for _ in range(far):
        row.parted(1)
        row.weight()
        row.turn("forward", 1)
    for i in range(each - pp + depth + 1):
        row.pair(0, joined=i > 0 or depth < half - 1)  # as released: apart once, in the middle
        row.pair(1)
    for _ in range(far):
        row.turn("backward", 1)
        row.pair(1)
    for i in range(2 * (depth + 1)):  # from the middle of these on, weight gradients wait
        end = row.parted if i >= 2 * late + 1 - depth % 2 else row.whole
        end(1 - i % 2)
    for _ in range(far):
        row.weight()
        row.parted(0)
    return (*row.turns, *row.owing)


class _Row:
    """The turns of one device as they are written down."""

    def __init__(self, each: int, *, upper: bool) -> None:
        self.each, self.upper = each, int(upper)
        self.turns: list[Op] = []
        self.owing: list[Op] = []
        self.done = {kind: [0, 0] for kind in ("forward", "backward")}

    def turn(self, kind: str, direction: int, *, joined: bool = False) -> None:
        """The next micro-batch of a direction."""
        chunk = direction ^ self.upper
        k = self.done[kind][direction]
        self.done[kind][direction] = k + 1
        self.turns.append(Op(kind=kind, micro_batch=k + chunk * self.each, chunk=chunk, joined=joined))

    def whole(self, direction: int) -> None:
        """A backward with both gradients."""
        self.turn("backward", direction)

    def parted(self, direction: int) -> None:
        """A backward whose weight gradient waits."""
        self.turn("backward", direction)
        op = self.turns.pop()
        self.turns.append(Op(kind="input_grad", micro_batch=op.micro_batch, chunk=op.chunk))
        self.owing.append(Op(kind="weight_grad", micro_batch=op.micro_batch, chunk=op.chunk))

    def weight(self) -> None:
        """The weight gradient that has waited longest."""
        self.turns.append(self.owing.pop(0))

    def pair(self, direction: int, *, joined: bool = True) -> None:
        """A forward of one direction joined with a backward of the other."""
        self.turn("forward", direction, joined=joined)
        self.turn("backward", 1 - direction)
