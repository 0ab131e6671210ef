"""Whole gradients (ddp, zero1, zero2): their reduction behind the backward, and the gather of updated parameters behind the
forward. Every layer's share of the buckets is released when its gradient is whole, or due before its own forward.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from shardmeter.core.record import changed, record
from shardmeter.core.units import Fraction, Ratio, Seconds
from shardmeter.engine import add, demand, hide
from shardmeter.engine.demand import Work
from shardmeter.engine.layer import Piece
from shardmeter.engine.micro_batch import MicroBatch
from shardmeter.engine.price import NOTHING, Charge, Prices
from shardmeter.specs.demands import FORWARD, Transfer
from shardmeter.specs.plan import Plan
from shardmeter.specs.stack import Stack
from shardmeter.strategies import data, pipeline
from shardmeter.strategies.pipeline import Stage

TINY = 1e-30
"""Seconds: keeps a train without compute from dividing by nothing."""


@record
class Shown:
    """Seconds of one collective train: exposed, hidden, and what compute loses to contention while they hide."""

    exposed: Seconds = 0.0
    hidden: Seconds = 0.0
    slowed: Seconds = 0.0

    @property
    def cost(self) -> Seconds:
        """What it adds to the step."""
        return self.exposed + self.slowed


@record
class Released:
    """`count` equal pieces of a stage in the order of the backward: the share of its parameters that each holds, the compute
    from its release to the next one's, and what that compute itself occupies of the channels."""

    share: Fraction
    window: Seconds
    serial: Charge
    count: int


def reduction(
    work: Work, stages: Sequence[MicroBatch], pieces: Mapping[str, Piece], price: Prices, plan: Plan, hop: Seconds
) -> Shown:
    """The reduction of whole gradients behind the last backward, of the stage that ends last: an earlier stage works one
    backward longer, and what a train takes from the compute of any stage delays the whole line. None where every micro-batch
    has reduced its own (`each`). Leaves out: buckets that hold parts of two layers."""
    if plan.sharding == "zero2":
        return Shown()
    found, slack, slowed = Shown(), add.folded(()), add.folded(())
    for at, (kind, _, count) in enumerate(work.runs):
        stage, slot = stages[kind].stage, stages[kind].slot
        charges = gradient_charges(work, stage, price, plan)
        train = [group for part in released(work, stage, pieces, plan, backward=True) for group in part]
        shown = behind(charges, train, price.stack, overlap=price.stack.gradient_overlap)
        found = _later(found, shown, slack) if at else shown
        slack = slack + float(count) * (slot.backward / float(plan.virtual_stages) + hop + shown.slowed)
        slowed = slowed + float(count) * shown.slowed
    return changed(found, slowed=slowed)


def update(
    work: Work, stages: Sequence[MicroBatch], pieces: Mapping[str, Piece], price: Prices, plan: Plan, hop: Seconds
) -> Shown:
    """The gather of updated parameters behind the first forward, of the stage that it holds up most: a later stage has the
    forwards before it as well."""
    found, slack, slowed = Shown(), add.folded(()), add.folded(())
    for at, (kind, _, count) in enumerate(work.runs):
        stage, slot = stages[kind].stage, stages[kind].slot
        charges = update_charges(work, stage, price, plan)
        train = [group for part in released(work, stage, pieces, plan, backward=False) for group in part]
        shown = in_time(charges, train, price.stack, slack, overlap=price.stack.gather_overlap)
        found = _later(found, shown, 0.0) if at else shown
        slack = slack + float(count) * (slot.forward / float(plan.virtual_stages) + hop + shown.slowed)
        slowed = slowed + float(count) * shown.slowed
    return changed(found, slowed=slowed)


def _later(best: Shown, shown: Shown, slack: Seconds) -> Shown:
    """The one that shows more after its slack, element by element."""
    left = np.maximum(shown.exposed - slack, 0.0)
    more = np.greater(left, best.exposed)
    return Shown(
        exposed=add.chosen(more, left, best.exposed),
        hidden=add.chosen(more, shown.exposed + shown.hidden - left, best.hidden),
    )


def each(work: Work, one: MicroBatch, pieces: Mapping[str, Piece], price: Prices, plan: Plan) -> MicroBatch:
    """A micro-batch that reduces its own gradients (zero2) behind its own backward, and waits for that at the end."""
    charges = gradient_charges(work, one.stage, price, plan)
    exposed, hidden, slot = dict(one.exposed), dict(one.hidden), one.slot
    for part in released(work, one.stage, pieces, plan, backward=True):
        train = [group for group in part if group.count]
        if not train:
            continue
        turn = [*train[:-1], changed(train[-1], window=0.0, serial=NOTHING)]
        shown = behind(charges, turn, price.stack, overlap=price.stack.gradient_overlap)
        add.merged(exposed, {"gradient reduction": shown.exposed, "contention": shown.slowed}, 1.0)
        add.merged(hidden, {"gradient reduction": shown.hidden}, 1.0)
        slot = changed(slot, input_grad=slot.input_grad + shown.cost)
    return changed(one, exposed=exposed, hidden=hidden, slot=slot)


def behind(charges: Sequence[Charge], train: Sequence[Released], stack: Stack, *, overlap: bool) -> Shown:
    """Collectives in a row, cut as the parameters of a train are, behind its computes; all of them shown without overlap.

    Compute does not wait for them before the end, but slows down by κ for every second that they run beside it: a window of
    compute p lasts p/(1 − κ) while there is a backlog, p + κ·work without. What is left over is waited for at the end.
    Exact without contention; with it but for the window in which a backlog ends."""
    total, train = _total(charges), [group for group in train if group.count]
    if not train:
        return Shown()
    seconds = total.seconds * add.folded(float(group.count) * group.share for group in train)
    if not overlap:
        return Shown(exposed=seconds)
    left, slowed = _backlog(total, train, stack.contention)
    # the last piece's collectives follow one another where they use unlike channels
    rest = train[-1].share * (total.seconds - np.maximum(total.scale_up, total.fabric))
    return Shown(exposed=left + rest, hidden=seconds - left - rest, slowed=slowed)


def _backlog(total: Charge, train: Sequence[Released], contention: Ratio) -> tuple[Seconds, Seconds]:
    """(what the busier channel still has to do when the train ends, seconds that compute has lost on the way)."""
    kept = np.maximum(1.0 - contention, TINY)
    ends: list[Seconds] = []
    lost: list[Seconds] = []
    for channel in ("scale_up", "fabric"):
        work: Seconds = getattr(total, channel)
        left: Seconds = 0.0
        slowed: Seconds = 0.0
        for group in train:
            count, compute = float(group.count), group.window - group.serial.seconds
            room = compute / kept + group.serial.seconds - getattr(group.serial, channel)
            come = left + count * group.share * work
            left = np.maximum(come - count * room, 0.0)
            slowed = slowed + np.minimum(come - left, count * compute / kept)
        ends.append(left)
        lost.append(slowed)
    fabric = np.greater_equal(total.fabric, total.scale_up)
    whole = total.seconds / np.maximum(np.maximum(total.fabric, total.scale_up), TINY)
    return np.maximum(ends[0], ends[1]), contention * whole * add.chosen(fabric, lost[1], lost[0])


def in_time(
    charges: Sequence[Charge], train: Sequence[Released], stack: Stack, slack: Seconds, *, overlap: bool
) -> Shown:
    """The same read backwards: released together, each due before its own compute, the first of them after `slack`."""
    total, train = _total(charges), [group for group in train if group.count]
    if not train:
        return Shown()
    seconds = total.seconds * add.folded(float(group.count) * group.share for group in train)
    first = train[-1].share * total.seconds
    if not overlap:
        exposed = np.maximum(seconds - slack, 0.0)
        return Shown(exposed=exposed, hidden=seconds - exposed)
    shown: Seconds = 0.0
    for channel in ("scale_up", "fabric"):
        groups = [
            (getattr(total, channel) * group.share, group.window - getattr(group.serial, channel), group.count)
            for group in train
        ]
        shown = np.maximum(shown, hide.chain(groups))
    shown = shown + train[-1].share * (total.seconds - np.maximum(total.scale_up, total.fabric))
    shown = np.maximum(shown - slack, 0.0)
    beside = np.maximum(seconds - np.maximum(first, slack), 0.0)
    stall = np.maximum(shown - np.maximum(first - slack, 0.0), 0.0)
    return Shown(exposed=shown, hidden=seconds - shown, slowed=hide.slowed(stack.contention, beside - stall, stall))


def _total(charges: Sequence[Charge]) -> Charge:
    total = NOTHING
    for charge in charges:
        total = total.plus(charge)
    return total


def released(
    work: Work, stage: Stage, pieces: Mapping[str, Piece], plan: Plan, *, backward: bool
) -> list[list[Released]]:
    """The pieces of every virtual stage, all in the order of the backward, each with the compute behind which its bucket
    passes. Between two virtual stages lie the turns of the other micro-batches of a round."""
    whole = np.maximum(demand.gradient_parameters(work, stage), 1.0)  # a stage may hold nothing
    shares = {name: block.held / whole for name, block in work.blocks.items()}
    period, serial = _of(pieces["layer"], backward=backward)
    layers = pipeline.even(stage.layers, plan.virtual_stages if plan.pp > 1 else 1)
    trains: list[list[Released]] = []
    for chunk in reversed(range(len(layers))):
        embedding = stage.embedding and chunk == 0
        window: Seconds = 0.0
        held = NOTHING
        if chunk:
            turns = float((plan.pp - 1) * layers[chunk - 1] + 1)
            window, held = turns * period, NOTHING.plus(serial, turns)
        if embedding:
            part = 1.0 / float(len(layers))  # an interleaved schedule spreads a stage over its virtual stages
            window, held = _of(pieces["embedding"], backward=backward)
            window, held = window * part, NOTHING.plus(held, part)
        train = [Released(share=shares["layer"], window=period, serial=serial, count=max(layers[chunk] - 1, 0))]
        if stage.head and chunk == len(layers) - 1:
            next_, beside = (period, serial) if layers[chunk] else (window, held)
            train.insert(0, Released(share=shares["head"], window=next_, serial=beside, count=1))
        train.append(Released(share=shares["layer"], window=window, serial=held, count=min(layers[chunk], 1)))
        if embedding:
            train.append(Released(share=shares["embedding"], window=0.0, serial=NOTHING, count=1))
        trains.append(train)
    return trains


def _of(piece: Piece, *, backward: bool) -> tuple[Seconds, Charge]:
    return (piece.backward, piece.serial_backward) if backward else (piece.forward, piece.serial[FORWARD])


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
