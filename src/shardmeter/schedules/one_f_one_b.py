"""1F1B (PipeDream-Flush): after a warm-up each stage alternates one forward and one backward (Narayanan 2021 §2.2.1)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shardmeter.core.sums import plain_sum
from shardmeter.core.units import Count, Seconds
from shardmeter.schedules import _long
from shardmeter.schedules._links import Hop
from shardmeter.schedules._routes import further
from shardmeter.schedules._slots import Place, Slot, places

TRAITS, order = _long.TRAITS, _long.order


def makespan(slots: Sequence[Slot], micro_batches: Count, virtual_stages: int, hop: Hop) -> Seconds:
    """Duration of one step: the longest of the paths through its turns and sends that stay at one run of stages.

    Let stage j be w = pp − 1 − j stages from the end. Its first w + 1 forwards fill the round trip R of the first micro-batch
    through the later stages, or wait for it; its last backwards likewise: max(R, w·f) and max(R, w·b). What is left of the
    m − 1 micro-batches that have to follow the first passes one by one at s, the stage's forward and backward, or in windows:
    n neighbouring stages hold n micro-batches between them, which takes the round trip through them, Σs + 2·(n − 1)·hop.
    Less than a window is a shorter round trip, or waits at the slowest stage or on a wire: one send at a time, `hop` each.
    The last micro-batch's backward may be longer (`Slot.ending`) on every stage: so are its wait and its way back.
    Exact for equal stages at any hop, and for one slow stage at either end without hops; never too long. Leaves out: paths
    that stay at two runs of stages or take windows of two lengths (up to 3 % short). Where every boundary has its own link,
    `hop` holds them in order, and the turns are run one by one."""
    if isinstance(hop, tuple):
        return _long.one_f_one_b(slots, micro_batches, hop)
    pp = plain_sum(slot.count for slot in slots)
    longest: Seconds = 0.0
    forward: Seconds = 0.0
    ways: list[
        tuple[Seconds, Seconds]
    ] = []  # of every stage so far: its backward, and what the last one takes longer from it on
    endings = places(slots, lambda slot: slot.ending)
    for place, ending in zip(places(slots), endings, strict=True):
        slot, later = place.slot, float(pp - 1 - place.position)
        forward = np.maximum(forward, slot.forward)
        ways.append((slot.backward, ending.before + slot.ending))
        warm = np.minimum(micro_batches - 1.0, later)
        left = micro_batches - 1.0 - warm
        reached = place.before + 2.0 * hop * float(place.position) + slot.whole
        path = reached + ways[-1][1]
        if later:
            away = place.after + 2.0 * hop * later
            path = reached + _round_trip(away, ending.after, forward, ways, warm, left, hop)
        longest = np.maximum(longest, path + left * slot.whole)
        if place.position == slot.first + slot.count - 1:
            windowed = path if not later else path + np.where(np.greater_equal(left, 1.0), 0.0, -np.inf)
            longest = np.maximum(longest, _windows(slots, place, windowed, left, hop))
    return longest


def _round_trip(
    away: Seconds, after: Seconds, forward: Seconds, ways: Sequence[tuple[Seconds, Seconds]], warm: Count, left: Count,
    hop: Seconds,
) -> Seconds:  # fmt: skip
    """What a stage waits for, or has to do, while `warm` micro-batches are on their way through the later stages, and what the
    last backward takes longer from wherever the path comes back: from the later stages (`after` too), or from a queue at a stage
    so far (`ways`) or on the wire."""
    ends = ways[-1][1]
    home = away + after + ends
    queue: Seconds = 0.0
    late: Seconds = away + warm * hop
    for backward, ending in ways:
        queue = np.maximum(queue, warm * backward + ending)
        late = np.maximum(late, away + warm * np.maximum(backward, hop) + ending)
    both = np.maximum(away, warm * forward) + np.maximum(home, queue)
    few = np.maximum(np.maximum(home + warm * np.maximum(forward, hop), late), warm * forward + queue)
    return np.where(np.greater_equal(left, 1.0), both, few)


def _windows(slots: Sequence[Slot], place: Place, path: Seconds, left: Count, hop: Seconds) -> Seconds:
    """The longest of the paths that pass the micro-batches left in windows of the stages up to `place`, from the beginning of
    every run of equal stages."""
    longest: Seconds = 0.0
    slowest, trip = hop, -2.0 * hop
    within: list[Slot] = []
    last = place.position == plain_sum(slot.count for slot in slots) - 1
    for slot in reversed([slot for slot in slots if slot.first <= place.position]):
        within.append(slot)
        slowest = np.maximum(slowest, slot.whole)
        trip = trip + float(slot.count) * (slot.whole + 2.0 * hop)
        length = float(place.position - slot.first + 1)
        if length == 1.0:
            continue
        windows = np.floor(left / length)
        rest = left - windows * length
        some = np.greater_equal(windows, 1.0)
        more = np.where(some, rest, 0.0)
        shorter = np.maximum(_trips(within, rest), _trips(within[::-1], more))
        shorter = shorter + 2.0 * np.maximum(rest - 1.0, 0.0) * hop
        waiting = more * slowest
        if last:
            waiting = np.maximum(waiting, rest * hop)
        longest = np.maximum(longest, path + windows * trip + np.maximum(shorter, waiting))
    return longest


def _trips(slots: Sequence[Slot], count: Count) -> Seconds:
    """Forward and backward of the first `count` stages of a row."""
    total: Seconds = 0.0
    for slot in slots:
        taken = np.minimum(count, float(slot.count))
        total, count = total + taken * slot.whole, count - taken
    return total


def in_flight(
    position: int, pp: int, micro_batches: Count, virtual_stages: int, ahead: tuple[Count, ...] = ()
) -> Count:  # fmt: skip
    """A stage holds one micro-batch for every stage from itself to the end, and what is held ahead of the boundaries between; at
    most all of them."""
    return np.minimum(micro_batches, float(pp - position) + further(ahead, position))
