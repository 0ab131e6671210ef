"""How islands are kept together: one method a file, found by name. A method knows bytes and steps, never a bandwidth.

Each module offers `round_of(replica, sync)` — the demands of one round (`specs.Round`) of `replica.cells` cells that train
`replica.parameters` — with `FIELDS`, the fields of `Sync` that it reads or that say how its messages pass, `DEFAULTS`, what
those are where nobody says, `SOURCE`, the citation it follows, and `effect(replica, sync)`, what is known of its loss
(`specs.Effect`). One whose inner step is not a backward through the whole model says so by `inner(sync)` (`specs.Inner`), one that
brings an optimizer of its own by `OPTIMIZER`, the word of a plan for what that keeps and steps.
Whatever is said beside `FIELDS` contradicts the method.
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
from collections.abc import Iterable
from types import ModuleType

import numpy as np

from shardmeter.core.errors import UnknownName
from shardmeter.core.record import changed
from shardmeter.specs import Effect, Inner, Plan, Replica, Round, Sync
from shardmeter.sync import _measured

measured_gap = _measured.gap
"""Log of the loss of replicas over the synchronous one, from measured runs; `without` those of a paper."""
was_measured = _measured.is_inside
"""Whether replicas are within the range of those runs."""
NO_BACKWARD = ""
"""`Plan.trainable` where nothing runs back."""


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


def inner_of(sync: Sync) -> Inner:
    """How an inner step of the method differs from a forward and a backward through the whole model. Raises UnknownName."""
    own = getattr(method(sync.method), "inner", None)
    found: Inner = Inner() if own is None else own(sync)
    return found


def optimizer_of(sync: Sync) -> str:
    """The optimizer that the method brings with it; empty where any does. Raises UnknownName."""
    return str(getattr(method(sync.method), "OPTIMIZER", ""))


def alike(name: str) -> bool:
    """Whether a method trains one model by backpropagation through all of it; those that end with several models say `SEVERAL`.
    Raises UnknownName."""
    return inner_of(defaults(name)) == Inner() and not getattr(method(name), "SEVERAL", False)


def caution(compared: Iterable[str]) -> str:
    """A warning where methods are compared that do not train the same way; empty where all do. Names that are none are passed over."""
    found = [name for name in dict.fromkeys(compared) if name in names() and not alike(name)]
    if not found:
        return ""
    them = "does" if len(found) == 1 else "do"
    says = "not train one model by backpropagation: the same tokens teach something else, and time alone does not compare it"
    return f"{', '.join(found)} {them} {says}"


def parts_of(cells: int, parts: int) -> tuple[tuple[int, ...], ...]:
    """The cells of every part of a model, dealt out in turn. Fewer cells than parts leave parts without any."""
    return tuple(tuple(range(part, cells, parts)) for part in range(min(parts, cells)))


def faults(sync: Sync, cells: int) -> tuple[tuple[str, str, str], ...]:
    """Why a method cannot join so many cells: (field, what is wrong, a way out) of each; none where it can. Raises UnknownName."""
    own = getattr(method(sync.method), "faults", None)
    found: tuple[tuple[str, str, str], ...] = () if own is None else own(sync, cells)
    return found


def laid(plan: Plan, sync: Sync) -> Plan:
    """The plan of a cell under a method: one without a backward trains nothing by gradients, and perturbs what the plan trains.
    Raises UnknownName."""
    probes = inner_of(sync).probes
    if probes is None:
        return changed(plan, sync=sync)
    of = plan.trainable if plan.probes is None else plan.probes.of
    return changed(plan, sync=sync, probes=changed(probes, of=of), trainable=NO_BACKWARD)


def effect(replica: Replica, sync: Sync) -> Effect:
    """What is known of the loss under a method. Raises UnknownName."""
    found: Effect = method(sync.method).effect(replica, sync)
    return found


def round_of(replica: Replica, sync: Sync) -> Round:
    """The demands of one round. Raises UnknownName."""
    found: Round = method(sync.method).round_of(replica, sync)
    several = np.minimum(np.maximum(replica.cells - 1.0, 0.0), 1.0)
    return changed(found, crossings=tuple(changed(one, size=one.size * several) for one in found.crossings))
