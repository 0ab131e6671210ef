"""*add*: the ledger. The total is the left fold of the terms; nothing else computes it."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from shardmeter.core.units import Bytes, Number, Seconds
from shardmeter.specs.estimate import MemoryTerm, Term

CAUSES: dict[str, str] = {
    "matrix products": "compute",
    "core attention": "compute",
    "memory-bound kernels": "memory bandwidth",
    "launch overhead": "launch",
    "dispatch wait": "launch",
    "recompute": "compute",
    "reference model": "compute",
    "tensor parallel": "scale-up link",
    "expert all-to-all": "fabric",
    "context parallel": "fabric",
    "contrastive gather": "fabric",
    "parameter gather": "fabric",
    "gradient reduction": "fabric",
    "tied matrix": "fabric",
    "contention": "fabric",
    "stage sends": "fabric",
    "pipeline bubble": "pipeline",
    "host offload": "host link",
    "losses of the probes": "fabric",
    "optimizer": "optimizer",
    "stragglers": "stragglers",
    "software": "software",
    "gradients across islands": "wide-area link",
    "outer synchronisation": "wide-area link",
    "outer update": "memory bandwidth",
    "wait": "wait",
}
"""Ledger order, and the cause of each term."""
BUSY = ("matrix products", "core attention", "memory-bound kernels", "recompute")
"""Terms in which the device computes."""


def ledger(exposed: dict[str, Seconds], hidden: dict[str, Seconds]) -> tuple[Term, ...]:
    """The terms in fixed order. Raises KeyError on a label that has no cause: a term must say where it comes from."""
    unknown = set(exposed) - set(CAUSES)
    if unknown:
        raise KeyError(f"ledger terms without a cause: {sorted(unknown)}")
    return tuple(
        Term(label=label, seconds=exposed[label], hidden=hidden.get(label, 0.0), cause=cause)
        for label, cause in CAUSES.items()
        if label in exposed
    )


def total(terms: Iterable[Term]) -> Seconds:
    """Left fold of the exposed seconds."""
    return folded(term.seconds for term in terms)


def memory_total(terms: Iterable[MemoryTerm]) -> Bytes:
    """Left fold of the bytes."""
    return folded(term.size for term in terms)


def folded(values: Iterable[Number]) -> Number:
    """Left fold: the sum in the order given, so that scalars and arrays agree to the bit."""
    result: Number = 0.0
    for value in values:
        result = result + value
    return result


def larger(left: Number, right: Number) -> Number:
    """The larger of two, element by element."""
    return np.maximum(left, right)


def merged(into: dict[str, Number], other: dict[str, Number], times: Number) -> None:
    """Add `times` × every entry of `other` into `into`, in place and in order."""
    for label, value in other.items():
        into[label] = into[label] + times * value if label in into else times * value


def chosen(condition: Number, yes: Number, no: Number) -> Number:
    """`yes` where the condition holds; plain floats stay floats."""
    if isinstance(condition, (bool, np.bool_)):
        return yes if condition else no
    return np.where(condition, yes, no)
