"""*demand*: what must happen on one rank, collected from the family and the strategies. No bandwidth, no second."""

from __future__ import annotations

import numpy as np

from shardmeter.core.record import changed, record
from shardmeter.core.units import Bytes, Count, Flop, Fraction, Ratio
from shardmeter.families import family
from shardmeter.families.operations import Block
from shardmeter.schedules import traits
from shardmeter.specs.demands import FORWARD, WEIGHT_GRAD, Compute, Transfer
from shardmeter.specs.model import Model
from shardmeter.specs.plan import Plan
from shardmeter.specs.run import Run
from shardmeter.specs.stack import Stack
from shardmeter.strategies import data, fsdp, pipeline, recompute, tensor

WIDTH: dict[str, float] = {"fp32": 4.0, "tf32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0}
"""Bytes of one element."""
EDGE_LAUNCHES = 10.0
"""Kernels of an embedding or a head in the forward pass; twice as many backward."""
ACCUMULATE = {"fp32": 10.0, "bf16": 6.0, "fp16": 6.0}
"""Bytes per parameter to add one micro-batch's 16-bit gradient into the accumulation buffer (read both, write one)."""
CAST = {"fp32": 6.0, "bf16": 2.0, "fp16": 2.0}
"""fsdp: bytes per parameter to bring a gradient into the reduction's dtype."""
OPTIMIZER_BYTES = {"adamw": 34.0, "sgd": 14.0, "adamw8bit": 18.0}
"""Traffic per owned parameter of one step: gradient (norm and update), moments and master read and written, 16-bit copy."""


@record
class BlockWork:
    """One piece of a block for one micro-batch: kernels and serial collectives, each with the share of pieces that do it."""

    block: Block
    held: Count
    """Parameters a tensor-parallel rank holds."""
    ops: tuple[tuple[Compute, Fraction], ...]
    serial: tuple[tuple[Transfer, Fraction], ...]
    sharded: tuple[Transfer, ...]
    """fsdp: gathers and scatters that may hide."""
    launches_forward: Count
    launches_backward: Count


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
    owed: Ratio = 1.0
    """What a weight gradient that waits keeps, as a part of what a layer keeps for its backward."""


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
    last = 0 if folded(plan) else plan.pp - 1
    stages = pipeline.stages(counts, last)
    return Work(
        blocks=blocks,
        stages=stages,
        counts=counts,
        micro_batches=micro_batches,
        tokens=tokens,
        runs=pipeline.runs(counts, stages, last),
        send=pipeline.send(tokens, model.hidden, plan, width, stack.sends_cut),
        tied=tied_reduction(model, plan),
        model_flops=kind.training_flops(model, run.global_batch * run.seq_len, run.seq_len),
        replay_flops=replayed * micro_batches * plan.dp * plan.cp,
    )


def layer_counts(model: Model, plan: Plan, stack: Stack) -> tuple[int, ...]:
    """Layers of each pipeline stage under the stack's rule."""
    layer_cost = 4.0 * model.hidden * model.hidden + 3.0 * model.hidden * model.ffn
    split = pipeline.folded if plan.pp > 1 and folded(plan) else pipeline.cut
    return split(model.layers, plan.pp, stack.stage_cut, float(layer_cost), float(model.vocab * model.hidden))


def folded(plan: Plan) -> bool:
    """Whether the first device holds both ends of the model."""
    return plan.pp == 1 or traits(plan.schedule).route == "vee"


def gradient_parameters(work: Work, stage: pipeline.Stage) -> Count:
    """Parameters whose gradients one rank of a stage reduces."""
    total: Count = stage.layers * work.blocks["layer"].held
    if stage.embedding:
        total = total + work.blocks["embedding"].held
    if stage.head:
        total = total + work.blocks["head"].held
    return total


def tied_reduction(model: Model, plan: Plan) -> Transfer | None:
    """The gradient of a tied matrix is summed over its two copies, on the first and the last stage, once a step.

    Two ranks that exchange halves move as much as one send of the whole. Source: Narayanan 2021, released code."""
    if not model.tied or folded(plan):
        return None
    size = model.vocab * model.hidden / plan.tp * WIDTH[plan.reduce_dtype]
    return Transfer(label="tied gradient", collective="send", size=size, axes=("pp",), phase=WEIGHT_GRAD, scope="step")


def copies_reduction(work: Work, plan: Plan) -> Transfer | None:
    """With two copies of the model on one pipeline, mirrored devices sum the gradients of both their stages, once a step.

    Two ranks that exchange halves move as much as one send of the whole. Source: DeepSeek-AI 2024 §3.2.1 (two copies of the
    parameters). Leaves out: hiding it behind the last weight gradients."""
    if plan.pp == 1 or traits(plan.schedule).copies == 1.0:
        return None
    line = [work.stages[kind] for kind, _, count in work.runs for _ in range(count)]
    most: Count = 0.0
    for own, mirrored in zip(line, line[::-1], strict=True):
        most = np.maximum(most, gradient_parameters(work, own) + gradient_parameters(work, mirrored))
    held = most / data.shards(plan) if fsdp.applies(plan) else most
    size = held * WIDTH[plan.reduce_dtype]
    return Transfer(
        label="copies' gradients", collective="send", size=size, axes=("pp",), phase=WEIGHT_GRAD, scope="step"
    )


def _with_tied_copy(blocks: tuple[Block, ...], model: Model, plan: Plan) -> tuple[Block, ...]:
    """With stages whose ends lie apart, a tied head owns a copy of the embedding's matrix: it is held, reduced, gathered and updated there."""
    if not model.tied or folded(plan):
        return blocks
    copy = model.vocab * model.hidden
    return tuple(changed(b, matrices=copy) if b.name == "head" else b for b in blocks)


def _block(
    model: Model, block: Block, whole: tuple[Compute, ...], tokens: Count, plan: Plan, stack: Stack, width: Bytes
) -> tuple[BlockWork, Flop]:
    policy = plan.recompute if block.name == "layer" else "none"
    replays = recompute.replays(whole, policy, stack.selective)
    held = tensor.held(block, plan)
    ops: list[tuple[Compute, Fraction]] = [(tensor.shard(op, plan), 1.0) for op in whole]
    ops += [(tensor.shard(op, plan), portion) for op, portion in replays]
    ops.append((_accumulation(held, plan, stack), 1.0))
    serial = tensor.transfers(model, block.name, tokens, plan, width)
    again = recompute.replayed_transfers(serial, policy, stack.selective)
    keep = not plan.reshard or block.name != "layer"
    sharded = (
        fsdp.transfers(held, plan, WIDTH[plan.gather_dtype], WIDTH[plan.reduce_dtype], keep)
        if fsdp.applies(plan)
        else ()
    )
    layer = block.name == "layer"
    forward = stack.launches_forward if layer else EDGE_LAUNCHES
    backward = stack.launches_backward if layer else 2.0 * EDGE_LAUNCHES
    replay_share = {"none": 0.0, "selective": 0.25}.get(policy, recompute.share(policy))
    flops = sum((op.flops * portion for op, portion in replays), 0.0)
    return (
        BlockWork(
            block=block, held=held, ops=tuple(ops), serial=(*((t, 1.0) for t in serial), *again), sharded=sharded,
            launches_forward=forward, launches_backward=backward + replay_share * forward,
        ),
        flops,
    )  # fmt: skip


def _accumulation(held: Count, plan: Plan, stack: Stack) -> Compute:
    if stack.gradient_fused and not fsdp.applies(plan):
        return Compute(label="gradient accumulation", kind="traffic", phase=WEIGHT_GRAD, traffic=0.0 * held)
    per_parameter = CAST[plan.reduce_dtype] if fsdp.applies(plan) else ACCUMULATE[stack.gradient_dtype]
    return Compute(label="gradient accumulation", kind="traffic", phase=WEIGHT_GRAD, traffic=held * per_parameter)


def optimizer_traffic(parameters: Count, plan: Plan) -> Bytes:
    """Bytes through memory of one optimizer step on one rank that holds `parameters`."""
    return parameters / data.shards(plan) * OPTIMIZER_BYTES[plan.optimizer]


def weight_gradient_inputs(work: Work, width: Bytes) -> Bytes:
    """What the weight gradients of one layer read for one micro-batch: the inputs and the output gradients of its products.

    Qi 2024 Table 1: 32 bytes per token and hidden element for GPT. Leaves out: an input that two products share."""
    total: Bytes = 0.0
    for op, _ in work.blocks["layer"].ops:
        if op.kind == "gemm" and op.phase == WEIGHT_GRAD:
            total = total + op.k * (op.m + op.n) * width
    return total


def largest_stage(work: Work) -> Count:
    """Parameters of the rank that holds most."""
    most: Count = 0.0
    for stage in work.stages:
        most = np.maximum(most, gradient_parameters(work, stage))
    return most


__all__ = ["FORWARD", "BlockWork", "Work", "collect", "gradient_parameters", "largest_stage", "layer_counts"]
