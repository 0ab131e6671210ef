"""Vocabulary of families: a block, and how one layer-level operation becomes demands in each phase."""

from __future__ import annotations

from shardmeter.core.record import changed, record
from shardmeter.core.units import Bytes, Count, Flop
from shardmeter.specs.demands import FORWARD, INPUT_GRAD, WEIGHT_GRAD, Compute
from shardmeter.specs.model import Model

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
    of: str = ""
    """The part of the model that it belongs to, by the word of `Plan.trainable`; a model of one part names none."""
    part: Model | None = None
    """The numbers of that part; None = the model's own."""
    seq: Count = 0.0
    """Tokens of one sequence; 0 = those of the run."""
    per_sample: Count = 1.0
    """Sequences of it in one sample."""
    regions: Count = 2.0
    """Tensor-parallel regions of a layer, each with what it gathers before and scatters behind: attention and MLP."""
    outputs: Count = 0.0
    """A head's logits per token."""
    before: tuple[str, ...] | None = None
    """Words of what lies before it in the flow of data: if one of them is trained, it hands a gradient back. None = the rule of
    a model of one part, by position."""

    @property
    def parameters(self) -> Count:
        """Parameters of one piece."""
        return self.matrices + self.vectors + self.experts

    @property
    def words(self) -> tuple[str, ...]:
        """What `Plan.trainable` may call it: its part, its kind, its name."""
        return tuple(word for word in dict.fromkeys((self.of, kind(self.name), self.name)) if word)

    def sequence(self, run: Count) -> Count:
        """Tokens of one sequence, where those of the run are `run`."""
        return run if isinstance(self.seq, float) and self.seq == 0.0 else self.seq


CUTS = {
    "column": ("n", "k", "n"),
    "row": ("k", "n", "m"),
    "tokens": ("tokens m", "tokens m", "tokens k"),
    "expert column": ("expert n", "expert k", "expert n"),
    "expert row": ("expert k", "expert n", "expert m"),
    "none": ("none", "none", "none"),
}
"""How a weight is divided → which dimension of its forward, input-gradient and weight-gradient product shrinks."""


ENDS = ("embedding", "head")
"""The first and the last block of every model: where a pipeline begins and ends, and what fsdp keeps gathered."""
_SINGLE = (*ENDS, "projector")
"""Kinds of blocks that are no layers."""


def kind(block: str) -> str:
    """embedding, layer, head or projector: the last word of a block's name (`vision layer`)."""
    last = block.rpartition(" ")[2]
    return last if last in _SINGLE else "layer"


def is_layer(block: str) -> bool:
    """Whether a block is a layer, of whatever kind and part: embeddings, heads and projectors are not."""
    return kind(block) == "layer"


def is_end(block: str) -> bool:
    """Whether a block stands at an end of the model; whatever lies between is a row of pieces, layers or not."""
    return block in ENDS


def words_before(blocks: tuple[Block, ...]) -> tuple[str, ...]:
    """The words of several blocks, for `Block.before` of what they feed."""
    return tuple(dict.fromkeys(word for block in blocks for word in block.words))


def unmasked(ops: tuple[Compute, ...]) -> tuple[Compute, ...]:
    """The same with attention that sees every token: no half of the square is left out."""
    return tuple(changed(op, repeats=1.0) if op.kind == "attention" else op for op in ops)


def first(ops: tuple[Compute, ...]) -> tuple[Compute, ...]:
    """A product on the data itself, which needs no gradient."""
    return tuple(op for op in ops if op.phase != INPUT_GRAD)


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
