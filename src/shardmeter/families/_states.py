"""Recurrent layers: Mamba-2 (Dao & Gu 2024, "Transformers are SSMs", §6 and §7), the gated delta rule (Yang 2024, "Gated Delta
Networks", §3.3) and the first Mamba's selective scan (Gu & Dao 2023, §3; with Jamba's norms, Lieber 2024).

The first two project the input to values, keys (B), queries (C), a gate and the decay of each head, pass a short causal convolution
over values, keys and queries, run a recurrence with a state of `state_dim` × `state_head_dim` per head in chunks of
`state_chunk` tokens, weigh the result by the gate under a norm, and project it back. Inside a chunk the recurrence is matrix
products; between chunks one state a head is passed on. Tensor parallelism cuts heads and groups. Leaves out: the solve of the
triangular system inside a chunk (delta rule), states that the backward computes again, that tensor parallelism cuts the
convolution and the norm too (they are held whole), padding of the last chunk.

The selective scan has a state of `state_dim` for every channel (a head one wide) and no products inside: keys, queries and the
latent of the step are made from the convolved values. Leaves out: its exponentials, which may take longer than its traffic, and the
small sum over tp after its choice.
"""

from __future__ import annotations

import numpy as np

from shardmeter.core.units import Bytes, Count
from shardmeter.families._kinds import MAMBA, SCAN
from shardmeter.families.operations import batched, matmul, streamed
from shardmeter.specs.demands import Compute
from shardmeter.specs.model import Model

CONVOLUTION_BYTES = (4.0, 10.0)
"""Per convolved channel and token at 2-byte activations: read and written; backward, run again, two gradients read, one written."""
SCAN_BYTES = (8.0, 14.0)
"""Per channel and token of a selective scan: values, step and gate read, result written; backward reads four, writes three."""
GATE_BYTES = (6.0, 10.0)
"""Per value channel and token: result and gate read, their product written; backward reads three and writes two."""
STATE_BYTES = (8.0, 16.0)
"""Per element of the states between chunks, fp32: read and written as they are passed on; backward does so for states computed
again and for their gradients."""


def inner(model: Model) -> Count:
    """Width of the values of all heads."""
    return model.state_heads * model.state_head_dim


def _keys(model: Model) -> Count:
    """Width of the keys (as of the queries) of all groups."""
    return model.state_groups * model.state_dim


def _convolved(model: Model, mixer: str) -> Count:
    return inner(model) if mixer == SCAN else inner(model) + 2.0 * _keys(model)


def _chosen(model: Model) -> Count:
    """Selective scan: width of what is made from the convolved values: the latent of the step, keys and queries."""
    return model.step_rank + 2.0 * _keys(model)


def _projected(model: Model, mixer: str) -> Count:
    """Width of the input projection: values, gate, keys, queries, and a step (and, of the delta rule, a rate) for each head; of
    the selective scan values and gate."""
    if mixer == SCAN:
        return 2.0 * inner(model)
    return 2.0 * inner(model) + 2.0 * _keys(model) + model.state_heads * (1.0 if mixer == MAMBA else 2.0)


def matrices(model: Model, mixer: str) -> Count:
    """Matrix parameters of one recurrent mixer: input and output projection."""
    total = model.hidden * (_projected(model, mixer) + inner(model))
    return total + inner(model) * (_chosen(model) + model.step_rank) if mixer == SCAN else total


def vectors(model: Model, mixer: str) -> Count:
    """Convolution (with a bias in Mamba-2), decay and step bias of each head (and a skip weight in Mamba-2), norm of the result:
    over all values in Mamba-2, one for all heads in the delta rule. The selective scan: a decay for every element of the state, and
    (Jamba's) norms of the step's latent, keys and queries."""
    if mixer == SCAN:
        norms = _chosen(model) if model.scan_norms else 0.0
        return inner(model) * (model.conv_width + 3.0 + model.state_dim) + norms
    if mixer == MAMBA:
        return _convolved(model, mixer) * (model.conv_width + 1.0) + 3.0 * model.state_heads + inner(model)
    return _convolved(model, mixer) * model.conv_width + 2.0 * model.state_heads + model.state_head_dim


def exchanged(model: Model, mixer: str) -> Count:
    """Elements per token that context parallelism exchanges for heads: what goes in and what comes out."""
    return _projected(model, mixer) + inner(model)


def operations(model: Model, mixer: str, tokens: Count, seq: Count) -> tuple[Compute, ...]:
    """One recurrent mixer for `tokens` tokens in sequences of `seq`."""
    wide = inner(model)
    if mixer == SCAN:
        return _scan(model, tokens, wide)
    chunk = np.minimum(model.state_chunk, seq)
    states = tokens / chunk * wide * model.state_dim
    return (
        *matmul("state projection", tokens, model.hidden, _projected(model, mixer), "column"),
        *streamed("convolution", tokens * _convolved(model, mixer), *CONVOLUTION_BYTES, "heads"),
        *(_dual if mixer == MAMBA else _delta)(model, tokens, chunk),
        *streamed("states passed on", states, *STATE_BYTES, "heads"),
        *streamed("state gate", tokens * wide, *GATE_BYTES, "heads"),
        *matmul("state output", tokens, wide, model.hidden, "row"),
    )


def _scan(model: Model, tokens: Count, wide: Count) -> tuple[Compute, ...]:
    """A selective scan: one kernel that carries the states in registers (Gu & Dao 2023 §3.3.2)."""
    return (
        *matmul("state projection", tokens, model.hidden, 2.0 * wide, "column"),
        *streamed("convolution", tokens * wide, *CONVOLUTION_BYTES, "heads"),
        *matmul("state choice", tokens, wide, _chosen(model), "row"),
        *matmul("state step", tokens, model.step_rank, wide, "column"),
        *streamed("selective scan", tokens * wide, *SCAN_BYTES, "heads"),
        *matmul("state output", tokens, wide, model.hidden, "row"),
    )


def _dual(model: Model, tokens: Count, chunk: Count) -> tuple[Compute, ...]:
    """State-space duality in chunks, products per chunk: C·Bᵀ of each group; of each head its masked scores times the values,
    the chunk's own state, and what the incoming state gives out (Dao & Gu 2024 §6, steps 1 to 4)."""
    chunks = tokens / chunk
    heads, groups = chunks * model.state_heads, chunks * model.state_groups
    state, width = model.state_dim, model.state_head_dim
    return (
        *batched("state products", chunk, state, chunk, groups),
        *batched("state products", chunk, chunk, width, heads),
        *batched("state products", state, chunk, width, heads),
        *batched("state products", chunk, state, width, heads),
    )


def _delta(model: Model, tokens: Count, chunk: Count) -> tuple[Compute, ...]:
    """The delta rule in chunks (Yang 2024 §3.3), products per chunk and head: keys with keys and queries with keys; the inverse
    times keys and times values; scores times the corrected values; the state times keys and queries, and its update."""
    heads = tokens / chunk * model.state_heads
    state, width = model.state_dim, model.state_head_dim
    return (
        *batched("state products", chunk, state, chunk, 2.0 * heads),
        *batched("state products", chunk, chunk, state, heads),
        *batched("state products", chunk, chunk, width, 2.0 * heads),
        *batched("state products", chunk, state, width, 2.0 * heads),
        *batched("state products", state, chunk, width, heads),
    )


def kept(model: Model, mixer: str) -> Bytes:
    """Bytes kept for the backward per token, all inside the tensor-parallel region, as the fused kernels keep them: the input
    projection's output, the recurrence's result, and the output projection's input (of the selective scan, whose gate is inside
    it, the convolved values and the steps in place of the result). States run again."""
    if mixer == SCAN:
        return 2.0 * (_projected(model, mixer) + 3.0 * inner(model) + _chosen(model))
    return 2.0 * (_projected(model, mixer) + 2.0 * inner(model))


def cached(model: Model, mixer: str) -> Count:
    """Elements, 2 bytes each, that decoding keeps of one sequence in one layer, however long it is: the state, in fp32, and what the
    convolution still sees."""
    return 2.0 * inner(model) * model.state_dim + (model.conv_width - 1.0) * _convolved(model, mixer)
