"""How islands are kept together: one method a file, found by name. A method knows bytes and steps, never a bandwidth.

Each module offers `round_of(replica, sync)` — the demands of one round (`specs.Round`) of `replica.cells` cells that train
`replica.parameters` — with `FIELDS`, the fields of `Sync` that it reads, `DEFAULTS`, what those are where nobody says, and
`SOURCE`, the citation it follows. Whatever is said beside `FIELDS` contradicts the method. One cell moves nothing.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from types import ModuleType

from shardmeter.core.errors import UnknownName
from shardmeter.specs import Replica, Round, Sync


@functools.cache
def names() -> tuple[str, ...]:
    """The methods built, in alphabetical order."""
    return tuple(sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_")))


@functools.cache
def method(name: str) -> ModuleType:
    """The module of a method. Raises UnknownName."""
    if name not in names():
        raise UnknownName("sync method", name, names())
    return importlib.import_module(f"{__name__}.{name}")


def round_of(replica: Replica, sync: Sync) -> Round:
    """The demands of one round. Raises UnknownName."""
    found: Round = method(sync.method).round_of(replica, sync)
    return found
