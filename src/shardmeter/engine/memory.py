"""Memory of the worst rank at its peak: what every strategy leaves resident, tagged exact, modelled or estimated."""

from __future__ import annotations

import numpy as np

from shardmeter.core.units import Bytes, Count
from shardmeter.engine import demand
from shardmeter.engine.add import memory_total
from shardmeter.engine.demand import Work
from shardmeter.families import family
from shardmeter.schedules import schedule
from shardmeter.specs.estimate import MemoryTerm
from shardmeter.specs.model import Model
from shardmeter.specs.plan import Plan
from shardmeter.specs.run import Run
from shardmeter.specs.stack import Stack
from shardmeter.strategies import data, fsdp, optimizer, precision, recompute
from shardmeter.strategies.pipeline import Stage
from shardmeter.strategies.precision import WIDTH

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
    logits: Bytes = 0.0
    if stage.head:
        logits = work.tokens * model.vocab / plan.tp * LOGIT_BYTES
    return (
        *_states(parameters, demand.frozen_parameters(work, stage), plan, stack),
        MemoryTerm(label="activations", size=activations, exactness="modelled"),
        MemoryTerm(label="peak inside a layer", size=np.maximum(peak, logits), exactness="modelled"),
        MemoryTerm(label="gathered units", size=_gathered(work, plan, stage), exactness="modelled"),
    )


def _states(trained: Count, frozen: Count, plan: Plan, stack: Stack) -> tuple[MemoryTerm, ...]:
    """Parameters, gradients, optimizer. Sharded: the master is the parameter; whole: a 16-bit copy beside it, unless the
    master has 16 bits itself. Frozen parameters are held in 16 bits and nothing else; what is offloaded is not here."""
    shards, base = data.shards(plan), precision.recipe(plan.precision).width
    master, away = WIDTH[plan.master_dtype], "optimizer" in plan.offload
    gradient = np.minimum(WIDTH[stack.gradient_dtype], master) + (base if stack.gradient_copy else 0.0)
    each = data.reduces_each(plan, stack.accumulate)
    moments = trained / shards * optimizer.state(plan)
    if fsdp.applies(plan):
        held = trained / shards * (base if away else master) + frozen / shards * base
        kept = trained * master / (shards if each else 1.0)
        state = moments
    else:
        held = (trained + frozen) * base
        kept = trained * gradient / (shards if plan.sharding == "zero2" and each else 1.0)
        state = moments + trained / shards * (master if master > base else 0.0)
    if away:
        state = 0.0 * state
        kept = 0.0 * kept if each else kept
    if "parameters" in plan.offload:
        held = 0.0 * held
    return (
        MemoryTerm(label="parameters", size=held, exactness="exact"),
        MemoryTerm(label="gradients", size=kept, exactness="exact"),
        MemoryTerm(label="optimizer state", size=state, exactness="exact"),
    )


def layer_kept(model: Model, tokens: Count, plan: Plan, run: Run, stack: Stack) -> tuple[Bytes, Bytes, Bytes]:
    """One layer of one micro-batch on one rank: (kept until its backward, all that its backward reads, its input)."""
    scores = stack.attention in ("unfused", "fused")
    outside, inside = family(model.family).activation_bytes(model, stack.kernels, scores, run.seq_len)
    outside, inside = precision.kept(model, plan, outside, inside)
    across = plan.tp if plan.sequence_parallel else 1.0
    per_layer = tokens * (outside / across + inside / plan.tp)
    checkpoint = tokens * model.hidden * precision.recipe(plan.precision).width / across
    kept = recompute.kept(plan.recompute, stack.selective) * per_layer
    if plan.recompute == "selective" and stack.selective == "attention" and scores:
        kept = kept - tokens * 5.0 * model.heads * run.seq_len / plan.tp
    kept = np.maximum(kept, checkpoint)
    if plan.recompute.startswith("every-"):  # one layer of K keeps its input only
        share = recompute.share(plan.recompute)
        kept = (1.0 - share) * per_layer + share * checkpoint
    return kept, per_layer, checkpoint


def _activations(model: Model, work: Work, stage: Stage, plan: Plan, run: Run, stack: Stack) -> tuple[Bytes, Bytes]:
    """(kept until the backward over all micro-batches in flight, working set of the layer being computed)."""
    kept, per_layer, checkpoint = layer_kept(model, work.tokens, plan, run, stack)
    flying: Count = 1.0
    if plan.pp > 1:
        flying = schedule(plan.schedule).in_flight(stage.first, plan.pp, work.micro_batches, plan.virtual_stages)
    edge = checkpoint if stage.embedding else 0.0
    if "activations" in plan.offload:  # two layers' worth, on their way
        return float(min(stage.layers, 2)) * kept + flying * edge, per_layer - kept + checkpoint
    # what runs again (all of a replayed layer, its kept input not twice) and one gradient
    working = per_layer if plan.recompute.startswith("every-") else per_layer - kept + checkpoint
    return flying * (float(stage.layers) * kept + edge), working


def _gathered(work: Work, plan: Plan, stage: Stage) -> Bytes:
    """fsdp: two layers' parameters and the root unit's, and the whole gradient of the largest unit, twice where it is cast."""
    if not fsdp.applies(plan):
        return 0.0
    reduce, base = WIDTH[plan.reduce_dtype], precision.recipe(plan.precision)
    gradient = reduce if plan.reduce_dtype == base.base else reduce + base.width
    units = stage.layers if not plan.reshard else min(stage.layers, 2)
    layer = work.blocks["layer"]
    total = layer.held * float(units) * precision.gather_width(plan, "layer")
    largest = layer.trained * float(min(stage.layers, 1)) * gradient
    for name, here in (("embedding", stage.embedding), ("head", stage.head)):
        if here:
            total = total + work.blocks[name].held * precision.gather_width(plan, name)
            largest = np.maximum(largest, work.blocks[name].trained * gradient)
    return total + largest
