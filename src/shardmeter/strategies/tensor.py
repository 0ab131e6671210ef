"""Tensor parallelism, with or without sequence parallelism (Shoeybi 2019 §3; Korthikanti 2022 §4.2).

Weights of a pair of linear layers are cut by column and by row, attention by head. Without sequence parallelism each pair
ends in one all-reduce; with it the all-reduce becomes a gather before and a scatter after, and what lies between pairs
(norms, residuals) is cut along the sequence.

async_tp: gathers and scatters pass in one chunk a rank behind the product they feed or empty (Wang 2023; Transformer Engine
user buffers; PyTorch SymmetricMemory): a gather before a product cut in n, a scatter after a product cut in k.
Leaves out: what smaller products lose, overlap of all-reduces without sequence parallelism.
"""

from __future__ import annotations

from shardmeter.core.record import changed
from shardmeter.core.units import Bytes, Count
from shardmeter.families.operations import Block, is_layer, kind
from shardmeter.specs.demands import FORWARD, INPUT_GRAD, Compute, Transfer
from shardmeter.specs.model import Model
from shardmeter.specs.plan import Plan


def shard(op: Compute, plan: Plan) -> Compute:
    """One rank's part of an operation."""
    along_sequence = op.split in ("sequence", "tokens m", "tokens k")
    if op.split == "none" or (along_sequence and not plan.sequence_parallel):
        return op
    if op.kind == "gemm":
        axis = "repeats" if op.split == "batch" else op.split[-1]
        cut: dict[str, Count] = {axis: getattr(op, axis) / plan.tp}
        return changed(op, flops=op.flops / plan.tp, **cut)
    if op.kind == "attention":
        return changed(op, flops=op.flops / plan.tp, n=op.n / plan.tp)
    return changed(op, traffic=op.traffic / plan.tp)


def held(block: Block, plan: Plan) -> Count:
    """Parameters of one piece of a block that one tensor-parallel rank holds, routed experts apart. None (0.0) is no array,
    whatever tp is: what handles parameters is not there at all."""
    none = isinstance(block.matrices, float) and block.matrices == 0.0
    return block.vectors if none else block.matrices / plan.tp + block.vectors


def transfers(model: Model, block: Block, tokens: Count, plan: Plan, width: Bytes) -> tuple[Transfer, ...]:
    """Serial collectives of one piece of a block for one micro-batch; `width` is bytes per activation. A block
    that is no layer and has no pairs is not cut: every rank does all of it.

    With sequence parallelism routed experts take each rank's own tokens: only shared experts need the gathered sequence."""
    layer = is_layer(block.name)
    if not layer and block.pairs == 0.0:
        return ()
    size = tokens * model.hidden * width

    def over(label: str, collective: str, phase: str, times: Count) -> Transfer:
        behind = plan.async_tp and plan.sequence_parallel and layer
        under = {"all_gather": "n", "reduce_scatter": "k"}.get(collective, "") if behind else ""
        return Transfer(
            label=label, collective=collective, size=size, axes=("tp",), phase=phase, scope="layer", messages=times,
            hides_under=under, chunks=plan.tp if under else 1.0,
        )  # fmt: skip

    pairs = block.pairs if layer else 1.0
    if not plan.sequence_parallel:
        pairs = pairs + _uncut_experts(model, block)
        where = {"embedding": (FORWARD,), "head": (INPUT_GRAD,)}.get(kind(block.name), (FORWARD, INPUT_GRAD))
        return tuple(over("tensor all-reduce", "all_reduce", phase, pairs) for phase in where)
    if kind(block.name) == "embedding":
        return (
            over("tensor scatter", "reduce_scatter", FORWARD, 1.0),
            over("tensor gather", "all_gather", INPUT_GRAD, 1.0),
        )
    if pairs == 0.0:
        return ()
    scatter = (over("tensor scatter", "reduce_scatter", FORWARD, pairs),) if layer else ()
    gather_back = (over("tensor gather", "all_gather", INPUT_GRAD, pairs),) if layer else ()
    return (
        over("tensor gather", "all_gather", FORWARD, pairs),
        *scatter,
        *gather_back,
        over("tensor scatter", "reduce_scatter", INPUT_GRAD, pairs),
    )


def _uncut_experts(model: Model, block: Block) -> float:
    """Without sequence parallelism routed experts are cut by tp as a dense MLP is, and end in the same collective."""
    alone = isinstance(model.shared_ffn, float) and model.shared_ffn == 0.0
    return 1.0 if block.routed and alone else 0.0
