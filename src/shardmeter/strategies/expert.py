"""Expert parallelism: routed experts over a second mesh, and the all-to-all that brings tokens to them and back.

The ranks of tp · cp · dp_shard are laid out a second time as etp · ep · edp, innermost first: etp (1 or tp) cuts an expert,
ep divides the experts, edp holds copies of them and shards their parameters (Lepikhin 2020 §3; Rajbhandari 2022, DeepSpeed-
MoE §4; Liu 2025, MoE Parallel Folding §3). Each rank sends its own tokens, which sequence parallelism has cut by tp, once
for every expert chosen, or once for every node that holds some of them (`copies`: DeepEP, Zhao 2025). An expert-tensor group gathers what its ranks received and scatters what it computed. Leaves out:
tokens dropped at a capacity, the fp8 format that some send tokens in. Where a schedule joins two micro-batches, step
scope hides one's exchange behind the other.
"""

from __future__ import annotations

from shardmeter.core.record import changed
from shardmeter.core.units import Bytes, Count
from shardmeter.families.operations import FLOP_PER_MAC, Block
from shardmeter.specs.demands import FORWARD, INPUT_GRAD, WEIGHT_GRAD, Compute, Transfer
from shardmeter.specs.model import Model
from shardmeter.specs.plan import Plan

UP, DOWN = "shared up", "shared down"
"""Products of the shared experts that the two all-to-alls may run behind."""


def is_routed(op: Compute) -> bool:
    """Whether an operation belongs to the routed experts, which the expert mesh divides and tp does not."""
    return op.split.startswith("expert ")


def rows(plan: Plan) -> Count:
    """Routed tokens that the busiest rank computes, over those of its tensor-parallel group: an expert-tensor group shares."""
    return plan.expert_skew * plan.etp / plan.tp


def shard(op: Compute, plan: Plan) -> Compute:
    """The busiest rank's part of an operation of the routed experts: its experts, with the tokens of all ep ranks."""
    dimension = op.split.partition(" ")[2]
    if op.kind != "gemm":
        return changed(op, traffic=op.traffic * rows(plan) / (plan.etp if dimension == "inner" else 1.0))
    sizes: dict[str, Count] = {"m": op.m, "n": op.n, "k": op.k}
    tokens = "k" if op.phase == WEIGHT_GRAD else "m"
    sizes[tokens] = sizes[tokens] * plan.ep * rows(plan)
    sizes[dimension] = sizes[dimension] / plan.etp
    repeats = op.repeats / plan.ep
    flops = FLOP_PER_MAC * sizes["m"] * sizes["n"] * sizes["k"] * repeats
    return changed(op, repeats=repeats, flops=flops, **sizes)


def held(block: Block, plan: Plan) -> Count:
    """Parameters of routed experts of one piece of a block that one rank holds."""
    return block.experts / (plan.etp * plan.ep) if block.routed else 0.0


def transfers(
    model: Model, block: Block, tokens: Count, plan: Plan, width: Bytes, overlap: bool, copies: str = "receivers"
) -> tuple[Transfer, ...]:
    """Dispatch and combine of one layer for one micro-batch, forward and backward; `width` is bytes per activation.

    `copies`: whether each receiver is sent its own, or each of the nodes. With `overlap` they may run behind the shared experts, where the model has them."""
    if not block.routed:
        return ()
    everyone = tokens * model.top_k * model.expert_hidden * width * plan.expert_skew
    own = everyone / plan.tp if plan.sequence_parallel else everyone
    shared = overlap and not (isinstance(model.shared_ffn, float) and model.shared_ffn == 0.0)

    once = model.top_k if copies == "nodes" else 0.0

    def over(label: str, collective: str, size: Bytes, axis: str, phase: str, under: str = "") -> Transfer:
        return Transfer(
            label=label, collective=collective, size=size, axes=(axis,), phase=phase, scope="layer",
            hides_under=under if shared else "", copies=once if collective == "all_to_all" else 0.0,
        )  # fmt: skip

    found: tuple[Transfer, ...] = ()
    for phase, first, second in ((FORWARD, UP, DOWN), (INPUT_GRAD, DOWN, UP)):
        found = (*found, over("expert dispatch", "all_to_all", own, "ep", phase, first))
        if plan.sequence_parallel:
            found = (*found, over("tensor gather of experts", "all_gather", everyone, "etp", phase))
            found = (*found, over("tensor scatter of experts", "reduce_scatter", everyone, "etp", phase))
        found = (*found, over("expert combine", "all_to_all", own, "ep", phase, second))
    return found
