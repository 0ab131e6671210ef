"""Schedules that part the backward: so many forwards ahead, weight gradients so many micro-batches behind (Qi 2024 §2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from shardmeter.core.record import record
from shardmeter.core.sums import plain_sum
from shardmeter.core.units import Count, Seconds
from shardmeter.schedules._slots import Op, Place, Slot, places


@record
class Stay:
    """One stage's part of a step: how far it runs ahead and behind, and what it waits for."""

    place: Place
    drained: Seconds
    """Turns between the last forward and the last input gradient."""
    tail: Seconds
    """Weight gradients after the last input gradient, at most."""
    least_tail: Seconds
    away: Seconds
    """The way of a micro-batch to the end of the pipeline and back."""
    waits: Seconds
    """What the stage waits for its own micro-batches to come back, over the step."""
    until_last_forward: Seconds


def order(ahead: int, behind: int, micro_batches: int) -> tuple[Op, ...]:
    """`ahead` forwards, then forward, input gradient and the weight gradient of `behind` micro-batches ago, as they last."""
    ahead = min(ahead, micro_batches)
    turns = [Op(kind="forward", micro_batch=k) for k in range(ahead)]
    for k in range(micro_batches):
        if ahead + k < micro_batches:
            turns.append(Op(kind="forward", micro_batch=ahead + k))
        turns.append(Op(kind="input_grad", micro_batch=k))
        if k >= behind:
            turns.append(Op(kind="weight_grad", micro_batch=k - behind))
    turns += [Op(kind="weight_grad", micro_batch=k) for k in range(max(micro_batches - behind, 0), micro_batches)]
    return tuple(turns)


def span(
    slots: Sequence[Slot],
    micro_batches: Count,
    hop: Seconds,
    ahead: Callable[[Place], Count],
    behind: Callable[[Place], Count],
    *,
    at_will: bool = False,
) -> Seconds:
    """The longest span of one stage: for every pair (i, j) the path that begins and ends at i and stays at j.

    j = i: all of its own turns, and its waits. j after i: the way there, j's turns and waits up to its last input gradient
    (the weight gradients it is behind with hide the way back), the way back, and what i is behind with. j before i: j's
    turns up to its last forward, then the round trip from i or what i does meanwhile. Never too long: a path that stays at
    two stages may be longer. `at_will`: `behind` is the most that weight gradients may wait, not when they come."""
    pp = plain_sum(slot.count for slot in slots)
    stays = [
        _stay(place, pp, micro_batches, hop, ahead(place), behind(place), at_will=at_will)
        for place in places(slots, lambda slot: slot.trip)
    ]
    longest: Seconds = 0.0
    for at in stays:
        for other in stays:
            slot, m = other.place.slot, micro_batches
            if other is at:
                path = m * slot.whole + at.waits
            elif other.place.position > at.place.position:
                way = other.place.before - at.place.before
                way = way + 2.0 * hop * float(other.place.position - at.place.position)
                path = way + m * slot.whole - other.tail + other.waits + at.least_tail
            else:
                turn = np.maximum(at.away, at.drained) + at.place.slot.input_grad + at.least_tail
                path = other.until_last_forward - slot.forward + at.place.slot.forward + turn
            longest = np.maximum(longest, path)
    return longest


def _stay(
    place: Place, pp: int, micro_batches: Count, hop: Seconds, ahead: Count, behind: Count, *, at_will: bool
) -> Stay:
    """So many forwards ahead, w, fill the wait for the first micro-batch to come back, w input gradients and the weight gradients due
    then the wait for the last; in between, a round trip that outlasts w whole slots stalls every (w + 1)th micro-batch."""
    slot, others = place.slot, micro_batches - 1.0
    ahead = np.minimum(ahead, others)
    away = place.after + 2.0 * hop * float(pp - 1 - place.position)
    back = others - ahead
    forced = ahead * slot.input_grad
    due = np.maximum(np.minimum(ahead + behind if at_will else ahead, others if at_will else others - behind), 0.0)
    filled = forced + due * slot.weight_grad
    first = np.maximum(away - ahead * slot.forward, 0.0)
    last = np.maximum(away - filled, 0.0)
    windows = np.floor(others / (ahead + 1.0))
    more = np.maximum(windows - 1.0, 0.0) * np.maximum(away - ahead * slot.whole, 0.0)
    until = micro_batches * slot.forward + back * slot.input_grad + np.maximum(back - behind, 0.0) * slot.weight_grad
    tail = np.minimum(behind + 1.0, micro_batches) * slot.weight_grad
    return Stay(
        place=place,
        drained=forced if at_will else filled,
        tail=tail,
        least_tail=slot.weight_grad if at_will else tail,
        away=away,
        waits=np.where(np.greater_equal(windows, 1.0), first + last + more, np.maximum(first, last)),
        until_last_forward=until + np.where(np.greater(back, 0.0), first + more, 0.0),
    )


def held(most: Count, micro_batches: Count) -> Count:
    """`most` micro-batches, or all there are."""
    return np.minimum(micro_batches, most)
