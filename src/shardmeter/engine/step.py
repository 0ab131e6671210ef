"""Step scope: micro-batches through the pipeline, then what happens once per optimizer step."""

from __future__ import annotations

import numpy as np

from shardmeter.core.formula import under
from shardmeter.core.record import changed
from shardmeter.core.units import Bytes, Seconds
from shardmeter.engine import add, demand, hide
from shardmeter.engine.demand import Work
from shardmeter.engine.hide import Fold
from shardmeter.engine.layer import Ledger, Piece
from shardmeter.engine.micro_batch import MicroBatch
from shardmeter.engine.price import Prices
from shardmeter.engine.update import update
from shardmeter.schedules import Slot, schedule, traits
from shardmeter.specs.demands import Transfer
from shardmeter.specs.plan import Plan
from shardmeter.specs.stack import Stack
from shardmeter.strategies import data, fsdp
from shardmeter.strategies.pipeline import Stage
from shardmeter.strategies.precision import WIDTH


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
    copied = demand.copies_reduction(work, plan)
    if copied is not None:
        with under("gradient reduction"):
            after = price.transfer(copied).seconds
        add.merged(exposed, {"gradient reduction": after}, 1.0)
    if not fsdp.applies(plan):
        with under("parameter gather"):
            gather, gather_hidden = _update_gather(work, pieces, price, plan, stack)
        with under("gradient reduction"):
            reduce, reduce_hidden = _gradient_reduction(work, pieces, price, plan, stack)
        slowed = stack.contention * (gather_hidden + reduce_hidden)
        before, after = gather, after + reduce + slowed
        add.merged(exposed, {"parameter gather": gather, "gradient reduction": reduce, "contention": slowed}, 1.0)
        add.merged(hidden, {"parameter gather": gather_hidden, "gradient reduction": reduce_hidden}, 1.0)
    updating, behind = update(work, pieces, price, plan, after)
    add.merged(exposed, updating, 1.0)
    add.merged(hidden, behind, 1.0)
    exposed["software"] = stack.step_overhead
    after = after + add.folded(updating.values()) + exposed["software"]
    tokens = work.tokens * work.micro_batches
    return exposed, hidden, Fold(prologue=before, steady=steady, epilogue=after, idle={"compute": bubble}, work=tokens)


def _pipeline(work: Work, stages: list[MicroBatch], price: Prices, plan: Plan, stack: Stack) -> tuple[Ledger, Ledger]:
    """The critical device's seconds × micro-batches, the bubble that the schedule leaves, and what sends add to it."""
    exposed: Ledger = {}
    hidden: Ledger = {}
    devices = _devices(work, stages, plan)
    longest = devices[0].slot.whole
    for device in devices[1:]:
        longest = np.maximum(longest, device.slot.whole)
    add.merged(exposed, _critical(devices, longest, "exposed"), work.micro_batches)
    add.merged(hidden, _critical(devices, longest, "hidden"), work.micro_batches)
    if plan.pp > 1:
        module = schedule(plan.schedule)
        slots = [
            changed(stages[kind].slot, first=first, count=count, owed=work.owed) for kind, first, count in work.runs
        ]
        with under("stage sends"):
            hop = price.transfer(work.send).seconds
        passes, chunks = work.micro_batches, plan.virtual_stages
        still = module.makespan(slots, passes, chunks, 0.0)
        moving = still
        if not stack.pipeline_overlap and module.TRAITS.blocking:
            moving = module.makespan([_with_sends(slot, chunks * hop) for slot in slots], passes, chunks, 0.0)
        elif not stack.pipeline_overlap:
            moving = module.makespan(slots, passes, chunks, hop)
        exposed["stage sends"] = moving - still
        exposed["pipeline bubble"] = still - work.micro_batches * longest
        if stack.pipeline_overlap:
            hidden["stage sends"] = 2.0 * hop * work.micro_batches
    return exposed, hidden


def _with_sends(slot: Slot, seconds: Seconds) -> Slot:
    """A slot in which every chunk's send, forward and back, takes its turn."""
    return changed(slot, forward=slot.forward + seconds, input_grad=slot.input_grad + seconds)


def _devices(work: Work, stages: list[MicroBatch], plan: Plan) -> list[MicroBatch]:
    """What a device does per micro-batch: its stage or, with two copies of the model in opposite directions, half of its own
    stage and half of the mirrored one."""
    if plan.pp == 1 or traits(plan.schedule).copies == 1.0:
        return stages
    line = [stages[kind] for kind, _, count in work.runs for _ in range(count)]
    found: list[MicroBatch] = []
    for own, mirrored in zip(line[: len(line) // 2], line[::-1], strict=False):
        ledgers: dict[str, Ledger] = {"exposed": {}, "hidden": {}}
        parts: dict[str, Seconds] = {}
        for name, ledger in ledgers.items():
            add.merged(ledger, getattr(own, name), 0.5)
            add.merged(ledger, getattr(mirrored, name), 0.5)
        for name in ("forward", "input_grad", "weight_grad"):
            parts[name] = (getattr(own.slot, name) + getattr(mirrored.slot, name)) / 2.0
        found.append(changed(own, slot=changed(own.slot, **parts), **ledgers))
    return found


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
    held = demand.gradient_parameters(work, stage)
    width = WIDTH[plan.reduce_dtype]
    moves = data.gradient_transfers(held.dense, plan, width, stack.accumulate)
    if _routed(stage):
        moves = (*moves, *data.gradient_transfers(held.experts, plan, width, stack.accumulate, experts=True))
    seconds = _in_buckets(moves, price, stack.bucket)
    shown = seconds
    if stack.gradient_overlap:
        layers = float(max(stage.layers, 1))
        shown = hide.tail(seconds, _train(stage, pieces, "backward") / layers, layers)
    times = work.micro_batches if data.reduces_each(plan, stack.accumulate) else 1.0
    return times * shown, times * (seconds - shown)


def _update_gather(
    work: Work, pieces: dict[str, Piece], price: Prices, plan: Plan, stack: Stack
) -> tuple[Seconds, Seconds]:
    """(exposed, hidden) seconds of gathering updated parameters, before or behind the first forward."""
    stage = work.stages[0]
    held = demand.gradient_parameters(work, stage)
    width = WIDTH[plan.gather_dtype]
    moves = data.update_transfers(held.dense, plan, width)
    if _routed(stage):
        moves = (*moves, *data.update_transfers(held.experts, plan, width, experts=True))
    seconds = _in_buckets(moves, price, stack.bucket)
    window = _train(stage, pieces, "forward") if stack.gather_overlap else 0.0
    shown = hide.late(seconds, window)
    return shown, seconds - shown


def _routed(stage: Stage) -> bool:
    """Whether a stage has layers with routed experts."""
    return any(name == "moe layer" for name, _ in stage.contents)


def _train(stage: Stage, pieces: dict[str, Piece], direction: str) -> Seconds:
    """Seconds of all layers of a stage in one direction, waits for copies to and from the host included."""
    return add.folded(
        float(count) * add.larger(getattr(pieces[name], direction), getattr(pieces[name].copies, direction))
        for name, count in stage.contents
    )


def _in_buckets(transfers: tuple[Transfer, ...], price: Prices, bucket: Bytes) -> Seconds:
    total: Seconds = 0.0
    for transfer in transfers:
        buckets = np.maximum(np.ceil(transfer.size / bucket), 1.0)
        total = total + price.transfer(changed(transfer, size=transfer.size / buckets, messages=buckets)).seconds
    return total
