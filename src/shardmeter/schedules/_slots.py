"""What every schedule is given: the seconds of one micro-batch on each stage, and runs of equal neighbours."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from shardmeter.core.record import changed, record
from shardmeter.core.units import Ratio, Seconds


@record
class Slot:
    """Seconds of one micro-batch on `count` neighbouring equal stages; `first` is the position of the earliest."""

    first: int
    count: int
    forward: Seconds
    input_grad: Seconds
    weight_grad: Seconds
    ending: Seconds = 0.0
    """What the step's last backward takes longer than the others (gradients that only the last micro-batch reduces)."""
    owed: Ratio = 1.0
    """What a weight gradient that is still to be done keeps, as a part of what its micro-batch kept before."""
    joined: Seconds = 0.0
    """What a backward saves that is done together with a forward of the mirrored stage, each hiding what the other sends."""
    chunks: tuple[Slot, ...] = ()
    """The same of every virtual stage, where they may differ."""

    def chunk(self, at: int, virtual_stages: int) -> Slot:
        """Seconds of a micro-batch on one of the virtual stages: its own or, where nothing is said of them, an even part."""
        if self.chunks:
            return self.chunks[at]
        if virtual_stages == 1:
            return self
        return changed(
            self,
            forward=self.forward / virtual_stages,
            input_grad=self.input_grad / virtual_stages,
            weight_grad=self.weight_grad / virtual_stages,
            ending=self.ending / virtual_stages,
        )

    @property
    def backward(self) -> Seconds:
        """Both gradients, where the schedule does not part them."""
        return self.input_grad + self.weight_grad

    @property
    def trip(self) -> Seconds:
        """What a micro-batch's way to the end and back takes here: forward and input gradient."""
        return self.forward + self.input_grad

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
    joined: bool = False
    """Done together with the next turn, so that other stages have its result only when that is done too."""


@record
class Place:
    """A stage at a definite position, with the seconds of all stages before and after it."""

    position: int
    slot: Slot
    before: Seconds
    after: Seconds


def places(slots: Sequence[Slot], seconds: Callable[[Slot], Seconds] = lambda slot: slot.whole) -> Iterator[Place]:
    """The first and the last stage of every run: between them every quantity of interest is linear in the position.

    `seconds` is what of a slot is summed over the stages before and after."""
    total: Seconds = 0.0
    for slot in slots:
        total = total + float(slot.count) * seconds(slot)
    before: Seconds = 0.0
    for slot in slots:
        own = seconds(slot)
        for offset in sorted({0, slot.count - 1}):
            earlier = before + float(offset) * own
            yield Place(position=slot.first + offset, slot=slot, before=earlier, after=total - earlier - own)
        before = before + float(slot.count) * own


def stages(slots: Sequence[Slot]) -> list[Slot]:
    """The slot of every stage, in order of position: each of one stage, so that theirs are themselves."""
    return [
        slot if slot.count == 1 else changed(slot, first=slot.first + at, count=1)
        for slot in slots
        for at in range(slot.count)
    ]
