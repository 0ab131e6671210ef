"""Step scope: micro-batches through the pipeline, then what happens once per optimizer step."""

from __future__ import annotations

import numpy as np

from shardmeter.core.formula import under
from shardmeter.core.record import changed
from shardmeter.core.units import Seconds
from shardmeter.engine import add, demand, hide
from shardmeter.engine.demand import Work
from shardmeter.engine.hide import Fold
from shardmeter.engine.layer import Ledger, Piece
from shardmeter.engine.micro_batch import MicroBatch
from shardmeter.engine.price import Charge, Prices
from shardmeter.schedules import schedule
from shardmeter.specs.demands import Transfer
from shardmeter.specs.plan import Plan
from shardmeter.specs.stack import Stack
from shardmeter.strategies import data, fsdp
from shardmeter.strategies.pipeline import Stage


def step(
    work: Work,
    stages: list[MicroBatch],
    pieces: dict[str, Piece],
    price: Prices,
    plan: Plan,
    stack: Stack,
) -> tuple[Ledger, Ledger, Fold]:
    """Exposed and hidden seconds of one step by label, and the fold that the round scope will be given."""
    exposed, hidden = _pipeline(work, stages, price, plan, stack)
    steady = add.folded(exposed.values())
    bubble = exposed.get("pipeline bubble", 0.0)
    before: Seconds = 0.0
    after: Seconds = 0.0
    if work.tied is not None:
        with under("tied matrix"):
            add.merged(exposed, {"tied matrix": price.transfer(work.tied).seconds}, 1.0)
    if not fsdp.applies(plan):
        with under("parameter gather"):
            gather, gather_hidden = _update_gather(work, pieces, price, plan, stack)
        with under("gradient reduction"):
            reduce, reduce_hidden = _gradient_reduction(work, pieces, price, plan, stack)
        slowed = stack.contention * (gather_hidden + reduce_hidden)
        before, after = gather, reduce + slowed
        add.merged(exposed, {"parameter gather": gather, "gradient reduction": reduce, "contention": slowed}, 1.0)
        add.merged(hidden, {"parameter gather": gather_hidden, "gradient reduction": reduce_hidden}, 1.0)
    with under("optimizer"):
        exposed["optimizer"] = price.streamed(demand.optimizer_traffic(demand.largest_stage(work), plan))
    exposed["software"] = stack.step_overhead
    after = after + exposed["optimizer"] + exposed["software"]
    tokens = work.tokens * work.micro_batches
    return exposed, hidden, Fold(prologue=before, steady=steady, epilogue=after, idle={"compute": bubble}, work=tokens)


def _pipeline(work: Work, stages: list[MicroBatch], price: Prices, plan: Plan, stack: Stack) -> tuple[Ledger, Ledger]:
    """The critical stage's seconds × micro-batches, the bubble that the schedule leaves, and what sends add to it."""
    longest = stages[0].slot.whole
    for stage in stages[1:]:
        longest = np.maximum(longest, stage.slot.whole)
    exposed: Ledger = {}
    hidden: Ledger = {}
    add.merged(exposed, _critical(stages, longest, "exposed"), work.micro_batches)
    add.merged(hidden, _critical(stages, longest, "hidden"), work.micro_batches)
    if plan.pp > 1:
        makespan = schedule(plan.schedule).makespan
        slots = [changed(stages[kind].slot, first=first, count=count) for kind, first, count in work.runs]
        with under("stage sends"):
            hop = price.transfer(work.send).seconds
        still = makespan(slots, work.micro_batches, plan.virtual_stages, 0.0)
        moving = still if stack.pipeline_overlap else makespan(slots, work.micro_batches, plan.virtual_stages, hop)
        exposed["stage sends"] = moving - still
        exposed["pipeline bubble"] = still - work.micro_batches * longest
        if stack.pipeline_overlap:
            hidden["stage sends"] = 2.0 * hop * work.micro_batches
    return exposed, hidden


def _critical(stages: list[MicroBatch], longest: Seconds, which: str) -> Ledger:
    """The ledger of the slowest stage (the earliest of equals), element by element."""
    result: Ledger = dict(getattr(stages[-1], which))
    for stage in reversed(stages[:-1]):
        is_longest = np.greater_equal(stage.slot.whole, longest)
        ledger: Ledger = getattr(stage, which)
        for label in {**result, **ledger}:
            result[label] = add.chosen(is_longest, ledger.get(label, 0.0), result.get(label, 0.0))
    return result


def _gradient_reduction(
    work: Work, pieces: dict[str, Piece], price: Prices, plan: Plan, stack: Stack
) -> tuple[Seconds, Seconds]:
    """(exposed, hidden) seconds of reducing whole gradients, behind the last backward of the first stage (all of them for
    zero2, which reduces after every micro-batch). Leaves out: later stages, which finish earlier and have slack."""
    stage = work.stages[0]
    seconds = add.folded(charge.seconds for charge in gradient_charges(work, stage, price, plan))
    shown = seconds
    if stack.gradient_overlap:
        shown = hide.tail(seconds, pieces["layer"].backward, float(max(stage.layers, 1)))
    times = work.micro_batches if plan.sharding == "zero2" else 1.0
    return times * shown, times * (seconds - shown)


def _update_gather(
    work: Work, pieces: dict[str, Piece], price: Prices, plan: Plan, stack: Stack
) -> tuple[Seconds, Seconds]:
    """(exposed, hidden) seconds of gathering updated parameters, before or behind the first forward."""
    stage = work.stages[0]
    seconds = add.folded(charge.seconds for charge in update_charges(work, stage, price, plan))
    window = float(max(stage.layers, 1)) * pieces["layer"].forward if stack.gather_overlap else 0.0
    shown = hide.late(seconds, window)
    return shown, seconds - shown


def gradient_charges(work: Work, stage: Stage, price: Prices, plan: Plan) -> tuple[Charge, ...]:
    """What the reduction of a stage's whole gradients takes, one collective after the other."""
    parameters = demand.gradient_parameters(work, stage)
    return _in_buckets(data.gradient_transfers(parameters, plan, demand.WIDTH[plan.reduce_dtype]), price)


def update_charges(work: Work, stage: Stage, price: Prices, plan: Plan) -> tuple[Charge, ...]:
    """What the gather of a stage's updated parameters takes."""
    parameters = demand.gradient_parameters(work, stage)
    return _in_buckets(data.update_transfers(parameters, plan, demand.WIDTH[plan.gather_dtype]), price)


def _in_buckets(transfers: tuple[Transfer, ...], price: Prices) -> tuple[Charge, ...]:
    charges = []
    for transfer in transfers:
        buckets = np.maximum(np.ceil(transfer.size / data.BUCKET), 1.0)
        charges.append(price.transfer(changed(transfer, size=transfer.size / buckets, messages=buckets)))
    return tuple(charges)
