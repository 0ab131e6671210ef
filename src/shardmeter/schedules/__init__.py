"""Pipeline schedules: one file each, found by name. A schedule knows order, not speed: it is given seconds and adds them up.

Each module offers `makespan(slots, micro_batches, virtual_stages, hop)` — the duration of one step's micro-batches — and
`in_flight(position, pp, micro_batches, virtual_stages)`, the micro-batches whose activations a stage holds at its peak;
`order(position, pp, micro_batches, virtual_stages)` lists a stage's turns for the timeline.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from types import ModuleType

from shardmeter.core.errors import UnknownName
from shardmeter.schedules._slots import Op, Slot

MODULES = {"gpipe": "gpipe", "1f1b": "one_f_one_b", "interleaved": "interleaved"}
"""Schedule words of the plan grammar → module."""
PLANNED = ("zb-h1", "zb-h2", "zb-v", "dualpipe")
"""Schedules that are named but not modelled yet."""


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


__all__ = ["MODULES", "PLANNED", "Op", "Slot", "names", "schedule"]
