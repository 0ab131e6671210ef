"""Micro-batch scope: one micro-batch on one pipeline stage. Trains of layers with their ends, forward and backward apart."""

from __future__ import annotations

from shardmeter.core.record import changed, record
from shardmeter.core.units import Count, Seconds
from shardmeter.engine import add, hide
from shardmeter.engine.demand import contents
from shardmeter.engine.layer import DIRECTIONS, HOST, Ledger, Piece
from shardmeter.engine.price import NOTHING
from shardmeter.families.operations import is_layer
from shardmeter.schedules import Slot
from shardmeter.specs.demands import FORWARD, INPUT_GRAD, WEIGHT_GRAD
from shardmeter.specs.plan import Plan
from shardmeter.specs.stack import Stack
from shardmeter.strategies import data, fsdp
from shardmeter.strategies.pipeline import Stage

_ZERO: tuple[Seconds, Seconds, Seconds] = (0.0, 0.0, 0.0)


@record
class MicroBatch:
    """What a stage does for one micro-batch: exposed and hidden seconds by label, and the slot the schedule is given."""

    stage: Stage
    exposed: Ledger
    hidden: Ledger
    slot: Slot


def micro_batch(
    stage: Stage, pieces: dict[str, Piece], plan: Plan, stack: Stack, micro_batches: Count = 1.0
) -> MicroBatch:
    """Fold the layers of one stage into its forward, input gradient and weight gradient."""
    exposed: Ledger = {}
    times: dict[str, Seconds] = dict.fromkeys(DIRECTIONS, 0.0)
    for name, count in contents(stage):
        for phase in DIRECTIONS:
            add.merged(exposed, pieces[name].ledgers[phase], float(count))
            times[phase] = times[phase] + float(count) * pieces[name].times[phase]
    hidden: Ledger = {}
    for name, count in contents(stage):
        add.merged(hidden, pieces[name].hidden, float(count))
    if fsdp.applies(plan):
        shown, behind, forward, backward = _accumulated(stage, pieces, plan, stack, micro_batches)
        add.merged(exposed, shown, 1.0)
        add.merged(hidden, behind, 1.0)
        times[FORWARD] = times[FORWARD] + forward
        times[INPUT_GRAD] = times[INPUT_GRAD] + backward
    if {"parameters", "activations"} & set(plan.offload):
        forward, backward = _copied(stage, pieces, plan, exposed, hidden)
        times[FORWARD] = times[FORWARD] + forward
        times[INPUT_GRAD] = times[INPUT_GRAD] + backward
    slot = Slot(
        first=stage.first,
        count=stage.count,
        forward=times[FORWARD],
        input_grad=times[INPUT_GRAD],
        weight_grad=times[WEIGHT_GRAD],
    )
    return MicroBatch(stage=stage, exposed=exposed, hidden=hidden, slot=slot)


def _sharded(stage: Stage, pieces: dict[str, Piece], stack: Stack) -> tuple[Ledger, Ledger, Seconds, Seconds]:
    """Sharded parameters behind a micro-batch: (exposed, hidden, extra forward seconds, extra backward seconds).

    One unit is prefetched, so all but the first gather and the last reduction may hide. The root unit (embedding and head)
    is gathered first and kept. Both ends show in every micro-batch: the end of a backward waits for its reductions. Where
    kinds of layers meet, the first of a kind waits as long as the others. Leaves out: a gather behind another kind's piece."""
    window = pieces["head"].backward if stage.head else 0.0
    last = len(stage.contents) - 1
    forward, gather_back, reduce = _ZERO
    stall_forward, stall_back, moved_forward, moved_back, moved_reduce = _ZERO + _ZERO[:2]
    for place, (name, count) in enumerate(stage.contents):
        layer = pieces[name]
        ahead, back, gather_stall = layer.forward_fold(), layer.backward_fold(window), _stall_of_gathers(layer)
        first, final = float(place == 0), float(place == last)
        waits, waits_back, pays = float(count) - first, float(count) - final, float(count) - first
        forward = forward + first * ahead.prologue + waits * (ahead.steady - layer.forward)
        gather_back = gather_back + final * back.prologue + waits_back * gather_stall
        reduce = reduce + first * back.epilogue + pays * (back.steady - layer.backward - gather_stall)
        stall_forward = stall_forward + waits * (ahead.steady - layer.forward)
        stall_back = stall_back + pays * (back.steady - layer.backward)
        moved_forward = moved_forward + float(count) * layer.gather.seconds
        moved_back = moved_back + float(count) * layer.gather_again.seconds
        moved_reduce = moved_reduce + float(count) * (layer.scatter.seconds + layer.replicate.seconds)
    hidden_forward = moved_forward - forward
    hidden_back = moved_back - gather_back
    hidden_reduce = moved_reduce - reduce
    slowed_forward = hide.slowed(stack.contention, hidden_forward, stall_forward)
    slowed_back = hide.slowed(stack.contention, hidden_back + hidden_reduce, stall_back)
    for name, here in contents(stage):
        if here and not is_layer(name):
            forward = forward + pieces[name].gather.seconds
            reduce = reduce + pieces[name].scatter.seconds + pieces[name].replicate.seconds
    exposed = {
        "parameter gather": forward + gather_back,
        "gradient reduction": reduce,
        "contention": slowed_forward + slowed_back,
    }
    hidden = {"parameter gather": hidden_forward + hidden_back, "gradient reduction": hidden_reduce}
    hidden = {label: add.larger(seconds, 0.0) for label, seconds in hidden.items()}
    return exposed, hidden, forward + slowed_forward, gather_back + reduce + slowed_back


def _accumulated(
    stage: Stage, pieces: dict[str, Piece], plan: Plan, stack: Stack, micro_batches: Count
) -> tuple[Ledger, Ledger, Seconds, Seconds]:
    """`_sharded` of the mean micro-batch: where gradients are reduced with the last one only, the others reduce nothing."""
    loud = _sharded(stage, pieces, stack)
    if data.reduces_each(plan, stack.accumulate):
        return loud
    still = {name: changed(piece, scatter=NOTHING, replicate=NOTHING) for name, piece in pieces.items()}
    quiet = _sharded(stage, still, stack)
    share = 1.0 / micro_batches

    def mean(one: Ledger, other: Ledger) -> Ledger:
        return {label: share * one[label] + (1.0 - share) * other[label] for label in one}

    return (
        mean(loud[0], quiet[0]),
        mean(loud[1], quiet[1]),
        share * loud[2] + (1.0 - share) * quiet[2],
        share * loud[3] + (1.0 - share) * quiet[3],
    )


def _copied(
    stage: Stage, pieces: dict[str, Piece], plan: Plan, exposed: Ledger, hidden: Ledger
) -> tuple[Seconds, Seconds]:
    """Copies between device and host behind a stage's layers: what they add to the forward and to the backward.

    They share the window with the gathers of sharded parameters, each on a channel of its own."""
    shown: tuple[Seconds, Seconds] = (0.0, 0.0)
    for name, count in stage.contents:
        layer = pieces[name]
        there, back = layer.forward, layer.backward
        if fsdp.applies(plan):
            there, back = layer.forward_fold().steady, layer.backward_fold(0.0).steady
        forward, behind = hide.stall(layer.copies.forward, there, count)
        backward, more = hide.stall(layer.copies.backward, back, count)
        add.merged(exposed, {HOST: forward + backward}, 1.0)
        add.merged(hidden, {HOST: behind + more}, 1.0)
        shown = shown[0] + forward, shown[1] + backward
    return shown


def _stall_of_gathers(layer: Piece) -> Seconds:
    """What the backward would stall per layer if there were gathers only: the rest is the reductions'."""
    again = layer.gather_again.plus(layer.own[INPUT_GRAD])
    longest = add.larger(again.scale_up, again.fabric)
    return add.larger(longest - layer.backward, 0.0)
