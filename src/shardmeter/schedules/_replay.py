"""Schedules whose turns have no short sum: their own order, run as a max-plus recurrence over numbers or arrays.

A turn begins when the turn before it on its device and whatever it needs have ended. The recurrence is run once, for the
fewest micro-batches the schedule is made for; each further one adds the turns of the slowest device.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np

from shardmeter.core.units import Seconds
from shardmeter.schedules._routes import Key, Traits, content, needs
from shardmeter.schedules._slots import Op, Slot, stages

Order = Callable[[int, int, int, int], tuple[Op, ...]]
Step = tuple[str, int, tuple[int, ...], tuple[int, ...]]
"""Kind, owner's position, turns that must have ended here, turns whose result must have come from a neighbour."""


JOINED = "joined backward"
"""Kind of a backward that is done together with the forward before it."""


def replay(
    order: Order, traits: Traits, slots: Sequence[Slot], micro_batches: int, virtual_stages: int, hop: Seconds
) -> Seconds:
    """Duration of a step of so many micro-batches: the longest span of a device on its own clock, else the whole."""
    held = stages(slots)
    turns, ends = _turns(order, traits.route, len(held), micro_batches, virtual_stages)
    parts = {(kind, at): _seconds(held[at], kind) / virtual_stages for kind, at in {turn[:2] for turn in turns}}
    plain = all(np.ndim(value) == 0 for value in (*parts.values(), hop))
    larger = max if plain else np.maximum
    if plain:
        parts, hop = {key: float(value) for key, value in parts.items()}, float(hop)
    begin: list[Seconds] = []
    end: list[Seconds] = []
    for kind, owner, here, away in turns:
        start: Seconds = 0.0
        for earlier in here:
            start = larger(start, end[earlier])
        for earlier in away:
            start = larger(start, end[earlier] + hop)
        begin.append(start)
        end.append(start + parts[kind, owner])
    longest: Seconds = 0.0
    for first, last in ends:
        longest = larger(longest, end[last] - begin[first] if traits.own_clock else end[last])
    return longest


def _seconds(slot: Slot, kind: str) -> Seconds:
    return slot.backward - slot.joined if kind == JOINED else getattr(slot, kind)


@functools.cache
def _turns(
    order: Order, route: str, pp: int, micro_batches: int, virtual_stages: int
) -> tuple[list[Step], list[tuple[int, int]]]:
    """All turns in an order in which each comes after what it needs, and the first and last of every device.

    Raises ValueError if turns wait for each other in a circle."""
    rows = [order(device, pp, micro_batches, virtual_stages) for device in range(pp)]
    keys = [[(device, op.kind, op.micro_batch, op.chunk) for op in row] for device, row in enumerate(rows)]
    seen_by_others: dict[Key, Key] = {}
    for row, own in zip(rows, keys, strict=True):
        for i, op in enumerate(row):
            seen_by_others[own[i]] = own[i + 1] if op.joined else own[i]
    of = needs(route, pp, seen_by_others.keys())
    place: dict[Key, int] = {}
    made: list[Step] = []
    at = [0] * pp
    moved = True
    while moved:
        moved = False
        for device, own in enumerate(keys):
            while at[device] < len(own):
                key = own[at[device]]
                wanted = list(of(key))
                here = [k for k in wanted if k[0] == device]
                away = [seen_by_others[k] for k in wanted if k[0] != device]
                if any(k not in place for k in (*here, *away)):
                    break
                before = [own[at[device] - 1]] if at[device] else []
                place[key] = len(made)
                together = bool(at[device]) and rows[device][at[device] - 1].joined
                made.append((
                    JOINED if together else key[1], content(route, (device, key[3]), pp),
                    tuple(sorted({place[k] for k in (*before, *here)})), tuple(place[k] for k in away),
                ))  # fmt: skip
                at[device] += 1
                moved = True
    if len(made) < len(seen_by_others):
        raise ValueError(f"{len(seen_by_others) - len(made)} turns wait for each other in a circle")
    return made, [(place[own[0]], place[own[-1]]) for own in keys]


__all__ = ["replay"]
