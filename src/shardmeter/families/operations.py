"""Vocabulary of families: a block, and how one layer-level operation becomes demands in each phase."""

from __future__ import annotations

from shardmeter.core.record import changed, record
from shardmeter.core.units import Bytes, Count, Flop, Fraction
from shardmeter.specs.demands import FORWARD, INPUT_GRAD, WEIGHT_GRAD, Compute
from shardmeter.specs.model import Model

FLOP_PER_MAC = 2.0


@record
class Block:
    """Equal pieces of the model, all of them, wherever they stand. `matrices` are divided by tensor parallelism, `vectors` (small
    matrices too that it does not divide: the router) are replicated, `experts` are divided by etp · ep."""

    name: str
    count: int
    matrices: Count
    vectors: Count
    experts: Count = 0.0
    trainable: bool = True
    pairs: float = 2.0
    """Of a layer: pairs of products that tensor parallelism cuts by column and by row, each with a collective at both ends."""
    attends: bool = True
    """Of a layer: whether it has core attention, whose keys and values context parallelism must bring."""
    exchanged: Count = 0.0
    """Of a layer with a recurrence: elements per token that context parallelism exchanges for heads, there and back."""

    places: tuple[int, ...] = ()
    """Of a layer: where in the model its pieces stand, from 0; empty = they are all of its layers."""
    of: str = ""
    """The part of the model that it belongs to, by the word of `Plan.trainable`; a model of one part names none."""
    part: Model | None = None
    """The numbers of that part; None = the model's own."""
    seq: Count = 0.0
    """Tokens of one sequence; 0 = those of the run."""
    per_sample: Count = 1.0
    """Sequences of it in one sample."""
    outputs: Count = 0.0
    """A head's logits per token."""
    before: tuple[str, ...] | None = None
    """Words of what lies before it in the flow of data: if one of them is trained, it hands a gradient back. None = the rule of
    a model of one part, by position."""

    @property
    def routed(self) -> bool:
        """Whether it has routed experts. Structure, not a number: a batch has them or has none."""
        return not (isinstance(self.experts, float) and self.experts == 0.0)

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


def in_order(blocks: tuple[Block, ...]) -> tuple[tuple[str, int], ...]:
    """What lies between the ends of a model, in order: (block, how many pieces)."""
    return tuple((block.name, block.count) for block in blocks if not is_end(block.name))


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


def stepped(
    label: str, rows: Count, k: Count, n: Count, steps: Count, launches: Count, adding: Count
) -> tuple[Compute, ...]:
    """A linear layer that is asked step by step, each with what the one before gave out: `rows` × k by k × n, `steps` times in a
    row, and so is its input gradient; the weight gradient is one product over all rows of all steps.

    `launches`: kernels a step that the host launches for a product, `adding` for the weight gradients of one step."""
    forward, backward, weights = matmul(label, rows, k, n, "column", steps)
    over = Compute(
        label=label, kind="gemm", phase=WEIGHT_GRAD, split=weights.split, m=k, n=n, k=rows * steps, flops=weights.flops,
        launches=adding * steps,
    )  # fmt: skip
    return (*(changed(op, serial=steps, launches=launches * steps) for op in (forward, backward)), over)


def streamed(label: str, elements: Count, forward: Bytes, backward: Bytes, split: str) -> tuple[Compute, ...]:
    """A memory-bound operation over `elements`: bytes moved per element in each direction."""
    return (
        Compute(label=label, kind="traffic", phase=FORWARD, split=split, traffic=elements * forward),
        Compute(label=label, kind="traffic", phase=INPUT_GRAD, split=split, traffic=elements * backward),
    )


def batched(label: str, m: Count, k: Count, n: Count, repeats: Count) -> tuple[Compute, ...]:
    """`repeats` products of activations with activations, cut by heads, and the two backward for each."""

    def product(phase: str, times: Count) -> Compute:
        flops = FLOP_PER_MAC * m * n * k * times
        return Compute(
            label=label, kind="gemm", phase=phase, split="batch", m=m, n=n, k=k, repeats=times, flops=flops
        )  # fmt: skip

    return product(FORWARD, repeats), product(INPUT_GRAD, 2.0 * repeats)


def core_attention(
    tokens: Count, seq: Count, heads: Count, head_dim: Count, causal: bool,
    value_dim: Count | None = None, seen: Count | None = None, share: Fraction | None = None,
) -> tuple[Compute, ...]:  # fmt: skip
    """Scores and weighted sum of all heads, `head_dim` wide queries and keys and `value_dim` (left out: the same) wide values.

    `flops` is the forward over every key that a query may see, `seen` of them (left out: the whole sequence), of which
    causality leaves `share` (left out: half); `scores` elements are materialised by unfused kernels, all of them. The backward
    has twice the products (flash kernels recompute the scores on top)."""
    seen = seq if seen is None else seen
    share = (0.5 if causal else 1.0) if share is None else share
    width = 2.0 * head_dim if value_dim is None else head_dim + value_dim
    flops: Flop = FLOP_PER_MAC * tokens * seen * heads * width
    scores = tokens * seq * heads

    def op(phase: str, work: Flop) -> Compute:
        return Compute(
            label="core attention", kind="attention", phase=phase, split="heads", flops=work,
            m=tokens, n=scores, seq=seen, head_dim=head_dim, repeats=share,
        )  # fmt: skip

    return op(FORWARD, flops), op(INPUT_GRAD, 2.0 * flops)
