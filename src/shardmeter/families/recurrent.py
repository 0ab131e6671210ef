"""Recurrent language models: stacks of LSTM layers over bytes or tokens (Hochreiter & Schmidhuber 1997; SOMA's experts,
arXiv 2609.37899, 2026), with or without an MLP after some of them.

A layer: norm, LSTM, residual and, where `mlps` says d, norm, MLP, residual. The four gates of a cell come from its input and from
the hidden state before: (hidden + hidden) × 4·hidden, and a bias where `attention_bias` says so. `heads` is 1: no part of the
state stands alone. SOMA's 8.44M parameters in 256 experts of width 32 are two LSTMs, one MLP of width 4·32 after the second
(`mlps: -d`), a norm before each of the three and a head: 24·hidden² + 256·hidden + 6·hidden = 32,960 each; its 81.9k operations
a byte are read as 2 × (those matrices and the 256 × 32 of the frozen embedding). The layout is derived from these counts.

The steps of a sequence wait for one another: a layer multiplies one row of every sequence at a time, `seq` times in a row. How, by
the stack's kernels: eager code runs cell by cell, both products and the cell's arithmetic apart, and adds its
weight gradients up step by step; compiled code projects the whole input at once and steps through product and cell; fused is
one kernel a layer that holds the recurrence (Diamos 2016, "Persistent RNNs"), its steps a barrier long. Weight gradients
are priced as one product over all steps. Leaves out: layers that run side by side along the diagonal, matrices that stay in cache
or registers from step to step, peepholes, projections of the state, states carried from one sequence to the next, the second
bias that some libraries hold.
"""

from __future__ import annotations

from shardmeter.core.record import changed
from shardmeter.core.sums import plain_sum
from shardmeter.core.units import Bytes, Count, Flop
from shardmeter.families import _kinds, decoder
from shardmeter.families._kinds import LSTM
from shardmeter.families.operations import FLOP_PER_MAC, Block, is_layer, matmul, stepped, streamed
from shardmeter.specs.demands import Compute
from shardmeter.specs.model import Model

LAYER = decoder.LAYER
ASSUMED = ("sequences start from an empty state: none is carried over",)
GATES = 4.0
"""Input, forget, output gate and candidate."""
CELL = {"eager": (30.0, 26.0), "compiled": (30.0, 26.0), "fused": (20.0, 22.0)}
"""Bytes per hidden element and token of a cell's arithmetic (forward, backward) at 2-byte activations: four gates read from each of
two products (from one where the recurrence adds in registers), cell state read and written, hidden state and the four gates
written; backward reads gates, states and gradients, writes the gates' gradients."""
KEPT = (2.0, 10.0)
"""Bytes per hidden element and token that a layer keeps: (its hidden state, its gates and cell state)."""


def sized(model: Model, seq: Count) -> Model:
    """The model with the steps of a sequence: all of it, however many documents are packed into one."""
    return changed(model, source_length=seq)


def _stacked(model: Model) -> Model:
    """The model with every layer's mixer named."""
    return changed(model, mixers=LSTM)


def _steps(kernels: str) -> str:
    """How a stack with such kernels steps through a sequence: eager (cell by cell), compiled, fused."""
    return "eager" if kernels in decoder.LOOSE else kernels


def gates(model: Model) -> Count:
    """Matrix parameters of the gates of one layer: from the input and from the hidden state."""
    return 2.0 * model.hidden * GATES * model.hidden


def _with_gates(block: Block, model: Model) -> Block:
    biases = GATES * model.hidden if model.attention_bias else 0.0
    return changed(
        block, matrices=block.matrices + gates(model), vectors=block.vectors + biases, seq=model.source_length
    )


def blocks(model: Model) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    return tuple(
        _with_gates(block, model) if is_layer(block.name) else block for block in decoder.blocks(_stacked(model))
    )


def order(model: Model) -> tuple[tuple[str, int], ...]:
    """The layers in order: (block, how many pieces)."""
    return _kinds.order(_stacked(model))


def parameters(model: Model) -> Count:
    """All parameters, the embedding among them, a tied matrix counted once."""
    return plain_sum((block.count * block.parameters for block in blocks(model)), 0.0)


def training_flops(model: Model, tokens: Count, seq: Count) -> Flop:  # noqa: ARG001
    """FLOPs of forward and backward by mfu's count: 6 × the matrices of layers and head per token; a recurrence does no more for a
    longer sequence, it only takes longer."""
    matrices = decoder.active_matrices(_stacked(model)) + model.layers * gates(model) + model.hidden * model.vocab
    return tokens * 3.0 * FLOP_PER_MAC * matrices


def operations(model: Model, block: str, tokens: Count, seq: Count, kernels: str) -> tuple[Compute, ...]:
    """All phases of one piece of `block` for `tokens` tokens in sequences of `seq`, before any sharding."""
    found = decoder.operations(_stacked(model), block, tokens, seq, kernels)
    return (*found, *_lstm(model, tokens, seq, kernels)) if is_layer(block) else found


def _lstm(model: Model, tokens: Count, seq: Count, kernels: str) -> tuple[Compute, ...]:
    """The LSTM of one layer: `tokens`/`seq` sequences side by side, `seq` steps in a row."""
    rows, hidden, wide = tokens / seq, model.hidden, GATES * model.hidden
    how = _steps(kernels)
    if how == "eager":
        # backward, weights: the product of each step and its addition to the others
        incoming = stepped("gate projection", rows, hidden, wide, seq, launches=1.0, adding=2.0)
    else:
        incoming = matmul("gate projection", tokens, hidden, wide, "column")
    alone = how != "fused"
    recurrence = stepped(
        "recurrence", rows, hidden, wide, seq, launches=1.0 if alone else 0.0, adding=2.0 if how == "eager" else 0.0
    )
    cell = streamed("cell", tokens * hidden, *CELL[how], "heads")
    if alone:
        cell = tuple(changed(op, serial=seq, launches=seq) for op in cell)
    return (*incoming, *recurrence, *cell)


def linear_inputs(model: Model, block: str) -> tuple[Count, Count]:
    """Elements per token that the linear layers of a block keep as inputs: (outside, inside) the tensor-parallel region, the
    recurrence's apart, which no recipe narrows."""
    return decoder.linear_inputs(_stacked(model), block)


def activation_bytes(model: Model, kernels: str, scores: bool, seq: Count, block: str = LAYER) -> tuple[Bytes, Bytes]:
    """Bytes a layer keeps for its backward per token at 2-byte activations: (outside, inside) the tensor-parallel region: norms and
    MLP as a decoder's, and the hidden state, gates and cell state of every step."""
    outside, inside = decoder.activation_bytes(_stacked(model), kernels, scores, seq, block)
    return outside + KEPT[0] * model.hidden, inside + KEPT[1] * model.hidden


def cached(model: Model, block: str, seen: Count) -> tuple[Count, Count]:  # noqa: ARG001
    """Elements, 2 bytes each, that one layer keeps of a sequence while it is written token by token, however long that is: the hidden
    state and, in fp32, that of the cell, whole on every rank."""
    return 0.0, 3.0 * model.hidden
