"""ZB-2p: the automatic zero-bubble schedule in twice the activations of 1F1B (Qi 2024 §3.1).

As ZB-H2, but weight gradients wait as long as memory lets them: one that waits keeps less than a whole micro-batch did, so
the last stages may be many more than 2·pp behind. Where it keeps as much, this is ZB-H2.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shardmeter.core.sums import plain_sum
from shardmeter.core.units import Count, Ratio, Seconds
from shardmeter.schedules import _greedy, _parted
from shardmeter.schedules._links import Hop, ahead_of
from shardmeter.schedules._routes import Traits, further
from shardmeter.schedules._slots import Op, Place, Slot

TRAITS = Traits(split=True, own_clock=True, ahead=True, rounds=2.0)
LEAST_OWED = 1e-9
"""What keeps less than so much of its micro-batch may wait until the end: layers without weight gradients keep nothing."""


def makespan(slots: Sequence[Slot], micro_batches: Count, virtual_stages: int, hop: Seconds) -> Seconds:
    """The longest span of one stage, which runs as far ahead as ZB-H2 and as far behind as memory lets it.

    What an order within these limits can reach, up to paths that stay at two stages: the timeline's order, found by rules,
    lies from 1 % below to 4 % above it (the last with few micro-batches). Leaves out: undoing a step that the late validation refuses; trading forwards ahead
    for weight gradients behind."""
    pp = plain_sum(slot.count for slot in slots)

    def ahead(place: Place) -> Count:
        return 2.0 * float(pp - 1 - place.position)

    def behind(place: Place) -> Count:
        owed = np.maximum(place.slot.owed, LEAST_OWED)
        return np.minimum(np.floor(2.0 * float(place.position) / owed), micro_batches)

    return _parted.span(slots, micro_batches, hop, ahead, behind, at_will=True)


def in_flight(
    position: int, pp: int, micro_batches: Count, virtual_stages: int, ahead: tuple[Count, ...] = ()
) -> Count:
    """Up to 2·pp on every stage and what is held ahead, what waits for its weight gradient counted as the part that it keeps."""
    return _parted.held(2.0 * float(pp) + further(ahead, position), micro_batches)


def orders(slots: Sequence[Slot], micro_batches: int, hop: Hop) -> list[tuple[Op, ...]]:
    """Turns of all stages by the paper's rules, for these seconds, plain numbers."""
    pp = plain_sum(slot.count for slot in slots)
    more = [int(further(ahead_of(hop, pp), i)) for i in range(pp)]
    ways = [float(link.wire + link.delay) for link in hop] if isinstance(hop, tuple) else [float(hop)] * (pp - 1)
    far = [2 * (pp - 1 - i) + more[i] for i in range(pp)]
    return _greedy.orders(slots, micro_batches, ways, far, [2.0 * pp + one for one in more])


def order(position: int, pp: int, micro_batches: int, virtual_stages: int) -> tuple[Op, ...]:
    """Turns of the stage at `position` where all turns take equally long."""
    even: Ratio = 1.0
    slots = [Slot(first=0, count=pp, forward=even, input_grad=even, weight_grad=even)]
    return orders(slots, micro_batches, 0.0)[position]
