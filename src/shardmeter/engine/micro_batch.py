"""Micro-batch scope: one micro-batch on one pipeline stage. Trains of layers with their ends, forward and backward apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from shardmeter.core.record import changed, record
from shardmeter.core.sums import plain_sum
from shardmeter.core.units import Count, Ratio, Seconds
from shardmeter.engine import add, hide
from shardmeter.engine.demand import contents
from shardmeter.engine.layer import DIRECTIONS, HOST, Ledger, Piece
from shardmeter.engine.price import NOTHING, Charge
from shardmeter.families.operations import is_end
from shardmeter.schedules import Slot, traits
from shardmeter.specs.demands import FORWARD, INPUT_GRAD, WEIGHT_GRAD
from shardmeter.specs.plan import Plan
from shardmeter.specs.stack import Stack
from shardmeter.strategies import data, fsdp, pipeline
from shardmeter.strategies.pipeline import Blocks, Stage


@record
class MicroBatch:
    """What a stage does for one micro-batch: exposed and hidden seconds by label, and the slot the schedule is given."""

    stage: Stage
    exposed: Ledger
    hidden: Ledger
    slot: Slot
    waits: Seconds = 0.0
    """How long its last backward waits for reductions when nothing is left to compute."""


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
    ending: Seconds = 0.0
    waits: Seconds = 0.0
    if fsdp.applies(plan):
        rows = [_expanded(layers) for layers in chunks(stage, plan)]
        waits = _turn_ends(stage, pieces, rows[:1], apart=parted(plan))
        shown, behind, longer, ending = _accumulated(stage, pieces, plan, stack, micro_batches)
        add.merged(exposed, shown, 1.0)
        add.merged(hidden, behind, 1.0)
        add.merged(times, longer, 1.0)
    if {"parameters", "activations"} & set(plan.offload):
        shown, behind, longer, late = _copied(stage, pieces, plan, stack, micro_batches)
        add.merged(exposed, shown, 1.0)
        add.merged(hidden, behind, 1.0)
        add.merged(times, longer, 1.0)
        ending = ending + late
    slot = Slot(
        first=stage.first,
        count=stage.count,
        forward=times[FORWARD],
        input_grad=times[INPUT_GRAD],
        weight_grad=times[WEIGHT_GRAD],
        ending=ending,
        chunks=_virtual(stage, pieces, plan, stack, micro_batches),
    )
    return MicroBatch(stage=stage, exposed=exposed, hidden=hidden, slot=slot, waits=waits)


def _virtual(
    stage: Stage, pieces: dict[str, Piece], plan: Plan, stack: Stack, micro_batches: Count
) -> tuple[Slot, ...]:
    """The slots of a stage's virtual stages, each folded as a stage of its own: the embedding is in the first, the head in
    the last."""
    if plan.pp == 1 or plan.virtual_stages == 1:
        return ()
    rows, alone = chunks(stage, plan), changed(plan, virtual_stages=1)
    found: dict[tuple[Blocks, bool, bool], Slot] = {}
    kinds = [(row, stage.embedding and at == 0, stage.head and at == len(rows) - 1) for at, row in enumerate(rows)]
    for row, first, final in dict.fromkeys(kinds):
        layers = plain_sum(count for _, count in row)
        part = changed(stage, layers=layers, contents=row, embedding=first, head=final)
        found[row, first, final] = micro_batch(part, pieces, alone, stack, micro_batches).slot
    return tuple(found[kind] for kind in kinds)


def chunks(stage: Stage, plan: Plan) -> tuple[Blocks, ...]:
    """The layers of each virtual stage of a stage, by kind in order; the remainder to the earliest. Leaves out, where a stage
    holds two kinds of layers, in which of its virtual stages they really lie."""
    counts = pipeline.even(stage.layers, plan.virtual_stages if plan.pp > 1 else 1)
    return pipeline.contents(counts, stage.contents)


def parted(plan: Plan) -> bool:
    """Whether input gradients and weight gradients are turns of their own (DualPipe parts only a few)."""
    kind = traits(plan.schedule)
    return plan.pp > 1 and kind.split and kind.route != "crossing"


def _sharded(stage: Stage, pieces: dict[str, Piece], plan: Plan, stack: Stack) -> tuple[Ledger, Ledger, Ledger]:
    """Sharded parameters behind a micro-batch: (exposed, hidden, seconds by phase that it lasts longer).

    The root unit (embedding and head) is gathered first and kept; one layer is gathered ahead of the one that computes, and
    its gradients are reduced behind the next. So the first gather and the last reduction of every turn show, unless the
    embedding or the head computes beside them, and the end of a backward waits for its reductions. A
    backward of two turns gathers in the first and reduces in the second."""
    rows = [_expanded(layers) for layers in chunks(stage, plan)]
    there: Seconds = 0.0
    gathers: Seconds = 0.0
    for at, row in enumerate(rows):
        if row and not (stage.embedding and at == 0):
            there = there + pieces[row[0]].gather.seconds
        if row and not (stage.head and at == len(rows) - 1):
            gathers = gathers + pieces[row[-1]].gather_again.seconds
    stalls, _, slowed_there = behind(_forward_windows(stage, pieces, rows), stack.contention)
    there = there + stalls
    apart = parted(plan)
    stalls, reductions, slowed_back = behind(_backward_windows(stage, pieces, rows, apart=apart), stack.contention)
    slowed_weights: Seconds = 0.0
    if apart:
        _, reductions, slowed_weights = behind(_weight_windows(stage, pieces, rows), stack.contention)
    gathers = gathers + stalls
    reductions = reductions + _turn_ends(stage, pieces, rows, apart=apart)
    roots = [pieces[name] for name, here in contents(stage) if here and is_end(name)]
    layer_gathers: Seconds = 0.0
    all_reductions = add.folded(one.reduce.seconds for one in roots)
    for name, count in stage.contents:
        layer = pieces[name]
        layer_gathers = layer_gathers + float(count) * (layer.gather.seconds + layer.gather_again.seconds)
        all_reductions = all_reductions + float(count) * layer.reduce.seconds
    hidden = {
        "parameter gather": add.larger(layer_gathers - there - gathers, 0.0),
        "gradient reduction": add.larger(all_reductions - reductions, 0.0),
    }
    there = there + add.folded(one.gather.seconds for one in roots)
    exposed = {
        "parameter gather": there + gathers,
        "gradient reduction": reductions,
        "contention": slowed_there + slowed_back + slowed_weights,
    }
    back = {INPUT_GRAD: gathers + slowed_back}
    add.merged(back, {WEIGHT_GRAD if apart else INPUT_GRAD: reductions + slowed_weights}, 1.0)
    return exposed, hidden, {FORWARD: there + slowed_there, **back}


def _expanded(layers: Blocks) -> tuple[str, ...]:
    return tuple(name for name, count in layers for _ in range(count))


def _forward_windows(stage: Stage, pieces: dict[str, Piece], rows: Sequence[tuple[str, ...]]) -> list[Window]:
    """Computes behind which the next layer is gathered: those of layers, and the embedding's."""
    pairs = Counter(pair for row in rows for pair in pairwise(row))
    if stage.embedding and rows[0]:
        pairs["embedding", rows[0][0]] += 1
    return [
        Window(count=count, period=pieces[own].forward, serial=pieces[own].serial[FORWARD], gather=pieces[after].gather)
        for (own, after), count in pairs.items()
    ]


def _backward_windows(
    stage: Stage, pieces: dict[str, Piece], rows: Sequence[tuple[str, ...]], *, apart: bool
) -> list[Window]:
    """Computes behind which the layer before is gathered again and the gradients of the one after are reduced; at the edges
    those of the head (with a gather only) and of the embedding (with a reduction only). Weight gradients `apart`: only the
    input gradients, with gathers."""
    triples: Counter[tuple[str, str, str, bool]] = Counter()
    for row in filter(None, rows):
        begun = (at == len(row) - 2 for at in range(len(row)))
        triples.update(zip(("", *row[:-1]), row, (*row[1:], ""), begun, strict=True))
    if stage.head and rows[-1]:
        triples[rows[-1][-1], "head", "", False] += 1
    windows = [
        Window(
            count=count, period=pieces[own].times[INPUT_GRAD] if apart else pieces[own].backward,
            serial=pieces[own].serial[INPUT_GRAD] if apart else pieces[own].serial_backward,
            gather=pieces[before].gather_again if before else NOTHING,
            reduce=pieces[after].reduce if after and not apart else NOTHING,
            lag=_lag(pieces[after], pieces[own].backward) if begun and not apart else 0.0,
        )
        for (before, own, after, begun), count in triples.items()
    ]  # fmt: skip
    return windows if apart else windows + _edge(stage, pieces, rows[0], apart=apart)


def _lag(reduced: Piece, window: Seconds) -> Seconds:
    """How long a layer's sum over replicas, which follows its scatter, runs on after the window that they began in."""
    return add.larger(reduced.replicate.seconds - add.larger(window - reduced.scatter.seconds, 0.0), 0.0)


def _weight_windows(stage: Stage, pieces: dict[str, Piece], rows: Sequence[tuple[str, ...]]) -> list[Window]:
    """Weight gradients behind which those of the layer after are reduced."""
    pairs = Counter((own, after, at == len(row) - 2) for row in rows for at, (own, after) in enumerate(pairwise(row)))
    windows = [
        Window(
            count=count, period=pieces[own].times[WEIGHT_GRAD], serial=pieces[own].serial[WEIGHT_GRAD],
            reduce=pieces[after].reduce,
            lag=_lag(pieces[after], pieces[own].times[WEIGHT_GRAD]) if begun else 0.0,
        )
        for (own, after, begun), count in pairs.items()
    ]  # fmt: skip
    return windows + _edge(stage, pieces, rows[0], apart=True)


def _edge(stage: Stage, pieces: dict[str, Piece], row: tuple[str, ...], *, apart: bool) -> list[Window]:
    """The embedding's backward, beside which the first layer is reduced: its sum over replicas follows its scatter on
    whatever channel."""
    if not (stage.embedding and row):
        return []
    reduce, own = pieces[row[0]].reduce, pieces["embedding"]
    ending = Charge(reduce.seconds, reduce.scale_up, np.where(np.greater(reduce.fabric, 0.0), reduce.seconds, 0.0))
    period, serial = (own.times[WEIGHT_GRAD], own.serial[WEIGHT_GRAD]) if apart else (own.backward, own.serial_backward)
    return [Window(count=1, period=period, serial=serial, reduce=ending)]


def _turn_ends(stage: Stage, pieces: dict[str, Piece], rows: Sequence[tuple[str, ...]], *, apart: bool) -> Seconds:
    """Reductions that a turn waits for at its end, over the turns of a micro-batch: the last layer's, unless the embedding
    computes beside it, and the root unit's."""
    shown: Seconds = 0.0
    for at, row in enumerate(rows):
        here = {"embedding": stage.embedding and at == 0, "head": stage.head and at == len(rows) - 1}
        jobs = [pieces[name].reduce for name, found in here.items() if found]
        scattering: Seconds = 0.0
        stall: Seconds = 0.0
        if row and here["embedding"]:
            for window in _edge(stage, pieces, row, apart=apart):
                scattering, stall = hide.late(window.reduce.scale_up, window.period), window.stall(window.reduce)
        elif row:
            jobs.insert(0, pieces[row[0]].reduce)
        shown = shown + in_a_row(jobs, scattering, stall)
    return shown


def in_a_row(jobs: Sequence[Charge], scattering: Seconds, stall: Seconds) -> Seconds:
    """Seconds of reductions that begin together, each a scatter and then a sum over replicas, on the fabric or inside a node;
    the two channels are busy for `scattering` and `stall` (the longer, already counted) with earlier ones.

    Exact for scatters inside a node and sums over the fabric, and for all on one channel: the longest way through a line of
    jobs that changes once from the one channel to the other."""
    longest, inside = stall, scattering
    for at, job in enumerate(jobs):
        inside = inside + (job.seconds - job.fabric)
        longest = np.maximum(longest, inside + add.folded(one.fabric for one in jobs[at:]))
    return np.maximum(longest, stall + add.folded(job.fabric for job in jobs)) - stall


@record
class Window:
    """`count` equal computes of `period` each with what passes behind one of them, all due at its end. `serial` is what the
    compute itself occupies of the channels."""

    count: int
    period: Seconds
    serial: Charge
    gather: Charge = NOTHING
    reduce: Charge = NOTHING
    lag: Seconds = 0.0
    """Of the first reduction of a turn, what passes in the next window, and of the last one after all of them."""

    def stall(self, moved: Charge) -> Seconds:
        """What one of them waits for `moved`."""
        channels = (self.serial.scale_up + moved.scale_up, self.serial.fabric + moved.fabric)
        return hide.train_stall(self.period, channels)


def behind(windows: Sequence[Window], contention: Ratio) -> tuple[Seconds, Seconds, Seconds]:
    """(stalls of gathers, what reductions add to them, seconds lost to contention) of a row of windows."""
    gathers: Seconds = 0.0
    reductions: Seconds = 0.0
    slowed: Seconds = 0.0
    for window in windows:
        count, moved = float(window.count), window.gather.plus(window.reduce)
        alone, both = window.stall(window.gather), window.stall(moved)
        gathers = gathers + count * alone
        reductions = reductions + count * (both - alone)
        slowed = slowed + count * hide.slowed(contention, moved.seconds - window.lag - both, both)
    return gathers, reductions, slowed


def lasting(layer: Piece, plan: Plan, contention: Ratio) -> tuple[Seconds, Seconds]:
    """How long one layer's forward and its backward (the input gradient, where the weight gradient is a turn of its own) last in
    the middle of a train, with what they wait for there and lose to contention."""
    apart = parted(plan)
    there = Window(count=1, period=layer.forward, serial=layer.serial[FORWARD], gather=layer.gather)
    back = Window(
        count=1,
        period=layer.times[INPUT_GRAD] if apart else layer.backward,
        serial=layer.serial[INPUT_GRAD] if apart else layer.serial_backward,
        gather=layer.gather_again,
        reduce=NOTHING if apart else layer.reduce,
    )
    if not fsdp.applies(plan):
        return there.period, back.period
    longer = [add.folded(behind([window], contention)) for window in (there, back)]
    return there.period + longer[0], back.period + longer[1]


def _accumulated(
    stage: Stage, pieces: dict[str, Piece], plan: Plan, stack: Stack, micro_batches: Count
) -> tuple[Ledger, Ledger, Ledger, Seconds]:
    """`_sharded` of the mean micro-batch (exposed and hidden), the seconds by phase that one lasts longer, and what the last
    backward of the step takes longer than the others: where gradients are reduced with the last micro-batch only, the others
    reduce nothing, and it is the last one that every stage before this one waits for."""
    loud = _sharded(stage, pieces, plan, stack)
    if data.reduces_each(plan, stack.accumulate):
        return *loud, 0.0
    return _averaged(loud, _sharded(stage, _still(pieces), plan, stack), 1.0 / micro_batches)


def _still(pieces: dict[str, Piece]) -> dict[str, Piece]:
    """The pieces of a micro-batch that reduces nothing."""
    return {name: changed(piece, scatter=NOTHING, replicate=NOTHING) for name, piece in pieces.items()}


def _averaged(
    loud: tuple[Ledger, Ledger, Ledger], quiet: tuple[Ledger, Ledger, Ledger], share: Ratio
) -> tuple[Ledger, Ledger, Ledger, Seconds]:
    """(exposed, hidden) of the mean micro-batch, of which a `share` is loud, the seconds by phase of a quiet one, and what the loud
    one takes longer."""

    def mean(one: Ledger, other: Ledger) -> Ledger:
        return {label: share * one[label] + (1.0 - share) * other[label] for label in one}

    ending = add.folded(loud[2].values()) - add.folded(quiet[2].values())
    return mean(loud[0], quiet[0]), mean(loud[1], quiet[1]), quiet[2], ending


def _copied(
    stage: Stage, pieces: dict[str, Piece], plan: Plan, stack: Stack, micro_batches: Count
) -> tuple[Ledger, Ledger, Ledger, Seconds]:
    """The same of copies between device and host: the last backward of a step, which alone may reduce, is a longer window."""
    loud = _copies(stage, pieces, plan, stack)
    if not fsdp.applies(plan) or data.reduces_each(plan, stack.accumulate):
        return *loud, 0.0
    return _averaged(loud, _copies(stage, _still(pieces), plan, stack), 1.0 / micro_batches)


def _copies(stage: Stage, pieces: dict[str, Piece], plan: Plan, stack: Stack) -> tuple[Ledger, Ledger, Ledger]:
    """Copies between device and host behind a stage's layers: (exposed, hidden, seconds by phase that they add).

    A shard comes up one layer before its gather, what a layer kept one layer before its backward; what it keeps goes down
    behind the layer after it. They share the window with the gathers of sharded parameters, each on a channel of its own. Of
    every turn the first copy up shows and the last copy down, unless the root's gather or the head's compute is beside them."""
    longer: dict[str, Seconds] = {FORWARD: 0.0, INPUT_GRAD: 0.0}
    moved: Seconds = 0.0
    rows = [_expanded(layers) for layers in chunks(stage, plan)]
    for at, row in enumerate(rows):
        if not row:
            continue
        moved = moved + add.folded(pieces[name].copies.forward + pieces[name].copies.backward for name in row)
        embedding = pieces["embedding"] if stage.embedding and at == 0 else None
        head = pieces["head"] if stage.head and at == len(rows) - 1 else None
        longer = {
            FORWARD: longer[FORWARD] + _copied_forward([pieces[name] for name in row], embedding, head, plan, stack),
            INPUT_GRAD: longer[INPUT_GRAD] + _copied_backward([pieces[name] for name in row], head, plan, stack),
        }
    shown = longer[FORWARD] + longer[INPUT_GRAD]
    return {HOST: shown}, {HOST: add.larger(moved - shown, 0.0)}, longer


def _copied_forward(
    row: Sequence[Piece], embedding: Piece | None, head: Piece | None, plan: Plan, stack: Stack
) -> Seconds:
    """What copies add to a forward. The first shard comes up beside the root's gather, its own gather behind the embedding; the
    last copies down pass behind the head, which waits for none."""
    first, last = row[0], row[-1]
    roots = add.folded(root.gather.seconds for root in (embedding, head) if root)
    beside = hide.late(embedding.forward if embedding else 0.0, first.gather.seconds)
    shown = hide.late(hide.late(first.copies.parameters, roots), beside)
    windows = [lasting(one, plan, stack.contention)[0] for one in row]
    for own, after, window in zip(row[:-2], row[1:-1], windows, strict=False):
        shown = shown + hide.late(np.maximum(after.copies.parameters, own.copies.down), window)
    behind = head.forward if head else 0.0
    ending = hide.late(last.copies.down, behind)
    if len(row) > 1:
        ending = ending + hide.late(last.copies.parameters, windows[-2])
        ending = np.maximum(ending, row[-2].copies.down - windows[-1] + last.copies.down - behind)
    return shown + ending


def _copied_backward(row: Sequence[Piece], head: Piece | None, plan: Plan, stack: Stack) -> Seconds:
    """What copies add to a backward. A head computes beside the first shard, its gather and what the last layer kept; the second
    shard comes up beside it too."""
    last = row[-1]
    back: Seconds = 0.0
    if head:
        back = head.times[INPUT_GRAD] + (0.0 if parted(plan) else head.times[WEIGHT_GRAD])
    gather = last.gather_again.seconds
    shown = hide.late(last.copies.parameters + np.maximum(gather, last.copies.up), np.maximum(back, gather))
    early = hide.late(back, last.copies.backward)
    for before, own in list(pairwise(row))[::-1]:
        window = lasting(own, plan, stack.contention)[1] + np.minimum(early, before.copies.parameters)
        shown, early = shown + hide.late(before.copies.backward, window), 0.0
    return shown
