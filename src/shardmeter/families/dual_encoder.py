"""Two towers, one of images and one of text, that meet in a common space: CLIP, SigLIP.

The model's own numbers are those of the text tower, `vision` is the image tower; a sample is one image and one text. Each tower
ends in a projection (SigLIP's images in attention pooling instead). The loss that compares a batch with itself is a strategy's
business (`contrastive`): its logits have no parameters and are not in mfu's count. Leaves out: texts without padding, images
or texts whose features were kept. Sources: Radford 2021 §2.3 (CLIP); Zhai 2023 (SigLIP); Cherti 2023 (OpenCLIP).
"""

from __future__ import annotations

from shardmeter.core.record import changed
from shardmeter.core.sums import plain_sum
from shardmeter.core.units import Bytes, Count, Flop
from shardmeter.families import decoder, vision
from shardmeter.families.operations import FLOP_PER_MAC, Block, in_order, matmul, streamed, unmasked, words_before
from shardmeter.specs.demands import Compute
from shardmeter.specs.model import Model

LAYER = "text layer"
SAMPLE = "pairs"
ASSUMED = ("each micro-batch is compared with those of all replicas, and features are gathered with their gradients",)
IMAGE = {"embedding": "embedding", "vision layer": "layer", "vision head": "head"}
"""Blocks of the image tower, each with its name in `vision`."""
TEXT = {"text embedding": "embedding", "text layer": "layer"}


def tower(model: Model) -> Model:
    """The image tower. Raises ValueError for a model without."""
    if model.vision is None:
        raise ValueError(f"{model.name} has no image tower")
    return model.vision


def blocks(model: Model) -> tuple[Block, ...]:
    """The image tower, then the text tower; the last block is the text's projection and the loss."""
    images: tuple[Block, ...] = ()
    for name, block in zip(IMAGE, vision.blocks(tower(model)), strict=True):
        images = (*images, changed(block, name=name, of="vision", part=tower(model), before=words_before(images)))
    texts: tuple[Block, ...] = ()
    for name, block in zip(TEXT, decoder.blocks(model)[:-1], strict=True):
        texts = (*texts, changed(block, name=name, of="text", before=words_before(texts)))
    norm = decoder.norm_vectors(model, model.hidden) if model.final_norm else 0.0
    learned = {"softmax": 1.0, "sigmoid": 2.0}.get(model.contrast, 0.0)  # scale and bias of the logits
    vectors = norm + learned + model.hidden * model.projection + (model.projection if model.head_bias else 0.0)
    head = Block(
        name="head", count=1, matrices=0.0, vectors=vectors, of="text", seq=1.0, pairs=0.0,
        before=words_before((*images, *texts)),
    )  # fmt: skip
    return (*images, *texts, head)


def order(model: Model) -> tuple[tuple[str, int], ...]:
    """The layers in order: (block, how many pieces)."""
    return in_order(blocks(model))


def parameters(model: Model) -> Count:
    """All parameters."""
    return plain_sum((block.count * block.parameters for block in blocks(model)), 0.0)


def training_flops(model: Model, tokens: Count, seq: Count) -> Flop:
    """FLOPs of forward and backward by mfu's count: those of the image tower for each of tokens/seq images, and 6 × the text
    tower's matrices and its full attention for each token, 6 × its projection for each text."""
    samples = tokens / seq
    attention = model.layers * seq * decoder.query_width(model)
    text = tokens * (decoder.active_matrices(model) + 2.0 * attention) + samples * model.hidden * model.projection
    return vision.training_flops(tower(model), samples, 1.0) + 3.0 * FLOP_PER_MAC * text


def operations(model: Model, block: str, tokens: Count, seq: Count, kernels: str) -> tuple[Compute, ...]:
    """All phases of one piece of `block` for `tokens` of its tokens in sequences of `seq`, before any sharding. The text's last
    norm is taken for the one token that is projected."""
    if block in IMAGE:
        return vision.operations(tower(model), IMAGE[block], tokens, seq, kernels)
    if block == "head":
        return (
            *streamed("final norm", tokens * model.hidden, *decoder.LAYER_NORM["eager"], "none"),
            *matmul("projection", tokens, model.hidden, model.projection, "none"),
        )
    found = decoder.operations(model, TEXT[block], tokens, seq, kernels)
    return found if model.causal else unmasked(found)


def linear_inputs(model: Model, block: str) -> tuple[Count, Count]:
    """Elements per token that the linear layers of a block keep as inputs: (outside, inside) the tensor-parallel region."""
    if block in IMAGE:
        return vision.linear_inputs(tower(model), IMAGE[block])
    return decoder.linear_inputs(model, TEXT[block])


def activation_bytes(model: Model, kernels: str, scores: bool, seq: Count, block: str = LAYER) -> tuple[Bytes, Bytes]:
    """Bytes a piece keeps for its backward per token of its own at 2-byte activations: (outside, inside) the tensor-parallel
    region."""
    if block in IMAGE:
        return vision.activation_bytes(tower(model), kernels, scores, seq, IMAGE[block])
    if block != LAYER:
        return 2.0 * model.hidden, 0.0
    return decoder.activation_bytes(model, kernels, scores, seq)
