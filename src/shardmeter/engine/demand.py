"""*demand*: what must happen on one rank, collected from the family and the strategies. No bandwidth, no second."""

from __future__ import annotations

import numpy as np

from shardmeter.core.record import changed, record
from shardmeter.core.units import Bytes, Count, Flop, Fraction
from shardmeter.families import family
from shardmeter.families.operations import Block, is_layer
from shardmeter.specs.demands import FORWARD, INPUT_GRAD, WEIGHT_GRAD, Compute, Transfer
from shardmeter.specs.model import Model
from shardmeter.specs.plan import Plan
from shardmeter.specs.run import Run
from shardmeter.specs.stack import Stack
from shardmeter.strategies import context, data, expert, fsdp, pipeline, recompute, tensor

WIDTH: dict[str, float] = {"fp32": 4.0, "tf32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0}
"""Bytes of one element."""
EDGE_LAUNCHES = 10.0
"""Kernels of an embedding or a head in the forward pass; twice as many backward."""
ACCUMULATE = {"fp32": 10.0, "bf16": 6.0, "fp16": 6.0}
"""Bytes per parameter to add one micro-batch's 16-bit gradient into the accumulation buffer (read both, write one)."""
CAST = {"fp32": 6.0, "bf16": 2.0, "fp16": 2.0}
"""fsdp: bytes per parameter to bring a gradient into the reduction's dtype."""
MOE_LAUNCHES = 16.0
"""Kernels of a layer with routed experts beyond those of a dense one, forward (router, top-k, counts, sorts, permutations,
two all-to-alls, weighing), read off Megatron-Core's dispatcher; twice as many backward."""
OPTIMIZER_BYTES = {"adamw": 34.0, "sgd": 14.0, "adamw8bit": 18.0}
"""Traffic per owned parameter of one step: gradient (norm and update), moments and master read and written, 16-bit copy."""


@record
class BlockWork:
    """One piece of a block for one micro-batch: kernels and collectives, each with the share of pieces that do it."""

    block: Block
    held: Count
    """Parameters a tensor-parallel rank holds, routed experts apart."""
    experts: Count
    """Parameters of routed experts that a rank of the expert mesh holds."""
    ops: tuple[tuple[Compute, Fraction], ...]
    serial: tuple[tuple[Transfer, Fraction], ...]
    behind: tuple[tuple[Transfer, Fraction, bool], ...]
    """Collectives that may run behind a named compute of the same piece, and whether that is its recomputation."""
    sharded: tuple[Transfer, ...]
    """fsdp: gathers and scatters that may hide."""
    launches_forward: Count
    launches_backward: Count


@record
class Held:
    """Parameters that one rank of a stage holds before data-parallel sharding."""

    dense: Count
    experts: Count

    @property
    def all(self) -> Count:
        """Both together."""
        return self.dense + self.experts

    def sharded(self, plan: Plan) -> Count:
        """What is left of them if each kind is divided as the optimizer state is."""
        return self.dense / data.shards(plan) + self.experts / data.shards(plan, experts=True)


@record
class Work:
    """Everything one island must do in one step."""

    blocks: dict[str, BlockWork]
    stages: tuple[pipeline.Stage, ...]
    counts: tuple[int, ...]
    micro_batches: Count
    tokens: Count
    """Tokens of one micro-batch on one rank (before tensor and sequence cuts)."""
    runs: tuple[tuple[int, int, int], ...]
    """Neighbouring equal stages: (index into `stages`, first position, how many)."""
    send: Transfer
    tied: Transfer | None
    """Reduction of a tied matrix over its two copies."""
    model_flops: Flop
    replay_flops: Flop
    """Recomputed FLOPs of one step over the whole island."""


def collect(model: Model, plan: Plan, run: Run, stack: Stack) -> Work:
    """All demands of one step. Raises UnknownName for a family that is not built."""
    kind = family(model.family)
    width = WIDTH[plan.precision]
    tokens = plan.micro_batch * run.seq_len / plan.cp
    micro_batches = run.global_batch / (plan.dp * plan.micro_batch)
    blocks: dict[str, BlockWork] = {}
    replayed: Flop = 0.0
    for block in _with_tied_copy(kind.blocks(model), model, plan):
        whole = kind.operations(model, block.name, tokens, run.seq_len, stack.kernels)
        work, again = _block(model, block, whole, tokens, plan, stack, width)
        blocks[block.name] = work
        replayed = replayed + again * block.count
    counts = layer_counts(model, plan, stack)
    order = tuple((work.block.name, work.block.count) for work in blocks.values() if is_layer(work.block.name))
    stages = pipeline.stages(counts, order)
    return Work(
        blocks=blocks,
        stages=stages,
        counts=counts,
        micro_batches=micro_batches,
        tokens=tokens,
        runs=pipeline.runs(counts, stages, order),
        send=pipeline.send(tokens, model.hidden, plan, width, stack.sends_cut),
        tied=tied_reduction(model, plan),
        model_flops=kind.training_flops(model, run.global_batch * run.seq_len, run.seq_len),
        replay_flops=replayed * micro_batches * plan.dp * plan.cp,
    )


def layer_counts(model: Model, plan: Plan, stack: Stack) -> tuple[int, ...]:
    """Layers of each pipeline stage under the stack's rule."""
    wide = model.ffn if model.experts == 0.0 else model.top_k * model.moe_ffn + model.shared_ffn
    layer_cost = 4.0 * model.hidden * model.hidden + 3.0 * model.hidden * wide
    return pipeline.cut(model.layers, plan.pp, stack.stage_cut, float(layer_cost), float(model.vocab * model.hidden))


def contents(stage: pipeline.Stage) -> tuple[tuple[str, int], ...]:
    """The blocks of a stage and how many pieces of each."""
    return (("embedding", int(stage.embedding)), *stage.contents, ("head", int(stage.head)))


def gradient_parameters(work: Work, stage: pipeline.Stage) -> Held:
    """Parameters whose gradients one rank of a stage reduces."""
    dense: Count = 0.0
    experts: Count = 0.0
    for name, pieces in contents(stage):
        dense = dense + float(pieces) * work.blocks[name].held
        experts = experts + float(pieces) * work.blocks[name].experts
    return Held(dense=dense, experts=experts)


def tied_reduction(model: Model, plan: Plan) -> Transfer | None:
    """The gradient of a tied matrix is summed over its two copies, on the first and the last stage, once a step.

    Two ranks that exchange halves move as much as one send of the whole. Source: Narayanan 2021, released code."""
    if not model.tied or plan.pp == 1:
        return None
    size = model.vocab * model.hidden / plan.tp * WIDTH[plan.reduce_dtype]
    return Transfer(label="tied gradient", collective="send", size=size, axes=("pp",), phase=WEIGHT_GRAD, scope="step")


def _with_tied_copy(blocks: tuple[Block, ...], model: Model, plan: Plan) -> tuple[Block, ...]:
    """With stages, a tied head owns a copy of the embedding's matrix: it is held, reduced, gathered and updated there."""
    if not model.tied or plan.pp == 1:
        return blocks
    copy = model.vocab * model.hidden
    return tuple(changed(b, matrices=copy) if b.name == "head" else b for b in blocks)


def _block(
    model: Model, block: Block, whole: tuple[Compute, ...], tokens: Count, plan: Plan, stack: Stack, width: Bytes
) -> tuple[BlockWork, Flop]:
    layer, routed = is_layer(block.name), block.name == "moe layer"
    policy = plan.recompute if layer else "none"
    replays = recompute.replays(whole, policy, stack.selective)
    held, experts = tensor.held(block, plan), expert.held(block, plan)
    ops: list[tuple[Compute, Fraction]] = [(_part(op, plan), 1.0) for op in whole]
    ops += [(_part(op, plan), portion) for op, portion in replays]
    ops.append((_accumulation(held + experts, plan, stack), 1.0))
    serial, behind = _collectives(model, block.name, tokens, plan, stack, width, replays)
    keep = not plan.reshard or not layer
    sharded: tuple[Transfer, ...] = ()
    if fsdp.applies(plan):
        widths = WIDTH[plan.gather_dtype], WIDTH[plan.reduce_dtype]
        sharded = fsdp.transfers(held, plan, *widths, keep)
        if routed:
            sharded = (*sharded, *fsdp.transfers(experts, plan, *widths, keep, experts=True))
    more = MOE_LAUNCHES if routed else 0.0
    forward = stack.launches_forward + more if layer else EDGE_LAUNCHES
    backward = stack.launches_backward + 2.0 * more if layer else 2.0 * EDGE_LAUNCHES
    replay_share = {"none": 0.0, "selective": 0.25}.get(policy, recompute.share(policy))
    flops = sum((op.flops * portion for op, portion in replays), 0.0)
    return (
        BlockWork(
            block=block, held=held, experts=experts, ops=tuple(ops), serial=serial, behind=behind, sharded=sharded,
            launches_forward=forward, launches_backward=backward + replay_share * forward,
        ),
        flops,
    )  # fmt: skip


def _part(op: Compute, plan: Plan) -> Compute:
    """One rank's part of an operation."""
    return expert.shard(op, plan) if expert.is_routed(op) else tensor.shard(context.shard(op, plan), plan)


def _collectives(
    model: Model, block: str, tokens: Count, plan: Plan, stack: Stack, width: Bytes,
    replays: tuple[tuple[Compute, Fraction], ...],
) -> tuple[tuple[tuple[Transfer, Fraction], ...], tuple[tuple[Transfer, Fraction, bool], ...]]:  # fmt: skip
    """Collectives of one piece: those in line with its kernels, and those that may run behind some, replays with both."""
    dense = tensor.transfers(model, block, tokens, plan, width)
    routed = expert.transfers(model, block, tokens, plan, width, stack.expert_overlap)
    around = context.transfers(model, block, tokens, plan, width, stack.context_overlap)
    attention = sum(portion for op, portion in replays if op.kind == "attention")
    again = (
        *recompute.replayed_transfers(
            (*dense, *routed), plan.recompute if is_layer(block) else "none", stack.selective
        ),
        *((changed(t, phase=INPUT_GRAD), attention) for t in around if t.phase == FORWARD and attention > 0.0),
    )
    first = [(t, 1.0, False) for t in (*dense, *routed, *around)]
    found = (*first, *((t, portion, True) for t, portion in again))
    serial = tuple((t, portion) for t, portion, _ in found if not t.hides_under)
    return serial, tuple(one for one in found if one[0].hides_under)


def _accumulation(held: Count, plan: Plan, stack: Stack) -> Compute:
    per_parameter = CAST[plan.reduce_dtype] if fsdp.applies(plan) else ACCUMULATE[stack.gradient_dtype]
    return Compute(label="gradient accumulation", kind="traffic", phase=WEIGHT_GRAD, traffic=held * per_parameter)


def optimizer_traffic(owned: Count, plan: Plan) -> Bytes:
    """Bytes through memory of one optimizer step on one rank that updates `owned` parameters."""
    return owned * OPTIMIZER_BYTES[plan.optimizer]


def largest_stage(work: Work, plan: Plan) -> Count:
    """Parameters that the rank with most of them updates."""
    most: Count = 0.0
    for stage in work.stages:
        most = np.maximum(most, gradient_parameters(work, stage).sharded(plan))
    return most


__all__ = [
    "FORWARD",
    "BlockWork",
    "Work",
    "collect",
    "contents",
    "gradient_parameters",
    "largest_stage",
    "layer_counts",
]
