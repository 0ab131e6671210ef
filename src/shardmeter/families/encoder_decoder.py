"""An encoder and a decoder that looks at its output: T5, BART.

The model's own numbers are those of a layer of either; `encoder_layers` and `layers` count them. The run's sequence is the
encoder's; `target_length` is the decoder's. A layer of the decoder has attention over itself, attention over the encoder's
output (keys and values of every source token, in each layer), and an MLP. T5 adds a learned bias by distance to the scores of
both stacks. The embedding is shared. Leaves out: spans of unlike lengths in one batch, the bias's own traffic. Sources:
Vaswani 2017 §3; Raffel 2020 §2.1 (T5); Shazeer 2020 (gated MLP of T5 1.1); Lewis 2020 (BART).
"""

from __future__ import annotations

from shardmeter.core.record import changed
from shardmeter.core.sums import plain_sum
from shardmeter.core.units import Bytes, Count, Flop
from shardmeter.families import decoder
from shardmeter.families._attention import matrices as attention_matrices
from shardmeter.families._kinds import named
from shardmeter.families.operations import (
    FLOP_PER_MAC,
    Block,
    core_attention,
    in_order,
    matmul,
    streamed,
    unmasked,
    words_before,
)
from shardmeter.specs.demands import Compute
from shardmeter.specs.model import Model

LAYER = "decoder layer"
KIND = named(decoder.LAYER)
BUCKETS = 32.0
"""Distances that T5 tells apart, for every head of a stack (Raffel 2020 §2.1)."""


def sized(model: Model, seq: Count) -> Model:
    """The model with the encoder's length, which cross-attention looks at."""
    return changed(model, source_length=seq)


def target(model: Model, seq: Count) -> Count:
    """Tokens of the decoder's sequence where the encoder's has `seq`."""
    return seq if isinstance(model.target_length, float) and model.target_length == 0.0 else model.target_length


def blocks(model: Model) -> tuple[Block, ...]:
    """Shared embedding, encoder and its last norm, the decoder's positions, decoder, head."""
    table, *_, head = decoder.blocks(model)
    norm = decoder.norm_vectors(model, model.hidden)
    last = norm if model.final_norm else 0.0
    bias = BUCKETS * model.heads if model.positions == "relative" else 0.0
    rows = model.context * model.hidden if model.positions == "learned" else 0.0
    vectors = decoder.layer_vectors(model, KIND)
    crossed = vectors + norm + _cross_biases(model)
    length = model.target_length
    encoder = (
        changed(table, vectors=table.vectors + bias),
        Block(
            name="encoder layer",
            count=model.encoder_layers,
            matrices=decoder.layer_matrices(model, KIND),
            vectors=vectors,
        ),
        Block(name="encoder head", count=1, matrices=0.0, vectors=last, pairs=0.0),
    )
    own = (
        Block(name="decoder embedding", count=1, matrices=rows, vectors=table.vectors - model.extra + bias, seq=length),
        Block(
            name=LAYER, count=model.layers, matrices=decoder.layer_matrices(model, KIND) + attention_matrices(model),
            vectors=crossed, seq=length, pairs=3.0,
        ),
        changed(head, vectors=last + (model.vocab if model.head_bias else 0.0), seq=length),
    )  # fmt: skip
    found: tuple[Block, ...] = ()
    for part, several in (("encoder", encoder), ("decoder", own)):
        for block in several:
            found = (*found, changed(block, of=part, before=words_before(found)))
    return found


def _cross_biases(model: Model) -> Count:
    total: Count = 0.0
    if model.attention_bias:
        total = total + decoder.query_width(model) + 2.0 * decoder.key_value_width(model)
    return total + model.hidden if model.output_bias else total


def order(model: Model) -> tuple[tuple[str, int], ...]:
    """The layers in order: (block, how many pieces)."""
    return in_order(blocks(model))


def parameters(model: Model) -> Count:
    """All parameters, a tied matrix counted once."""
    return plain_sum((block.count * block.parameters for block in blocks(model)), 0.0)


def training_flops(model: Model, tokens: Count, seq: Count) -> Flop:
    """FLOPs of forward and backward by mfu's count, `tokens` and `seq` being the encoder's: 6 × the matrices that a token of each
    sequence is multiplied with (cross-attention's keys and values: source tokens), logits of every target token, and
    12 · (source², target², target · source) · query width of the three attentions."""
    short, samples = target(model, seq), tokens / seq
    query, pairs = decoder.query_width(model), decoder.key_value_width(model)
    layer = decoder.layer_matrices(model, KIND)
    source = model.encoder_layers * layer + model.layers * 2.0 * model.hidden * pairs
    own = model.layers * (layer + 2.0 * model.hidden * query) + model.hidden * model.vocab
    attention = query * (model.encoder_layers * seq * seq + model.layers * short * (short + seq))
    return samples * 3.0 * FLOP_PER_MAC * (seq * source + short * own + 2.0 * attention)


def operations(model: Model, block: str, tokens: Count, seq: Count, kernels: str) -> tuple[Compute, ...]:
    """All phases of one piece of `block` for `tokens` of its tokens in sequences of `seq`, before any sharding."""
    if block in ("embedding", "decoder embedding"):
        return decoder.operations(model, "embedding", tokens, seq, kernels)
    residual, norm = decoder.PASSES[kernels][4], decoder.norm_passes(model, kernels)
    if block == "encoder head":
        return streamed("final norm", tokens * model.hidden, *norm, "sequence") if model.final_norm else ()
    if block == "encoder layer":
        return unmasked(decoder.operations(model, decoder.LAYER, tokens, seq, kernels))
    if block == "head":
        return decoder.operations(model, block, tokens, seq, kernels)
    source = _source(model, seq)
    query, pairs = decoder.query_width(model), decoder.key_value_width(model)
    return (
        *decoder.operations(model, decoder.LAYER, tokens, seq, kernels),
        *streamed("cross norm", tokens * model.hidden, *norm, "sequence"),
        *matmul("cross query", tokens, model.hidden, query, "column"),
        *matmul("cross keys", tokens / seq * source, model.hidden, 2.0 * pairs, "column"),
        *core_attention(tokens, source, model.heads, model.head_dim, causal=False),
        *matmul("cross output", tokens, query, model.hidden, "row"),
        *streamed("cross residual", tokens * model.hidden, *residual, "sequence"),
    )


def _source(model: Model, seq: Count) -> Count:
    """The encoder's length; as long as the decoder's where nothing was said."""
    return seq if isinstance(model.source_length, float) and model.source_length == 0.0 else model.source_length


def linear_inputs(model: Model, block: str) -> tuple[Count, Count]:
    """Elements per token that the linear layers of a block keep as inputs: (outside, inside) the tensor-parallel region."""
    outside, inside = decoder.linear_inputs(model, decoder.LAYER)
    if block != LAYER:
        return outside, inside
    return outside + model.hidden, inside + decoder.query_width(model)


def activation_bytes(model: Model, kernels: str, scores: bool, seq: Count, block: str = LAYER) -> tuple[Bytes, Bytes]:
    """Bytes a piece keeps for its backward per token of its own at 2-byte activations: (outside, inside) the tensor-parallel
    region. A decoder's layer keeps a third norm's input and output, the cross-attention's queries and output, and keys and
    values of the source tokens that there are to one of its own."""
    if block in ("encoder head", "decoder embedding"):
        return 4.0 * model.hidden, 0.0
    outside, inside = decoder.activation_bytes(model, kernels, scores, seq)
    if block != LAYER:
        return outside, inside
    source = _source(model, seq)
    crossed = 4.0 * decoder.query_width(model) + 4.0 * decoder.key_value_width(model) * source / seq
    if scores:
        crossed = crossed + 5.0 * model.heads * source
    return outside + 4.0 * model.hidden, inside + crossed
