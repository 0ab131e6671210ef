"""Vision transformers: ViT, DeiT, and the image towers of models of several parts. An image is cut into patches, each a token.

One product embeds the patches; class tokens and learned positions are added; layers are an encoder's. The head: `classifier`
(the class token, or the mean, times one matrix), `projection` (into the space of two towers: CLIP), `pooling` (attention with
one learned query and an MLP: SigLIP), `pooler` (a dense layer on one token), `none`. The sequence is (image/patch)² and the class tokens: the model gives it, the run
does not. Leaves out: windows and pyramids (Swin), images of unlike sizes, augmentation and decoding of images, a second head
for distillation. Sources: Dosovitskiy 2021 §3.1; Touvron 2021 (DeiT), 2022 (DeiT III); Zhai 2023 (SigLIP's pooling).
"""

from __future__ import annotations

from shardmeter.core.record import changed
from shardmeter.core.sums import plain_sum
from shardmeter.core.units import Bytes, Count, Flop
from shardmeter.families import decoder
from shardmeter.families._attention import keys_seen
from shardmeter.families._kinds import placed
from shardmeter.families.operations import (
    FLOP_PER_MAC,
    Block,
    core_attention,
    first,
    in_order,
    matmul,
    streamed,
    unmasked,
)
from shardmeter.specs.demands import Compute
from shardmeter.specs.model import Model

LAYER = decoder.LAYER
SAMPLE = "images"
SCALE = (6.0, 10.0)
"""Bytes per element to weigh a layer's half by its vector: read, read, write; gradients of both."""


def patches(model: Model) -> Count:
    """Patches of one image."""
    return (model.image_size / model.patch) ** 2


def sequence(model: Model) -> Count:
    """Tokens of one image: patches and class tokens."""
    return patches(model) + model.class_tokens


def patch_matrix(model: Model) -> Count:
    """Matrix that embeds a patch."""
    return model.channels * model.patch**2 * model.hidden


def blocks(model: Model) -> tuple[Block, ...]:
    """Patch embedding, layers, head. Embedding and head are small: every tensor-parallel rank holds them whole."""
    own, samples = sequence(model), 1.0
    rows = patches(model) + (model.class_tokens if model.class_position else 0.0)
    norm = decoder.norm_vectors(model, model.hidden)
    embedding = patch_matrix(model) + model.class_tokens * model.hidden + (model.hidden if model.patch_bias else 0.0)
    embedding = embedding + model.extra
    if model.positions == "learned":
        embedding = embedding + rows * model.hidden
    scale = 2.0 * model.hidden if model.layer_scale else 0.0
    return (
        Block(
            name="embedding", count=1, matrices=0.0, vectors=embedding + (norm if model.embedding_norm else 0.0), seq=own,
            pairs=0.0,
        ),
        *(changed(block, vectors=block.vectors + scale, seq=own) for block in decoder.layers(model)),
        Block(
            name="head", count=1, matrices=0.0, vectors=head_matrices(model) + head_vectors(model), seq=samples, pairs=0.0,
            outputs=model.vocab if classifies(model) else 0.0,
        ),
    )  # fmt: skip


def classifies(model: Model) -> bool:
    """Whether the head is a classifier: the usual one."""
    return model.head in ("usual", "classifier")


def head_matrices(model: Model) -> Count:
    """Matrix parameters of the head."""
    if classifies(model):
        return model.hidden * model.vocab
    width = decoder.query_width(model)
    pooling = 4.0 * model.hidden * width + 2.0 * model.hidden * model.ffn
    pooler = model.hidden * model.hidden
    return {"projection": model.hidden * model.projection, "pooling": pooling, "pooler": pooler}.get(model.head, 0.0)


def head_vectors(model: Model) -> Count:
    """Norms, biases and the learned query of the head."""
    norm = decoder.norm_vectors(model, model.hidden)
    total = norm if model.final_norm else 0.0
    if classifies(model) and model.head_bias:
        total = total + model.vocab
    if model.head == "pooler":
        total = total + model.hidden
    if model.head == "pooling":
        total = total + model.hidden + 3.0 * decoder.query_width(model) + model.hidden + norm + model.ffn + model.hidden
    return total


def order(model: Model) -> tuple[tuple[str, int], ...]:
    """The layers in order: (block, how many pieces)."""
    return in_order(blocks(model))


def parameters(model: Model) -> Count:
    """All parameters."""
    return plain_sum((block.count * block.parameters for block in blocks(model)), 0.0)


def training_flops(model: Model, tokens: Count, seq: Count) -> Flop:
    """FLOPs of forward and backward by mfu's count, for tokens/seq images: 6 × the patch matrix for each patch, 6 × the layers'
    matrices for each token, 6 × the head's for each image, and 12 · layers · sequence · keys seen · query width of attention."""
    own, width = sequence(model), decoder.query_width(model)
    image = patches(model) * patch_matrix(model) + own * decoder.active_matrices(model) + head_matrices(model)
    attention: Count = 0.0
    for kind, places in placed(model):
        attention = attention + len(places) * own * keys_seen(model, kind.mixer, own)[0] * width
    if model.head == "pooling":  # keys and values of every token, queries of one
        image = image + (own - 1.0) * 2.0 * model.hidden * width
        attention = attention + own * width
    return tokens / seq * (3.0 * FLOP_PER_MAC * image + 6.0 * FLOP_PER_MAC * attention)


def operations(model: Model, block: str, tokens: Count, seq: Count, kernels: str) -> tuple[Compute, ...]:  # noqa: ARG001
    """All phases of one piece of `block` for `tokens` of its tokens (images, for the head), before any sharding; the sequence is
    the model's own. Pixels have no gradient."""
    own, hidden = sequence(model), model.hidden
    plain, norm = decoder.PASSES[kernels][3], decoder.norm_passes(model, kernels)
    if block == "embedding":
        found = (
            *first(matmul("patches", tokens * patches(model) / own, patch_matrix(model) / hidden, hidden, "tokens")),
            *streamed("positions", tokens * hidden, 6.0, 4.0, "sequence"),
        )
        return (
            (*found, *streamed("embedding norm", tokens * hidden, *norm, "sequence")) if model.embedding_norm else found
        )
    if block == "head":
        last = streamed("final norm", tokens * own * hidden, *norm, "sequence") if model.final_norm else ()
        return (*last, *_head(model, tokens, plain))
    found = unmasked(decoder.operations(model, block, tokens, own, kernels))
    return (*found, *streamed("layer scale", 2.0 * tokens * hidden, *SCALE, "sequence")) if model.layer_scale else found


def _head(model: Model, images: Count, plain: tuple[float, float]) -> tuple[Compute, ...]:
    """What follows the last norm, for `images` images."""
    hidden, width, own = model.hidden, decoder.query_width(model), sequence(model)
    if classifies(model):
        logits = matmul("logits", images, hidden, model.vocab, "none")
        return (*logits, *streamed("loss", images * model.vocab, 1.0, 1.0, "none"))
    if model.head in ("projection", "pooler"):
        wide = model.projection if model.head == "projection" else hidden
        return matmul(model.head, images, hidden, wide, "none")
    if model.head != "pooling":
        return ()
    return (
        *matmul("pooling query", images, hidden, width, "none"),
        *matmul("pooling keys", images * own, hidden, 2.0 * width, "none"),
        *core_attention(images, own, model.heads, model.head_dim, causal=False),
        *matmul("pooling output", images, width, hidden, "none"),
        *matmul("pooling up", images, hidden, model.ffn, "none"),
        *streamed("pooling activation", images * model.ffn, *plain, "none"),
        *matmul("pooling down", images, model.ffn, hidden, "none"),
    )


def linear_inputs(model: Model, block: str) -> tuple[Count, Count]:
    """Elements per token that the linear layers of a block keep as inputs: (outside, inside) the tensor-parallel region."""
    return decoder.linear_inputs(model, block)


def activation_bytes(model: Model, kernels: str, scores: bool, seq: Count, block: str = LAYER) -> tuple[Bytes, Bytes]:  # noqa: ARG001
    """Bytes a layer keeps for its backward per token at 2-byte activations: (outside, inside) the tensor-parallel region, as
    an encoder's does; embedding and head per token of their own: what their norms and products read."""
    own = sequence(model)
    if block == "embedding":
        return 2.0 * patch_matrix(model) / model.hidden + 4.0 * model.hidden, 0.0
    if block == "head":
        return own * 4.0 * model.hidden, 0.0
    outside, inside = decoder.activation_bytes(model, kernels, scores, own, block)
    return outside + (4.0 * model.hidden if model.layer_scale else 0.0), inside
