"""How islands are kept together: one method a file, found by name. A method knows bytes and steps, never a bandwidth.

Each module offers `round_of(replica, sync)` — the demands of one round (`specs.Round`) of `replica.cells` cells that train
`replica.parameters` — with `FIELDS`, the fields of `Sync` that it reads or that say how its messages pass, `DEFAULTS`, what
those are where nobody says, and `SOURCE`, the citation it follows. Whatever is said beside `FIELDS` contradicts the method.
Its docstring says in lines of their own what crosses (Bytes), how often (Period), behind what (Window), what it keeps
(Memory) and works (Compute) beside inner training, and which numbers of `Progress` it sets (Convergence); docs/sync.md is
written from them.

One cell moves nothing: `round_of` sizes every message of a single cell to zero, whatever its collective. What the method
keeps and works stays: an outer step of one cell is still a step of the optimizer (Charles 2025, Table 4).

Quantised messages count `bits` a value. Leaves out: their scales, 32 bits for every tensor (a table of 256 values) or block;
one of 16 bits for 128 values would add 0.125 bit a value.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from types import ModuleType

import numpy as np

from shardmeter.core.errors import UnknownName
from shardmeter.core.record import changed
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


def defaults(name: str) -> Sync:
    """The settings of a method where nobody says otherwise. Raises UnknownName."""
    return changed(Sync(), method=name, **method(name).DEFAULTS)


def round_of(replica: Replica, sync: Sync) -> Round:
    """The demands of one round. Raises UnknownName."""
    found: Round = method(sync.method).round_of(replica, sync)
    several = np.minimum(np.maximum(replica.cells - 1.0, 0.0), 1.0)
    return changed(found, crossings=tuple(changed(one, size=one.size * several) for one in found.crossings))
