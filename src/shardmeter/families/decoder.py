"""Decoder-only transformers: Llama, GPT, MPT, OPT, BLOOM, Qwen and their like, dense or with routed experts (Mixtral).

One layer: norm, q k v projection, rotation, causal attention, output projection, residual, norm, MLP, residual. A "moe layer"
has routed experts in place of the MLP (`_experts`); a mixed model is a list of both kinds.
Sources: Vaswani 2017; Radford 2019 (GPT-2); Touvron 2023 (Llama); counts follow Kaplan 2020 §2.1 and Narayanan 2021 §5.
"""

from __future__ import annotations

from shardmeter.core.units import Bytes, Count, Flop
from shardmeter.families import _experts
from shardmeter.families.operations import FLOP_PER_MAC, Block, core_attention, matmul, streamed
from shardmeter.specs.demands import Compute
from shardmeter.specs.model import Model

PASSES = {
    #            norm        rotation    gated act.   plain act.  residual
    "eager": ((36.0, 62.0), (24.0, 24.0), (10.0, 18.0), (4.0, 6.0), (6.0, 6.0)),
    "fused_norm": ((4.0, 8.0), (24.0, 24.0), (10.0, 18.0), (4.0, 6.0), (6.0, 6.0)),
    "fused": ((4.0, 8.0), (4.0, 4.0), (6.0, 10.0), (4.0, 6.0), (6.0, 6.0)),
    "compiled": ((3.0, 6.0), (4.0, 4.0), (6.0, 10.0), (4.0, 6.0), (4.0, 4.0)),
}
"""Bytes per element (forward, backward) at 2-byte activations, counted from the reads and writes of each kernel: eager
casts to fp32 and back around norms and rotations; a compiler merges the residual into the norm."""
LAYER_NORM_EAGER = (4.0, 8.0)
"""LayerNorm has a fused kernel even in eager code; RMSNorm had not."""
LOSS_BYTES = (12.0, 18.0)
"""Per logit: cast to fp32, maximum, exponentials, sum; gradient written and cast back."""
LAYER, MOE_LAYER = "layer", "moe layer"


def query_width(model: Model) -> Count:
    """Width of all query heads together."""
    return model.heads * model.head_dim


def key_value_width(model: Model) -> Count:
    """Width of all key (or value) heads together."""
    return model.kv_heads * model.head_dim


def norm_vectors(model: Model, width: Count) -> Count:
    """Parameters of one norm of that width."""
    return width * {"layer": 2.0, "layer_plain": 0.0}.get(model.norm, 1.0)


def attention_matrices(model: Model) -> Count:
    """Matrix parameters of one layer's attention: q, k, v, output."""
    return model.hidden * (2.0 * query_width(model) + 2.0 * key_value_width(model))


def layer_matrices(model: Model) -> Count:
    """Matrix parameters of one dense layer: q, k, v, output, and two or three MLP matrices."""
    return attention_matrices(model) + model.hidden * model.ffn * (3.0 if model.mlp == "gated" else 2.0)


def layer_vectors(model: Model, block: str = LAYER) -> Count:
    """Norm weights and biases of one layer; of one with routed experts also what every rank holds whole."""
    total = model.norms_per_layer * norm_vectors(model, model.hidden)
    if model.attention_bias:
        total = total + query_width(model) + 2.0 * key_value_width(model)
    if model.output_bias:
        total = total + model.hidden
    if block == MOE_LAYER:
        total = total + _experts.router_matrices(model)
    elif model.mlp_bias:
        total = total + model.ffn * (2.0 if model.mlp == "gated" else 1.0) + model.hidden
    if model.qk_norm == "head":
        total = total + 2.0 * model.head_dim
    elif model.qk_norm == "full":
        total = total + query_width(model) + key_value_width(model)
    return total


def has_experts(model: Model) -> bool:
    """Whether the model has layers with routed experts. Structure, not a number: a batch has them or has none."""
    return not (isinstance(model.experts, float) and model.experts == 0.0)


def layers(model: Model) -> tuple[Block, ...]:
    """The layers in order: dense ones, then those with routed experts."""
    dense = model.dense_first if has_experts(model) else model.layers
    found: tuple[Block, ...] = ()
    if dense:
        found = (Block(name=LAYER, count=dense, matrices=layer_matrices(model), vectors=layer_vectors(model)),)
    if dense < model.layers:
        routed = Block(
            name=MOE_LAYER, count=model.layers - dense,
            matrices=attention_matrices(model) + _experts.shared_matrices(model),
            vectors=layer_vectors(model, MOE_LAYER), experts=_experts.expert_parameters(model),
        )  # fmt: skip
        found = (*found, routed)
    return found


def blocks(model: Model) -> tuple[Block, ...]:
    """Embedding, layers, head. A tied head owns no matrix (its copy on a later stage is the pipeline's business)."""
    rows = model.context if model.positions == "learned" else 0.0
    embedding_norm = norm_vectors(model, model.hidden) if model.embedding_norm else 0.0
    head = 0.0 if model.tied else model.vocab * model.hidden
    head_vectors = norm_vectors(model, model.hidden) + (model.vocab if model.head_bias else 0.0)
    return (
        Block(
            name="embedding", count=1, matrices=model.vocab * model.hidden + rows * model.hidden, vectors=embedding_norm
        ),
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
    """Matrix parameters of all layers that one token is multiplied with: of routed experts, those it is sent to."""
    total: Count = 0.0
    for block in layers(model):
        inside = layer_matrices(model)
        if block.name == MOE_LAYER:
            inside = attention_matrices(model) + _experts.active_matrices(model)
        total = total + block.count * inside
    return total


def training_flops(model: Model, tokens: Count, seq: Count) -> Flop:
    """FLOPs of forward and backward by mfu's count: 6 × active matmul parameters (head included, embedding not) per token,
    and full, non-causal attention: 12 · layers · seq · query width per token."""
    matrices = active_matrices(model) + model.vocab * model.hidden
    attention = model.layers * seq * query_width(model)
    return tokens * (3.0 * FLOP_PER_MAC * matrices + 6.0 * FLOP_PER_MAC * attention)


def operations(model: Model, block: str, tokens: Count, seq: Count, kernels: str) -> tuple[Compute, ...]:
    """All phases of one piece of `block` for `tokens` tokens in sequences of `seq`, before any sharding."""
    norm, rotation, gated, plain, residual = PASSES[kernels]
    if model.norm != "rms" and kernels == "eager":
        norm = LAYER_NORM_EAGER
    if block == "embedding":
        return streamed("embedding", tokens * model.hidden, 4.0, 10.0, "sequence")
    if block == "head":
        return (
            *streamed("final norm", tokens * model.hidden, *norm, "sequence"),
            *matmul("logits", tokens, model.hidden, model.vocab, "column"),
            *streamed("loss", tokens * model.vocab, *LOSS_BYTES, "heads"),
        )
    query, key_value = query_width(model), key_value_width(model)
    activation = gated if model.mlp == "gated" else plain
    if block == MOE_LAYER:
        mlp = _experts.operations(model, tokens, activation)
    else:
        mlp = (
            *matmul("mlp up", tokens, model.hidden, _experts.gates(model) * model.ffn, "column"),
            *streamed("activation", tokens * model.ffn, *activation, "heads"),
            *matmul("mlp down", tokens, model.ffn, model.hidden, "row"),
        )
    ops = (
        *streamed("norms", model.norms_per_layer * tokens * model.hidden, *norm, "sequence"),
        *matmul("qkv projection", tokens, model.hidden, query + 2.0 * key_value, "column"),
        *core_attention(tokens, seq, model.heads, model.head_dim, causal=True),
        *matmul("output projection", tokens, query, model.hidden, "row"),
        *streamed("residuals", 2.0 * tokens * model.hidden, *residual, "sequence"),
        *mlp,
    )
    if model.positions == "rope":
        ops = (*ops, *streamed("rotation", tokens * (query + key_value), *rotation, "heads"))
    return ops


def activation_bytes(model: Model, kernels: str, scores: bool, seq: Count, block: str = LAYER) -> tuple[Bytes, Bytes]:
    """Bytes a layer keeps for its backward per token at 2-byte activations: (outside, inside) the tensor-parallel region.

    Outside: the inputs and outputs of both norms (fp32 copies too where eager RMSNorm makes them). Inside: q, k, v and the
    attention output, the MLP's up products and activation. Materialised scores add 5 bytes each (Korthikanti 2022, eq. 2).
    What routed experts keep is apart (`routed_bytes`). Leaves out: dropout masks, log-sum-exp vectors."""
    query, key_value = query_width(model), key_value_width(model)
    loose = kernels in ("eager", "fused_norm")  # rotation and activation are chains of kernels, each keeping its input
    upcast = 4.0 * model.norms_per_layer if kernels == "eager" and model.norm == "rms" else 0.0
    outside = model.hidden * (4.0 * model.norms_per_layer + upcast)
    inside = 2.0 * (2.0 * query + 2.0 * key_value)
    if model.positions == "rope":
        inside = inside + (2.0 * (query + key_value) if loose else 0.0)
    inside = inside + 2.0 * _products(model, kernels) * (model.shared_ffn if block == MOE_LAYER else model.ffn)
    if scores:
        inside = inside + 5.0 * model.heads * seq
    return outside, inside


def routed_bytes(model: Model, kernels: str) -> tuple[Bytes, Bytes]:
    """Bytes that the routed experts of a layer keep per token: (as wide as the model, as wide as an expert)."""
    return _experts.routed_bytes(model, _products(model, kernels))


def _products(model: Model, kernels: str) -> float:
    """Elements kept per column of an MLP: its up products and activation; a loose chain of kernels keeps one more."""
    if model.mlp != "gated":
        return 2.0
    return 4.0 if kernels in ("eager", "fused_norm") else 3.0
