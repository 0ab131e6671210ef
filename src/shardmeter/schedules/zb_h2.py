"""ZB-H2: twice the forwards of 1F1B ahead, so that input gradients come back to a busy stage (Qi 2024 §2.2).

No bubble where forward, input gradient and weight gradient take equally long. The automatic schedule of the same memory is
`zb-2p`.
"""

from __future__ import annotations

from collections.abc import Sequence

from shardmeter.core.sums import plain_sum
from shardmeter.core.units import Count, Seconds
from shardmeter.schedules import _parted
from shardmeter.schedules._routes import Traits, further
from shardmeter.schedules._slots import Op, Slot

TRAITS = Traits(split=True, own_clock=True, ahead=True, rounds=2.0)


def makespan(slots: Sequence[Slot], micro_batches: Count, virtual_stages: int, hop: Seconds) -> Seconds:
    """The longest span of one stage; for equal stages m·(F + B + W) + max((pp − 1)·(F + B − 2·W + 2·hop), 0) (Qi 2024 Table 2).

    Exact for equal stages without hops; never too long. Leaves out: paths that stay at two stages (stages that differ by a
    quarter: up to 2 % short); undoing a step that the late validation refuses."""
    pp = plain_sum(slot.count for slot in slots)
    return _parted.span(
        slots, micro_batches, hop, lambda p: 2.0 * float(pp - 1 - p.position), lambda p: 2.0 * float(p.position)
    )


def in_flight(
    position: int, pp: int, micro_batches: Count, virtual_stages: int, ahead: tuple[Count, ...] = ()
) -> Count:
    """Twice as many as 1F1B, less one, and what is held ahead."""
    return _parted.held(2.0 * float(pp - position) - 1.0 + further(ahead, position), micro_batches)


def owed(position: int, pp: int, micro_batches: Count, virtual_stages: int) -> Count:
    """Weight gradients that wait beside them: two for every stage before, so that all stages hold 2·pp − 1 micro-batches."""
    return _parted.held(2.0 * float(pp) - 1.0, micro_batches) - in_flight(position, pp, micro_batches, virtual_stages)


def order(
    position: int, pp: int, micro_batches: int, virtual_stages: int, ahead: tuple[int, ...] = ()
) -> tuple[Op, ...]:
    """Turns of the stage at `position`."""
    return _parted.order(2 * (pp - 1 - position) + int(further(ahead, position)), 2 * position, micro_batches)
