"""How workers are kept together, for real: one method a file, found by name.

Each module has `run(worker)`, which trains until all rounds are through and raises `groups.Lost` where it cannot go on, and `INNER`, a
sentence on what a worker does of it alone (`Task.alone`): the same inner step, nothing crossing. They load PyTorch: only worker
processes import them.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from types import ModuleType

from shardmeter.core.errors import UnknownName


@functools.cache
def names() -> tuple[str, ...]:
    """The methods built, in alphabetical order; loads none of them."""
    return tuple(sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_")))


def method(name: str) -> ModuleType:
    """The module of a method. Raises UnknownName."""
    if name not in names():
        raise UnknownName("method of the lab", name, names())
    return importlib.import_module(f"{__name__}.{name}")
