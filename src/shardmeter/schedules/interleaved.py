"""Interleaved 1F1B: each device owns v chunks, so the pipe fills v times faster (Narayanan 2021 §2.2.2; depth first)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shardmeter.core.sums import plain_sum
from shardmeter.core.units import Count, Seconds
from shardmeter.schedules._replay import replay
from shardmeter.schedules._routes import Traits, further
from shardmeter.schedules._slots import Op, Slot, stages

GROUPS = 4
"""Groups of micro-batches that are run turn by turn: a step is then periodic."""
WHOLE = 100_000
"""Forwards of a step up to which one of unlike groups is run to its end; in longer ones groups repeat as their mean does."""
TRAITS = Traits(least_chunks=2, most_chunks=None, groups=True, blocking=True, ahead=True)


def makespan(slots: Sequence[Slot], micro_batches: Count, virtual_stages: int, hop: Seconds) -> Seconds:
    """The schedule's own turns of the first GROUPS groups of pp micro-batches; each further group adds what the last of them
    did, or all turns of the slowest device. A send is part of the turn that sends; virtual stages may differ.

    Exact for up to GROUPS groups, and for equal turns. Leaves out: waits that settle later (2 % where virtual stages differ
    by half, 3 % threefold)."""
    pp = float(plain_sum(slot.count for slot in slots))
    groups = np.asarray(micro_batches / pp)
    run = np.clip(np.floor(groups), 1.0, float(GROUPS - 1))
    further = groups - run
    busiest = pp * _busiest(slots, virtual_stages, hop)
    longest: Seconds = 0.0
    for at in range(1, GROUPS):
        here = run == at
        if not np.any(here):
            continue
        once = replay(order, TRAITS, slots, at * int(pp), virtual_stages, hop)
        if np.any(here & (further != 0.0)):
            more = replay(order, TRAITS, slots, (at + 1) * int(pp), virtual_stages, hop) - once
            beyond = np.maximum(further - 1.0, 0.0)
            once = once + (further - beyond) * more + beyond * np.maximum(more, busiest)
        longest = np.where(here, once, longest)
    return longest if np.ndim(longest) else float(longest)


def _busiest(slots: Sequence[Slot], virtual_stages: int, hop: Seconds) -> Seconds:
    """Seconds of a micro-batch's turns on the slowest device: it sends after every turn, but the first device does not send
    the last gradient on, nor the last device the last activation."""
    held = stages(slots)
    longest: Seconds = 0.0
    for at, slot in enumerate(held):
        sends = 2.0 * virtual_stages - float(at == 0) - float(at == len(held) - 1)
        own: Seconds = 0.0
        for chunk in range(virtual_stages):
            own = own + slot.chunk(chunk, virtual_stages).whole
        longest = np.maximum(longest, own + sends * hop)
    return longest


def in_flight(
    position: int, pp: int, micro_batches: Count, virtual_stages: int, ahead: tuple[Count, ...] = ()
) -> Count:  # fmt: skip
    """Warm-up chunks 2(pp − position − 1) + (v − 1)·pp + 1, in units of whole stages; pp is as many more as a group has, and every
    virtual stage holds what is ahead of the boundaries between it and the end."""
    size, _ = grouped(pp, micro_batches, virtual_stages, ahead)
    chunks = 2.0 * (pp - position - 1) + (virtual_stages - 1.0) * size + 1.0
    return np.minimum(micro_batches, chunks / virtual_stages + further(ahead, position))


def grouped(pp: int, micro_batches: Count, virtual_stages: int, ahead: Sequence[Count]) -> tuple[Count, Count]:
    """(micro-batches of the largest group, groups). A group passes through one chunk, then the next: it is as many larger than pp as
    hide the way round all devices, half of what is ahead of its boundaries (the other half is the way back), in chunks."""
    wanted: Count = float(pp)
    for more in ahead:
        wanted = wanted + more * virtual_stages / 2.0
    groups = np.maximum(np.floor(micro_batches / np.ceil(wanted)), 1.0)
    return np.ceil(micro_batches / groups), groups


def alike(
    least: int, pp: int, micro_batches: int, virtual_stages: int, ahead: tuple[int, ...]
) -> tuple[int, int]:  # fmt: skip
    """(micro-batches, `least` or more, whose groups are as large as those of a whole step, in how many the rest may be cut)."""
    size, groups = (int(one) for one in grouped(pp, micro_batches, virtual_stages, ahead))
    most = micro_batches // groups
    begun = -(-least // size)
    if most == size:
        return begun * size, size
    mean = micro_batches / groups
    near = min(range(begun, 2 * begun), key=lambda some: abs(round(some * mean) / some - mean))
    rest = max(micro_batches - round(near * mean), 1)
    return round(near * mean), rest if pp * virtual_stages * micro_batches <= WHOLE else round(mean)


def order(
    position: int, pp: int, micro_batches: int, virtual_stages: int, ahead: tuple[int, ...] = ()
) -> tuple[Op, ...]:
    """Turns of the stage at `position`: micro-batches go in groups of pp through every chunk (depth first). Micro-batches ahead make
    groups larger, as even as they come, and the warm-up longer (as Megatron-LM does with a group size beyond pp)."""
    total = micro_batches * virtual_stages
    size, groups = (int(one) for one in grouped(pp, micro_batches, virtual_stages, ahead))
    more = virtual_stages * int(further(ahead, position))
    warm = min(2 * (pp - position - 1) + (virtual_stages - 1) * size + more, total)
    line: dict[str, list[Op]] = {}
    for kind in ("forward", "backward"):
        rounds = range(virtual_stages) if kind == "forward" else range(virtual_stages - 1, -1, -1)
        line[kind] = [
            Op(kind=kind, micro_batch=k, chunk=chunk)
            for at in range(groups)
            for chunk in rounds
            for k in range(at * micro_batches // groups, (at + 1) * micro_batches // groups)
        ]
    there, back = line.values()
    turns = there[:warm]
    for k in range(total - warm):
        turns += [there[warm + k], back[k]]
    return (*turns, *back[total - warm :])
