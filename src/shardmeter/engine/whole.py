"""Whole gradients (ddp, zero1, zero2): their reduction behind the backward, and the gather of updated parameters behind the
forward. Every layer's share of the buckets is released when its gradient is whole, or due before its own forward.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from shardmeter.core.record import changed, record
from shardmeter.core.units import Count, Ratio, Seconds
from shardmeter.engine import add, demand, hide
from shardmeter.engine.between import between, passes
from shardmeter.engine.demand import BlockWork, Held, Work
from shardmeter.engine.layer import Piece
from shardmeter.engine.micro_batch import MicroBatch, chunks, parted
from shardmeter.engine.price import NOTHING, Charge, Prices
from shardmeter.schedules import Slot, traits
from shardmeter.specs.demands import FORWARD, INPUT_GRAD, WEIGHT_GRAD, Transfer
from shardmeter.specs.plan import Plan
from shardmeter.specs.stack import Stack
from shardmeter.strategies import data
from shardmeter.strategies.pipeline import Blocks, Stage
from shardmeter.strategies.precision import WIDTH

Charging: TypeAlias = "Callable[[Work, Stage, Prices, Plan], Collectives]"
CHANNELS = ("scale_up", "fabric")
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
    """`count` equal pieces of a stage in the order of the backward: what the collectives of each take, the compute from its
    release to the next one's, and what that compute itself occupies of the channels."""

    moved: Charge
    window: Seconds
    serial: Charge
    count: int
    idle: Seconds = 0.0
    """What of the window is no compute and no collective: the device waits, or sends."""


@record
class Collectives:
    """What a stage's whole parameters take, one collective after the other: a charge of each for the dense ones and, where
    there are any, for routed experts, and the parameters that each is for."""

    dense: tuple[Charge, ...]
    experts: tuple[Charge, ...]
    held: Held

    def of(self, block: BlockWork) -> tuple[Charge, ...]:
        """Those of one piece of a block: its part of the buckets, experts after the others."""
        dense = block.trained / np.maximum(self.held.dense, 1.0)  # a stage may hold nothing
        experts = block.experts_trained / np.maximum(self.held.experts, 1.0)
        parts = [charge.times(dense) for charge in self.dense]
        return (*parts, *(charge.times(experts) for charge in self.experts))

    def total(self, block: BlockWork) -> Charge:
        """The same together."""
        return _total(self.of(block))


def reduction(
    work: Work, stages: Sequence[MicroBatch], pieces: Mapping[str, Piece], price: Prices, plan: Plan, hop: Seconds
) -> Shown:
    """The reduction of whole gradients behind the last backward, of the stage that ends last: an earlier stage works one
    backward longer, and what a train takes from the compute of any stage delays the whole line. None where every micro-batch
    has reduced its own (`each`). Where weight gradients are turns of their own, every stage ends with some: only what it
    computes less than the slowest is slack.
    Only the turns of the last virtual stage follow one another down the line: of what a train takes in the others, the line
    is delayed by the largest.

    Leaves out: buckets that hold parts of two layers."""
    if data.reduces_each(plan, price.stack.accumulate):
        return Shown()
    if _crossing(plan):
        trains = _mirrored(work, stages, gradient_charges, pieces, price, plan, backward=True)
        shown = [behind(train, price.stack, overlap=price.stack.gradient_overlap) for train in trains]
        sums = [price.transfer(one).seconds for one in demand.copies_reductions(work, plan)[: len(shown)]]
        return _worst(shown, sums, _slacks(work, stages, hop, plan))
    alone = plan.pp > 1 and traits(plan.schedule).split
    longest: Seconds = 0.0
    for one in stages:
        longest = np.maximum(longest, one.slot.whole)
    share = 1.0 / plan.virtual_stages
    found, slack, slowed, most = Shown(), add.folded(()), add.folded(()), add.folded(())
    for at, (kind, first, count) in enumerate(work.runs):
        stage, slot = stages[kind].stage, stages[kind].slot
        charges = gradient_charges(work, stage, price, plan)
        waits = between(work, stages, at, plan, hop, "backward")
        parts = released(work, stage, charges, pieces, plan, backward=True, waits=waits, position=first)
        train = [group for part in parts for group in part]
        late = behind(train, price.stack, overlap=price.stack.gradient_overlap)
        if alone:  # a device with less to do is done earlier
            slack = work.micro_batches * (longest - slot.whole)
        found = _later(found, late, slack) if at else _after(late, slack)
        if alone:
            slowed = np.maximum(slowed, late.slowed)
            continue
        slack = slack + float(count) * (slot.chunk(0, plan.virtual_stages).backward + hop + share * late.slowed)
        slowed, most = slowed + float(count) * late.slowed, np.maximum(most, late.slowed)
    return changed(found, slowed=slowed if alone else share * slowed + (1.0 - share) * most)


def update(
    work: Work, stages: Sequence[MicroBatch], pieces: Mapping[str, Piece], price: Prices, plan: Plan, hop: Seconds
) -> Shown:
    """The gather of updated parameters behind the first forward, of the stage that it holds up most: a later stage has the
    forwards before it as well, unless micro-batches are fed from both ends or devices keep their own clocks."""
    if _crossing(plan):
        trains = _mirrored(work, stages, update_charges, pieces, price, plan, backward=False)
        return _worst([in_time(train, price.stack, 0.0, 0.0, overlap=price.stack.gather_overlap) for train in trains])
    own_clock = plan.pp > 1 and traits(plan.schedule).own_clock
    share = 1.0 / plan.virtual_stages
    found, slack, slowed, most = Shown(), add.folded(()), add.folded(()), add.folded(())
    for at, (kind, _, count) in enumerate(work.runs):
        stage, slot = stages[kind].stage, stages[kind].slot
        charges = update_charges(work, stage, price, plan)
        waits = between(work, stages, at, plan, hop, "forward")
        parts = released(work, stage, charges, pieces, plan, backward=False, waits=waits)
        train = [group for part in parts for group in part]
        late = 0.0 if own_clock else found.exposed
        shown = in_time(train, price.stack, slack, late, overlap=price.stack.gather_overlap)
        found = _later(found, shown, 0.0) if at else shown
        if not own_clock:
            slack = slack + float(count) * (slot.chunk(0, plan.virtual_stages).forward + hop + share * shown.slowed)
        slowed, most = slowed + float(count) * shown.slowed, np.maximum(most, shown.slowed)
    return changed(found, slowed=share * slowed + (1.0 - share) * most)


def _crossing(plan: Plan) -> bool:
    """Whether every device holds a stage of each of two copies of the model."""
    return plan.pp > 1 and traits(plan.schedule).route == "crossing"


def _mirrored(
    work: Work, stages: Sequence[MicroBatch], charges: Charging, pieces: Mapping[str, Piece], price: Prices, plan: Plan,
    *, backward: bool,
) -> list[list[Released]]:  # fmt: skip
    """The trains of every device that holds a stage of each of two copies: that of the mirrored stage and, before it in the
    forward and after it in the backward, that of its own. Between the two lie turns of other micro-batches."""
    kinds = [kind for kind, _, count in work.runs for _ in range(count)]
    found: list[list[Released]] = []
    for at in range(plan.pp // 2):
        own, mirrored = stages[kinds[at]], stages[kinds[-1 - at]]
        parts = [own.slot.input_grad, own.slot.weight_grad]
        far, early = (
            float(plan.pp // 2 - 1 - at),
            at == 0,
        )  # the first device's mirrored stage ends with whole backwards
        rows = []
        for one in (mirrored, own):
            moved, final = charges(work, one.stage, price, plan), one is own or not early
            rows.append(released(work, one.stage, moved, pieces, plan, backward=backward, final=final)[0])
        apart = far * (parts[0] + parts[1]) + (parts[0] if early else 0.0) if backward else 2.0 * far * own.slot.forward
        train = [group for group in rows[0] if group.count]
        if train:
            window = train[-1].window + apart + _first(own.stage, pieces, backward=backward)
            train[-1] = changed(train[-1], window=window)
        found.append([*train, *rows[1]])
    return found


def _first(stage: Stage, pieces: Mapping[str, Piece], *, backward: bool) -> Seconds:
    """What a stage computes before the first of its train is released: its last piece."""
    names = [name for name, count in demand.contents(stage) if count]
    return pieces[names[-1]].times[WEIGHT_GRAD if backward else FORWARD] if names else 0.0


def _slacks(work: Work, stages: Sequence[MicroBatch], hop: Seconds, plan: Plan) -> list[Seconds]:
    """How much earlier than the first device each of the first half is done: it has handed its last input gradient on, and owes
    one weight gradient more than the device before it."""
    kinds = [kind for kind, _, count in work.runs for _ in range(count)]
    found: list[Seconds] = []
    way: Seconds = 0.0
    for at in range(plan.pp // 2):
        slot = stages[kinds[at]].slot
        found.append(np.maximum(way - float(at) * slot.weight_grad, 0.0))
        way = way + slot.input_grad + hop
    return found


def _worst(found: Sequence[Shown], after: Sequence[Seconds] = (), slacks: Sequence[Seconds] = ()) -> Shown:
    """The one that ends last, element by element, with what each has to do `after` it and how much earlier it begins; of what
    comes after, the longest is counted elsewhere."""
    after, slacks = after or [0.0] * len(found), slacks or [0.0] * len(found)
    longest: Seconds = 0.0
    for seconds in after:
        longest = np.maximum(longest, seconds)
    worst = Shown()
    for at, (one, seconds, slack) in enumerate(zip(found, after, slacks, strict=True)):
        late = np.maximum(one.exposed + seconds - slack - longest, 0.0)
        mine = changed(one, exposed=late, hidden=one.hidden + one.exposed - late)
        more = np.greater(mine.cost, worst.cost) if at else True
        parts = {
            name: add.chosen(more, getattr(mine, name), getattr(worst, name))
            for name in ("exposed", "hidden", "slowed")
        }
        worst = Shown(**parts)
    return worst


def _after(shown: Shown, slack: Seconds) -> Shown:
    """What is left to see of it when it may take `slack` longer."""
    left = np.maximum(shown.exposed - slack, 0.0)
    return changed(shown, exposed=left, hidden=shown.exposed + shown.hidden - left)


def _later(best: Shown, shown: Shown, slack: Seconds) -> Shown:
    """The one that shows more after its slack, element by element."""
    left = np.maximum(shown.exposed - slack, 0.0)
    more = np.greater(left, best.exposed)
    return Shown(
        exposed=add.chosen(more, left, best.exposed),
        hidden=add.chosen(more, shown.exposed + shown.hidden - left, best.hidden),
    )


def each(work: Work, one: MicroBatch, pieces: Mapping[str, Piece], price: Prices, plan: Plan) -> MicroBatch:
    """A micro-batch that reduces its own gradients (zero2, or a stack that does so after every one) behind its own backward,
    and waits for that at the end."""
    charges = gradient_charges(work, one.stage, price, plan)
    exposed, hidden, slot = dict(one.exposed), dict(one.hidden), one.slot
    kind = "weight_grad" if parted(plan) else "input_grad"
    virtual, waits = list(slot.chunks), one.waits
    parts = released(work, one.stage, charges, pieces, plan, backward=True, final=False)
    for behind_it, part in enumerate(parts, start=1):
        train = [group for group in part if group.count]
        if not train:
            continue
        turn = [*train[:-1], changed(train[-1], window=0.0, serial=NOTHING)]
        shown = behind(turn, price.stack, overlap=price.stack.gradient_overlap)
        add.merged(exposed, {"gradient reduction": shown.exposed, "contention": shown.slowed}, 1.0)
        add.merged(hidden, {"gradient reduction": shown.hidden}, 1.0)
        slot = _longer(slot, kind, shown.cost)
        waits = shown.cost
        if virtual:
            virtual[-behind_it] = _longer(virtual[-behind_it], kind, shown.cost)
    return changed(one, exposed=exposed, hidden=hidden, slot=changed(slot, chunks=tuple(virtual)), waits=waits)


def _longer(slot: Slot, kind: str, seconds: Seconds) -> Slot:
    return changed(slot, **{kind: getattr(slot, kind) + seconds})


def behind(train: Sequence[Released], stack: Stack, *, overlap: bool) -> Shown:
    """Collectives in a row, one piece's after the other's, behind the computes of a train; all shown without overlap.

    Compute does not wait for them before the end, but slows down by κ for every second that they run beside it: a window of
    compute p lasts p/(1 − κ) while there is a backlog, p + κ·work without. What is left over is waited for at the end.
    Exact without contention; with it but for the window in which a backlog ends."""
    train = [group for group in train if group.count]
    if not train:
        return Shown()
    total = _whole(train)
    seconds = total.seconds
    if not overlap:
        return Shown(exposed=seconds)
    left, slowed = _backlog(total, train, stack.contention)
    # the last piece's collectives follow one another where they use unlike channels
    rest = _apart(train[-1].moved)
    return Shown(exposed=left + rest, hidden=seconds - left - rest, slowed=slowed)


def _backlog(total: Charge, train: Sequence[Released], contention: Ratio) -> tuple[Seconds, Seconds]:
    """(what the busier channel still has to do when the train ends, seconds that compute has lost on the way).

    What slows a compute is whichever channel is longer busy beside it: the one with less to move may be full of what computes
    send themselves."""
    kept = np.maximum(1.0 - contention, TINY)
    left: dict[str, Seconds] = dict.fromkeys(CHANNELS, 0.0)
    lost: Seconds = 0.0
    for group in train:
        count, compute = float(group.count), (group.window - group.serial.seconds - group.idle) / kept
        beside = 1.0 - group.idle / np.maximum(compute + group.idle, TINY)
        slowed: Seconds = 0.0
        for channel in CHANNELS:
            room = compute + group.serial.seconds - getattr(group.serial, channel) + group.idle
            come = left[channel] + count * getattr(group.moved, channel)
            left[channel] = np.maximum(come - count * room, 0.0)
            slowed = np.maximum(slowed, np.minimum((come - left[channel]) * beside, count * compute))
        lost = lost + slowed
    whole = total.seconds / np.maximum(np.maximum(total.fabric, total.scale_up), TINY)
    return np.maximum(left["scale_up"], left["fabric"]), contention * whole * lost


def in_time(train: Sequence[Released], stack: Stack, slack: Seconds, late: Seconds, *, overlap: bool) -> Shown:
    """The same read backwards: released together, each due before its own compute, the first of them after `slack`.
    Stages before are already `late`: no compute that they delay is slowed."""
    train = [group for group in train if group.count]
    if not train:
        return Shown()
    seconds, first = _whole(train).seconds, train[-1].moved.seconds
    if not overlap:
        exposed = np.maximum(seconds - slack, 0.0)
        return Shown(exposed=exposed, hidden=seconds - exposed)
    shown: Seconds = 0.0
    for channel in CHANNELS:
        groups = [
            (getattr(group.moved, channel), group.window - getattr(group.serial, channel), group.count)
            for group in train
        ]
        shown = np.maximum(shown, hide.chain(groups))
    shown = shown + _apart(train[-1].moved)
    shown = np.maximum(shown - slack, 0.0)
    beside = np.maximum(seconds - np.maximum(first, slack + late), 0.0)
    stall = np.maximum(shown - np.maximum(first - slack, late), 0.0)
    return Shown(exposed=shown, hidden=seconds - shown, slowed=hide.slowed(stack.contention, beside - stall, stall))


def _total(charges: Iterable[Charge]) -> Charge:
    total = NOTHING
    for charge in charges:
        total = total.plus(charge)
    return total


def _whole(train: Sequence[Released]) -> Charge:
    total = NOTHING
    for group in train:
        total = total.plus(group.moved, float(group.count))
    return total


def _apart(moved: Charge) -> Seconds:
    """What collectives in a row take longer than the channel that they use most."""
    return moved.seconds - np.maximum(moved.scale_up, moved.fabric)


def released(
    work: Work,
    stage: Stage,
    charges: Collectives,
    pieces: Mapping[str, Piece],
    plan: Plan,
    *,
    backward: bool,
    waits: Sequence[Seconds] = (),
    final: bool = True,
    position: int = 0,
) -> list[list[Released]]:
    """The pieces of every virtual stage, all in the order of the backward, each with the compute behind which its bucket
    passes. Between two virtual stages lie the turns of the other micro-batches of a round, and what a round `waits`. `final`:
    after the last backward, else after every one. `position`: of the device, where chunks are laid in a V."""
    phases: tuple[str, ...] = (FORWARD,)
    if backward:
        apart = plan.pp > 1 and traits(plan.schedule).split if final else parted(plan)
        phases = (WEIGHT_GRAD,) if apart else (INPUT_GRAD, WEIGHT_GRAD)
    computes = {name: _copying(_of(piece, phases), piece, phases) for name, piece in pieces.items()}
    moved = {name: charges.total(block) for name, block in work.blocks.items()}
    back = {name: _of(piece, (INPUT_GRAD,)) for name, piece in pieces.items()}
    vee, others = backward and final and traits(plan.schedule).route == "vee", passes(work, plan) - 1.0
    if vee and position:  # only weight gradients are left, of as many micro-batches as devices lie before this one
        others = position - 1.0
    rows = chunks(stage, plan)
    trains: list[list[Released]] = []
    for chunk in reversed(range(len(rows))):
        embedding = stage.embedding and chunk == 0
        last = _boundary(stage, rows, chunk, computes, others)
        if chunk and vee and position == 0:
            last = _plus(last, _row(rows[chunk - 1], back, float(plan.pp)))
        train: list[Released] = []
        row = rows[chunk][::-1]
        if stage.head and chunk == len(rows) - 1:
            window, held = computes[row[0][0]] if row else last
            train.append(Released(moved=moved["head"], window=window, serial=held, count=1))
        for at, (name, count) in enumerate(row):
            window, held = computes[name]
            train.append(Released(moved=moved[name], window=window, serial=held, count=count - 1))
            window, held = computes[row[at + 1][0]] if at + 1 < len(row) else last
            idle = waits[chunk - 1] if waits and chunk and at + 1 == len(row) else 0.0
            train.append(Released(moved=moved[name], window=window + idle, serial=held, count=1, idle=idle))
        if embedding:
            train.append(Released(moved=moved["embedding"], window=0.0, serial=NOTHING, count=1))
        trains.append(train)
    return trains


Lasting = tuple[Seconds, Charge]
"""Seconds of a compute, and what it occupies itself of the channels."""


def _copying(compute: Lasting, piece: Piece, phases: tuple[str, ...]) -> Lasting:
    """A compute with the wait for its copies between device and host: buckets pass in that time too."""
    copies = {FORWARD: piece.copies.forward, INPUT_GRAD: piece.copies.backward}.get(phases[0], 0.0)
    return np.maximum(compute[0], copies), compute[1]


def _boundary(
    stage: Stage, rows: Sequence[Blocks], chunk: int, computes: Mapping[str, Lasting], others: Count
) -> Lasting:
    """What a stage computes between the last piece of a virtual stage and the first that is released after it."""
    if chunk:
        nearest = computes[rows[chunk - 1][-1][0]] if rows[chunk - 1] else (0.0, NOTHING)
        return _plus(_row(rows[chunk - 1], computes, others), nearest)
    if stage.embedding:
        return computes["embedding"]
    return 0.0, NOTHING


def _row(row: Blocks, computes: Mapping[str, Lasting], times: Count) -> Lasting:
    """So many turns of a virtual stage."""
    total: Lasting = (0.0, NOTHING)
    for name, count in row:
        again = times * float(count)
        total = total[0] + again * computes[name][0], total[1].plus(computes[name][1], again)
    return total


def _plus(one: Lasting, other: Lasting) -> Lasting:
    return one[0] + other[0], one[1].plus(other[1])


def _of(piece: Piece, phases: tuple[str, ...]) -> Lasting:
    held = NOTHING
    for phase in phases:
        held = held.plus(piece.serial[phase])
    return add.folded(piece.times[phase] for phase in phases), held


def gradient_charges(work: Work, stage: Stage, price: Prices, plan: Plan) -> Collectives:
    """What the reduction of a stage's whole gradients takes."""
    held, width = demand.gradient_parameters(work, stage), WIDTH[plan.reduce_dtype]
    rule = price.stack.accumulate
    experts = data.gradient_transfers(held.experts, plan, width, rule, experts=True) if _routed(work, stage) else ()
    return Collectives(
        dense=_in_buckets(data.gradient_transfers(held.dense, plan, width, rule), price),
        experts=_in_buckets(experts, price),
        held=held,
    )


def update_charges(work: Work, stage: Stage, price: Prices, plan: Plan) -> Collectives:
    """What the gather of a stage's updated parameters takes."""
    held, width = demand.gradient_parameters(work, stage), WIDTH[plan.gather_dtype]
    experts = data.update_transfers(held.experts, plan, width, experts=True) if _routed(work, stage) else ()
    return Collectives(
        dense=_in_buckets(data.update_transfers(held.dense, plan, width), price),
        experts=_in_buckets(experts, price),
        held=held,
    )


def _routed(work: Work, stage: Stage) -> bool:
    """Whether a stage has layers with routed experts."""
    return any(work.blocks[name].block.routed for name, _ in stage.contents)


def _in_buckets(transfers: tuple[Transfer, ...], price: Prices) -> tuple[Charge, ...]:
    found = []
    for transfer in transfers:
        buckets = np.maximum(np.ceil(transfer.size / price.stack.bucket), 1.0)
        found.append(price.transfer(changed(transfer, size=transfer.size / buckets, messages=buckets)))
    return tuple(found)
