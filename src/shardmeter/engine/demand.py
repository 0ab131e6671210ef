"""*demand*: what must happen on one rank, collected from the family and the strategies. No bandwidth, no second."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from shardmeter.core.record import changed, record
from shardmeter.core.units import Bytes, Count, Flop, Fraction
from shardmeter.families import family
from shardmeter.families.operations import Block
from shardmeter.specs.demands import FORWARD, WEIGHT_GRAD, Compute, Transfer
from shardmeter.specs.model import Model
from shardmeter.specs.plan import Plan
from shardmeter.specs.run import Run
from shardmeter.specs.stack import Stack
from shardmeter.strategies import adapters, data, fsdp, optimizer, pipeline, precision, recompute, tensor
from shardmeter.strategies.precision import WIDTH

EDGE_LAUNCHES = 10.0
"""Kernels of an embedding or a head in the forward pass; twice as many backward."""
ACCUMULATE = {"fp32": 10.0, "bf16": 6.0, "fp16": 6.0}
"""Bytes per parameter to add one micro-batch's 16-bit gradient into the accumulation buffer (read both, write one)."""
CAST = {"fp32": 6.0, "bf16": 2.0, "fp16": 2.0}
"""fsdp: bytes per parameter to bring a gradient into the reduction's dtype."""


@record
class BlockWork:
    """One piece of a block for one micro-batch: kernels and serial collectives, each with the share of pieces that do it."""

    block: Block
    held: Count
    """Parameters a tensor-parallel rank holds, adapters included."""
    trained: Count
    """Those of them that are trained: they have gradients, a master and moments."""
    ops: tuple[tuple[Compute, Fraction], ...]
    serial: tuple[tuple[Transfer, Fraction], ...]
    sharded: tuple[Transfer, ...]
    """fsdp: gathers and scatters that may hide."""
    launches_forward: Count
    launches_backward: Count
    matrix_updates: tuple[Compute, ...] = ()
    """Products of one optimizer step over the whole piece, every rank's together."""
    saved_flops: Flop = 0.0
    """FLOPs of the piece that mfu's count holds and that frozen parameters spare, less what adapters add."""


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
    width = precision.recipe(plan.precision).width
    tokens = plan.micro_batch * run.seq_len / plan.cp
    micro_batches = run.global_batch / (plan.dp * plan.micro_batch)
    blocks: dict[str, BlockWork] = {}
    replayed: Flop = 0.0
    saved: Flop = 0.0
    for block in _with_tied_copy(kind.blocks(model), model, plan):
        whole = kind.operations(model, block.name, tokens, run.seq_len, stack.kernels)
        work, again = _block(model, block, whole, tokens, plan, stack, width)
        blocks[block.name] = work
        replayed = replayed + again * block.count
        saved = saved + work.saved_flops * block.count
    counts = layer_counts(model, plan, stack)
    stages = pipeline.stages(counts)
    return Work(
        blocks=blocks,
        stages=stages,
        counts=counts,
        micro_batches=micro_batches,
        tokens=tokens,
        runs=pipeline.runs(counts, stages),
        send=pipeline.send(tokens, model.hidden, plan, width, stack.sends_cut),
        tied=tied_reduction(model, plan),
        model_flops=kind.training_flops(model, run.global_batch * run.seq_len, run.seq_len)
        - saved * micro_batches * plan.dp * plan.cp,
        replay_flops=replayed * micro_batches * plan.dp * plan.cp,
    )


def layer_counts(model: Model, plan: Plan, stack: Stack) -> tuple[int, ...]:
    """Layers of each pipeline stage under the stack's rule."""
    layer_cost = 4.0 * model.hidden * model.hidden + 3.0 * model.hidden * model.ffn
    return pipeline.cut(model.layers, plan.pp, stack.stage_cut, float(layer_cost), float(model.vocab * model.hidden))


def gradient_parameters(work: Work, stage: pipeline.Stage) -> Count:
    """Parameters whose gradients one rank of a stage reduces: those that are trained."""
    total: Count = stage.layers * work.blocks["layer"].trained
    if stage.embedding:
        total = total + work.blocks["embedding"].trained
    if stage.head:
        total = total + work.blocks["head"].trained
    return total


def frozen_parameters(work: Work, stage: pipeline.Stage) -> Count:
    """Parameters that one rank of a stage holds and does not train."""
    total: Count = 0.0
    for name, pieces in (("layer", stage.layers), ("embedding", int(stage.embedding)), ("head", int(stage.head))):
        total = total + float(pieces) * (work.blocks[name].held - work.blocks[name].trained)
    return total


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
    policy = plan.recompute if block.name == "layer" else "none"
    added = adapters.adapters(whole, plan.trainable, block.name)
    linear = (*whole, *precision.casts(whole, plan, block.name))
    needed = (
        *adapters.backward(tuple((op, 1.0) for op in linear), plan.trainable, block), *((op, 1.0) for op in added),
    )  # fmt: skip
    replays = adapters.backward(recompute.replays((*linear, *added), policy, stack.selective), plan.trainable, block)
    matrices = tensor.held(block, plan)
    lora = adapters.adapter_parameters(whole, plan.trainable, plan.tp) if added else 0.0
    share = adapters.weight_share(plan.trainable, block)
    held, trained = matrices + lora, matrices * share + lora if share or added else 0.0
    back = adapters.input_share(plan.trainable, block)
    keep = not plan.reshard or block.name != "layer" or back == 0.0
    ops = [(tensor.shard(one, plan), portion * part)
           for op, portion in (*needed, *replays) for one, part in precision.applied(op, plan, block.name)]  # fmt: skip
    ops += [(op, 1.0) for op in (*_accumulation(trained, plan, stack), *_weight_casts(held, plan, block.name, keep))]
    serial = precision.narrowed(tensor.transfers(model, block.name, tokens, plan, width), plan, block.name)
    again = [
        (t, portion * back) for t, portion in recompute.replayed_transfers(serial, policy, stack.selective) if back
    ]
    sharded = (
        fsdp.transfers(held, trained, plan, precision.gather_width(plan, block.name), WIDTH[plan.reduce_dtype], keep)
        if fsdp.applies(plan)
        else ()
    )
    launches = _launches(len(added), policy, stack) if block.name == "layer" else (EDGE_LAUNCHES, 2.0 * EDGE_LAUNCHES)
    launches = (launches[0], launches[1] * back)
    flops = sum((op.flops * portion for op, portion in replays), 0.0)
    return (
        BlockWork(
            block=block, held=held, trained=trained, ops=tuple(ops),
            serial=(*((t, 1.0 if t.phase == FORWARD else back) for t in serial if back or t.phase == FORWARD), *again),
            sharded=sharded, launches_forward=launches[0], launches_backward=launches[1],
            matrix_updates=optimizer.orthogonalisation(whole, plan) if block.name == "layer" else (),
            saved_flops=_flops((op, 1.0) for op in whole) - _flops(needed),
        ),
        flops,
    )  # fmt: skip


def _flops(ops: Iterable[tuple[Compute, Fraction]]) -> Flop:
    return sum((op.flops * portion for op, portion in ops), 0.0)


def _launches(products: int, policy: str, stack: Stack) -> tuple[Count, Count]:
    """Kernels of a layer, (forward, backward); every adapter product and addition launches its own."""
    forward = stack.launches_forward + products / 2.0
    replay_share = {"none": 0.0, "selective": 0.25}.get(policy, recompute.share(policy))
    return forward, stack.launches_backward + products / 2.0 + replay_share * forward


def _accumulation(trained: Count, plan: Plan, stack: Stack) -> tuple[Compute, ...]:
    if isinstance(trained, float) and trained == 0.0:
        return ()
    per_parameter = CAST[plan.reduce_dtype] if fsdp.applies(plan) else ACCUMULATE[stack.gradient_dtype]
    return (Compute(label="gradient accumulation", kind="traffic", phase=WEIGHT_GRAD, traffic=trained * per_parameter),)


def _weight_casts(held: Count, plan: Plan, block: str, keep: bool) -> tuple[Compute, ...]:
    """fsdp: weights are cast in every micro-batch — the rank's own shard where they are gathered in few bits, else all of
    them, after each gather. Other shardings cast them once a step (`optimizer_traffic`)."""
    traffic = precision.weight_casts(held, plan, block)
    if not fsdp.applies(plan) or precision.recipe(plan.precision).weight_cast == 0.0 or block != "layer":
        return ()
    traffic = traffic / data.shards(plan) if plan.gather_dtype in ("fp8", "fp4") else traffic * (1.0 if keep else 2.0)
    return (Compute(label="weight casts", kind="traffic", phase=FORWARD, traffic=traffic),)


def optimizer_traffic(parameters: Count, plan: Plan) -> Bytes:
    """Bytes through memory of one optimizer step on one rank that trains `parameters`, and of casting them for the next."""
    traffic = parameters / data.shards(plan) * optimizer.traffic(plan)
    casts = 0.0 if fsdp.applies(plan) else precision.weight_casts(parameters, plan, "layer")
    return traffic + casts


def largest_stage(work: Work) -> Count:
    """Parameters of the rank that holds most."""
    most: Count = 0.0
    for stage in work.stages:
        most = np.maximum(most, gradient_parameters(work, stage))
    return most


__all__ = ["FORWARD", "BlockWork", "Work", "collect", "gradient_parameters", "largest_stage", "layer_counts"]
