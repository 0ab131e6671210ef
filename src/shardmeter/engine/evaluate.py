"""The four verbs in order, scope by scope: layer ⊂ micro-batch ⊂ step.

Every function takes and returns numbers of the broadcast shape; only names (blocks, stages, sharding, schedule) loop.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from shardmeter.core.formula import within
from shardmeter.core.record import changed, record
from shardmeter.core.sums import plain_sum
from shardmeter.core.units import Bytes, Count, Seconds
from shardmeter.engine import add, demand, host, memory
from shardmeter.engine.demand import Work
from shardmeter.engine.layer import Piece, piece
from shardmeter.engine.micro_batch import MicroBatch, chunks, micro_batch
from shardmeter.engine.price import Prices, prices
from shardmeter.engine.reference import LABEL, Reference, reference
from shardmeter.engine.reference import resident as reference_memory
from shardmeter.engine.step import least, step
from shardmeter.families import parameters, sized
from shardmeter.families.operations import is_layer
from shardmeter.schedules import Boundary, Hop, Last, leaving, schedule, traits
from shardmeter.specs.demands import OPTIMIZER, Transfer
from shardmeter.specs.estimate import Ends, Estimate, Leaving, Term
from shardmeter.specs.fleet import Island
from shardmeter.specs.model import Model
from shardmeter.specs.plan import Plan
from shardmeter.specs.run import Run
from shardmeter.specs.stack import Stack
from shardmeter.strategies import data, fsdp, precision, probes
from shardmeter.strategies.precision import WIDTH

Priced: TypeAlias = tuple[Work, Prices, dict[str, Piece], list[MicroBatch]]
"""Demands of one step, their prices, one piece of every block at these, and the micro-batch of every kind of stage."""
Timed: TypeAlias = tuple[tuple[Term, ...], Seconds, Reference | None]
"""The ledger, the seconds of compute in it, and what a reference model takes."""


def demands(model: Model, plan: Plan, run: Run, stack: Stack) -> Work:
    """What a step demands, at no price. Raises UnknownName."""
    return demand.collect(sized(model, run.seq_len), plan, run, stack)


def priced(model: Model, island: Island, plan: Plan, run: Run, stack: Stack, work: Work | None = None) -> Priced:
    """A step with its prices; `work` are its `demands`, where they are known. Raises UnknownName."""
    work = demands(model, plan, run, stack) if work is None else work
    model = sized(model, run.seq_len)
    if traits(plan.schedule).split:
        work = changed(work, owed=memory.owed_share(model, work, plan, stack))
    recipe = precision.recipe(plan.precision)
    price = prices(island, stack, plan, recipe.width, recipe.base)
    pieces = {name: piece(block, price, stack) for name, block in work.blocks.items()}
    if plan.offload:
        for name in filter(is_layer, work.blocks):
            with within(name):
                copied = host.copies(model, work, price, plan, stack, name)
            pieces[name] = changed(pieces[name], copies=copied)
    stages = [micro_batch(stage, pieces, plan, stack, work.micro_batches) for stage in work.stages]
    return work, price, pieces, stages


def evaluate(model: Model, island: Island, plan: Plan, run: Run, stack: Stack, *, meets: bool = False) -> Estimate:
    """Predict one optimizer step of one island. Any numeric field may be an array; results have the broadcast shape. Of an island that
    `meets` others `ends.leaving` says when its gradients are whole.

    Raises UnknownName for a family or schedule that is not built. Legality is the constraints' business: an illegal plan
    gives meaningless numbers here, not an error. Leaves out: data loading, evaluation; of a run with a reference model,
    what that one computes is in the step and in no FLOP count."""
    ready = priced(model, island, plan, run, stack)
    time = timed(ready, plan, run, stack)
    whole = ending(model, ready, time[0], plan, meets=meets)
    return assembled(model, island, plan, run, stack, ready, time, whole)


def memory_peak(model: Model, plan: Plan, run: Run, stack: Stack) -> Bytes:
    """The peak of the fullest rank as `evaluate` has it, without pricing the step. Leaves out the frozen model of a run with one, whose
    memory hangs on its prices: the peak is then at least this."""
    work = demands(model, plan, run, stack)
    if traits(plan.schedule).split:
        work = changed(work, owed=memory.owed_share(sized(model, run.seq_len), work, plan, stack))
    return add.memory_total(memory.residents(model, work, plan, run, stack)[0])


def assembled(
    model: Model,
    island: Island,
    plan: Plan,
    run: Run,
    stack: Stack,
    ready: Priced,
    time: Timed,
    whole: Ending,
    held: Work | None = None,
) -> Estimate:
    """The estimate of a priced and timed step that ends as `whole`. `held`: the stages whose memory is asked, where that is not all."""
    terms, busy, beside = time
    work = ready[0]
    resident = () if beside is None else (beside.memory,)
    memory_terms, allocated, first = memory.residents(model, held or work, plan, run, stack, resident)
    device = island.accelerator
    return Estimate(
        step_time=add.total(terms),
        terms=terms,
        memory=memory_terms,
        memory_allocated=allocated,
        memory_first=first,
        memory_peak=add.memory_total(memory_terms),
        memory_limit=device.memory,
        tokens=run.global_batch * run.seq_len,
        samples=run.global_batch,
        model_flops=work.model_flops,
        hardware_flops=work.model_flops + work.replay_flops,
        compute_seconds=busy,
        gpus=island.gpus,
        peak_flops=island.gpus * device.peak_counted,
        ends=ends(ready, plan, held or work, whole),
    )


@record
class Ending:
    """How a step ends, as all islands of its pipeline have it."""

    lasts: tuple[Last, ...] | None
    """The last turns of all stages, of a pipeline that holds the model once; None where nobody asks when gradients are whole."""
    late: Seconds
    trained: Count
    spread: Seconds


def ending(
    model: Model,
    ready: Priced,
    terms: tuple[Term, ...],
    plan: Plan,
    links: tuple[Boundary, ...] = (),
    *,
    meets: bool = True,
) -> Ending:
    """How a step ends, of an island that `meets` others with when its gradients are whole; `links`: what the pipeline's stages send
    over, where that is not alike."""
    shown: Seconds = 0.0
    for term in terms:
        if term.label == "gradient reduction":
            shown = shown + term.seconds
    work = ready[0]
    turns = plan.pp > 1 and traits(plan.schedule).copies == 1.0
    return Ending(
        lasts=(_lasts(ready, plan, links) if turns else ()) if meets else None,
        late=shown / (work.micro_batches if fsdp.applies(plan) else 1.0),
        trained=_trained(model, work, plan),
        spread=_spread(ready, plan),
    )


def ends(ready: Priced, plan: Plan, held: Work, whole: Ending) -> Ends:
    """How the stages end that an island holds."""
    return Ends(
        leaving=() if whole.lasts is None else _leaving(ready, plan, held, whole.lasts),
        stages=plain_sum(count for _, _, count in held.runs),
        late=whole.late,
        shard=updated(held, plan),
        trained=whole.trained,
        spread=whole.spread,
        collectives=_collectives(ready, plan, held, whole.trained),
    )


def _collectives(ready: Priced, plan: Plan, held: Work, trained: Count) -> Count:
    """Collectives that the gradients of the island's fullest stage pass in, of `trained` parameters that all islands of its cell hold.

    Leaves out: the first bucket of PyTorch's DDP, which is smaller."""
    if plan.probes is not None:
        return 1.0
    work, price, _, kinds = ready
    if fsdp.applies(plan):
        return max(float(kinds[at].stage.layers) for at, _, _ in held.runs) + 1.0
    size = trained / float(max(len(work.stages), 1)) * WIDTH[plan.reduce_dtype]
    return np.maximum(np.ceil(size / price.stack.bucket), 1.0)


def _lasts(ready: Priced, plan: Plan, links: tuple[Boundary, ...]) -> tuple[Last, ...]:
    """The last turns of all stages of a pipeline."""
    work, price, _, kinds = ready
    beside = price.stack.pipeline_overlap
    hop: Hop = links or (0.0 if beside else price.transfer(work.send).seconds)
    slots = [changed(kinds[at].slot, first=first, count=count) for at, first, count in work.runs]
    blocking = traits(plan.schedule).blocking and not beside
    return leaving(schedule(plan.schedule), slots, work.micro_batches, plan.virtual_stages, hop, blocking=blocking)


def _leaving(ready: Priced, plan: Plan, held: Work, lasts: tuple[Last, ...]) -> tuple[Leaving, ...]:
    """When the gradients of an island's stages are whole: those of a layer with the last of its micro-batches, wherever
    they are reduced inside the island before. Two copies of a model first add theirs up, at the end.

    Leaves out: the embedding and the head, which leave as part of the layers beside them."""
    work, _, _, kinds = ready
    if plan.pp == 1:
        one = kinds[0]
        return (Leaving(window=one.slot.backward + one.slot.ending, pieces=float(max(one.stage.layers, 1))),)
    if not lasts:
        return (Leaving(),)
    own = [at for _, first, count in held.runs for at in range(first, first + count)]
    rows = {at: chunks(kinds[one].stage, plan) for one, first, count in work.runs for at in range(first, first + count)}
    layers = {at: [float(max(plain_sum(n for _, n in row), 1)) for row in rows[at]] for at in own}
    whole = plain_sum(map(plain_sum, layers.values()))
    return tuple(
        Leaving(
            left=one.left,
            window=one.window,
            pieces=number,
            share=number / whole,
            due=one.due,
            stage=own.index(one.position),
        )
        for one in lasts
        if one.position in layers
        for number in (layers[one.position][one.chunk],)
    )


def _spread(ready: Priced, plan: Plan) -> Seconds:
    """An all-gather over the ranks that hold the same parameters, at one byte each of the stage that holds most."""
    work, price, _, _ = ready
    sharded = fsdp.applies(plan)
    axes = fsdp.REPLICATE if sharded else data.GROUP
    held: Count = 0.0
    for one in (demand.gradient_parameters(work, stage) for stage in work.stages):
        held = np.maximum(held, one.sharded(plan) if sharded else one.all)
    gather = Transfer(
        label="outer parameters", collective="all_gather", size=held, axes=axes, phase=OPTIMIZER, scope="step"
    )
    return price.transfer(gather).seconds


def updated(work: Work, plan: Plan) -> Count:
    """Trained parameters that the fullest rank updates: it holds as many of whatever is kept a parameter."""
    shard: Count = 0.0
    for held, part in demand.devices(work, plan):
        shard = np.maximum(shard, demand.owned(work, plan, held, part)[0])
    return shard


def _trained(model: Model, work: Work, plan: Plan) -> Count:
    """Trained parameters of the whole model. Leaves out, where only a part is trained, that ranks of tensor parallelism each hold
    a copy of its norms (they are counted as often)."""
    if plan.probes is not None:
        return probes.dimension(model, plan)
    if plan.trainable == "all":
        return parameters(model)
    total: Count = 0.0
    for one in work.blocks.values():
        own = one.trained * plan.tp + one.experts_trained * plan.ep * plan.etp
        total = total + float(one.block.count) * own
    return total


def step_time(model: Model, island: Island, plan: Plan, run: Run, stack: Stack) -> Seconds:
    """`step_time` of `evaluate` and nothing else."""
    return add.total(timed(priced(model, island, plan, run, stack), plan, run, stack)[0])


def timed(
    ready: Priced,
    plan: Plan,
    run: Run,
    stack: Stack,
    links: tuple[Boundary, ...] = (),
    busiest: Seconds = 0.0,
    meeting: Seconds = 0.0,
) -> Timed:
    """The ledger of a priced step, the seconds of compute in it, and what a reference model takes, if there is one. `links`, `busiest`
    and `meeting` as for `step.step`."""
    work, price, pieces, stages = ready
    exposed, hidden, _ = step(work, stages, pieces, price, plan, stack, links, busiest, meeting)
    busy: Seconds = 0.0
    for label in add.BUSY:
        busy = busy + exposed.get(label, 0.0)
    beside = reference(run, price, plan, stack)
    if beside is not None:
        add.merged(exposed, {LABEL: beside.exposed, "stragglers": beside.late}, 1.0)
        add.merged(hidden, {LABEL: beside.hidden}, 1.0)
        busy = busy + beside.busy
    return add.ledger(exposed, hidden), busy, beside


def footprint(model: Model, work: Work, plan: Plan, run: Run, stack: Stack) -> Bytes:
    """`memory_peak` of `evaluate` and nothing else: demands without prices, a fraction of the work. Any numeric field may be an
    array."""
    beside = reference_memory(run, plan, stack)
    terms, _, _ = memory.residents(model, work, plan, run, stack, () if beside is None else (beside,))
    return add.memory_total(terms)


def least_step_time(ready: Priced, plan: Plan) -> Seconds:
    """A bound that `step_time` of `evaluate` is never below, without running the schedule. Not for schedules that join turns."""
    return least(ready[0], ready[3], plan)
