"""Step scope: micro-batches through the pipeline, then what happens once per optimizer step."""

from __future__ import annotations

import numpy as np

from shardmeter.core.formula import under
from shardmeter.core.record import changed
from shardmeter.core.units import Seconds
from shardmeter.engine import add, demand, whole
from shardmeter.engine.demand import Work
from shardmeter.engine.hide import Fold
from shardmeter.engine.layer import Ledger, Piece
from shardmeter.engine.micro_batch import MicroBatch
from shardmeter.engine.price import Prices
from shardmeter.schedules import schedule
from shardmeter.specs.plan import Plan
from shardmeter.specs.stack import Stack
from shardmeter.strategies import fsdp


def step(
    work: Work,
    stages: list[MicroBatch],
    pieces: dict[str, Piece],
    price: Prices,
    plan: Plan,
    stack: Stack,
) -> tuple[Ledger, Ledger, Fold]:
    """Exposed and hidden seconds of one step by label, and the fold that the round scope will be given."""
    with under("stage sends"):
        hop = price.transfer(work.send).seconds if plan.pp > 1 else 0.0
    if plan.sharding == "zero2":
        with under("gradient reduction"):
            stages = [whole.each(work, stage, pieces, price, plan) for stage in stages]
    exposed, hidden = _pipeline(work, stages, hop, plan, stack)
    steady = add.folded(exposed.values())
    bubble = exposed.get("pipeline bubble", 0.0)
    before: Seconds = 0.0
    after: Seconds = 0.0
    if work.tied is not None:
        with under("tied matrix"):
            add.merged(exposed, {"tied matrix": price.transfer(work.tied).seconds}, 1.0)
    if not fsdp.applies(plan):
        delay = 0.0 if stack.pipeline_overlap else hop
        with under("parameter gather"):
            gather = whole.update(work, stages, pieces, price, plan, delay)
        with under("gradient reduction"):
            reduce = whole.reduction(work, stages, pieces, price, plan, delay)
        before, after = gather.cost, reduce.cost
        shown = {"parameter gather": gather.exposed, "gradient reduction": reduce.exposed}
        add.merged(exposed, {**shown, "contention": gather.slowed + reduce.slowed}, 1.0)
        add.merged(hidden, {"parameter gather": gather.hidden, "gradient reduction": reduce.hidden}, 1.0)
    with under("optimizer"):
        exposed["optimizer"] = price.streamed(demand.optimizer_traffic(demand.largest_stage(work), plan))
    exposed["software"] = stack.step_overhead
    after = after + exposed["optimizer"] + exposed["software"]
    tokens = work.tokens * work.micro_batches
    return exposed, hidden, Fold(prologue=before, steady=steady, epilogue=after, idle={"compute": bubble}, work=tokens)


def _pipeline(work: Work, stages: list[MicroBatch], hop: Seconds, plan: Plan, stack: Stack) -> tuple[Ledger, Ledger]:
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
