"""Interleaved 1F1B: each device owns v chunks, so the pipe fills v times faster (Narayanan 2021 §2.2.2; depth first)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shardmeter.core.units import Count, Seconds
from shardmeter.schedules._routes import Traits
from shardmeter.schedules._slots import Op, Slot, places

TRAITS = Traits(least_chunks=2, most_chunks=None, groups=True, blocking=True)


def makespan(slots: Sequence[Slot], micro_batches: Count, virtual_stages: int, hop: Seconds) -> Seconds:
    """The longest path that stays at one device: its turns, the way there and back in chunks, and what it waits for.

    While it runs ahead, pp of its own chunks may take less than a micro-batch on its way round all devices, or pp chunks of
    the slowest: v − 1 such waits, then one for the way to the end and back against 2·(pp − 1 − position) chunks; likewise at
    the end of the step. With one group of micro-batches the first devices turn round once, and the two waits are one.
    Exact for equal devices without hops; never too long. Leaves out: paths that wait at two devices (devices that differ by a
    quarter: up to 4 % short)."""
    pp = float(sum(slot.count for slot in slots))
    chunks = float(virtual_stages)
    around: dict[str, Seconds] = {}
    for way in ("forward", "backward"):
        total: Seconds = 0.0
        slowest: Seconds = 0.0
        for slot in slots:
            seconds = getattr(slot, way) / chunks
            total = total + float(slot.count) * seconds
            slowest = np.maximum(slowest, seconds)
        around[way] = np.maximum(total + pp * hop, pp * slowest)
    longest: Seconds = 0.0
    for place in places(slots):
        slot, later = place.slot, pp - 1.0 - float(place.position)
        away = place.after / chunks + 2.0 * hop * later
        path = place.before / chunks + 2.0 * hop * float(place.position) + micro_batches * slot.whole
        filled = np.minimum(2.0 * later, micro_batches * chunks - 1.0 - (chunks - 1.0) * pp)
        waits: list[Seconds] = []
        for way, once in around.items():
            seconds = getattr(slot, way) / chunks
            path = path + (chunks - 1.0) * (once - pp * seconds)
            waits.append(np.maximum(away - filled * seconds, 0.0))
        apart = np.greater_equal(filled, 2.0 * later)
        path = path + np.where(apart, waits[0] + waits[1], np.maximum(waits[0], waits[1]))
        longest = np.maximum(longest, path)
    return longest


def in_flight(position: int, pp: int, micro_batches: Count, virtual_stages: int) -> Count:
    """Warm-up chunks 2(pp − position − 1) + (v − 1)·pp + 1, in units of whole stages."""
    chunks = 2.0 * (pp - position - 1) + (virtual_stages - 1.0) * pp + 1.0
    return np.minimum(micro_batches, chunks / virtual_stages)


def order(position: int, pp: int, micro_batches: int, virtual_stages: int) -> tuple[Op, ...]:
    """Turns of the stage at `position`: micro-batches go in groups of pp through every chunk (depth first)."""
    total = micro_batches * virtual_stages
    warm = min(2 * (pp - position - 1) + (virtual_stages - 1) * pp, total)

    def turn(kind: str, k: int) -> Op:
        group, rest = divmod(k, pp * virtual_stages)
        chunk, offset = divmod(rest, pp)
        if kind == "backward":
            chunk = virtual_stages - 1 - chunk
        return Op(kind=kind, micro_batch=group * pp + offset, chunk=chunk)

    turns = [turn("forward", k) for k in range(warm)]
    for k in range(total - warm):
        turns += [turn("forward", warm + k), turn("backward", k)]
    turns += [turn("backward", k) for k in range(total - warm, total)]
    return tuple(turns)
