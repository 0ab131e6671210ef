"""The attention of a decoder layer: plain or latent, full, in a sliding window, or in chunks.

Latent attention makes queries, keys and values from two narrow latents (DeepSeek-AI 2024, DeepSeek-V2 §2.1): tensor
parallelism cuts the projections up from the latents by head, those down to them are whole on every rank. A window of w tokens
leaves each query at most w keys (Beltagy 2020 §3.1; Jiang 2023 §2), a chunk of w those before it in its chunk (Llama 4, 2025).
Leaves out: whole tiles that kernels compute at the edge of a window, layers without rotation in a model with it, that the
latents are gathered over tp in place of the wider input, soft caps on scores.
"""

from __future__ import annotations

import numpy as np

from shardmeter.core.units import Bytes, Count, Fraction
from shardmeter.families._kinds import CHUNK, FULL
from shardmeter.families.operations import core_attention, matmul, streamed
from shardmeter.specs.demands import Compute
from shardmeter.specs.model import Model


def query_width(model: Model) -> Count:
    """Width of all query heads together."""
    return model.heads * model.head_dim


def key_value_width(model: Model) -> Count:
    """Width of all key heads together; of plain attention also of all value heads."""
    return model.kv_heads * model.head_dim


def output_width(model: Model) -> Count:
    """Width of what attention gives to its output projection."""
    return model.heads * model.value_dim


def latent(model: Model) -> bool:
    """Whether keys and values come from a latent. Structure, not a number."""
    return _there(model.kv_lora_rank)


def _there(number: Count) -> bool:
    return not (isinstance(number, float) and number == 0.0)


def _gates(model: Model) -> Count:
    return output_width(model) if model.attention_gate else 0.0


def matrices(model: Model) -> Count:
    """Matrix parameters of one layer's attention that tensor parallelism divides."""
    if not latent(model):
        inputs = query_width(model) + key_value_width(model) + model.kv_heads * model.value_dim + _gates(model)
        return model.hidden * (inputs + output_width(model))
    source = model.q_lora_rank if _there(model.q_lora_rank) else model.hidden
    return source * query_width(model) + model.kv_lora_rank * _unfolded(model) + model.hidden * output_width(model)


def _unfolded(model: Model) -> Count:
    """Width of the keys (their unrotated part) and values of all heads, made from the latent."""
    return model.heads * (model.head_dim - model.qk_rope_head_dim + model.value_dim)


def _down(model: Model) -> Count:
    """Width of the latents and of the rotated key that all heads share."""
    return model.q_lora_rank + model.kv_lora_rank + model.qk_rope_head_dim


def replicated(model: Model) -> Count:
    """Matrix parameters that every rank of a tensor-parallel group holds whole: projections down to the latents."""
    return model.hidden * _down(model) if latent(model) else 0.0


def vectors(model: Model) -> Count:
    """Biases, sinks, norms of queries, keys and latents."""
    total: Count = 0.0
    if model.attention_bias:
        total = total + query_width(model) + key_value_width(model) + model.kv_heads * model.value_dim + _gates(model)
    if model.output_bias:
        total = total + model.hidden
    if model.qk_norm == "head":
        total = total + 2.0 * model.head_dim
    elif model.qk_norm == "full":
        total = total + query_width(model) + key_value_width(model)
    if model.sinks:
        total = total + model.heads
    return total + model.q_lora_rank + model.kv_lora_rank if latent(model) else total


def keys_seen(model: Model, mixer: str, seq: Count) -> tuple[Count, Fraction]:
    """(keys that a query may see at most, share of them that causality leaves over the sequence).

    Full: all, and half of them. A sliding window w: w, of which the first w queries see but half: 1 − w/(2·seq). Chunks: one
    chunk, half of it. Pairs on the diagonal count half, so that a window as long as the sequence is full attention."""
    if mixer == FULL:
        return seq, 0.5
    seen = np.minimum(model.window, seq)
    return seen, (0.5 if mixer == CHUNK else 1.0 - seen / (2.0 * seq))


def operations(model: Model, mixer: str, tokens: Count, seq: Count, norm: tuple[float, float]) -> tuple[Compute, ...]:
    """Projections and core attention of one layer; `norm` is bytes per element."""
    seen, share = keys_seen(model, mixer, seq)
    core = core_attention(
        tokens, seq, model.heads, model.head_dim, causal=True, value_dim=model.value_dim, seen=seen, share=share
    )
    output = matmul("output projection", tokens, output_width(model), model.hidden, "row")
    if latent(model):
        ops = (*_latent_projections(model, tokens, norm), *core, *output)
    else:
        inputs = query_width(model) + key_value_width(model) + model.kv_heads * model.value_dim + _gates(model)
        ops = (*matmul("qkv projection", tokens, model.hidden, inputs, "column"), *core, *output)
    if model.attention_gate:
        ops = (*ops, *streamed("attention gate", tokens * output_width(model), 6.0, 10.0, "heads"))
    return ops


def rotated(model: Model, tokens: Count, rotation: tuple[float, float]) -> tuple[Compute, ...]:
    """Rotation of queries and keys; of latent attention, of the parts that are rotated."""
    width = query_width(model) + key_value_width(model)
    if latent(model):
        width = (model.heads + 1.0) * model.qk_rope_head_dim
    return streamed("rotation", tokens * width, *rotation, "heads")


def _latent_projections(model: Model, tokens: Count, norm: tuple[float, float]) -> tuple[Compute, ...]:
    """Down to the latents, a norm of each, and up from them by head; the keys are put together from their two parts."""
    source = model.q_lora_rank if _there(model.q_lora_rank) else model.hidden
    together = tokens * model.heads * (2.0 * model.head_dim + model.value_dim)
    return (
        *matmul("latent projection", tokens, model.hidden, _down(model), "tokens"),
        *streamed("latent norms", tokens * (model.q_lora_rank + model.kv_lora_rank), *norm, "sequence"),
        *matmul("query projection", tokens, source, query_width(model), "column"),
        *matmul("key and value projection", tokens, model.kv_lora_rank, _unfolded(model), "column"),
        *streamed("heads put together", together, 4.0, 4.0, "heads"),
    )


def kept(model: Model, loose: bool) -> tuple[Bytes, Bytes]:
    """Bytes kept for the backward per token at 2-byte activations, norms' inputs apart: (outside, inside) the tensor-parallel
    region. q, k, v and the attention's output; of latent attention the latents before and after their norms too. `loose`:
    rotation is a chain of kernels that keeps its inputs."""
    query, key_value = query_width(model), key_value_width(model)
    if latent(model):
        keys = model.heads * (model.head_dim + model.value_dim)
        outside = 2.0 * (2.0 * (model.q_lora_rank + model.kv_lora_rank) + model.qk_rope_head_dim)
        return outside, 2.0 * (query + keys + output_width(model)) + (2.0 * (query + keys) if loose else 0.0)
    inside = 2.0 * (query + key_value + model.kv_heads * model.value_dim + output_width(model) + 2.0 * _gates(model))
    if model.positions == "rope":
        inside = inside + (2.0 * (query + key_value) if loose else 0.0)
    return 0.0 * inside, inside


def cached(model: Model, mixer: str, seen: Count) -> tuple[Count, Count]:
    """Elements that decoding keeps of one sequence of `seen` tokens in one layer: (cut by key-value heads, whole on every rank of
    tensor parallelism). Keys and values of every token that a query may see; of latent attention its latent and the rotated key."""
    tokens, _ = keys_seen(model, mixer, seen)
    if latent(model):
        return 0.0 * tokens, tokens * (model.kv_lora_rank + model.qk_rope_head_dim)
    return tokens * (key_value_width(model) + model.kv_heads * model.value_dim), 0.0 * tokens
