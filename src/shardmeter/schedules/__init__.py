"""Pipeline schedules: one file each, found by name. A schedule knows order, not speed: it is given seconds and adds them up.

Each module offers `makespan(slots, micro_batches, virtual_stages, hop)` — the duration of one step's micro-batches, `hop` the
seconds of a send or, for gpipe and 1f1b, a tuple of pp − 1 `Boundary` (wire and delay of each) — and
`in_flight(position, pp, micro_batches, virtual_stages)`, the micro-batches whose activations a stage holds at its peak;
`order(position, pp, micro_batches, virtual_stages)` lists a stage's turns for the timeline. `TRAITS` says what is true of it
whatever the numbers: whether backward is split, how chunks are laid over devices, how many copies of the parameters are held,
what it needs of pp, micro-batches and virtual stages. Where weight gradients wait, `owed(...)` counts them at the peak; where
the order depends on the seconds, `orders(slots, micro_batches, hop)` lists the turns of all stages for those.
"""

from __future__ import annotations

import functools
import importlib
import math
import pkgutil
from collections.abc import Sequence
from types import ModuleType

import numpy as np

from shardmeter.core.errors import UnknownName
from shardmeter.core.record import changed
from shardmeter.core.units import Count, Seconds
from shardmeter.schedules._leaving import Last, leaving
from shardmeter.schedules._long import SETTLED, Boundary, Hop, ahead_of, in_turn, told
from shardmeter.schedules._prolonged import prolonged
from shardmeter.schedules._replay import Replayed, replayed
from shardmeter.schedules._routes import Key, Traits, content, crossed, needs
from shardmeter.schedules._slots import Op, Slot, stages

MODULES = {
    "gpipe": "gpipe",
    "1f1b": "one_f_one_b",
    "interleaved": "interleaved",
    "interleaved-bf": "interleaved_bf",
    "zb-h1": "zb_h1",
    "zb-h2": "zb_h2",
    "zb-2p": "zb_2p",
    "zb-v": "zb_v",
    "dualpipe": "dualpipe",
}
"""Schedule words of the plan grammar → module."""


def names() -> tuple[str, ...]:
    """The schedules built."""
    built = {m.name for m in pkgutil.iter_modules(__path__)}
    return tuple(word for word, module in MODULES.items() if module in built)


@functools.cache
def schedule(name: str) -> ModuleType:
    """The module of a schedule. Raises UnknownName."""
    if name not in names():
        raise UnknownName("schedule", name, names())
    return importlib.import_module(f"{__name__}.{MODULES[name]}")


def traits(name: str) -> Traits:
    """What is true of a schedule by its kind; of one that is not built, nothing but the defaults."""
    found: Traits = schedule(name).TRAITS if name in MODULES else Traits()
    return found


def owed(module: ModuleType, position: int, pp: int, micro_batches: Count, virtual_stages: int) -> Count:
    """Weight gradients that wait at a stage's peak, beside the micro-batches in flight."""
    counted: Count = module.owed(position, pp, micro_batches, virtual_stages) if hasattr(module, "owed") else 0.0
    return counted


def holds_all(name: str) -> bool:
    """Whether every stage holds all micro-batches at once, so that nothing could be held ahead."""
    return name in ("gpipe", "interleaved-bf")


def runs_long(name: str) -> bool:
    """Whether `long_makespan` knows the schedule: its turns are of one model laid in a ring, and do not follow from the seconds."""
    return name in MODULES and traits(name).copies == 1.0


def long_makespan(
    name: str,
    slots: Sequence[Slot],
    micro_batches: int,
    virtual_stages: int,
    links: tuple[Boundary, ...],
    *,
    beside: bool,
) -> Seconds:
    """Duration of one step's micro-batches over unlike, long links: `links` are those behind every stage, the last one's leading back to
    the first. The schedule's own turns: none is moved because a link is long.

    gpipe and 1f1b have forms of their own; the turns of the others are run as they come, `beside` (sends pass beside them whatever the
    code that introduced the schedule does) or blocking. Of more than LONG fillings of the pipe the last ones repeat
    what the steady state does there. Leaves out, for the others: a last backward that is longer (its part is in all of them), buffers that sends
    overflow. Raises KeyError for schedules of which `runs_long` is not true."""
    if not runs_long(name):
        raise KeyError(name)
    module, pp = schedule(name), len(links)
    links, later = in_turn(links, virtual_stages)
    if name in ("gpipe", "1f1b"):
        alone: Seconds = module.makespan(slots, float(micro_batches), virtual_stages, links[:-1])
    else:
        own = changed(traits(name), blocking=traits(name).blocking and not beside)
        alone = _replayed(module, own, slots, micro_batches, virtual_stages, links)
    return alone + later


def _replayed(
    module: ModuleType,
    own: Traits,
    slots: Sequence[Slot],
    micro_batches: int,
    virtual_stages: int,
    links: tuple[Boundary, ...],
) -> Seconds:
    """The turns as they come, and what the steady state repeats of them."""
    pp, ahead = len(links), ahead_of(links, len(links))
    many = float(micro_batches)
    filled = math.ceil(float(flying(module, 0, pp, many, virtual_stages, ahead)))
    unit = 1
    if own.groups:
        size, _ = module.grouped(pp, many, virtual_stages, ahead)
        unit = int(size)
    least: Seconds = 0.0
    for slot in stages(slots):
        least = np.maximum(least, slot.whole)
    for link in links[:-1]:
        least = np.maximum(least, virtual_stages * link.wire)

    def run(count: int) -> Replayed:
        return replayed(module.order, own, slots, count, virtual_stages, links)

    first = LONG * max(filled, pp)
    first += (micro_batches - first) % unit
    return prolonged(run, micro_batches, first, unit, least)


LONG = 5
"""Fillings of the pipe that are run turn by turn."""


def turns_of(
    module: ModuleType, slots: Sequence[Slot], micro_batches: int, virtual_stages: int, hop: Hop
) -> list[tuple[Op, ...]]:
    """The turns of all stages."""
    if hasattr(module, "orders"):
        found: list[tuple[Op, ...]] = module.orders(slots, micro_batches, hop)
        return found
    pp = len(stages(slots))
    more = told(ahead_of(hop, pp)) if module.TRAITS.ahead else ()
    return [module.order(position, pp, micro_batches, virtual_stages, *more) for position in range(pp)]


def flying(
    module: ModuleType, position: int, pp: int, micro_batches: Count, virtual_stages: int, ahead: tuple[Count, ...]
) -> Count:
    """Micro-batches in flight at a stage's peak, with those ahead of the boundaries behind every stage (empty: none)."""
    more = told(ahead) if module.TRAITS.ahead else ()
    found: Count = module.in_flight(position, pp, micro_batches, virtual_stages, *more)
    return found


__all__ = [
    "MODULES",
    "SETTLED",
    "Boundary",
    "Hop",
    "Key",
    "Last",
    "Op",
    "Slot",
    "Traits",
    "content",
    "crossed",
    "flying",
    "holds_all",
    "leaving",
    "long_makespan",
    "names",
    "needs",
    "owed",
    "runs_long",
    "schedule",
    "traits",
    "turns_of",
]
