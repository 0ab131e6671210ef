"""What every schedule is given: the seconds of one micro-batch on each stage, and runs of equal neighbours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shardmeter.core.record import record
from shardmeter.core.units import Seconds


@record
class Slot:
    """Seconds of one micro-batch on `count` neighbouring equal stages; `first` is the position of the earliest."""

    first: int
    count: int
    forward: Seconds
    input_grad: Seconds
    weight_grad: Seconds

    @property
    def backward(self) -> Seconds:
        """Both gradients, where the schedule does not part them."""
        return self.input_grad + self.weight_grad

    @property
    def whole(self) -> Seconds:
        """Forward and backward."""
        return self.forward + self.backward


@record
class Op:
    """One turn of a stage: forward, input_grad or weight_grad (or backward, both at once) of a micro-batch's chunk."""

    kind: str
    micro_batch: int
    chunk: int = 0


@record
class Place:
    """A stage at a definite position, with the slots of all stages before and after it."""

    position: int
    slot: Slot
    before: Seconds
    after: Seconds


def places(slots: Sequence[Slot]) -> Iterator[Place]:
    """The first and the last stage of every run: between them every quantity of interest is linear in the position."""
    total: Seconds = 0.0
    for slot in slots:
        total = total + float(slot.count) * slot.whole
    before: Seconds = 0.0
    for slot in slots:
        for offset in sorted({0, slot.count - 1}):
            earlier = before + float(offset) * slot.whole
            yield Place(position=slot.first + offset, slot=slot, before=earlier, after=total - earlier - slot.whole)
        before = before + float(slot.count) * slot.whole
