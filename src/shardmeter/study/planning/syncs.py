"""The axis of synchronisation: methods and words loop, numbers are an open mesh, as in `space`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from shardmeter.core.record import changed, record
from shardmeter.core.sums import plain_sum
from shardmeter.scenario.choices import ANY
from shardmeter.scenario.open_fleet import SYNC_WORDS
from shardmeter.scenario.sync import fitting, method_named
from shardmeter.specs import Replica, Sync
from shardmeter.specs.plan import OUTER_STATES, RELEASES, SPLITS, TOPOLOGIES
from shardmeter.sync import alike, defaults, method, names, round_of

NAMED = ("num_fragments", "blocks", "levels", "rank", "perturbations", "together", *SYNC_WORDS[1:])
"""Fields that loop: words, and what sets the length of an axis."""
NUMBERS = ("sync_every", "fragment_sync_delay", "fragment_update_alpha", "bits", "top_k", "lead", "grace")
"""Axes of the mesh, in order."""
ALONE = "every_step"
"""The method where none is said: the only one that trains as one island does."""
OTHERS = tuple(name for name in names() if not alike(name))
"""Methods that train something else than one model by backpropagation: never chosen where nobody asks for them by name."""
TOO_LATE = "what is sent is applied before it is sent again"
TOO_MANY = "a fragment is whole layers"
EVERYTHING: dict[str, tuple[Any, ...]] = {
    "outer_state": OUTER_STATES, "topology": TOPOLOGIES, "hierarchical": (True, False), "release": RELEASES,
    "split": SPLITS,
}  # fmt: skip


@record
class Way:
    """One method with its words; its numbers are arrays where several are open."""

    sync: Sync
    shape: tuple[int, ...]
    """Of the mesh; () where all numbers are single."""
    legal: npt.NDArray[np.bool_]
    """Of that shape."""

    @property
    def size(self) -> int:
        """Points of the mesh."""
        return math.prod(self.shape)

    def at(self, number: int) -> Sync:
        """The synchronisation of one point."""
        position = np.unravel_index(number, self.shape)
        return changed(self.sync, **{name: self._one(getattr(self.sync, name), position) for name in NUMBERS})

    def _one(self, value: Any, position: tuple[Any, ...]) -> float:
        return float(np.broadcast_to(value, self.shape)[position] if self.shape else value)

    def beside(self, told: Replica) -> tuple[float, ...]:
        """Bytes that a rank keeps for every parameter it updates: the least and the most of the mesh."""
        asked = round_of(told, self.sync)
        kept = [np.asarray(one.size, dtype=float) for one in asked.residents]
        total = plain_sum(kept, start=np.zeros(())) / told.parameters
        return tuple(dict.fromkeys((float(np.min(total)), float(np.max(total)))))


def ways_of(said: Mapping[str, tuple[Any, ...]], layers: float, cells: int) -> tuple[Way, ...]:
    """Every method that may be chosen, with every combination of its words. A field that a method does not read is not varied
    with it. Raises UnknownName."""
    asked = said.get("method") or (ALONE,)
    usual = [name for name in names() if name not in OTHERS] if ANY in asked else []
    methods = [method_named(one) for one in asked if one != ANY] + usual
    return tuple(way for name in dict.fromkeys(methods) for way in _of_method(name, said, layers, cells))


def _of_method(name: str, said: Mapping[str, tuple[Any, ...]], layers: float, cells: int) -> Iterator[Way]:
    fields = method(name).FIELDS
    own = defaults(name)
    single = {field: values[0] for field, values in said.items() if len(values) == 1}
    usual = {field: getattr(own, field) for field in (*NAMED, *NUMBERS)}
    usual |= fitting(dict(method(name).DEFAULTS), single, layers, cells)

    def of(field: str) -> tuple[Any, ...]:
        given = said.get(field, ()) if field in fields else ()
        if ANY in given:
            return EVERYTHING[field]
        return tuple(given) or (usual[field],)

    axes = [of(field) for field in NUMBERS]
    wide = [at for at, values in enumerate(axes) if len(values) > 1]
    shape = tuple(len(axes[at]) for at in wide)
    numbers = {field: _along(axes[at], at, wide) for at, field in enumerate(NUMBERS)}
    if "fragment_sync_delay" not in said:
        numbers["fragment_sync_delay"] = np.minimum(numbers["fragment_sync_delay"], numbers["sync_every"])
    legal = np.broadcast_to(np.less_equal(numbers["fragment_sync_delay"], numbers["sync_every"]), shape)
    for words in itertools.product(*map(of, NAMED)):
        made = changed(own, **numbers, **dict(zip(NAMED, words, strict=True)))
        made = changed(made, **{name: int(getattr(made, name)) for name in ("num_fragments", "blocks", "levels")})
        fits = made.num_fragments <= layers
        yield Way(sync=made, shape=shape, legal=legal & fits)


def _along(values: tuple[Any, ...], axis: int, wide: list[int]) -> Any:
    if len(values) == 1:
        return float(values[0])
    return np.array(values, dtype=float).reshape([len(values) if one == axis else 1 for one in wide])
