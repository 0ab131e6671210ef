"""Memory of the worst rank at its peak: what every strategy leaves resident, tagged exact, modelled or estimated."""

from __future__ import annotations

import numpy as np

from shardmeter.core.record import changed
from shardmeter.core.units import Bytes, Ratio
from shardmeter.engine import demand
from shardmeter.engine.add import memory_total
from shardmeter.engine.demand import BlockWork, Held, Work
from shardmeter.engine.joined import MERGED
from shardmeter.families import family, sized
from shardmeter.families.operations import is_layer
from shardmeter.schedules import flying, owed, schedule, traits
from shardmeter.specs.estimate import MemoryTerm
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
    offload,
    optimizer,
    precision,
    probes,
    recompute,
)
from shardmeter.strategies.pipeline import Stage
from shardmeter.strategies.precision import WIDTH


def residents(
    model: Model, work: Work, plan: Plan, run: Run, stack: Stack, beside: tuple[MemoryTerm, ...] = ()
) -> tuple[tuple[MemoryTerm, ...], Bytes, Bytes]:
    """Terms of the worst rank, and what the allocator has handed out on it and on the first stage. Worst = largest total over
    the stages; `beside` is what every rank holds of another model.

    Leaves out: the moment inside the step at which each term peaks (they are added), and what a framework keeps by mistake."""
    model = sized(model, run.seq_len)
    worst: tuple[MemoryTerm, ...] = ()
    largest: Bytes = 0.0
    devices = [(*terms, *beside) for terms in _devices(model, work, plan, stack)]
    for terms in devices:
        size = memory_total(terms)
        worst = terms if not worst else _larger(worst, largest, terms, size)
        largest = np.maximum(largest, size)
    allocated = memory_total(worst)
    slack = MemoryTerm(label="fragmentation", size=allocated * stack.fragmentation, exactness="estimated")
    context = MemoryTerm(label="context and communicators", size=stack.context, exactness="estimated")
    return (*worst, slack, context), allocated, memory_total(devices[0])


def owed_share(model: Model, work: Work, plan: Plan, stack: Stack) -> Ratio:
    """What a weight gradient that waits keeps, as a part of what a layer keeps for its backward (Qi 2024 Table 1: M_W / M_B)."""
    name = demand.main_layer(work)
    kept, _, _ = layer_kept(model, work.blocks[name], plan, stack)
    back = adapters.input_share(plan.trainable, work.blocks[name].block)
    if back == 0.0:
        return 0.0
    return demand.weight_gradient_inputs(work, name, plan, precision.recipe(plan.precision).width) / (kept * back)


def _devices(model: Model, work: Work, plan: Plan, stack: Stack) -> list[tuple[MemoryTerm, ...]]:
    """The terms of every kind of device: a stage or, with two copies of the model in opposite directions, two stages, each
    with half of the micro-batches. Sharded optimizer state is shared by the copies too."""
    terms = {stage: of_stage(model, work, stage, plan, stack) for stage in work.stages}
    if plan.pp == 1 or traits(plan.schedule).copies == 1.0:
        return list(terms.values())
    line = [work.stages[kind] for kind, _, count in work.runs for _ in range(count)]
    pairs = dict.fromkeys(zip(line[: len(line) // 2], line[::-1], strict=False))
    shared = {"activations", "routed tokens", "peak inside a layer"} | (
        {"optimizer state"} if plan.sharding not in ("none", "ddp") else set()
    )
    return [
        tuple(
            changed(a, size=(a.size + b.size) * (0.5 if a.label in shared else 1.0))
            for a, b in zip(terms[own], terms[mirrored], strict=True)
        )
        for own, mirrored in pairs
    ]


def _larger(
    left: tuple[MemoryTerm, ...], left_size: Bytes, right: tuple[MemoryTerm, ...], right_size: Bytes
) -> tuple[MemoryTerm, ...]:
    keep = np.greater_equal(left_size, right_size)
    return tuple(
        MemoryTerm(label=a.label, size=np.where(keep, a.size, b.size), exactness=a.exactness)
        for a, b in zip(left, right, strict=True)
    )


def of_stage(model: Model, work: Work, stage: Stage, plan: Plan, stack: Stack) -> tuple[MemoryTerm, ...]:
    """What one rank of a stage holds at its peak, term by term. A head that hands no gradient back keeps its logits alone."""
    parameters = demand.gradient_parameters(work, stage)
    activations, peak = _activations(model, work, stage, plan, stack)
    routed: tuple[MemoryTerm, ...] = ()
    if any(one.block.routed for one in work.blocks.values()):
        kept, working = _routed(model, work, stage, plan, stack)
        routed = (MemoryTerm(label="routed tokens", size=kept, exactness="modelled"),)
        peak = peak + working
    logits: Bytes = 0.0
    if stage.head:
        head = work.blocks["head"]
        cut = 1.0 if stack.logits_gathered else plan.tp
        per_logit = loss.KEPT if adapters.input_share(plan.trainable, head.block) else loss.KEPT_FORWARD
        logits = head.tokens * head.block.outputs / cut * per_logit[stack.loss] + contrastive.matrix(model, plan)
    each = stack.whole_bytes + stack.cut_bytes / plan.tp
    beside = np.where(np.greater(plan.tp, 1.0), work.tokens * model.hidden * each, 0.0)
    at_once = 1.0 if plan.probes is None else plan.probes.together
    base = precision.recipe(plan.precision).width
    frozen = demand.frozen_parameters(work, stage)
    held, perturbed = parameters.all + frozen.all, demand.perturbed_parameters(work, stage, plan)
    return (
        *_states(parameters, frozen, perturbed, plan, stack),
        MemoryTerm(label="activations", size=activations, exactness="modelled"),
        *routed,
        MemoryTerm(
            label="peak inside a layer", size=(np.maximum(peak, logits) + beside) * at_once, exactness="modelled"
        ),
        MemoryTerm(label="gathered units", size=_gathered(work, plan, stage), exactness="modelled"),
        MemoryTerm(label="buffers", size=held * base * stack.buffer_share, exactness="estimated"),
    )


def _states(trained: Held, frozen: Held, perturbed: Held, plan: Plan, stack: Stack) -> tuple[MemoryTerm, ...]:
    """Parameters, gradients, optimizer. Sharded: the master is the parameter; whole: a 16-bit copy beside it, unless the
    master has 16 bits itself. Frozen parameters are held in 16 bits and nothing else; what is offloaded is not here."""
    base, owned = precision.recipe(plan.precision).width, trained.sharded(plan)
    master, away = WIDTH[plan.master_dtype], "optimizer" in plan.offload
    gradient = np.minimum(WIDTH[stack.gradient_dtype], master) + (base if stack.gradient_copy else 0.0)
    each = data.reduces_each(plan, stack.accumulate)
    moments = owned * optimizer.state(plan)
    if fsdp.applies(plan):
        held = owned * (base if away else master) + frozen.sharded(plan) * base
        kept = (owned if each else trained.all) * master
        state = moments
    else:
        held = (trained.all + frozen.all) * base
        kept = (owned if plan.sharding == "zero2" and each else trained.all) * gradient
        state = moments + owned * (master if master > base else 0.0)
    if away:
        state = 0.0 * state
        kept = 0.0 * kept if each else kept
    if "parameters" in plan.offload:
        held = 0.0 * held
    if plan.probes is not None:
        state = perturbed.sharded(plan) * probes.kept(plan)
        held = held + probes.copies(plan) * perturbed.all * base
    return (
        MemoryTerm(label="parameters", size=held, exactness="exact"),
        MemoryTerm(label="gradients", size=kept, exactness="exact"),
        MemoryTerm(label="optimizer state", size=state, exactness="exact"),
    )


def layer_kept(model: Model, work: BlockWork, plan: Plan, stack: Stack) -> tuple[Bytes, Bytes, Bytes]:
    """One piece of one micro-batch on one rank: (kept until its backward, all that its backward reads, its input)."""
    block, tokens, seq, part = work.block.name, work.tokens, work.seq, work.numbers(model)
    scores = stack.attention in ("unfused", "fused")
    kind = family(model.family)
    outside, inside = kind.activation_bytes(model, stack.kernels, scores, seq, block)
    everything = inside
    across = plan.tp if plan.sequence_parallel else 1.0
    checkpoint = tokens * part.hidden * precision.recipe(plan.precision).width / across
    if not is_layer(block):
        per_layer = tokens * (outside / across + inside / plan.tp)
        return per_layer, per_layer, checkpoint
    inputs, words = kind.linear_inputs(model, block), recompute.listed(plan.recompute)
    outside, inside = precision.kept(plan, outside, inside, inputs)
    per_layer = tokens * (outside / across + inside / plan.tp)
    kept = recompute.kept(plan.recompute, stack.selective) * per_layer
    if words:
        free_outside, free_inside, free_inputs = kind.freed(model, stack.kernels, block, words)
        free_outside, free_inside = precision.kept(plan, free_outside, free_inside, free_inputs)
        kept = kept - tokens * (free_outside / across + free_inside / plan.tp)
    attention = plan.recompute == "selective" and stack.selective == "attention"
    if scores and (attention or "core_attn" in words):
        _, fewer = kind.activation_bytes(model, stack.kernels, False, seq, block)
        kept = kept - tokens * (everything - fewer) / plan.tp
    kept = np.maximum(kept, checkpoint)
    if recompute.partial(plan.recompute):  # those that run again keep their input only
        share = recompute.share(plan.recompute)
        kept = (1.0 - share) * per_layer + share * checkpoint
    return kept, per_layer, checkpoint


def _activations(model: Model, work: Work, stage: Stage, plan: Plan, stack: Stack) -> tuple[Bytes, Bytes]:
    """(kept until the backward over all micro-batches in flight, working set of the layer being computed).

    A layer with nothing trained in it or before it has no backward and keeps nothing; a frozen one that hands a gradient back
    is charged what a trained one keeps."""
    away, width = "activations" in plan.offload, precision.recipe(plan.precision).width
    gone = offload.away(plan, float(model.layers + model.mtp))
    whole: Bytes = 0.0
    passing: Bytes = 0.0
    late: Bytes = 0.0
    working: Bytes = 0.0
    checkpoint: Bytes = 0.0
    runs_back = False
    for name, count in stage.contents or ((demand.main_layer(work), 0),):
        kept, per_layer, checkpoint = layer_kept(model, work.blocks[name], plan, stack)
        back = adapters.input_share(plan.trainable, work.blocks[name].block)
        # what runs again (all of a replayed layer, its kept input not twice) and one gradient
        again = recompute.partial(plan.recompute) and not away
        again = again or back == 0.0
        working = np.maximum(working, per_layer if again else per_layer - kept + checkpoint)
        whole = whole + float(count) * (1.0 - gone) * kept * back
        passing = passing + float(min(count, 2)) * gone * kept * back  # offloaded: two layers' worth, on their way
        late = late + float(count) * demand.weight_gradient_inputs(work, name, plan, width)
        runs_back = runs_back or bool(np.any(np.greater(back, 0.0)))
    edge = checkpoint if stage.embedding and runs_back else 0.0
    working = working + context.buffers(model, work.tokens, plan, width)
    return passing + _held(work, stage, plan, stack, whole + edge, 0.0 if away else late), working


def _held(work: Work, stage: Stage, plan: Plan, stack: Stack, own: Bytes, late: Bytes) -> Bytes:
    """Bytes at a stage's peak: `own` of every micro-batch in flight and `late` of every weight gradient that waits.

    Of equal stages, the early ones hold more in flight, the late ones have more waiting. Merged turns hold one more."""
    ahead = 1.0 / plan.virtual_stages if stack.batch_overlap and plan.schedule in MERGED else 0.0
    if plan.pp == 1:
        return own * np.minimum(1.0 + ahead, work.micro_batches)
    module, passes, chunks = schedule(plan.schedule), work.micro_batches, plan.virtual_stages
    held: Bytes = 0.0
    for position in (stage.first, stage.first + stage.count - 1):
        most = flying(module, position, plan.pp, passes, chunks, work.ahead) + ahead
        held = np.maximum(held, most * own + owed(module, position, plan.pp, passes, chunks) * late)
    return held


def _routed(model: Model, work: Work, stage: Stage, plan: Plan, stack: Stack) -> tuple[Bytes, Bytes]:
    """What routed experts keep for the backward on the busiest rank (all micro-batches in flight), and what of it a layer
    that runs again holds at work. Leaves out: unequal batches over time; a rank must be able to hold its worst one."""
    kind, words = family(model.family), recompute.listed(plan.recompute)
    wide, inner = kind.routed_bytes(model, stack.kernels)
    rows = work.tokens * expert.rows(plan) * precision.recipe(plan.precision).wider
    per_layer = rows * (wide + inner / plan.etp)
    kept = recompute.kept(plan.recompute, stack.selective) * per_layer
    if words:
        free_wide, free_inner = kind.freed_routed(model, stack.kernels, words)
        kept = kept - rows * (free_wide + free_inner / plan.etp)
    held: Bytes = 0.0
    working: Bytes = 0.0
    for name, count in stage.contents:
        if work.blocks[name].block.routed:
            back = adapters.input_share(plan.trainable, work.blocks[name].block)
            again = per_layer if recompute.partial(plan.recompute) or back == 0.0 else per_layer - kept
            held, working = held + float(count) * kept * back, np.maximum(working, again)
    return _held(work, stage, plan, stack, held, 0.0), working


def _gathered(work: Work, plan: Plan, stage: Stage) -> Bytes:
    """fsdp: two layers' parameters and the root unit's, and the whole gradient of the largest unit, twice where it is cast.

    Of a stage with two kinds of layers, the larger kind."""
    if not fsdp.applies(plan):
        return 0.0
    reduce, base = WIDTH[plan.reduce_dtype], precision.recipe(plan.precision)
    gradient = reduce if plan.reduce_dtype == base.held else reduce + base.width
    total: Bytes = 0.0
    largest: Bytes = 0.0
    most: Bytes = 0.0
    for name, count in stage.contents:
        block = work.blocks[name]
        gathered = (block.held + block.experts) * precision.gather_width(plan, name)
        largest = np.maximum(largest, (block.trained + block.experts_trained) * gradient)
        most = np.maximum(most, gathered)
        if not plan.reshard:
            total = total + gathered * float(count)
    if plan.reshard:
        total = most * float(min(stage.layers, 2))
    for name, here in (("embedding", stage.embedding), ("head", stage.head)):
        if here:
            total = total + work.blocks[name].held * precision.gather_width(plan, name)
            largest = np.maximum(largest, work.blocks[name].trained * gradient)
    return total + largest
