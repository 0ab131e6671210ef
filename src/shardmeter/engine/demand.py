"""*demand*: what must happen on one rank, collected from the family and the strategies. No bandwidth, no second."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import ModuleType

import numpy as np

from shardmeter.core.record import changed, record
from shardmeter.core.sums import plain_sum
from shardmeter.core.units import Bytes, Count, Flop, Fraction, Ratio
from shardmeter.engine import weights
from shardmeter.families import family, sized
from shardmeter.families.operations import Block, is_layer, launched
from shardmeter.schedules import traits
from shardmeter.specs.demands import FORWARD, INPUT_GRAD, WEIGHT_GRAD, Compute, Transfer
from shardmeter.specs.model import Model
from shardmeter.specs.plan import Plan
from shardmeter.specs.run import Run
from shardmeter.specs.stack import Stack
from shardmeter.strategies import (
    adapters,
    context,
    contrastive,
    data,
    expert,
    fsdp,
    loss,
    optimizer,
    pipeline,
    precision,
    probes,
    recompute,
    tensor,
)
from shardmeter.strategies.precision import WIDTH

EDGE_LAUNCHES = 10.0
"""Kernels of an embedding or a head in the forward pass; twice as many backward."""
MOE_LAUNCHES = 16.0
"""Kernels of a layer with routed experts beyond those of a dense one, forward (router, top-k, counts, sorts, permutations,
two all-to-alls, weighing), read off Megatron-Core's dispatcher; twice as many backward."""


@record
class BlockWork:
    """One piece of a block for one micro-batch: kernels and collectives, each with the share of pieces that do it."""

    block: Block
    held: Count
    """Parameters a tensor-parallel rank holds, adapters included, routed experts apart."""
    trained: Count
    """Those of them that are trained: they have gradients, a master and moments."""
    experts: Count
    """Parameters of routed experts that a rank of the expert mesh holds."""
    experts_trained: Count
    """Those of them that are trained."""
    ops: tuple[tuple[Compute, Fraction], ...]
    serial: tuple[tuple[Transfer, Fraction], ...]
    behind: tuple[tuple[Transfer, Fraction, bool], ...]
    """Collectives that may run behind a named compute of the same piece, and whether that is its recomputation."""
    sharded: tuple[Transfer, ...]
    """fsdp: gathers and scatters that may hide."""
    launches_forward: Count
    launches_backward: Count
    waits: tuple[Count, Count] = (0.0, 0.0)
    """Times that the device waits for the host to size what experts are sent, (forward, backward)."""
    matrix_updates: tuple[Compute, ...] = ()
    """Products of one optimizer step over the whole piece, every rank's together."""
    saved_flops: Flop = 0.0
    """FLOPs of the piece that mfu's count holds and that frozen parameters spare, less what adapters add."""
    tokens: Count = 0.0
    """Tokens of one micro-batch on one rank (before tensor and sequence cuts)."""
    seq: Count = 0.0
    """Tokens of one whole sequence."""

    def numbers(self, model: Model) -> Model:
        """The numbers of the part of the model that the block belongs to."""
        return self.block.part or model


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
    """The run's tokens of one micro-batch on one rank; those of a block are its own."""
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
    ahead: tuple[Count, ...] = ()
    """Micro-batches more in flight because of the boundary behind every stage, the last one's leading back; empty: none."""


def collect(model: Model, plan: Plan, run: Run, stack: Stack) -> Work:
    """All demands of one step. Raises UnknownName for a family that is not built.

    A block that has a sequence of its own is not cut by cp."""
    kind, model = family(model.family), sized(model, run.seq_len)
    width = precision.recipe(plan.precision).width
    tokens = plan.micro_batch * run.seq_len / plan.cp
    micro_batches = probes.micro_batches(plan, run.global_batch / (plan.dp * plan.micro_batch))
    at_once = 1.0 if plan.probes is None else plan.probes.together
    blocks: dict[str, BlockWork] = {}
    replayed: Flop = 0.0
    saved: Flop = 0.0
    for block in _with_tied_copy(kind.blocks(model), model, plan):
        own = plan.micro_batch * block.per_sample * block.sequence(run.seq_len) / plan.cp
        seq = block.sequence(run.attended)
        whole = loss.applied(kind.operations(model, block.name, own, seq, stack.kernels), stack.loss)
        whole = probes.applied(whole, plan, block)
        work, again = _block(block.part or model, block, whole, own * at_once, plan, stack, width)
        work = changed(work, tokens=own, seq=seq)
        if block.name == "head" and contrastive.applies(model):
            work = _contrasted(work, model, plan, width)
        blocks[block.name] = work
        replayed = replayed + again * block.count
        saved = saved + work.saved_flops * block.count
    order = kind.order(model)
    counts = layer_counts(model, plan, stack) if plan.pp > 1 else (plain_sum(count for _, count in order),)
    last = 0 if folded(plan) else plan.pp - 1
    stages = pipeline.stages(counts, order, last)
    return Work(
        blocks=blocks,
        stages=stages,
        counts=counts,
        micro_batches=micro_batches,
        tokens=tokens,
        runs=pipeline.runs(counts, stages, order, last),
        send=pipeline.send(tokens * at_once, model.hidden, plan, width, stack.sends_cut),
        tied=tied_reduction(model, plan),
        model_flops=_model_flops(kind, model, run, plan) - saved * micro_batches * plan.dp * plan.cp,
        replay_flops=replayed * micro_batches * plan.dp * plan.cp,
    )


def _model_flops(kind: ModuleType, model: Model, run: Run, plan: Plan) -> Flop:
    """By mfu's count; a step without a backward has a third of it for every pass (2 × parameters × tokens)."""
    flops: Flop = kind.training_flops(model, run.global_batch * run.seq_len, run.seq_len)
    return flops if plan.probes is None else flops * plan.probes.passes / 3.0


def layer_counts(model: Model, plan: Plan, stack: Stack) -> tuple[int, ...]:
    """Layers of each pipeline stage under the stack's rule."""
    wide = model.ffn if model.experts == 0.0 else model.top_k * model.moe_ffn + model.shared_ffn
    layer_cost = 4.0 * model.hidden * model.hidden + 3.0 * model.hidden * wide
    split = pipeline.folded if plan.pp > 1 and folded(plan) else pipeline.cut
    layers = plain_sum(count for _, count in family(model.family).order(model))
    return split(layers, plan.pp, stack.stage_cut, float(layer_cost), float(model.vocab * model.hidden))


def folded(plan: Plan) -> bool:
    """Whether the first device holds both ends of the model."""
    return plan.pp == 1 or traits(plan.schedule).route == "vee"


def contents(stage: pipeline.Stage) -> tuple[tuple[str, int], ...]:
    """The blocks of a stage and how many pieces of each."""
    return (("embedding", int(stage.embedding)), *stage.contents, ("head", int(stage.head)))


def gradient_parameters(work: Work, stage: pipeline.Stage) -> Held:
    """Parameters whose gradients one rank of a stage reduces: those that are trained."""
    return _held(work, stage, lambda one: (one.trained, one.experts_trained))


def frozen_parameters(work: Work, stage: pipeline.Stage) -> Held:
    """Parameters that one rank of a stage holds and does not train by gradients."""
    return _held(work, stage, lambda one: (one.held - one.trained, one.experts - one.experts_trained))


def perturbed_parameters(work: Work, stage: pipeline.Stage, plan: Plan) -> Held:
    """Parameters that one rank of a stage perturbs and moves: none under a backward."""
    return _held(
        work, stage, lambda one: (one.held * probes.share(plan, one.block), one.experts * probes.share(plan, one.block))
    )


def _held(work: Work, stage: pipeline.Stage, own: Callable[[BlockWork], tuple[Count, Count]]) -> Held:
    """The (dense, experts') parameters that `own` counts of a piece of each block, over a stage."""
    dense: Count = 0.0
    experts: Count = 0.0
    for name, pieces in contents(stage):
        of_dense, of_experts = own(work.blocks[name])
        dense, experts = dense + float(pieces) * of_dense, experts + float(pieces) * of_experts
    return Held(dense=dense, experts=experts)


def main_layer(work: Work) -> str:
    """The name of the block that most layers are of."""
    layers = [w.block for w in work.blocks.values() if is_layer(w.block.name)]
    return max(layers, key=lambda block: block.count).name


def tied_reduction(model: Model, plan: Plan) -> Transfer | None:
    """The gradient of a tied matrix is summed over its two copies, on the first and the last stage, once a step.

    Two ranks that exchange halves move as much as one send of the whole. Source: Narayanan 2021, released code. Devices on their
    own clocks sum nothing: there the head's copy is a matrix of its own (Qi 2024, released code), or the first device would
    wait for the last. Without a backward there is none: both copies take the same step."""
    if not model.tied or folded(plan) or traits(plan.schedule).own_clock or plan.probes is not None:
        return None
    size = model.vocab * model.hidden / plan.tp * WIDTH[plan.reduce_dtype]
    return Transfer(label="tied gradient", collective="send", size=size, axes=("pp",), phase=WEIGHT_GRAD, scope="step")


def copies_reduction(work: Work, plan: Plan) -> Transfer | None:
    """What the device with most to sum over two copies of the model takes; None with one copy."""
    found = copies_reductions(work, plan)
    if not found:
        return None
    size: Bytes = 0.0
    for one in found:
        size = np.maximum(size, one.size)
    return changed(found[0], size=size)


def copies_reductions(work: Work, plan: Plan) -> tuple[Transfer, ...]:
    """With two copies of the model on one pipeline, mirrored devices sum the gradients of both their stages, once a step: each
    device's part.

    Two ranks that exchange halves move as much as one send of the whole. Source: DeepSeek-AI 2024 §3.2.1 (two copies of the
    parameters). Leaves out: hiding it behind the last weight gradients; updated parameters of one copy's optimizer state that
    the other needs too."""
    if not _two_copies(plan):
        return ()
    found = []
    for stages, _ in devices(work, plan):
        held: Count = 0.0
        for both in (gradient_parameters(work, stage) for stage in stages):
            held = held + (both.sharded(plan) if fsdp.applies(plan) else both.all)
        found.append(
            Transfer(
                label="copies' gradients", collective="send", size=held * WIDTH[plan.reduce_dtype], axes=("pp",),
                phase=WEIGHT_GRAD, scope="step",
            )
        )  # fmt: skip
    return tuple(found)


def _two_copies(plan: Plan) -> bool:
    return plan.pp > 1 and traits(plan.schedule).copies != 1.0


def devices(work: Work, plan: Plan) -> list[tuple[tuple[pipeline.Stage, ...], Ratio]]:
    """The stages that every device of the pipeline holds, and the part of them that it updates: with two copies of the model
    the mirrored stage as well, and half of both where optimizer state is sharded."""
    line = [work.stages[kind] for kind, _, count in work.runs for _ in range(count)]
    if not _two_copies(plan):
        return [((stage,), 1.0) for stage in line]
    part = 1.0 if plan.sharding in ("none", "ddp") else 0.5
    return [(both, part) for both in zip(line, line[::-1], strict=True)]


def owned(work: Work, plan: Plan, stages: tuple[pipeline.Stage, ...], part: Ratio) -> tuple[Count, Count]:
    """Parameters that one rank of a device with these stages updates, and what it holds of them: (its shard, all)."""
    shard: Count = 0.0
    whole: Count = 0.0
    for stage in stages:
        held = gradient_parameters(work, stage) if plan.probes is None else perturbed_parameters(work, stage, plan)
        shard, whole = shard + part * held.sharded(plan), whole + held.all
    return shard, whole


def unit_share(work: Work, name: str, plan: Plan) -> Count:
    """Parameters of one piece of a block that one rank updates."""
    block = work.blocks[name]
    return Held(dense=block.trained, experts=block.experts_trained).sharded(plan)


def _with_tied_copy(blocks: tuple[Block, ...], model: Model, plan: Plan) -> tuple[Block, ...]:
    """With stages whose ends lie apart, a tied head owns a copy of the embedding's matrix:
    it is held, reduced, gathered and updated there."""
    if not model.tied or folded(plan):
        return blocks
    copy = model.vocab * model.hidden
    return tuple(changed(b, matrices=copy) if b.name == "head" else b for b in blocks)


def _block(
    model: Model, block: Block, whole: tuple[Compute, ...], tokens: Count, plan: Plan, stack: Stack, width: Bytes
) -> tuple[BlockWork, Flop]:
    layer, routed = is_layer(block.name), block.routed
    policy = plan.recompute if layer else "none"
    added = adapters.adapters(whole, plan.trainable, block.name)
    linear = (*whole, *precision.casts(whole, plan, block.name))
    needed = (
        *adapters.backward(tuple((op, 1.0) for op in linear), plan.trainable, block), *((op, 1.0) for op in added),
    )  # fmt: skip
    replays = adapters.backward(recompute.replays((*linear, *added), policy, stack.selective), plan.trainable, block)
    matrices, experts = tensor.held(block, plan), expert.held(block, plan)
    lora = adapters.adapter_parameters(whole, plan.trainable, plan.tp) if added else 0.0
    share = adapters.weight_share(plan.trainable, block)
    held, trained = matrices + lora, matrices * share + lora if share or added else 0.0
    experts_trained = experts * share if share else 0.0
    back = adapters.input_share(plan.trainable, block)
    keep = not plan.reshard or not layer or back == 0.0
    ops = [(_part(one, plan), portion * part)
           for op, portion in (*needed, *replays) for one, part in precision.applied(op, plan, block.name)]  # fmt: skip
    ops += [
        (op, 1.0)
        for op in (
            *weights.accumulation(trained + experts_trained, plan, stack),
            *weights.casts(held + experts, plan, block.name, keep),
            *weights.gathered_copies(held + experts, plan, stack, keep),
        )
    ]
    serial, behind = _collectives(model, block, tokens, plan, stack, width, replays, back)
    sharded: tuple[Transfer, ...] = ()
    if fsdp.applies(plan):
        widths = precision.gather_width(plan, block.name), WIDTH[plan.reduce_dtype]
        sharded = fsdp.transfers(held, trained, plan, *widths, keep)
        if routed:
            sharded = (*sharded, *fsdp.transfers(experts, experts_trained, plan, *widths, keep, experts=True))
    launches = (
        _launches(
            len(added),
            recompute.dispatched(whole, policy),
            stack,
            MOE_LAUNCHES if routed else 0.0,
            max(block.pairs / 2.0, 1.0),
        )
        if layer
        else (EDGE_LAUNCHES, 2.0 * EDGE_LAUNCHES)
    )
    steps = launched(ops)
    launches = (launches[0] + steps[0], launches[1] * back + steps[1])
    flops = plain_sum((op.flops * portion for op, portion in replays), 0.0)
    return (
        BlockWork(
            block=block, held=held, trained=trained, experts=experts, experts_trained=experts_trained, ops=tuple(ops),
            serial=serial, behind=behind, sharded=sharded, launches_forward=launches[0], launches_backward=launches[1],
            waits=(1.0, back * (1.0 + recompute.routes(policy))) if routed else (0.0, 0.0),
            matrix_updates=_matrix_updates(whole, plan, block),
            saved_flops=0.0 if plan.probes else _flops((op, 1.0) for op in whole) - _flops(needed),
        ),
        flops,
    )  # fmt: skip


def _contrasted(work: BlockWork, model: Model, plan: Plan, width: Bytes) -> BlockWork:
    """The last block with the loss that compares its outputs with those of all replicas."""
    back = adapters.input_share(plan.trainable, work.block)
    ops = [(op, 1.0) for op in contrastive.operations(model, plan) if back or op.phase == FORWARD]
    moved = [(one, 1.0) for one in contrastive.transfers(model, plan, width) if back or one.phase == FORWARD]
    return changed(work, ops=(*work.ops, *ops), serial=(*work.serial, *moved))


def _part(op: Compute, plan: Plan) -> Compute:
    """One rank's part of an operation."""
    return expert.shard(op, plan) if expert.is_routed(op) else tensor.shard(context.shard(op, plan), plan)


def _matrix_updates(whole: tuple[Compute, ...], plan: Plan, block: Block) -> tuple[Compute, ...]:
    """Products of one update over a whole piece: of optimizers that look at matrices of layers, or the sum of perturbations."""
    if plan.probes is not None:
        return tuple(_part(op, plan) for op in probes.updates(whole, plan, block))
    return optimizer.orthogonalisation(whole, plan) if is_layer(block.name) else ()


def _collectives(
    model: Model, block: Block, tokens: Count, plan: Plan, stack: Stack, width: Bytes,
    replays: tuple[tuple[Compute, Fraction], ...], back: Fraction,
) -> tuple[tuple[tuple[Transfer, Fraction], ...], tuple[tuple[Transfer, Fraction, bool], ...]]:  # fmt: skip
    """Collectives of one piece: those in line with its kernels, and those that may run behind some, replays with both.

    `back` is the share of pieces that hand a gradient back: the others have nothing to exchange in the backward."""
    dense = precision.narrowed(tensor.transfers(model, block, tokens, plan, width), plan, block)
    routed = expert.transfers(model, block, tokens, plan, width, stack.expert_overlap, stack.expert_copies)
    around = context.transfers(model, block, tokens, plan, width, stack.context_overlap)
    attention = plain_sum(portion for op, portion in replays if op.kind == "attention")
    again = (
        *recompute.replayed_transfers(
            (*dense, *routed), replays, plan.recompute if is_layer(block.name) else "none", stack.selective
        ),
        *((changed(t, phase=INPUT_GRAD), attention) for t in around if t.phase == FORWARD and attention > 0.0),
    )
    first = [(t, 1.0, False) for t in (*dense, *routed, *around)]
    found = (*first, *((t, portion, True) for t, portion in again))
    if back != 1.0:
        found = tuple(
            (t, portion if t.phase == FORWARD else portion * back, replay)
            for t, portion, replay in found
            if back or t.phase == FORWARD
        )
    serial = tuple((t, portion) for t, portion, _ in found if not t.hides_under or _in_line(t))
    return serial, tuple(one for one in found if one[0].hides_under and not _in_line(one[0]))


def _in_line(transfer: Transfer) -> bool:
    """Whether a collective stands in line with the kernels, be it in chunks behind those next to it."""
    return transfer.label.startswith("tensor")


def _flops(ops: Iterable[tuple[Compute, Fraction]]) -> Flop:
    return plain_sum((op.flops * portion for op, portion in ops), 0.0)


def _launches(products: int, again: Fraction, stack: Stack, more: Count, size: Count) -> tuple[Count, Count]:
    """Kernels of a layer, (forward, backward), `more` of them for routed experts, `size` times those of attention and MLP;
    every adapter product and addition launches its own; the share `again` of the forward is launched once more."""
    forward = stack.launches_forward * size + more + products / 2.0
    return forward, stack.launches_backward * size + 2.0 * more + products / 2.0 + again * forward


def optimizer_traffic(owned: Count, whole: Count, plan: Plan) -> Bytes:
    """Bytes through memory of one optimizer step on one rank that updates `owned` parameters, and of casting the `whole` that
    it holds of them for the next; of a step without a backward also of perturbing them."""
    if plan.probes is not None:
        return owned * probes.traffic(plan)
    casts = 0.0 if fsdp.applies(plan) else precision.weight_casts(whole, plan, "layer")
    return owned * optimizer.traffic(plan) + casts


def weight_gradient_inputs(work: Work, block: str, plan: Plan, width: Bytes) -> Bytes:
    """What the weight gradients of one layer read for one micro-batch: the inputs and the output gradients of its products.

    Qi 2024 Table 1: 32 bytes per token and hidden element for GPT. With sequence parallelism what tp does not cut is kept cut
    along the sequence and gathered again (Korthikanti 2022 §4.2.2). Leaves out: an input that two products share."""
    total: Bytes = 0.0
    across = plan.tp if plan.sequence_parallel else 1.0
    for op, portion in work.blocks[block].ops:
        if op.kind == "gemm" and op.phase == WEIGHT_GRAD:
            cut = {axis: 1.0 if expert.is_routed(op) or op.split in (axis, "tokens k") else across for axis in "mn"}
            total = total + portion * op.k * (op.m / cut["m"] + op.n / cut["n"]) * op.repeats * width
    return total


def largest_stage(work: Work, plan: Plan) -> tuple[Count, Count]:
    """Parameters that the rank with most of them updates, and what it holds of them: (its shard, all)."""
    most: Count = 0.0
    whole: Count = 0.0
    for stages, part in dict.fromkeys(devices(work, plan)):
        shard, held = owned(work, plan, stages, part)
        most, whole = np.maximum(most, shard), np.maximum(whole, held)
    return most, whole


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
