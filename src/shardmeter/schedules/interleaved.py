"""Interleaved 1F1B: each device owns v chunks, so the pipe fills v times faster (Narayanan 2021 §2.2.2)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shardmeter.core.units import Count, Seconds
from shardmeter.schedules._slots import Op, Slot


def makespan(slots: Sequence[Slot], micro_batches: Count, virtual_stages: int, hop: Seconds) -> Seconds:
    """M slots of the slowest device and 1/v of the slots of all others: the fill takes chunks, not whole stages.

    Every micro-batch crosses v − 1 more rounds of hops, and each shows once per chunk and direction. Leaves out: the stall
    when micro-batches are no multiple of pp; hops hidden behind the other chunks."""
    total: Seconds = 0.0
    slowest: Seconds = 0.0
    for slot in slots:
        total = total + float(slot.count) * slot.whole
        slowest = np.maximum(slowest, slot.whole)
    chunks = float(virtual_stages)
    pp = float(sum(slot.count for slot in slots))
    return micro_batches * (slowest + 2.0 * hop * chunks) + (total - slowest) / chunks + 2.0 * hop * (pp - 1.0)


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
