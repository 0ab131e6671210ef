"""Which of several estimates counts, where that is not the same one on every network."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from shardmeter.core.record import changed
from shardmeter.core.units import Count, Number
from shardmeter.engine import add
from shardmeter.engine.wans import along
from shardmeter.specs import Estimate

T = TypeVar("T")
FIGURES = (
    "memory_allocated", "memory_first", "memory_peak", "memory_limit", "tokens", "samples", "model_flops", "hardware_flops",
    "compute_seconds", "gpus", "peak_flops",
)  # fmt: skip
"""Of an estimate, what is a number beside its step."""


def slowest(some: Sequence[Estimate]) -> Estimate:
    """The one with the longest step, the first of equals; of networks side by side, that of each."""
    return chosen(some, np.argmax(along([one.step_time for one in some]), axis=-1))


def chosen(some: Sequence[Estimate], places: Count) -> Estimate:
    """The estimate at a place or, of an array of places (networks,), each network's own as one: a term that one of them does not have
    is zero there. `ends` are those of the first."""
    used = sorted({int(place) for place in np.ravel(places)})
    if len(used) == 1:
        return some[used[0]]

    def own(values: Iterable[Number]) -> Number:
        every = np.broadcast_to(along(list(values)), (*np.shape(places), len(some)))
        picked: Number = np.take_along_axis(every, np.asarray(places)[..., None], axis=-1)[..., 0]
        return picked

    def of_terms(which: str) -> dict[str, Number]:
        each = [{term.label: getattr(term, which) for term in one.terms} for one in some]
        return {label: own(one.get(label, 0.0) for one in each) for label in _labels(each)}

    terms = add.ledger(of_terms("seconds"), of_terms("hidden"))
    held = [{term.label: term for term in one.memory} for one in some]
    memory = tuple(
        changed(term, size=own(one[label].size if label in one else 0.0 for one in held))
        for label, term in _labels(held).items()
    )
    figures = {name: own(getattr(one, name) for one in some) for name in FIGURES}
    return changed(some[used[0]], terms=terms, memory=memory, step_time=add.total(terms), **figures)


def _labels(each: Sequence[Mapping[str, T]]) -> dict[str, T]:
    """Every label, with what it first stands for."""
    return {label: value for one in reversed(each) for label, value in one.items()}
