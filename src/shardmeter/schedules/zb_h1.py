"""ZB-H1: 1F1B with the backward parted; weight gradients fill the end of the step, in the memory of 1F1B (Qi 2024 §2.1).

The paper's automatic schedule ZB-1p, held to the same memory, has the same bubble (Table 5): the first stage may not run
more than pp − 1 forwards ahead, whatever is done with the weight gradients.
"""

from __future__ import annotations

from collections.abc import Sequence

from shardmeter.core.sums import plain_sum
from shardmeter.core.units import Count, Seconds
from shardmeter.schedules import _parted
from shardmeter.schedules._routes import Traits, further
from shardmeter.schedules._slots import Op, Place, Slot

TRAITS = Traits(split=True, own_clock=True, ahead=True, rounds=1.0)


def makespan(slots: Sequence[Slot], micro_batches: Count, virtual_stages: int, hop: Seconds) -> Seconds:
    """The longest span of one stage; for equal stages m·(F + B + W) + (pp − 1)·(F + B − W + 2·hop) (Qi 2024 Table 2).

    Exact for equal stages without hops; never too long. Leaves out: paths that stay at two stages (stages that differ by a
    quarter: up to 2 % short); undoing a step that the late validation refuses."""
    pp = plain_sum(slot.count for slot in slots)
    return _parted.span(slots, micro_batches, hop, lambda p: float(pp - 1 - p.position), _behind)


def _behind(place: Place) -> Count:
    return float(place.position)


def in_flight(
    position: int, pp: int, micro_batches: Count, virtual_stages: int, ahead: tuple[Count, ...] = ()
) -> Count:
    """As 1F1B: one micro-batch for every stage from this one to the end, and what is held ahead."""
    return _parted.held(float(pp - position) + further(ahead, position), micro_batches)


def owed(position: int, pp: int, micro_batches: Count, virtual_stages: int) -> Count:
    """Weight gradients that wait beside them: one for every stage before, so that all stages hold pp micro-batches."""
    return _parted.held(float(pp), micro_batches) - in_flight(position, pp, micro_batches, virtual_stages)


def order(
    position: int, pp: int, micro_batches: int, virtual_stages: int, ahead: tuple[int, ...] = ()
) -> tuple[Op, ...]:
    """Turns of the stage at `position`."""
    return _parted.order(pp - 1 - position + int(further(ahead, position)), position, micro_batches)
