"""*add*: the ledger. The total is the left fold of the terms; nothing else computes it."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from shardmeter.core.units import Bytes, Number, Seconds
from shardmeter.specs.estimate import MemoryTerm, Term

CAUSES: dict[str, tuple[str, str]] = {
    "matrix products": (
        "compute",
        "a lower precision, or a faster accelerator; larger micro-batches fill tiles better",
    ),
    "core attention": ("compute", "a newer attention kernel, or a shorter sequence"),
    "memory-bound kernels": (
        "memory bandwidth",
        "fused or compiled kernels; sequence parallelism cuts norms and residuals",
    ),
    "launch overhead": ("launch", "larger micro-batches, compiled kernels or CUDA graphs"),
    "recompute": ("compute", "less recomputation: shard more, or a smaller micro-batch, if memory allows"),
    "tensor parallel": ("scale-up link", "a smaller tp, or asynchronous tensor parallelism"),
    "expert all-to-all": (
        "fabric",
        "a smaller ep, or one inside the scale-up domain; shared experts to hide behind; balanced routing",
    ),
    "context parallel": ("fabric", "a smaller cp, cp inside the scale-up domain, or longer sequences to hide behind"),
    "parameter gather": ("fabric", "hybrid sharding (dp_replicate > 1), reshard: false, or larger micro-batches"),
    "gradient reduction": ("fabric", "more accumulation per step, a 16-bit reduction, or hybrid sharding"),
    "tied matrix": ("fabric", "a model whose head has a matrix of its own, or a smaller pp"),
    "contention": ("fabric", "less communication hidden under compute: larger micro-batches, hybrid sharding"),
    "stage sends": ("fabric", "a smaller pp, or stages placed inside the scale-up domain"),
    "pipeline bubble": ("pipeline", "more micro-batches per step, more virtual stages, or a smaller pp"),
    "host offload": ("host link", "offload less, or a larger micro-batch, behind which more copies hide"),
    "optimizer": ("optimizer", "shard the optimizer state over more ranks"),
    "software": ("software", "a fixed cost per step: a larger global batch spreads it"),
}
"""Ledger order, and for each term its cause and what relieves it."""


def ledger(exposed: dict[str, Seconds], hidden: dict[str, Seconds]) -> tuple[Term, ...]:
    """The terms in fixed order. Raises KeyError on a label that has no cause: a term must say where it comes from."""
    unknown = set(exposed) - set(CAUSES)
    if unknown:
        raise KeyError(f"ledger terms without a cause: {sorted(unknown)}")
    return tuple(
        Term(label=label, seconds=exposed[label], hidden=hidden.get(label, 0.0), cause=cause, advice=advice)
        for label, (cause, advice) in CAUSES.items()
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
