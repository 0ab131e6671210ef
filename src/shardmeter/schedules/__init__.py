"""Pipeline schedules: one file each, found by name. A schedule knows order, not speed: it is given seconds and adds them up.

Each module offers `makespan(slots, micro_batches, virtual_stages, hop)` — the duration of one step's micro-batches, `hop` the
seconds of a send or, where a closed form knows them, a tuple with the `Boundary` behind each stage (`long_makespan` knows them
for all) — and `in_flight(position, pp, micro_batches, virtual_stages)`, the micro-batches whose activations a stage holds at its
peak; `order(position, pp, micro_batches, virtual_stages)` lists a stage's turns for the timeline. Both take what is held ahead of
every boundary besides, where the schedule may (`Traits.ahead`). `TRAITS` says what is true of it
whatever the numbers: whether backward is split, how chunks are laid over devices, how many copies of the parameters are held,
what it needs of pp, micro-batches and virtual stages. Where weight gradients wait, `owed(...)` counts them at the peak; where
the order depends on the seconds, `orders(slots, micro_batches, hop)` lists the turns of all stages for those.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Sequence
from types import ModuleType

import numpy as np

from shardmeter.core.errors import UnknownName
from shardmeter.core.record import changed
from shardmeter.core.units import Count, Seconds
from shardmeter.schedules._leaving import Last, leaving
from shardmeter.schedules._links import Boundary, Hop, ahead_of, in_turn, told
from shardmeter.schedules._long import SETTLED
from shardmeter.schedules._prolonged import apart, prolonged
from shardmeter.schedules._routes import Key, Traits, content, crossed, needs
from shardmeter.schedules._runs import flying, runs_of
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
    the first. The schedule's own turns: none is moved because a link is long, but for what is held ahead of it.

    gpipe, 1f1b and interleaved-bf have forms of their own; the turns of the others are run as they come, `beside` (sends pass beside
    them whatever the code that introduced the schedule does) or blocking. Of more than LONG fillings of the pipe the last ones repeat
    what the steady state does there. An order that depends on the seconds is found for every network by itself. Leaves out, for the
    others: a last backward that is longer (its part is in all of them), buffers that sends overflow. Raises UnknownName."""
    module = schedule(name)
    links, later = in_turn(links, virtual_stages)
    if name in ("gpipe", "1f1b", "interleaved-bf"):
        used = links if virtual_stages > 1 else links[:-1]
        alone: Seconds = module.makespan(slots, float(micro_batches), virtual_stages, used)
    else:
        own = changed(traits(name), blocking=traits(name).blocking and not beside)

        def of(slots: Sequence[Slot], links: tuple[Boundary, ...]) -> Seconds:
            return _replayed(module, own, slots, micro_batches, virtual_stages, links)

        alone = apart(of, slots, links) if hasattr(module, "orders") else of(slots, links)
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
    copies = int(own.copies)
    runs = runs_of(module, own, slots, micro_batches, virtual_stages, links)
    least = copies * _least(own, stages(slots), virtual_stages, links)
    return prolonged(runs.run, micro_batches // copies, runs.first, runs.unit, least)


def _least(own: Traits, held: Sequence[Slot], virtual_stages: int, links: tuple[Boundary, ...]) -> Seconds:
    """What a micro-batch keeps the slowest device or wire busy; of two copies each device has half of both its stages' micro-batches."""
    longest: Seconds = 0.0
    wholes: list[Seconds] = [0.0] * len(held)
    for chunk in range(virtual_stages):
        wholes = [whole + slot.chunk(chunk, virtual_stages).whole for whole, slot in zip(wholes, held, strict=True)]
    for at, slot in enumerate(held):
        both = at if own.copies == 1.0 else -1 - at
        longest = np.maximum(longest, (wholes[at] + wholes[both] - slot.joined - held[both].joined) / 2.0)
    for link in links[:-1]:
        longest = np.maximum(longest, virtual_stages * link.wire)
    return longest


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
    "schedule",
    "traits",
    "turns_of",
]
