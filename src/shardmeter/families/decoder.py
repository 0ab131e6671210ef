"""Decoder-only transformers and hybrids: Llama, GPT, Qwen, Gemma, Mixtral, DeepSeek, GPT-OSS, Nemotron-H and their like.

One layer: norm, a mixer of tokens (attention of some kind, or a recurrence), residual, norm, MLP or routed experts, residual;
a layer may have but one of the two parts. A model is a list of layers of several kinds (`_kinds`) in order. A prediction module
(DeepSeek-AI 2024, DeepSeek-V3 §2.2) is a layer more after the last: it joins the hidden state and the next token's embedding in
one projection, and passes the shared head once more. Leaves out: the copy of the embedding that a prediction module needs where
the first stage is another one.
Sources: Vaswani 2017; Radford 2019 (GPT-2); Touvron 2023 (Llama); counts follow Kaplan 2020 §2.1 and Narayanan 2021 §5; those of
`_attention`, `_experts`, `_states`.
"""

from __future__ import annotations

from shardmeter.core.sums import plain_sum
from shardmeter.core.units import Bytes, Count, Flop
from shardmeter.families import _attention, _experts, _states
from shardmeter.families._attention import key_value_width, query_width
from shardmeter.families._kinds import ATTENTION, DENSE, RECURRENT, ROUTED, Kind, has_experts, named, order, placed
from shardmeter.families.operations import FLOP_PER_MAC, Block, matmul, streamed
from shardmeter.specs.demands import Compute
from shardmeter.specs.model import Model

PASSES = {
    #            norm        rotation    gated act.   plain act.  residual
    "eager": ((36.0, 62.0), (24.0, 24.0), (10.0, 18.0), (4.0, 6.0), (6.0, 6.0)),
    "autocast": ((36.0, 62.0), (24.0, 24.0), (10.0, 18.0), (4.0, 6.0), (10.0, 16.0)),
    "fused_norm": ((4.0, 8.0), (24.0, 24.0), (10.0, 18.0), (4.0, 6.0), (6.0, 6.0)),
    "fused": ((4.0, 8.0), (4.0, 4.0), (6.0, 10.0), (4.0, 6.0), (6.0, 6.0)),
    "compiled": ((3.0, 6.0), (4.0, 4.0), (6.0, 10.0), (4.0, 6.0), (4.0, 4.0)),
}
"""Bytes per element (forward, backward) at 2-byte activations, counted from the reads and writes of each kernel: eager
casts to fp32 and back around norms and rotations; autocast (torch.autocast over fp32 parameters) carries the residuals in fp32;
a compiler merges the residual into the norm."""
LAYER_NORM = {"eager": (4.0, 8.0), "autocast": (14.0, 18.0)}
"""LayerNorm has a fused kernel even in eager code; RMSNorm had not. Under autocast it reads and writes fp32, and its output is
cast before the product that follows."""
LOOSE = ("eager", "autocast", "fused_norm")
"""Words whose rotation and activation are chains of kernels."""
LAYER = "layer"


def norm_passes(model: Model, kernels: str) -> tuple[float, float]:
    """Bytes per element of one norm, forward and backward."""
    usual = PASSES[kernels][0]
    return usual if model.norm == "rms" else LAYER_NORM.get(kernels, usual)


def norm_vectors(model: Model, width: Count) -> Count:
    """Parameters of one norm of that width."""
    return width * {"layer": 2.0, "layer_plain": 0.0}.get(model.norm, 1.0)


def _mixer_matrices(model: Model, kind: Kind) -> Count:
    if kind.mixer in ATTENTION:
        return _attention.matrices(model)
    return _states.matrices(model, kind.mixer) if kind.mixer in RECURRENT else 0.0


def layer_matrices(model: Model, kind: Kind) -> Count:
    """Matrix parameters of one layer that tensor parallelism divides, routed experts apart."""
    total = _mixer_matrices(model, kind)
    if kind.mlp == DENSE:
        total = total + model.hidden * model.ffn * (_experts.gates(model) + 1.0)
    elif kind.routed:
        total = total + _experts.shared_matrices(model)
    return total + 2.0 * model.hidden * model.hidden if kind.predicting else total


def replicated_matrices(model: Model, kind: Kind) -> Count:
    """Matrix parameters of one layer that every rank holds whole: routers, projections down to latents."""
    total = _attention.replicated(model) if kind.mixer in ATTENTION else 0.0
    return total + _experts.router_matrices(model) if kind.routed else total


def layer_vectors(model: Model, kind: Kind) -> Count:
    """Norm weights, biases and other small parameters of one layer, and what of its matrices every rank holds whole."""
    norms = norms_of(model, kind) + (3.0 if kind.predicting else 0.0)
    total = norms * norm_vectors(model, model.hidden) + replicated_matrices(model, kind)
    if kind.mixer in ATTENTION:
        total = total + _attention.vectors(model)
    elif kind.mixer in RECURRENT:
        total = total + _states.vectors(model, kind.mixer)
    if kind.routed:
        total = total + _experts.vectors(model)
    elif kind.mlp == DENSE and model.mlp_bias:
        total = total + model.ffn * _experts.gates(model) + model.hidden
    return total


def norms_of(model: Model, kind: Kind) -> Count:
    """Norms as wide as the model in one layer; a layer of one part has half of a whole layer's."""
    return model.norms_per_layer if kind.parts == 2.0 else 0.5 * model.norms_per_layer


def layers(model: Model) -> tuple[Block, ...]:
    """Every kind of layer once, in order of its first."""
    return tuple(
        Block(
            name=kind.name, count=len(places), matrices=layer_matrices(model, kind), vectors=layer_vectors(model, kind),
            experts=_experts.expert_parameters(model) if kind.routed else 0.0, pairs=_pairs(model, kind),
            attends=kind.mixer in ATTENTION,
            exchanged=_states.exchanged(model, kind.mixer) if kind.mixer in RECURRENT else 0.0, places=places,
        )
        for kind, places in placed(model)
    )  # fmt: skip


def _pairs(model: Model, kind: Kind) -> float:
    """Pairs of products that tensor parallelism cuts; routed experts have their own mesh, a prediction module one pair more."""
    pairs = float(kind.mixer in (*ATTENTION, *RECURRENT)) + float(kind.mlp == DENSE or _shared(model, kind))
    return pairs + 1.0 if kind.predicting else pairs


def _shared(model: Model, kind: Kind) -> bool:
    return kind.routed and _experts.has_shared(model)


def blocks(model: Model) -> tuple[Block, ...]:
    """Embedding, layers, head. A tied head owns no matrix (its copy on a later stage is the pipeline's business)."""
    rows = model.context if model.positions == "learned" else 0.0
    norm = norm_vectors(model, model.hidden)
    small = (norm if model.embedding_norm else 0.0) + model.extra
    head = 0.0 if model.tied else model.vocab * model.hidden
    head_vectors = (norm if model.final_norm else 0.0) + (model.vocab if model.head_bias else 0.0)
    return (
        Block(name="embedding", count=1, matrices=model.vocab * model.hidden + rows * model.hidden, vectors=small),
        *layers(model),
        Block(name="head", count=1, matrices=head, vectors=head_vectors, outputs=model.vocab),
    )


def parameters(model: Model) -> Count:
    """All parameters, a tied matrix counted once."""
    total: Count = 0.0
    for block in blocks(model):
        total = total + block.count * block.parameters
    return total


def active_matrices(model: Model) -> Count:
    """Matrix parameters of all layers that one token is multiplied with: of routed experts, those it is sent to; with prediction
    modules also their pass through the head."""
    total: Count = 0.0
    for kind, places in placed(model):
        inside = layer_matrices(model, kind) + replicated_matrices(model, kind)
        if kind.routed:
            inside = inside + model.top_k * _experts.expert_matrices(model)
        if kind.predicting:
            inside = inside + model.vocab * model.hidden
        total = total + len(places) * inside
    return total


def training_flops(model: Model, tokens: Count, seq: Count) -> Flop:
    """FLOPs of forward and backward by mfu's count: 6 × active matmul parameters (head included, embedding not) per token, and
    full, non-causal attention: 12 · seq · query width per token and layer. A windowed layer counts the keys that a query may see
    at most, min(window, seq), in place of seq; a recurrence counts its products inside and between chunks."""
    matrices = active_matrices(model) + model.vocab * model.hidden
    total = tokens * 3.0 * FLOP_PER_MAC * matrices
    for kind, places in placed(model):
        if kind.mixer in ATTENTION:
            seen, _ = _attention.keys_seen(model, kind.mixer, seq)
            width = query_width(model) + _attention.output_width(model)
            total = total + len(places) * tokens * 3.0 * FLOP_PER_MAC * seen * width
        elif kind.mixer in RECURRENT:
            products = _states.operations(model, kind.mixer, tokens, seq)
            total = total + len(places) * plain_sum((op.flops for op in products if op.split == "batch"), 0.0)
    return total


def operations(model: Model, block: str, tokens: Count, seq: Count, kernels: str) -> tuple[Compute, ...]:
    """All phases of one piece of `block` for `tokens` tokens in sequences of `seq`, before any sharding."""
    _, rotation, gated, plain, residual = PASSES[kernels]
    norm = norm_passes(model, kernels)
    if block == "embedding":
        return streamed("embedding", tokens * model.hidden, 4.0, 10.0, "sequence")
    if block == "head":
        return _head(model, tokens, norm)
    kind = named(block)
    activation = gated if model.mlp == "gated" else plain
    ops = streamed("norms", norms_of(model, kind) * tokens * model.hidden, *norm, "sequence")
    if kind.mixer in ATTENTION:
        ops = (*ops, *_attention.operations(model, kind.mixer, tokens, seq, norm))
    elif kind.mixer in RECURRENT:
        ops = (*ops, *_states.operations(model, kind.mixer, tokens, seq))
    ops = (*ops, *streamed("residuals", kind.parts * tokens * model.hidden, *residual, "sequence"))
    if kind.routed:
        ops = (*ops, *_experts.operations(model, tokens, activation))
    elif kind.mlp == DENSE:
        ops = (
            *ops,
            *matmul("mlp up", tokens, model.hidden, _experts.gates(model) * model.ffn, "column"),
            *streamed("activation", tokens * model.ffn, *activation, "heads"),
            *matmul("mlp down", tokens, model.ffn, model.hidden, "row"),
        )
    if kind.mixer in ATTENTION and model.positions == "rope":
        ops = (*ops, *_attention.rotated(model, tokens, rotation))
    return (*ops, *_prediction(model, tokens, norm)) if kind.predicting else ops


def _head(model: Model, tokens: Count, norm: tuple[float, float]) -> tuple[Compute, ...]:
    last = streamed("final norm", tokens * model.hidden, *norm, "sequence") if model.final_norm else ()
    return (
        *last,
        *matmul("logits", tokens, model.hidden, model.vocab, "column"),
        *streamed("loss", tokens * model.vocab, 1.0, 1.0, "heads"),  # bytes per logit: `strategies.loss`
    )


def _prediction(model: Model, tokens: Count, norm: tuple[float, float]) -> tuple[Compute, ...]:
    """What a prediction module does beside its layer: embedding, two norms, a projection of both, the head."""
    return (
        *streamed("embedding", tokens * model.hidden, 4.0, 10.0, "sequence"),
        *streamed("prediction norms", 2.0 * tokens * model.hidden, *norm, "sequence"),
        *matmul("prediction projection", tokens, 2.0 * model.hidden, model.hidden, "column"),
        *_head(model, tokens, norm),
    )


def activation_bytes(model: Model, kernels: str, scores: bool, seq: Count, block: str = LAYER) -> tuple[Bytes, Bytes]:
    """Bytes a layer keeps for its backward per token at 2-byte activations: (outside, inside) the tensor-parallel region.

    Outside: the inputs and outputs of both norms (fp32 copies too where eager RMSNorm makes them; under autocast the inputs are
    fp32), and latents. Inside: q, k, v
    and the attention output (or what a recurrence keeps), the MLP's up products and activation. Materialised scores add 5 bytes
    each (Korthikanti 2022, eq. 2). What routed experts keep is apart (`routed_bytes`). Leaves out: dropout masks, log-sum-exp
    vectors."""
    kind = named(block)
    loose = kernels in LOOSE  # rotation and activation are chains of kernels, each keeping its input
    norms = norms_of(model, kind) + (3.0 if kind.predicting else 0.0)
    upcast = 4.0 * norms if kernels in LAYER_NORM and model.norm == "rms" else 0.0
    upcast = upcast + (2.0 * norms if kernels == "autocast" else 0.0)
    outside = model.hidden * (4.0 * norms + upcast)
    inside: Bytes = 0.0
    if kind.mixer in ATTENTION:
        latents, inside = _attention.kept(model, loose)
        outside = outside + latents
        if scores:
            inside = inside + 5.0 * model.heads * seq
    elif kind.mixer in RECURRENT:
        inside = _states.kept(model, kind.mixer)
    width = {DENSE: model.ffn, ROUTED: model.shared_ffn}.get(kind.mlp, 0.0)
    return outside, inside + 2.0 * _products(model, kernels) * width


def linear_inputs(model: Model, block: str) -> tuple[Count, Count]:
    """Elements per token that the linear layers of a block keep as inputs: (outside, inside) the tensor-parallel region.

    The norms' outputs; the attention's (or the recurrence's) output and the activation's. Leaves out: routed experts, latents."""
    kind = named(block)
    outside = kind.parts * model.hidden
    mixed = _attention.output_width(model) if kind.mixer in ATTENTION else 0.0
    if kind.mixer in RECURRENT:
        mixed = _states.inner(model)
    return outside, mixed + {DENSE: model.ffn, ROUTED: model.shared_ffn}.get(kind.mlp, 0.0)


def freed(model: Model, kernels: str, block: str, words: tuple[str, ...]) -> tuple[Bytes, Bytes, tuple[Count, Count]]:
    """What of `activation_bytes` a layer need not keep where the operations of `words` (`strategies.recompute`) run again: bytes
    per token (outside, inside) the tensor-parallel region, and the elements of linear inputs among them, likewise.

    The norms' outputs (and what eager ones cast); queries, keys and values made from latents; a dense MLP's, the shared experts'
    products and activation. Scores are the engine's business, routed experts `freed_routed`'s."""
    kind = named(block)
    outside: Bytes = 0.0
    inside: Bytes = 0.0
    inputs: tuple[Count, Count] = (0.0, 0.0)
    if "layernorm" in words:
        upcast = 4.0 if kernels == "eager" and model.norm == "rms" else 0.0
        outside = norms_of(model, kind) * model.hidden * (2.0 + upcast)
        inputs = (kind.parts * model.hidden, 0.0)
    if "mla_up_proj" in words and kind.mixer in ATTENTION and _attention.latent(model):
        _, inside = _attention.kept(model, kernels in ("eager", "fused_norm"))
        inside = inside - 2.0 * _attention.output_width(model)
    again = (DENSE if "mlp" in words else "", ROUTED if {"moe", "shared_experts"} & set(words) else "")
    width = {DENSE: model.ffn, ROUTED: model.shared_ffn}.get(kind.mlp, 0.0) if kind.mlp in again else 0.0
    return outside, inside + 2.0 * _products(model, kernels) * width, (inputs[0], width)


def freed_routed(model: Model, kernels: str, words: tuple[str, ...]) -> tuple[Bytes, Bytes]:
    """What of `routed_bytes` need not be kept where the operations of `words` run again: all of it, or all but the up products."""
    wide, inner = routed_bytes(model, kernels)
    if "moe" in words:
        return wide, inner
    return 0.0 * wide, inner * (1.0 - _experts.gates(model) / _products(model, kernels)) if "moe_act" in words else 0.0


def routed_bytes(model: Model, kernels: str) -> tuple[Bytes, Bytes]:
    """Bytes that the routed experts of a layer keep per token: (as wide as the model, as wide as an expert)."""
    return _experts.routed_bytes(model, _products(model, kernels))


def _products(model: Model, kernels: str) -> float:
    """Elements kept per column of an MLP: its up products and activation; a loose chain of kernels keeps one more."""
    if model.mlp != "gated":
        return 2.0
    return 4.0 if kernels in LOOSE else 3.0


__all__ = [
    "LAYER", "PASSES", "activation_bytes", "active_matrices", "blocks", "freed", "freed_routed", "has_experts",
    "key_value_width", "layer_matrices", "layer_vectors", "layers", "linear_inputs", "norm_passes", "norm_vectors", "operations",
    "order", "parameters",
    "query_width", "routed_bytes", "training_flops",
]  # fmt: skip


def cached(model: Model, block: str, seen: Count) -> tuple[Count, Count]:
    """Elements, 2 bytes each, that one piece of a block keeps of a sequence of `seen` tokens while it is written token by token, and
    reads again for each: (cut by tensor parallelism over the key-value heads, whole on every rank). Leaves out: pages that are not
    full, caches in fewer bits."""
    kind = named(block)
    if kind.mixer in ATTENTION:
        return _attention.cached(model, kind.mixer, seen)
    return (_states.cached(model, kind.mixer) if kind.mixer in RECURRENT else 0.0), 0.0
