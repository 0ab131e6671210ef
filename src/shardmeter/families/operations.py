"""Vocabulary of families: a block, and how one layer-level operation becomes demands in each phase."""

from __future__ import annotations

from shardmeter.core.record import record
from shardmeter.core.units import Bytes, Count, Flop
from shardmeter.specs.demands import FORWARD, INPUT_GRAD, WEIGHT_GRAD, Compute

FLOP_PER_MAC = 2.0


@record
class Block:
    """A run of equal pieces of the model. `matrices` are divided by tensor parallelism, `vectors` (the router's matrix too)
    are replicated, `experts` are divided by etp · ep."""

    name: str
    count: int
    matrices: Count
    vectors: Count
    experts: Count = 0.0
    trainable: bool = True

    @property
    def parameters(self) -> Count:
        """Parameters of one piece."""
        return self.matrices + self.vectors + self.experts


CUTS = {
    "column": ("n", "k", "n"),
    "row": ("k", "n", "m"),
    "tokens": ("tokens m", "tokens m", "tokens k"),
    "expert column": ("expert n", "expert k", "expert n"),
    "expert row": ("expert k", "expert n", "expert m"),
    "none": ("none", "none", "none"),
}
"""How a weight is divided → which dimension of its forward, input-gradient and weight-gradient product shrinks."""


def is_layer(block: str) -> bool:
    """Whether a block is a layer, of whatever kind: the embedding and the head are not."""
    return block not in ("embedding", "head")


def matmul(label: str, m: Count, k: Count, n: Count, split: str, repeats: Count = 1.0) -> tuple[Compute, ...]:
    """A linear layer's three products, `repeats` times (one for each expert). `split` is how the weight is divided: column
    (n) or row (k), over tp or over the expert mesh; tokens: not, but each rank multiplies its own part of the sequence.

    Each product carries which of its own dimensions shrinks: the column-parallel input gradient has a short depth."""
    cut = CUTS[split]

    def product(phase: str, m: Count, n: Count, k: Count, axis: str) -> Compute:
        flops = FLOP_PER_MAC * m * n * k * repeats
        return Compute(
            label=label, kind="gemm", phase=phase, split=axis, m=m, n=n, k=k, repeats=repeats, flops=flops
        )  # fmt: skip

    return (
        product(FORWARD, m, n, k, cut[0]),
        product(INPUT_GRAD, m, k, n, cut[1]),
        product(WEIGHT_GRAD, k, n, m, cut[2]),
    )


def streamed(label: str, elements: Count, forward: Bytes, backward: Bytes, split: str) -> tuple[Compute, ...]:
    """A memory-bound operation over `elements`: bytes moved per element in each direction."""
    return (
        Compute(label=label, kind="traffic", phase=FORWARD, split=split, traffic=elements * forward),
        Compute(label=label, kind="traffic", phase=INPUT_GRAD, split=split, traffic=elements * backward),
    )


def core_attention(tokens: Count, seq: Count, heads: Count, head_dim: Count, causal: bool) -> tuple[Compute, ...]:
    """Scores and weighted sum of all heads; `flops` is the full square, forward; `scores` elements are materialised by
    unfused kernels. The backward has twice the products (flash kernels recompute the scores on top)."""
    flops: Flop = 2.0 * FLOP_PER_MAC * tokens * seq * heads * head_dim
    scores = tokens * seq * heads

    def op(phase: str, work: Flop) -> Compute:
        return Compute(
            label="core attention", kind="attention", phase=phase, split="heads", flops=work,
            m=tokens, n=scores, seq=seq, head_dim=head_dim, repeats=0.5 if causal else 1.0,
        )  # fmt: skip

    return op(FORWARD, flops), op(INPUT_GRAD, 2.0 * flops)
