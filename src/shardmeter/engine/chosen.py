"""Which of several estimates counts, where that is not the same one on every network."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shardmeter.core.record import changed
from shardmeter.core.units import Count, Number
from shardmeter.engine import add
from shardmeter.engine.lines import along
from shardmeter.specs import Estimate

FIGURES = ("compute_seconds", "tokens", "samples", "model_flops", "hardware_flops", "gpus", "peak_flops")


def slowest(some: Sequence[Estimate]) -> Estimate:
    """The one with the longest step, the first of equals; of networks side by side, that of each."""
    return chosen(some, np.argmax(along([one.step_time for one in some]), axis=-1))


def chosen(some: Sequence[Estimate], places: Count) -> Estimate:
    """The estimate at a place or, of an array of places (networks,), each network's own as one: a term that one of them does not have
    is zero there. Memory and ends are those of the first."""
    used = sorted({int(place) for place in np.ravel(places)})
    if len(used) == 1:
        return some[used[0]]

    def own(values: Sequence[Number]) -> Number:
        picked: Number = np.take_along_axis(along(values), np.asarray(places)[..., None], axis=-1)[..., 0]
        return picked

    ledgers = [
        {term.label: getattr(term, which) for term in one.terms} for which in ("seconds", "hidden") for one in some
    ]
    labels = {label: None for ledger in ledgers for label in ledger}
    exposed, hidden = (
        {label: own([ledger.get(label, 0.0) for ledger in part]) for label in labels}
        for part in (ledgers[: len(some)], ledgers[len(some) :])
    )
    terms = add.ledger(exposed, hidden)
    figures = {name: own([getattr(one, name) for one in some]) for name in FIGURES}
    return changed(some[used[0]], terms=terms, step_time=add.total(terms), **figures)
