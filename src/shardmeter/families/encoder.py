"""Encoders of text: BERT, RoBERTa and their like. A decoder's layer whose attention sees every token, and a head that guesses
masked tokens.

The head (`usual`) is a dense layer as wide as the model, an activation, a norm and the logits of every position, masked or not.
Others look at one token: `pooler`, a dense layer; `classifier`, a dense layer and `classes` logits; `none`. Layers have their norms before or after: the count is the same, but after
such layers there is no final norm. Leaves out: the classifier of sentence pairs beside the usual head, logits of the
masked positions alone, batches without padding. Sources: Devlin 2019; Liu 2019 (RoBERTa).
"""

from __future__ import annotations

from shardmeter.core.record import changed
from shardmeter.core.sums import plain_sum
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
    biased = 1.0 if model.mlp_bias else 0.0
    vectors = final_norm(model)
    if model.head != "none":
        vectors = vectors + model.hidden * model.hidden + biased * model.hidden
    if guesses(model):
        vectors = vectors + decoder.norm_vectors(model, model.hidden) + (model.vocab if model.head_bias else 0.0)
        head = changed(head, vectors=vectors)
    else:
        vectors = vectors + model.classes * (model.hidden + 1.0)
        head = changed(head, matrices=0.0, vectors=vectors, seq=1.0, pairs=0.0, outputs=model.classes)
    return (changed(embedding, matrices=embedding.matrices + model.segments * model.hidden), *layers, head)


def guesses(model: Model) -> bool:
    """Whether the head guesses masked tokens: the usual one."""
    return model.head == "usual"


def order(model: Model) -> tuple[tuple[str, int], ...]:
    """The layers in order: (block, how many pieces)."""
    return in_order(blocks(model))


def parameters(model: Model) -> Count:
    """All parameters, a tied matrix counted once."""
    return plain_sum((block.count * block.parameters for block in blocks(model)), 0.0)


def training_flops(model: Model, tokens: Count, seq: Count) -> Flop:
    """FLOPs of forward and backward by mfu's count: 6 × matmul parameters (the head's included, of one token's head for each
    sequence; the embedding not) per token, and attention: 12 · layers · seq · query width per token."""
    matrices = decoder.active_matrices(model)
    if guesses(model):
        matrices = matrices + model.hidden * (model.vocab + model.hidden)
    elif model.head != "none":
        matrices = matrices + model.hidden * (model.classes + model.hidden) / seq
    attention = model.layers * seq * decoder.query_width(model)
    return tokens * (3.0 * FLOP_PER_MAC * matrices + 6.0 * FLOP_PER_MAC * attention)


def operations(model: Model, block: str, tokens: Count, seq: Count, kernels: str) -> tuple[Compute, ...]:
    """All phases of one piece of `block` for `tokens` tokens in sequences of `seq`, before any sharding."""
    plain = decoder.PASSES[kernels][3]
    if block != "head":
        return unmasked(decoder.operations(model, block, tokens, seq, kernels))
    if not guesses(model):
        return _one_token(model, tokens, plain)
    found = decoder.operations(changed(model, final_norm=True), block, tokens, seq, kernels)  # the transform's own norm
    return (
        *matmul("transform", tokens, model.hidden, model.hidden, "tokens"),
        *streamed("transform activation", tokens * model.hidden, *plain, "sequence"),
        *found,
    )


def _one_token(model: Model, samples: Count, plain: tuple[float, float]) -> tuple[Compute, ...]:
    """What looks at one token of each of `samples` sequences. The last norm of all tokens, where there is one, is left out."""
    if model.head == "none":
        return ()
    found = (
        *matmul("pooler", samples, model.hidden, model.hidden, "none"),
        *streamed("pooler activation", samples * model.hidden, *plain, "none"),
    )
    if model.head != "classifier":
        return found
    logits = matmul("logits", samples, model.hidden, model.classes, "none")
    return (*found, *logits, *streamed("loss", samples * model.classes, 1.0, 1.0, "none"))


def linear_inputs(model: Model, block: str) -> tuple[Count, Count]:
    """Elements per token that the linear layers of a block keep as inputs: (outside, inside) the tensor-parallel region."""
    return decoder.linear_inputs(model, block)


def activation_bytes(model: Model, kernels: str, scores: bool, seq: Count, block: str = LAYER) -> tuple[Bytes, Bytes]:
    """Bytes a layer keeps for its backward per token at 2-byte activations: (outside, inside) the tensor-parallel region, as
    a decoder's does."""
    return decoder.activation_bytes(model, kernels, scores, seq, block)
