"""Images inside a text: an image tower, a projector and a decoder: LLaVA, Qwen-VL, PaliGemma.

The model's own numbers are the decoder's, `vision` is the image tower. The projector makes tokens of the decoder out of patches
(class tokens are dropped; `merge`² patches become one token), and they stand inside the sequence of the run: `seq_len` counts
text and images together. What is trained is the plan's word: [decoder, projector], say, leaves the tower frozen, which then
runs forward only. All layers of the tower run, also where the last one's output is not used (LLaVA). Leaves out: images of
unlike sizes or numbers in one batch, crops, an attention mask without order over the image (PaliGemma's prefix: the causal half
is counted). The norms of a projector count as parameters, not as time. Sources: Liu 2023 (LLaVA), 2024 (LLaVA-1.5 §3.2); Wang 2024 (Qwen2-VL §2); Beyer 2024 (PaliGemma).
"""

from __future__ import annotations

from shardmeter.core.record import changed
from shardmeter.core.sums import plain_sum
from shardmeter.core.units import Bytes, Count, Flop
from shardmeter.families import decoder, vision
from shardmeter.families.dual_encoder import tower
from shardmeter.families.operations import FLOP_PER_MAC, Block, in_order, matmul, streamed, words_before
from shardmeter.specs.demands import Compute
from shardmeter.specs.model import Model

LAYER = decoder.LAYER
IMAGE = "vision "
"""What stands before the name of a block of the image tower."""
PROJECTOR = "projector"


def image_tokens(model: Model) -> Count:
    """Tokens of the decoder that one image becomes."""
    return vision.patches(tower(model)) / model.merge**2


def inside(model: Model) -> Count:
    """Tokens of images in the sequence of one sample."""
    return model.images * image_tokens(model)


def products(model: Model) -> tuple[tuple[str, Count, Count], ...]:
    """Matrices of one projector, each (label, inputs, outputs)."""
    narrow, hidden = tower(model).hidden, model.hidden
    wide = narrow * model.merge**2
    between = hidden if isinstance(model.projector_ffn, float) and model.projector_ffn == 0.0 else model.projector_ffn
    return {
        "linear": (("projector", wide, hidden),),
        "mlp": (("projector up", wide, between), ("projector down", between, hidden)),
        "mean": (("projector", narrow, hidden),),
        "pooled": (("merging", wide, narrow), ("projector up", narrow, hidden), ("projector down", hidden, hidden)),
        "adapter": (
            ("projector up", wide, between),
            ("projector", between, between),
            ("projector down", between, hidden),
        ),
        "merger": (("projector up", wide, wide), ("projector down", wide, hidden)),
    }.get(model.projector, ())


def blocks(model: Model) -> tuple[Block, ...]:
    """Text embedding, image tower, projector, the decoder's layers, head. The projector is whole on every rank."""
    text = [changed(block, of="decoder") for block in decoder.blocks(model)]
    embedding, head = changed(text[0], before=()), text[-1]
    images: tuple[Block, ...] = ()
    for block in vision.blocks(tower(model)):
        name = f"{IMAGE}{block.name}"
        part = changed(block, name=name, of="vision", part=tower(model), per_sample=model.images, outputs=0.0)
        images = (*images, changed(part, before=words_before(images)))
    norm = decoder.norm_vectors(tower(model), tower(model).hidden) if model.projector == "merger" else 0.0
    biases = 1.0 if model.projector_bias else 0.0
    each = norm + plain_sum((wide * narrow + biases * narrow for _, wide, narrow in products(model)), 0.0)
    vectors = model.projectors * each + model.projector_vectors
    projector = Block(
        name=PROJECTOR, count=1, matrices=0.0, vectors=vectors, of="projector", seq=image_tokens(model),
        per_sample=model.images, pairs=0.0, before=words_before(images),
    )  # fmt: skip
    found = (embedding, *images, projector)
    layers: tuple[Block, ...] = ()
    for block in text[1:-1]:
        layers = (*layers, changed(block, before=words_before((*found, *layers))))
    return (*found, *layers, changed(head, before=words_before((*found, *layers))))


def order(model: Model) -> tuple[tuple[str, int], ...]:
    """The layers in order: (block, how many pieces)."""
    return in_order(blocks(model))


def parameters(model: Model) -> Count:
    """All parameters, a tied matrix counted once."""
    return plain_sum((block.count * block.parameters for block in blocks(model)), 0.0)


def training_flops(model: Model, tokens: Count, seq: Count) -> Flop:
    """FLOPs of forward and backward by mfu's count if everything were trained: those of the decoder for `tokens` tokens, of the
    image tower for each image of tokens/seq samples, and 6 × the projector's matrices for each of its tokens."""
    images = tokens / seq * model.images
    matrices = plain_sum((wide * narrow for _, wide, narrow in products(model)), 0.0)
    projected = 3.0 * FLOP_PER_MAC * images * model.projectors * image_tokens(model) * matrices
    return decoder.training_flops(model, tokens, seq) + vision.training_flops(tower(model), images, 1.0) + projected


def operations(model: Model, block: str, tokens: Count, seq: Count, kernels: str) -> tuple[Compute, ...]:
    """All phases of one piece of `block` for `tokens` of its tokens in sequences of `seq`, before any sharding."""
    if block.startswith(IMAGE):
        return vision.operations(tower(model), block.removeprefix(IMAGE), tokens, seq, kernels)
    if block != PROJECTOR:
        return decoder.operations(model, block, tokens, seq, kernels)
    plain = decoder.PASSES[kernels][3]
    tokens = tokens * model.projectors
    found: tuple[Compute, ...] = ()
    for at, (label, wide, narrow) in enumerate(products(model)):
        between = streamed("projector activation", tokens * wide, *plain, "none") if at else ()
        found = (*found, *between, *matmul(label, tokens, wide, narrow, "none"))
    return found


def linear_inputs(model: Model, block: str) -> tuple[Count, Count]:
    """Elements per token that the linear layers of a block keep as inputs: (outside, inside) the tensor-parallel region."""
    if block.startswith(IMAGE):
        return vision.linear_inputs(tower(model), block.removeprefix(IMAGE))
    return decoder.linear_inputs(model, block)


def activation_bytes(model: Model, kernels: str, scores: bool, seq: Count, block: str = LAYER) -> tuple[Bytes, Bytes]:
    """Bytes a piece keeps for its backward per token of its own at 2-byte activations: (outside, inside) the tensor-parallel
    region. The projector keeps the inputs of its products and of its activation."""
    if block.startswith(IMAGE):
        return vision.activation_bytes(tower(model), kernels, scores, seq, block.removeprefix(IMAGE))
    if block != PROJECTOR:
        return decoder.activation_bytes(model, kernels, scores, seq, block)
    kept = plain_sum((wide * (1.0 if at == 0 else 2.0) for at, (_, wide, _) in enumerate(products(model))), 0.0)
    return 2.0 * model.projectors * kept, 0.0


routed_bytes = decoder.routed_bytes
"""Of a decoder with routed experts."""
