"""Diffusion transformers over latents: DiT. Patches of a noisy latent are tokens; the time step and the class of the image
modulate every layer.

A layer is an encoder's with norms that have no weights; one product for each image makes six vectors as wide as the model
(shift, scale and gate of attention and of MLP: adaLN-Zero). The embedding multiplies patches, the time step's two matrices and
looks the class up; the head makes noise and its variance, two numbers for each latent, out of every token. Positions are fixed.
Latents are taken as computed before: the frozen autoencoder that makes them, and a frozen text encoder, are another run. Leaves
out: text as condition (cross-attention, MMDiT's joint attention), the loss's own traffic. Source: Peebles 2023 §3.
"""

from __future__ import annotations

from shardmeter.core.record import changed
from shardmeter.core.sums import plain_sum
from shardmeter.core.units import Bytes, Count, Flop
from shardmeter.families import decoder, vision
from shardmeter.families.operations import FLOP_PER_MAC, Block, first, in_order, matmul, streamed, unmasked
from shardmeter.specs.demands import Compute
from shardmeter.specs.model import Model

LAYER = decoder.LAYER
SAMPLE = "images"
ASSUMED = ("latents are computed before the run: no frozen autoencoder runs beside it",)
FREQUENCIES = 256.0
"""Sines and cosines of the time step (Peebles 2023, released code)."""
MODULATIONS, LAST = 6.0, 2.0
"""Vectors that modulate a layer, and the head."""
OUTPUTS = 2.0
"""Numbers for each latent: noise and its variance."""
MODULATE = {
    "eager": (28.0, 44.0), "autocast": (28.0, 44.0), "fused_norm": (28.0, 44.0), "fused": (28.0, 44.0), "compiled": (8.0, 16.0),
}  # fmt: skip
"""Bytes per element of a layer's two shifts and scales and two gates, each a read and a write a kernel; a compiler merges all of
them into the norms and the residuals."""


def sequence(model: Model) -> Count:
    """Tokens of one image."""
    return vision.patches(model)


def outputs(model: Model) -> Count:
    """Numbers that the head makes out of one token."""
    return OUTPUTS * model.channels * model.patch**2


def conditioning(model: Model) -> Count:
    """Matrices of the time step's embedding."""
    return FREQUENCIES * model.hidden + model.hidden * model.hidden


def blocks(model: Model) -> tuple[Block, ...]:
    """Patch, time-step and class embedding; layers; head. Modulations, embedding and head are whole on every rank."""
    own, hidden = sequence(model), model.hidden
    embedding = vision.patch_matrix(model) + conditioning(model) + 3.0 * hidden + (model.vocab + 1.0) * hidden
    embedding = embedding + model.extra
    modulation = MODULATIONS * (hidden * hidden + hidden)
    head = LAST * (hidden * hidden + hidden) + (hidden + 1.0) * outputs(model)
    return (
        Block(name="embedding", count=1, matrices=0.0, vectors=embedding, seq=own, pairs=0.0),
        *(changed(block, vectors=block.vectors + modulation, seq=own) for block in decoder.layers(model)),
        Block(name="head", count=1, matrices=0.0, vectors=head, seq=own, pairs=0.0),
    )


def order(model: Model) -> tuple[tuple[str, int], ...]:
    """The layers in order: (block, how many pieces)."""
    return in_order(blocks(model))


def parameters(model: Model) -> Count:
    """All parameters that are trained: fixed positions are none."""
    return plain_sum((block.count * block.parameters for block in blocks(model)), 0.0)


def training_flops(model: Model, tokens: Count, seq: Count) -> Flop:
    """FLOPs of forward and backward by mfu's count, for tokens/seq images: 6 × the matrices of patches, layers and head for each
    token, 6 × those of the time step and of all modulations for each image, and 12 · layers · sequence² · query width."""
    own, hidden = sequence(model), model.hidden
    each = vision.patch_matrix(model) + decoder.active_matrices(model) + hidden * outputs(model)
    image = own * each + conditioning(model) + (model.layers * MODULATIONS + LAST) * hidden * hidden
    attention = model.layers * own * own * decoder.query_width(model)
    return tokens / seq * (3.0 * FLOP_PER_MAC * image + 6.0 * FLOP_PER_MAC * attention)


def operations(model: Model, block: str, tokens: Count, seq: Count, kernels: str) -> tuple[Compute, ...]:  # noqa: ARG001
    """All phases of one piece of `block` for `tokens` tokens, before any sharding; the sequence is the model's own. Latents and
    time steps have no gradient."""
    own, hidden = sequence(model), model.hidden
    images = tokens / own
    norm = decoder.norm_passes(model, kernels)
    if block == "embedding":
        return (
            *first(matmul("patches", tokens, vision.patch_matrix(model) / hidden, hidden, "tokens")),
            *first(matmul("time step", images, FREQUENCIES, hidden, "none")),
            *matmul("time step", images, hidden, hidden, "none"),
            *streamed("positions", tokens * hidden, 6.0, 4.0, "sequence"),
        )
    if block == "head":
        return (
            *streamed("final norm", tokens * hidden, *norm, "sequence"),
            *matmul("modulation", images, hidden, LAST * hidden, "none"),
            *matmul("noise", tokens, hidden, outputs(model), "tokens"),
            *streamed("loss", tokens * outputs(model), 1.0, 1.0, "sequence"),
        )
    return (
        *unmasked(decoder.operations(model, block, tokens, own, kernels)),
        *matmul("modulation", images, hidden, MODULATIONS * hidden, "none"),
        *streamed("modulate", tokens * hidden, *MODULATE[kernels], "sequence"),
    )


def linear_inputs(model: Model, block: str) -> tuple[Count, Count]:
    """Elements per token that the linear layers of a block keep as inputs: (outside, inside) the tensor-parallel region."""
    return decoder.linear_inputs(model, block)


def activation_bytes(model: Model, kernels: str, scores: bool, seq: Count, block: str = LAYER) -> tuple[Bytes, Bytes]:  # noqa: ARG001
    """Bytes a layer keeps for its backward per token at 2-byte activations: (outside, inside) the tensor-parallel region, as
    an encoder's does, and what is modulated: the norms' outputs and the two halves before their gates."""
    outside, inside = decoder.activation_bytes(model, kernels, scores, sequence(model), block)
    return outside + 8.0 * model.hidden, inside
