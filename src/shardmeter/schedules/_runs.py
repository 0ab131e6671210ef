"""A step turn by turn, as many of its micro-batches as it takes until the steady state has set in."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import NamedTuple

from shardmeter.core.units import Count
from shardmeter.schedules._links import Boundary, ahead_of, told
from shardmeter.schedules._replay import Replayed, replayed, replayed_rows
from shardmeter.schedules._routes import Traits
from shardmeter.schedules._slots import Slot

LONG, FEW = 4, 32
"""Fillings of the pipe, and micro-batches, that are run turn by turn at least."""


class Runs(NamedTuple):
    """Steps of a schedule over given links."""

    run: Callable[[int], Replayed]
    """A step of so many micro-batches."""
    first: int
    """Micro-batches after which the steady state has set in."""
    unit: int
    """In how many the others may be cut."""


def runs_of(
    module: ModuleType,
    own: Traits,
    slots: Sequence[Slot],
    micro_batches: int,
    virtual_stages: int,
    links: tuple[Boundary, ...],
) -> Runs:
    """The runs of a step of so many micro-batches; `own` are the traits with which it is run. An order that depends on the seconds takes
    plain numbers."""
    pp, ahead = len(links), ahead_of(links, len(links))
    filled = math.ceil(float(flying(module, 0, pp, float(micro_batches), virtual_stages, ahead)))
    first, unit = max(LONG * max(filled, int(own.rounds * pp)), FEW), 1
    if own.groups:
        first, unit = module.alike(first, pp, micro_batches, virtual_stages, ahead)
    copies = int(own.copies)  # that take micro-batches in turn

    def run(count: int) -> Replayed:
        if hasattr(module, "orders"):
            return replayed_rows(module.orders(slots, count, links), own, slots, virtual_stages, links)
        return replayed(module.order, own, slots, copies * count, virtual_stages, links)

    return Runs(run, first // copies, unit)


def flying(
    module: ModuleType, position: int, pp: int, micro_batches: Count, virtual_stages: int, ahead: tuple[Count, ...]
) -> Count:
    """Micro-batches in flight at a stage's peak, with those ahead of the boundaries behind every stage (empty: none)."""
    more = told(ahead) if module.TRAITS.ahead else ()
    found: Count = module.in_flight(position, pp, micro_batches, virtual_stages, *more)
    return found


__all__ = ["Runs", "flying", "runs_of"]
