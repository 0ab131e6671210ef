"""Memory of the worst rank at its peak: what every strategy leaves resident, tagged exact, modelled or estimated."""

from __future__ import annotations

import numpy as np

from shardmeter.core.record import changed
from shardmeter.core.units import Bytes, Count, Ratio
from shardmeter.engine import demand
from shardmeter.engine.add import memory_total
from shardmeter.engine.demand import WIDTH, Work
from shardmeter.families import family
from shardmeter.schedules import owed, schedule, traits
from shardmeter.specs.estimate import MemoryTerm
from shardmeter.specs.model import Model
from shardmeter.specs.plan import Plan
from shardmeter.specs.run import Run
from shardmeter.specs.stack import Stack
from shardmeter.strategies import data, fsdp, recompute
from shardmeter.strategies.pipeline import Stage

STATES = {"adamw": 8.0, "adamw8bit": 2.0, "sgd": 4.0}
"""Bytes of optimizer moments per parameter."""
LOGIT_BYTES = 10.0
"""Per logit at the loss: 16-bit logits, fp32 copy, fp32 gradient."""


def residents(model: Model, work: Work, plan: Plan, run: Run, stack: Stack) -> tuple[tuple[MemoryTerm, ...], Bytes]:
    """Terms of the worst rank, and what of them the allocator has handed out. Worst = largest total over the stages.

    Leaves out: the moment inside the step at which each term peaks (they are added), and what a framework keeps by mistake."""
    worst: tuple[MemoryTerm, ...] = ()
    largest: Bytes = 0.0
    for terms in _devices(model, work, plan, run, stack):
        size = memory_total(terms)
        worst = terms if not worst else _larger(worst, largest, terms, size)
        largest = np.maximum(largest, size)
    allocated = memory_total(worst)
    slack = MemoryTerm(label="fragmentation", size=allocated * stack.fragmentation, exactness="estimated")
    context = MemoryTerm(label="context and communicators", size=stack.context, exactness="estimated")
    return (*worst, slack, context), allocated


def owed_share(model: Model, work: Work, plan: Plan, run: Run, stack: Stack) -> Ratio:
    """What a weight gradient that waits keeps, as a part of what a layer keeps for its backward (Qi 2024 Table 1: M_W / M_B)."""
    kept = _kept(model, work, plan, run, stack)[1]
    return demand.weight_gradient_inputs(work, WIDTH[plan.precision]) / kept


def _devices(model: Model, work: Work, plan: Plan, run: Run, stack: Stack) -> list[tuple[MemoryTerm, ...]]:
    """The terms of every kind of device: a stage or, with two copies of the model in opposite directions, two stages, each
    with half of the micro-batches. Sharded optimizer state is shared by the copies too."""
    terms = {stage: _stage(model, work, stage, plan, run, stack) for stage in work.stages}
    if plan.pp == 1 or traits(plan.schedule).copies == 1.0:
        return list(terms.values())
    line = [work.stages[kind] for kind, _, count in work.runs for _ in range(count)]
    pairs = dict.fromkeys(zip(line[: len(line) // 2], line[::-1], strict=False))
    shared = {"activations", "peak inside a layer"} | (
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


def _stage(model: Model, work: Work, stage: Stage, plan: Plan, run: Run, stack: Stack) -> tuple[MemoryTerm, ...]:
    parameters = demand.gradient_parameters(work, stage)
    activations, peak = _activations(model, work, stage, plan, run, stack)
    logits: Bytes = 0.0
    if stage.head:
        logits = work.tokens * model.vocab / plan.tp * LOGIT_BYTES
    return (
        *_states(parameters, plan, stack),
        MemoryTerm(label="activations", size=activations, exactness="modelled"),
        MemoryTerm(label="peak inside a layer", size=np.maximum(peak, logits), exactness="modelled"),
        MemoryTerm(label="gathered units", size=_gathered(work, plan, stage), exactness="modelled"),
    )


def _states(parameters: Count, plan: Plan, stack: Stack) -> tuple[MemoryTerm, ...]:
    """Parameters, gradients, optimizer. Sharded: the fp32 master is the parameter; whole: a 16-bit copy beside it."""
    shards = data.shards(plan)
    master = WIDTH[plan.master_dtype]
    gradient = WIDTH[stack.gradient_dtype] + (WIDTH[plan.precision] if stack.gradient_copy else 0.0)
    if fsdp.applies(plan):
        held, kept = parameters / shards * master, parameters / shards * master
        state = parameters / shards * STATES[plan.optimizer]
    else:
        held = parameters * WIDTH[plan.precision]
        kept = parameters * gradient
        if plan.sharding == "zero2":
            kept = kept / shards
        state = parameters / shards * (STATES[plan.optimizer] + master)
    return (
        MemoryTerm(label="parameters", size=held, exactness="exact"),
        MemoryTerm(label="gradients", size=kept, exactness="exact"),
        MemoryTerm(label="optimizer state", size=state, exactness="exact"),
    )


def _activations(model: Model, work: Work, stage: Stage, plan: Plan, run: Run, stack: Stack) -> tuple[Bytes, Bytes]:
    """(kept until the backward over all micro-batches in flight, working set of the layer being computed)."""
    per_layer, kept, checkpoint = _kept(model, work, plan, run, stack)
    edge = checkpoint if stage.embedding else 0.0
    own = float(stage.layers) * kept + edge
    held = own
    if plan.pp > 1:
        module, passes, chunks = schedule(plan.schedule), work.micro_batches, plan.virtual_stages
        late = float(stage.layers) * demand.weight_gradient_inputs(work, WIDTH[plan.precision])
        held = 0.0
        for position in (
            stage.first,
            stage.first + stage.count - 1,
        ):  # early stages hold more in flight, late ones more owed
            flying = module.in_flight(position, plan.pp, passes, chunks)
            held = np.maximum(held, flying * own + owed(module, position, plan.pp, passes, chunks) * late)
    # what runs again (all of a replayed layer, its kept input not twice) and one gradient
    working = per_layer if plan.recompute.startswith("every-") else per_layer - kept + checkpoint
    return held, working


def _kept(model: Model, work: Work, plan: Plan, run: Run, stack: Stack) -> tuple[Bytes, Bytes, Bytes]:
    """Bytes of one layer and micro-batch: (all that its backward reads, what is kept until then, its input alone)."""
    scores = stack.attention in ("unfused", "fused")
    outside, inside = family(model.family).activation_bytes(model, stack.kernels, scores, run.seq_len)
    across = plan.tp if plan.sequence_parallel else 1.0
    per_layer = work.tokens * (outside / across + inside / plan.tp)
    checkpoint = work.tokens * model.hidden * WIDTH[plan.precision] / across
    kept = recompute.kept(plan.recompute, stack.selective) * per_layer
    if plan.recompute == "selective" and stack.selective == "attention" and scores:
        kept = kept - work.tokens * 5.0 * model.heads * run.seq_len / plan.tp
    kept = np.maximum(kept, checkpoint)
    if plan.recompute.startswith("every-"):  # one layer of K keeps its input only
        share = recompute.share(plan.recompute)
        kept = (1.0 - share) * per_layer + share * checkpoint
    return per_layer, kept, checkpoint


def _gathered(work: Work, plan: Plan, stage: Stage) -> Bytes:
    """fsdp: two layers' parameters and the root unit's, and the whole gradient of the largest unit, twice where it is cast."""
    if not fsdp.applies(plan):
        return 0.0
    gather, reduce = WIDTH[plan.gather_dtype], WIDTH[plan.reduce_dtype]
    gradient = reduce if plan.reduce_dtype == plan.precision else reduce + WIDTH[plan.precision]
    units = stage.layers if not plan.reshard else min(stage.layers, 2)
    layer = work.blocks["layer"].held
    total = layer * float(units) * gather
    largest = layer * float(min(stage.layers, 1)) * gradient
    for name, here in (("embedding", stage.embedding), ("head", stage.head)):
        if here:
            total = total + work.blocks[name].held * gather
            largest = np.maximum(largest, work.blocks[name].held * gradient)
    return total + largest
