"""Context parallelism: each rank has a part of every sequence, and attention must see all of its keys and values.

Causal work is balanced by zigzag halves: rank i of n holds parts i and 2n − 1 − i of 2n, so that every rank does as much, and
as much in every step of a ring. ring: keys and values pass from neighbour to neighbour, each pass behind the attention of the
part that came before (Liu 2023, Ring Attention §3). all-gather: keys and values of all ranks are gathered first (Grattafiori
2024, Llama 3 §3.3.2). ulysses: an all-to-all exchanges parts of the sequence for heads, and back (Jacobs 2023 §3.2). Leaves
out: rescaling partial results after each step of a ring, its smaller kernels' launches, documents packed into one sequence.
"""

from __future__ import annotations

import numpy as np

from shardmeter.core.record import changed
from shardmeter.core.units import Bytes, Count
from shardmeter.families.operations import Block, is_layer
from shardmeter.specs.demands import FORWARD, INPUT_GRAD, Compute, Transfer
from shardmeter.specs.model import Model
from shardmeter.specs.plan import Plan

AXES = ("cp",)
WINDOW = "core attention"


def shard(op: Compute, plan: Plan) -> Compute:
    """Attention as the kernels see it: those of a ring run over one rank's part of the sequence at a time.

    Queries are cut already (tokens per rank), so that the work of a rank is its tokens times the whole sequence."""
    if op.kind != "attention" or plan.cp_kind != "ring":
        return op
    return changed(op, seq=op.seq / plan.cp)


def _key_value_bytes(model: Model, tokens: Count, plan: Plan, width: Bytes, heads: Count) -> Bytes:
    """Bytes of keys and values of `tokens` tokens on one tensor-parallel rank, which holds `heads` of them at least."""
    return tokens * np.maximum(model.kv_heads / plan.tp, heads) * (model.head_dim + model.value_dim) * width


def transfers(
    model: Model, block: Block, tokens: Count, plan: Plan, width: Bytes, overlap: bool
) -> tuple[Transfer, ...]:
    """Transfers of one layer for one micro-batch of `tokens` tokens per rank; `width` is bytes per activation.

    `overlap`: whether gathered keys and values may arrive behind the attention of the heads before (a ring's always do)."""
    if not is_layer(block.name):
        return ()
    if not block.attends:
        return _recurrent(block, tokens, plan, width)
    part = _key_value_bytes(model, tokens, plan, width, 1.0)

    def over(label: str, collective: str, size: Bytes, phase: str, **more: object) -> Transfer:
        return changed(
            Transfer(label=label, collective=collective, size=size, axes=AXES, phase=phase, scope="layer"), **more
        )

    if plan.cp_kind == "ring":
        passes = {"messages": plan.cp - 1.0, "hides_under": WINDOW, "window": 1.0 / plan.cp}
        return (
            over("context pass", "send", part, FORWARD, **passes),
            over("context pass", "send", 2.0 * part, INPUT_GRAD, **passes),  # keys and values, and their gradients
            over("context return", "send", part, INPUT_GRAD),  # gradients come home, with nothing left to compute
        )
    if plan.cp_kind == "all-gather":
        under = {"hides_under": WINDOW if overlap else ""}
        return (
            over("context gather", "all_gather", part * plan.cp, FORWARD, **under),
            over("context gather", "all_gather", part * plan.cp, INPUT_GRAD, **under),
            over("context scatter", "reduce_scatter", part * plan.cp, INPUT_GRAD),
        )
    query, result = (tokens * model.heads / plan.tp * dim * width for dim in (model.head_dim, model.value_dim))
    exchanged = _key_value_bytes(model, tokens, plan, width, plan.cp)
    return tuple(
        over(f"context exchange of {what}", "all_to_all", size, phase)
        for phase in (FORWARD, INPUT_GRAD)
        for what, size in (("queries", query), ("keys and values", exchanged), ("results", result))
    )


def _recurrent(block: Block, tokens: Count, plan: Plan, width: Bytes) -> tuple[Transfer, ...]:
    """A recurrence sees whole sequences for its part of the heads, whatever `cp_kind`: an all-to-all before it and one after, in
    each direction (Waleffe 2024, Megatron-Core's Mamba layers). Nothing for a layer that mixes no tokens."""
    if isinstance(block.exchanged, float) and block.exchanged == 0.0:
        return ()
    size = tokens * block.exchanged / plan.tp * width
    return tuple(
        Transfer(
            label="context exchange of states", collective="all_to_all", size=size, axes=AXES, phase=phase, scope="layer"
        )
        for phase in (FORWARD, INPUT_GRAD)
    )  # fmt: skip


def buffers(model: Model, tokens: Count, plan: Plan, width: Bytes) -> Bytes:
    """Bytes of other ranks' keys and values that lie beside a layer's own while it computes: what a ring receives and passes
    on (with gradients), or all of them. Ulysses holds as much as before."""
    part = _key_value_bytes(model, tokens, plan, width, 1.0)
    if plan.cp_kind == "ring":
        return 4.0 * part * np.minimum(plan.cp - 1.0, 1.0)
    if plan.cp_kind == "all-gather":
        return 2.0 * part * (plan.cp - 1.0)
    return 0.0 * part
