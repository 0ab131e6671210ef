"""Two micro-batches joined layer by layer (DualPipe, and 1F1B with them merged): each one's exchange with experts runs behind what the other computes.

The exchange is carried here from the scope of a layer, unfolded: a layer alone shows it, a joined pair only what does not fit
(DeepSeek-AI 2024 §3.2.1). Step scope. Leaves out: whole gradients that are reduced after every micro-batch (zero2), which have
less of the wire beside an exchange; accelerator cores set aside for it (§3.2.2); turns that are not joined.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from shardmeter.core.record import changed, record
from shardmeter.core.units import Ratio, Seconds
from shardmeter.engine import add, hide
from shardmeter.engine.demand import Work
from shardmeter.engine.layer import EXCHANGE, HOST, Carried, Ledger, Piece
from shardmeter.engine.micro_batch import MicroBatch, Window, behind, chunks, lasting
from shardmeter.engine.price import NOTHING, Charge
from shardmeter.schedules import Slot, traits
from shardmeter.specs.demands import FORWARD, INPUT_GRAD, WEIGHT_GRAD
from shardmeter.specs.plan import Plan
from shardmeter.specs.stack import Stack
from shardmeter.strategies import data, fsdp
from shardmeter.strategies.pipeline import Blocks, Stage

MERGED = ("1f1b", "interleaved")
"""Schedules that alternate one forward and one backward, which a stack may merge."""

TINY = 1e-30
"""Seconds: keeps a stage without a backward from dividing by nothing."""


@record
class Joint:
    """What joining the forward of one stage with the backward of another changes: seconds by label, exposed (they sum to
    −saved) and hidden."""

    exposed: Ledger
    hidden: Ledger

    @property
    def saved(self) -> Seconds:
        """Seconds that both together last less than one after the other."""
        return -add.folded(self.exposed.values())


def line(work: Work, pieces: Mapping[str, Piece], plan: Plan, stack: Stack) -> list[Joint]:
    """For every stage its forward joined with a backward of the mirrored one; empty where no schedule joins any."""
    if plan.pp == 1 or traits(plan.schedule).route != "crossing":
        return []
    stages = [work.stages[kind] for kind, _, count in work.runs for _ in range(count)]
    known: dict[tuple[Stage, Stage], Joint] = {}
    for pair in zip(stages, stages[::-1], strict=True):
        if pair not in known:
            known[pair] = _stages(*pair, pieces, plan, stack)
    return [known[pair] for pair in zip(stages, stages[::-1], strict=True)]


def merged(
    work: Work, stages: list[MicroBatch], pieces: Mapping[str, Piece], plan: Plan, stack: Stack
) -> list[MicroBatch]:
    """Where a stack merges the forward of a micro-batch with the backward of an earlier one, every stage with what that saves,
    spread over all micro-batches: those of the warm-up and as many at the end have no partner.

    The warm-up has one turn more than that of the plain schedule, or a micro-batch would be its own partner. Leaves out: that a
    stage waits for both of its neighbours before it begins a pair."""
    if not stack.batch_overlap or plan.schedule not in MERGED:
        return stages
    found: list[MicroBatch] = []
    for stage in stages:
        joint = _stages(stage.stage, stage.stage, pieces, plan, stack)
        later, turns = float(plan.pp - 1 - stage.slot.first), float(plan.virtual_stages)
        ahead = 1.0 + (later if turns == 1.0 else 2.0 * later + (turns - 1.0) * plan.pp)
        share = np.maximum(1.0 - ahead / (turns * work.micro_batches), 0.0)
        exposed, hidden = dict(stage.exposed), dict(stage.hidden)
        add.merged(exposed, joint.exposed, share)
        add.merged(hidden, joint.hidden, share)
        found.append(changed(stage, exposed=exposed, hidden=hidden, slot=_shorter(stage.slot, share * joint.saved)))
    return found


def _shorter(slot: Slot, saved: Seconds) -> Slot:
    """A slot whose backward lasts less; its virtual stages share that by their length."""
    chunks = tuple(_shorter(chunk, saved * (chunk.backward / np.maximum(slot.backward, TINY))) for chunk in slot.chunks)
    return changed(slot, input_grad=slot.input_grad - saved, chunks=chunks)


def exchanges(there: Piece, back: Piece) -> bool:
    """Whether two layers have an exchange to hide behind each other."""
    return bool(there.carried or back.carried)


def _stages(there: Stage, back: Stage, pieces: Mapping[str, Piece], plan: Plan, stack: Stack) -> Joint:
    """Layers in order with layers in reverse order, each turn of the one with a turn of the other; those that are left over are
    alone."""
    turns = [
        (_layers(one), _layers(other)[::-1])
        for one, other in zip(chunks(there, plan), chunks(back, plan)[::-1], strict=True)
    ]
    exposed: Ledger = {}
    hidden: Ledger = {}
    if not any(exchanges(pieces[one], pieces[other]) for rows in turns for one, other in zip(*rows, strict=False)):
        return Joint(exposed={}, hidden={})
    pairs = Counter(
        _neighbours(rows, at, head=back.head and turn == 0)
        for turn, rows in enumerate(turns) for at in range(min(map(len, rows)))
    )  # fmt: skip
    for names, count in pairs.items():
        own, other, *moved = names
        one = _Pair(pieces[own], pieces[other], *(pieces[name] if name else None for name in moved))
        shown, covered = _joint(one, plan, stack)
        add.merged(exposed, shown, float(count))
        add.merged(hidden, covered, float(count))
    if there.head and fsdp.applies(plan) and data.reduces_each(plan, stack.accumulate):
        final = _layers(back.contents)[0]
        last, edge = pieces[final].reduce.seconds, pieces["embedding"].backward if back.embedding else 0.0
        more = hide.late(last, edge + pieces["head"].forward) - hide.late(last, edge)  # a head computes beside it too
        add.merged(exposed, {"gradient reduction": more}, 1.0)
        add.merged(hidden, {"gradient reduction": -more}, 1.0)
    return Joint(exposed=exposed, hidden=hidden)


def _layers(blocks: Blocks) -> tuple[str, ...]:
    return tuple(name for name, count in blocks for _ in range(count))


def _neighbours(rows: Sequence[Sequence[str]], at: int, *, head: bool) -> tuple[str, ...]:
    """The two layers at a place; beside them: whose parameters are gathered for the next forward and the next backward, whose
    gradients are reduced, the first layer of a backward, gathered for itself, and the head that computes before it."""
    there, back = rows
    after = [row[at + 1] if at + 1 < len(row) else "" for row in rows]
    first = ("", "") if at else (back[at], "head" if head else "")
    return there[at], back[at], *after, back[at - 1] if at else "", *first


class _Pair(NamedTuple):
    """Two layers joined, and the layers whose parameters and gradients move beside them."""

    there: Piece
    back: Piece
    gathered: Piece | None
    again: Piece | None
    reduced: Piece | None
    first: Piece | None
    head: Piece | None


def _joint(pair: _Pair, plan: Plan, stack: Stack) -> tuple[Ledger, Ledger]:
    """Two layers: in turn each computes while the other exchanges, and what sharded parameters move passes beside both.

    Alone a forward with compute c and exchange t and a backward with c' and t' take c + t + c' + t'; joined,
    max(c, t') + max(c', t), the most that the device, the wire and either micro-batch need. The host launches for both."""
    there, back = pair.there, pair.back
    forward, gradients = there.carried.get(FORWARD, Carried()), _both(back, Carried())
    paced = there.ledgers[FORWARD].get("launch overhead", 0.0), back.ledgers[INPUT_GRAD].get("launch overhead", 0.0)
    own = there.forward - paced[0] - forward.shown - forward.slowed
    other = back.backward - paced[1] - gradients.shown - gradients.slowed
    held = _less(there.serial[FORWARD], forward.charge), _less(back.serial_backward, gradients.charge)
    first, slow_first = _beside(own, held[0], gradients.charge, stack.contention)
    second, slow_second = _beside(other, held[1], forward.charge, stack.contention)
    shown, slowed = first + second, slow_first + slow_second
    device = own + other + shown + slowed
    launch = np.maximum(there.host[FORWARD] + back.host[INPUT_GRAD] - device, 0.0)
    occupied = held[0].plus(held[1]).plus(forward.charge).plus(gradients.charge)
    moved, more = _sharded(pair, device + launch, occupied, plan, stack)
    exposed = {
        EXCHANGE: shown - forward.shown - gradients.shown,
        "contention": slowed + more - forward.slowed - gradients.slowed,
        "launch overhead": launch - paced[0] - paced[1],
        **moved,
    }
    if plan.offload:
        exposed[HOST] = _copies(pair, device + launch + add.folded(moved.values()), plan, stack)
    hidden = {
        EXCHANGE: forward.shown + gradients.shown - shown,
        **{label: -seconds for label, seconds in moved.items()},
    }
    return exposed, hidden


def _copies(pair: _Pair, period: Seconds, plan: Plan, stack: Stack) -> Seconds:
    """What copies to and from the host for the next two layers show more, beside both of these instead of one each."""
    if not (pair.gathered and pair.again):
        return 0.0
    up, again, down = pair.gathered.copies.parameters, pair.again.copies.backward, pair.there.copies.down
    windows = lasting(pair.there, plan, stack.contention)[0], lasting(pair.back, plan, stack.contention)[1]
    alone = hide.late(np.maximum(up, down), windows[0]) + hide.late(again, windows[1])
    return hide.late(np.maximum(up + again, down), period) - alone


def _both(piece: Piece, total: Carried) -> Carried:
    for phase in (INPUT_GRAD, WEIGHT_GRAD):
        total = total.plus(piece.carried.get(phase, Carried()))
    return total


def _less(charge: Charge, other: Charge) -> Charge:
    return charge.plus(other, -1.0)


def _beside(period: Seconds, held: Charge, moved: Charge, contention: Ratio) -> tuple[Seconds, Seconds]:
    """(what a compute of `period` waits for an exchange beside it, seconds that it loses to contention)."""
    stall = Window(count=1, period=period, serial=held).stall(moved)
    return stall, hide.slowed(contention, moved.seconds - stall, stall)


def _sharded(pair: _Pair, period: Seconds, held: Charge, plan: Plan, stack: Stack) -> tuple[Ledger, Seconds]:
    """What gathers and reductions beside two layers show, and lose by contention, more than beside one after the other."""
    if not fsdp.applies(plan):
        return {}, 0.0
    each = data.reduces_each(plan, stack.accumulate)
    reduce = pair.reduced.reduce if pair.reduced and each else NOTHING
    gather = pair.gathered.gather if pair.gathered else NOTHING
    again = pair.again.gather_again if pair.again else NOTHING
    first = pair.first.gather_again if pair.first else NOTHING
    there, back = pair.there, pair.back
    before_it = pair.head.backward if pair.head else 0.0
    alone = [
        Window(count=1, period=there.forward, serial=there.serial[FORWARD], gather=gather),
        Window(count=1, period=back.backward, serial=back.serial_backward, gather=again, reduce=reduce),
    ]
    together = gather.plus(again).plus(first)
    joined = Window(count=1, period=period + before_it, serial=held, gather=together, reduce=reduce)
    before: Sequence[Seconds] = behind(alone, stack.contention)
    gathers, reductions, slowed = (
        new - old for new, old in zip(behind([joined], stack.contention), before, strict=True)
    )
    return {"parameter gather": gathers - hide.late(first.seconds, before_it), "gradient reduction": reductions}, slowed
