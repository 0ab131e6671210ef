"""Memory of the worst rank at its peak: what every strategy leaves resident, tagged exact, modelled or estimated."""

from __future__ import annotations

import numpy as np

from shardmeter.core.units import Bytes, Count
from shardmeter.engine import demand
from shardmeter.engine.add import memory_total
from shardmeter.engine.demand import WIDTH, Held, Work
from shardmeter.families import family
from shardmeter.schedules import schedule
from shardmeter.specs.estimate import MemoryTerm
from shardmeter.specs.model import Model
from shardmeter.specs.plan import Plan
from shardmeter.specs.run import Run
from shardmeter.specs.stack import Stack
from shardmeter.strategies import context, expert, fsdp, recompute
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
    for stage in work.stages:
        terms = _stage(model, work, stage, plan, run, stack)
        size = memory_total(terms)
        worst = terms if not worst else _larger(worst, largest, terms, size)
        largest = np.maximum(largest, size)
    allocated = memory_total(worst)
    slack = MemoryTerm(label="fragmentation", size=allocated * stack.fragmentation, exactness="estimated")
    context = MemoryTerm(label="context and communicators", size=stack.context, exactness="estimated")
    return (*worst, slack, context), allocated


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
    routed: tuple[MemoryTerm, ...] = ()
    if "moe layer" in work.blocks:
        kept, working = _routed(model, work, stage, plan, stack)
        routed = (MemoryTerm(label="routed tokens", size=kept, exactness="modelled"),)
        peak = peak + working
    logits: Bytes = 0.0
    if stage.head:
        logits = work.tokens * model.vocab / plan.tp * LOGIT_BYTES
    return (
        *_states(parameters, plan, stack),
        MemoryTerm(label="activations", size=activations, exactness="modelled"),
        *routed,
        MemoryTerm(label="peak inside a layer", size=np.maximum(peak, logits), exactness="modelled"),
        MemoryTerm(label="gathered units", size=_gathered(work, plan, stage), exactness="modelled"),
    )


def _states(parameters: Held, plan: Plan, stack: Stack) -> tuple[MemoryTerm, ...]:
    """Parameters, gradients, optimizer. Sharded: the fp32 master is the parameter; whole: a 16-bit copy beside it."""
    owned = parameters.sharded(plan)
    master = WIDTH[plan.master_dtype]
    gradient = WIDTH[stack.gradient_dtype] + (WIDTH[plan.precision] if stack.gradient_copy else 0.0)
    if fsdp.applies(plan):
        held, kept = owned * master, owned * master
        state = owned * STATES[plan.optimizer]
    else:
        held = parameters.all * WIDTH[plan.precision]
        kept = (owned if plan.sharding == "zero2" else parameters.all) * gradient
        state = owned * (STATES[plan.optimizer] + master)
    return (
        MemoryTerm(label="parameters", size=held, exactness="exact"),
        MemoryTerm(label="gradients", size=kept, exactness="exact"),
        MemoryTerm(label="optimizer state", size=state, exactness="exact"),
    )


def _activations(model: Model, work: Work, stage: Stage, plan: Plan, run: Run, stack: Stack) -> tuple[Bytes, Bytes]:
    """(kept until the backward over all micro-batches in flight, working set of the layer being computed)."""
    scores = stack.attention in ("unfused", "fused")
    across = plan.tp if plan.sequence_parallel else 1.0
    width = WIDTH[plan.precision]
    checkpoint = work.tokens * model.hidden * width / across
    whole: Bytes = 0.0
    working: Bytes = 0.0
    for name, count in stage.contents or (("layer", 0),):
        outside, inside = family(model.family).activation_bytes(model, stack.kernels, scores, run.seq_len, name)
        per_layer = work.tokens * (outside / across + inside / plan.tp)
        kept = recompute.kept(plan.recompute, stack.selective) * per_layer
        if plan.recompute == "selective" and stack.selective == "attention" and scores:
            kept = kept - work.tokens * 5.0 * model.heads * run.seq_len / plan.tp
        kept = np.maximum(kept, checkpoint)
        if plan.recompute.startswith("every-"):  # one layer of K keeps its input only
            share = recompute.share(plan.recompute)
            kept = (1.0 - share) * per_layer + share * checkpoint
        # what runs again (all of a replayed layer, its kept input not twice) and one gradient
        here = per_layer if plan.recompute.startswith("every-") else per_layer - kept + checkpoint
        whole = whole + float(count) * kept
        working = np.maximum(working, here)
    edge = checkpoint if stage.embedding else 0.0
    working = working + context.buffers(model, work.tokens, plan, width)
    return _in_flight(work, stage, plan) * (whole + edge), working


def _in_flight(work: Work, stage: Stage, plan: Plan) -> Count:
    """Micro-batches whose activations a stage keeps at once."""
    if plan.pp == 1:
        return 1.0
    flying: Count = schedule(plan.schedule).in_flight(
        stage.first, plan.pp, work.micro_batches, plan.virtual_stages
    )  # fmt: skip
    return flying


def _routed(model: Model, work: Work, stage: Stage, plan: Plan, stack: Stack) -> tuple[Bytes, Bytes]:
    """What routed experts keep for the backward on the busiest rank (all micro-batches in flight), and what of it a layer
    that runs again holds at work. Leaves out: unequal batches over time; a rank must be able to hold its worst one."""
    wide, inner = family(model.family).routed_bytes(model, stack.kernels)
    per_layer = work.tokens * expert.rows(plan) * (wide + inner / plan.etp)
    kept = recompute.kept(plan.recompute, stack.selective) * per_layer
    layers = float(sum(count for name, count in stage.contents if name == "moe layer"))
    again = per_layer if plan.recompute.startswith("every-") else per_layer - kept
    return _in_flight(work, stage, plan) * (layers * kept), again * min(layers, 1.0)


def _gathered(work: Work, plan: Plan, stage: Stage) -> Bytes:
    """fsdp: two layers' parameters and the root unit's, and the whole gradient of the largest unit, twice where it is cast.

    Of a stage with two kinds of layers, the larger kind."""
    if not fsdp.applies(plan):
        return 0.0
    gather, reduce = WIDTH[plan.gather_dtype], WIDTH[plan.reduce_dtype]
    gradient = reduce if plan.reduce_dtype == plan.precision else reduce + WIDTH[plan.precision]
    held = {name: work.blocks[name].held + work.blocks[name].experts for name in work.blocks}
    total: Bytes = 0.0
    largest: Bytes = 0.0
    for name, count in stage.contents:
        largest = np.maximum(largest, held[name])
        if not plan.reshard:
            total = total + held[name] * float(count) * gather
    if plan.reshard:
        total = largest * float(min(stage.layers, 2)) * gather
    largest = largest * gradient
    for name, here in (("embedding", stage.embedding), ("head", stage.head)):
        if here:
            total = total + held[name] * gather
            largest = np.maximum(largest, held[name] * gradient)
    return total + largest
