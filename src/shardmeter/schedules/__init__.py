"""Pipeline schedules: one file each, found by name. A schedule says how long the pipe idles and how many micro-batches wait.

Each module offers `idle(pp, virtual_stages)` — the share of the other stages' slot time for which the critical stage
idles per step — and `in_flight(position, pp, micro_batches, virtual_stages)`.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from types import ModuleType

from shardmeter.core.errors import UnknownName

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
