"""DualPipe: two copies of the model in opposite directions; micro-batches are fed from both ends (DeepSeek-AI 2024 §3.2.1).

Half of the micro-batches enter at each end. A device holds its own stage of one copy and the mirrored stage of the other;
a forward of one direction runs joined with a backward of the other. The turns are those of the released code (DualPipe 2025).
"""

from __future__ import annotations

import functools
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

    Exact for 2·pp micro-batches. Leaves out: what a joined forward and backward save by hiding each other's all-to-all;
    the reduction of gradients over the two copies; waits that come again with every micro-batch."""
    held = stages(slots)
    slowest: Seconds = 0.0
    for own, mirrored in zip(held, held[::-1], strict=True):
        slowest = np.maximum(slowest, (own.whole + mirrored.whole) / 2.0)
    passes = 2 * len(held)
    return replay(order, TRAITS, slots, passes, 1, hop) + (micro_batches - float(passes)) * slowest


def in_flight(position: int, pp: int, micro_batches: Count, virtual_stages: int) -> Count:
    """pp + 1 on every device, both directions together (DeepSeek-AI 2024 Table 2), at most all."""
    return np.minimum(micro_batches, pp + 1.0)


def order(position: int, pp: int, micro_batches: int, virtual_stages: int) -> tuple[Op, ...]:
    """Turns of the device at `position`. Chunk 0 goes down the line, chunk 1 (the second half of the micro-batches) up; a
    device's near direction is the one that enters on its side."""
    half, each = pp // 2, micro_batches // 2
    depth = min(position, pp - 1 - position)
    far = half - depth - 1
    turns: list[Op] = []
    owing: list[Op] = []
    done = {kind: [0, 0] for kind in ("forward", "backward")}

    def turn(kind: str, direction: int, *, joined: bool = False) -> None:
        chunk = direction ^ int(position >= half)
        k = done[kind][direction]
        done[kind][direction] = k + 1
        turns.append(Op(kind=kind, micro_batch=k + chunk * each, chunk=chunk, joined=joined))

    def parted(direction: int) -> None:
        turn("backward", direction)
        op = turns.pop()
        turns.append(Op(kind="input_grad", micro_batch=op.micro_batch, chunk=op.chunk))
        owing.append(Op(kind="weight_grad", micro_batch=op.micro_batch, chunk=op.chunk))

    def pair(direction: int, *, joined: bool = True) -> None:
        turn("forward", direction, joined=joined)
        turn("backward", 1 - direction)

    for _ in range(2 * far):
        turn("forward", 0)
    for _ in range(depth + 1):
        turn("forward", 0)
        turn("forward", 1)
    for _ in range(far):
        parted(1)
        turns.append(owing.pop(0))
        turn("forward", 1)
    for i in range(each - pp + depth + 1):
        pair(0, joined=i > 0 or depth < half - 1)  # the middle devices need their own first forward before the backward
        pair(1)
    for _ in range(far):
        turn("backward", 1)
        pair(1)
    late = (depth + 1) // 2
    for i in range(depth + 1):
        for direction in (1, 0):
            zero = i > late or (i == late and (direction == 0 or depth % 2 == 1))
            (parted if zero else functools.partial(turn, "backward"))(direction)
    for _ in range(far):
        turns.append(owing.pop(0))
        parted(0)
    return (*turns, *owing)
