"""Step scope: micro-batches through the pipeline, then what happens once per optimizer step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shardmeter.core.formula import under
from shardmeter.core.record import changed
from shardmeter.core.sums import plain_sum
from shardmeter.core.units import Count, Seconds
from shardmeter.engine import add, demand, joined, whole
from shardmeter.engine.demand import Work
from shardmeter.engine.hide import Fold
from shardmeter.engine.jitter import stragglers
from shardmeter.engine.joined import Joint
from shardmeter.engine.layer import Ledger, Piece
from shardmeter.engine.micro_batch import MicroBatch, parted
from shardmeter.engine.price import Prices
from shardmeter.engine.update import update
from shardmeter.schedules import Boundary, Slot, long_makespan, schedule, traits
from shardmeter.specs.plan import Plan
from shardmeter.specs.stack import Stack
from shardmeter.strategies import data, fsdp, probes


def step(
    work: Work,
    stages: list[MicroBatch],
    pieces: dict[str, Piece],
    price: Prices,
    plan: Plan,
    stack: Stack,
    links: tuple[Boundary, ...] = (),
    busiest: Seconds = 0.0,
    meeting: Seconds = 0.0,
) -> tuple[Ledger, Ledger, Fold]:
    """Exposed and hidden seconds of one step by label, and the fold that the round scope will be given. `links`: what stages send
    over, where their boundaries are not alike; `pieces` and `price` are then those of the slowest stage, and two copies of the model
    take `meeting` seconds to sum their gradients."""
    with under("stage sends"):
        hop = price.transfer(work.send).seconds if plan.pp > 1 else 0.0
    if not fsdp.applies(plan) and data.reduces_each(plan, stack.accumulate):
        with under("gradient reduction"):
            stages = [whole.each(work, stage, pieces, price, plan) for stage in stages]
    stages = joined.merged(work, stages, pieces, plan, stack)
    joints = joined.line(work, pieces, plan, stack)
    exposed, hidden = _pipeline(work, stages, hop, plan, stack, joints, links, busiest)
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
            after = meeting if links else price.transfer(copied).seconds
        add.merged(exposed, {"gradient reduction": after}, 1.0)
    waited: Seconds = 0.0
    if not fsdp.applies(plan):
        delay = 0.0 if stack.pipeline_overlap else hop
        with under("parameter gather"):
            gather = whole.update(work, stages, pieces, price, plan, delay)
        with under("gradient reduction"):
            reduce = whole.reduction(work, stages, pieces, price, plan, delay)
        before, after, waited = gather.cost, after + reduce.cost, reduce.cost
        shown = {"parameter gather": gather.exposed, "gradient reduction": reduce.exposed}
        add.merged(exposed, {**shown, "contention": gather.slowed + reduce.slowed}, 1.0)
        add.merged(hidden, {"parameter gather": gather.hidden, "gradient reduction": reduce.hidden}, 1.0)
    losses = probes.losses(plan)
    if losses is not None:
        with under(probes.LOSSES):
            add.merged(exposed, {probes.LOSSES: price.transfer(losses).seconds}, 1.0)
    updating, behind = update(work, pieces, price, plan, {one.stage: waited + one.waits for one in stages})
    add.merged(exposed, updating, 1.0)
    add.merged(hidden, behind, 1.0)
    exposed["stragglers"] = stragglers(work, stages, updating["optimizer"], plan, stack)
    exposed["software"] = stack.step_overhead
    after = after + add.folded(updating.values()) + exposed["stragglers"] + exposed["software"]
    tokens = work.tokens * work.micro_batches
    return exposed, hidden, Fold(prologue=before, steady=steady, epilogue=after, idle={"compute": bubble}, work=tokens)


def _pipeline(
    work: Work,
    stages: list[MicroBatch],
    hop: Seconds,
    plan: Plan,
    stack: Stack,
    joints: Sequence[Joint] = (),
    links: tuple[Boundary, ...] = (),
    busiest: Seconds = 0.0,
) -> tuple[Ledger, Ledger]:
    """The critical device's seconds × micro-batches, the bubble that the schedule leaves, and what sends add to it."""
    exposed: Ledger = {}
    hidden: Ledger = {}
    devices = _devices(work, stages, plan, joints)
    each, longest = _busiest(work, devices)
    add.merged(exposed, _critical(devices, each, longest, "exposed"), work.micro_batches)
    add.merged(hidden, _critical(devices, each, longest, "hidden"), work.micro_batches)
    if links:
        still, moving = _along(work, slots_of(work, stages, plan, joints), plan, stack, links, busiest)
        exposed["stage sends"] = moving - still
        exposed["pipeline bubble"] = still - work.micro_batches * longest
        sent = 2.0 * work.micro_batches * add.folded(link.wire for link in links) / float(len(links))
        hidden["stage sends"] = add.larger(sent - exposed["stage sends"], 0.0)
    elif plan.pp > 1:
        module = schedule(plan.schedule)
        slots = slots_of(work, stages, plan, joints)
        passes, chunks = work.micro_batches, plan.virtual_stages
        still = module.makespan(slots, passes, chunks, 0.0)
        moving = still
        if not stack.pipeline_overlap:
            moving = module.makespan(slots, passes, chunks, hop)
        exposed["stage sends"] = moving - still
        exposed["pipeline bubble"] = still - work.micro_batches * longest
        if stack.pipeline_overlap:
            hidden["stage sends"] = 2.0 * hop * work.micro_batches
    return exposed, hidden


def _along(
    work: Work, slots: list[Slot], plan: Plan, stack: Stack, links: tuple[Boundary, ...], busiest: Seconds
) -> tuple[Seconds, Seconds]:
    """Seconds of the micro-batches over unlike links, (without sends, with them)."""
    none = tuple(Boundary(wire=0.0, ahead=link.ahead) for link in links)
    passes = round(float(work.micro_batches))
    still, moving = (
        long_makespan(plan.schedule, own, passes, plan.virtual_stages, one, beside=stack.pipeline_overlap)
        for own, one in ((slots, none), _asking(slots, links))
    )
    return still, np.maximum(moving, busiest)


def _asking(slots: list[Slot], links: tuple[Boundary, ...]) -> tuple[list[Slot], tuple[Boundary, ...]]:
    """The turns of stages that ask for what they get: the word, the wire and the way of a message are part of the turn that waits for
    it, but for the word's way if the message is not there yet. Two boundaries alike: (S, E) the ends of the turns before it there and here,
    it ends at max(S − way, E) + 2 · way + wire + its compute.

    Leaves out: several chunks of a device, whose messages pass as elsewhere; sends that wait for their receiver."""
    if not any(link.asked for link in links) or any(slot.chunks for slot in slots):
        return slots, links
    line = [slot for slot in slots for _ in range(slot.count)]
    trips = [link.wire + 2.0 * link.delay if link.asked else 0.0 for link in links]
    asking = [
        changed(
            slot, first=at, count=1,
            forward=slot.forward + (trips[at - 1] if at else 0.0),
            input_grad=slot.input_grad + (trips[at] if at < len(line) - 1 else 0.0),
        )
        for at, slot in enumerate(line)
    ]  # fmt: skip
    return asking, tuple(changed(link, wire=0.0, delay=-link.delay) if link.asked else link for link in links)


def slowest_pieces(
    work: Work, stages: list[MicroBatch], pieces: dict[str, Piece], plan: Plan, stack: Stack
) -> dict[str, float]:
    """How many pieces of every block the slowest device computes for a micro-batch, of a plan of plain numbers: those of its
    stage or, with two copies of the model, the mean of its two stages."""
    devices = _devices(work, stages, plan, joined.line(work, pieces, plan, stack))
    each = [float(device.slot.whole + device.slot.ending / work.micro_batches) for device in devices]
    at = each.index(max(each))
    own = [stages[at].stage]
    if plan.pp > 1 and traits(plan.schedule).copies != 1.0:
        line = [stages[kind].stage for kind, _, count in work.runs for _ in range(count)]
        own = [line[at], line[-1 - at]]
    counts = [dict(demand.contents(stage)) for stage in own]
    return {name: plain_sum(one.get(name, 0) for one in counts) / len(own) for name in work.blocks}


def least(work: Work, stages: list[MicroBatch], plan: Plan) -> Seconds:
    """Seconds that no schedule can do with less: every turn of the busiest device, one after the other. Leaves out: bubbles,
    sends, and what happens once a step. Not for schedules that join turns."""
    return work.micro_batches * _busiest(work, _devices(work, stages, plan))[1]


def _busiest(work: Work, devices: list[MicroBatch]) -> tuple[list[Seconds], Seconds]:
    """What a micro-batch takes on each device, and the most of them."""
    each = [device.slot.whole + device.slot.ending / work.micro_batches for device in devices]
    longest = each[0]
    for seconds in each[1:]:
        longest = np.maximum(longest, seconds)
    return each, longest


def _evened(slot: Slot, micro_batches: Count, phase: str) -> Slot:
    """A slot in which every backward takes its part of what the last one takes longer."""
    chunks = tuple(_evened(chunk, micro_batches, phase) for chunk in slot.chunks)
    longer = getattr(slot, phase) + slot.ending / micro_batches
    return changed(slot, **{phase: longer}, ending=0.0, chunks=chunks)


def slots_of(work: Work, stages: list[MicroBatch], plan: Plan, joints: Sequence[Joint] = ()) -> list[Slot]:
    """What the schedule is given: runs of equal stages or, where turns are joined, every stage with what its backward saves
    together with a forward of the mirrored one. A schedule that knows no last backward has that in all of them."""
    slots = [changed(stages[kind].slot, first=first, count=count, owed=work.owed) for kind, first, count in work.runs]
    if not traits(plan.schedule).ending:
        phase = "weight_grad" if parted(plan) else "input_grad"
        slots = [_evened(slot, work.micro_batches, phase) for slot in slots]
    if not joints:
        return slots
    line = [slot for slot in slots for _ in range(slot.count)]
    pairs = enumerate(zip(line, reversed(joints), strict=True))
    return [changed(slot, first=at, count=1, joined=joint.saved) for at, (slot, joint) in pairs]


def _devices(work: Work, stages: list[MicroBatch], plan: Plan, joints: Sequence[Joint] = ()) -> list[MicroBatch]:
    """What a device does per micro-batch: its stage or, with two copies of the model in opposite directions, half of its own
    stage and half of the mirrored one, less what joined turns hide."""
    if plan.pp == 1 or traits(plan.schedule).copies == 1.0:
        return stages
    line = [stages[kind] for kind, _, count in work.runs for _ in range(count)]
    found: list[MicroBatch] = []
    for at, (own, mirrored) in enumerate(zip(line[: len(line) // 2], line[::-1], strict=False)):
        ledgers: dict[str, Ledger] = {"exposed": {}, "hidden": {}}
        parts: dict[str, Seconds] = {}
        for name in ("forward", "input_grad", "weight_grad", "ending"):
            parts[name] = (getattr(own.slot, name) + getattr(mirrored.slot, name)) / 2.0
        for name, ledger in ledgers.items():
            add.merged(ledger, getattr(own, name), 0.5)
            add.merged(ledger, getattr(mirrored, name), 0.5)
        if joints:
            counts = schedule(plan.schedule).joins(at, plan.pp, work.micro_batches)
            for joint, count in zip((joints[at], joints[-1 - at]), counts, strict=True):
                share = count / work.micro_batches
                for name, ledger in ledgers.items():
                    add.merged(ledger, getattr(joint, name), share)
                parts["input_grad"] = parts["input_grad"] - share * joint.saved
        found.append(changed(own, slot=changed(own.slot, **parts), **ledgers))
    return found


def _critical(stages: list[MicroBatch], each: list[Seconds], longest: Seconds, which: str) -> Ledger:
    """The ledger of the slowest stage (the earliest of equals), element by element."""
    result: Ledger = dict(getattr(stages[-1], which))
    for stage, seconds in zip(reversed(stages[:-1]), reversed(each[:-1]), strict=True):
        is_longest = np.greater_equal(seconds, longest)
        ledger: Ledger = getattr(stage, which)
        for label in {**result, **ledger}:
            result[label] = add.chosen(is_longest, ledger.get(label, 0.0), result.get(label, 0.0))
    return result
