"""Encoders of text: BERT, RoBERTa and their like. A decoder's layer whose attention sees every token, and a head that guesses
masked tokens.

The head (`usual`) is a dense layer as wide as the model, an activation, a norm and the logits of every position, masked or not;
other heads are those of two towers (`dual_encoder`). Layers have their norms before or after: the count is the same, but after
such layers there is no final norm. Leaves out: the classifier of sentence pairs and its pooler, logits of the masked
positions alone, batches without padding. Sources: Devlin 2019; Liu 2019 (RoBERTa).
"""

from __future__ import annotations

from shardmeter.core.record import changed
from shardmeter.core.units import Bytes, Count, Flop
from shardmeter.families import decoder
from shardmeter.families.operations import FLOP_PER_MAC, Block, in_order, matmul, streamed, unmasked
from shardmeter.specs.demands import Compute
from shardmeter.specs.model import Model

LAYER = decoder.LAYER
ASSUMED = ("logits are computed for every position, masked or not",)


def final_norm(model: Model) -> Count:
    """Parameters of the norm after the last layer."""
    return decoder.norm_vectors(model, model.hidden) if model.final_norm else 0.0


def blocks(model: Model) -> tuple[Block, ...]:
    """Embedding (tokens, positions, segments), layers, head. The transform before the logits is whole on every rank."""
    embedding, *layers, head = decoder.blocks(model)
    transform = model.hidden * model.hidden + (model.hidden if model.mlp_bias else 0.0)
    vectors = final_norm(model) + transform + decoder.norm_vectors(model, model.hidden)
    return (
        changed(embedding, matrices=embedding.matrices + model.segments * model.hidden),
        *layers,
        changed(head, vectors=vectors + (model.vocab if model.head_bias else 0.0)),
    )


def order(model: Model) -> tuple[tuple[str, int], ...]:
    """The layers in order: (block, how many pieces)."""
    return in_order(blocks(model))


def parameters(model: Model) -> Count:
    """All parameters, a tied matrix counted once."""
    return sum((block.count * block.parameters for block in blocks(model)), 0.0)


def training_flops(model: Model, tokens: Count, seq: Count) -> Flop:
    """FLOPs of forward and backward by mfu's count: 6 × matmul parameters (the head's transform and logits included, the
    embedding not) per token, and attention: 12 · layers · seq · query width per token."""
    matrices = decoder.active_matrices(model) + model.hidden * (model.vocab + model.hidden)
    attention = model.layers * seq * decoder.query_width(model)
    return tokens * (3.0 * FLOP_PER_MAC * matrices + 6.0 * FLOP_PER_MAC * attention)


def operations(model: Model, block: str, tokens: Count, seq: Count, kernels: str) -> tuple[Compute, ...]:
    """All phases of one piece of `block` for `tokens` tokens in sequences of `seq`, before any sharding."""
    found = unmasked(decoder.operations(model, block, tokens, seq, kernels))
    if block != "head":
        return found
    plain = decoder.PASSES[kernels][3]
    return (
        *matmul("transform", tokens, model.hidden, model.hidden, "tokens"),
        *streamed("transform activation", tokens * model.hidden, *plain, "sequence"),
        *found,
    )


def linear_inputs(model: Model, block: str) -> tuple[Count, Count]:
    """Elements per token that the linear layers of a block keep as inputs: (outside, inside) the tensor-parallel region."""
    return decoder.linear_inputs(model, block)


def activation_bytes(model: Model, kernels: str, scores: bool, seq: Count, block: str = LAYER) -> tuple[Bytes, Bytes]:
    """Bytes a layer keeps for its backward per token at 2-byte activations: (outside, inside) the tensor-parallel region, as
    a decoder's does."""
    return decoder.activation_bytes(model, kernels, scores, seq, block)
