"""Micro-batch scope: one micro-batch on one pipeline stage. Trains of layers with their ends, forward and backward apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from shardmeter.core.record import changed, record
from shardmeter.core.units import Count, Ratio, Seconds
from shardmeter.engine import add, hide
from shardmeter.engine.demand import contents
from shardmeter.engine.layer import DIRECTIONS, HOST, Ledger, Piece
from shardmeter.engine.price import NOTHING, Charge
from shardmeter.families.operations import is_end
from shardmeter.schedules import Slot
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
    if fsdp.applies(plan):
        shown, behind, forward, backward, ending = _accumulated(stage, pieces, plan, stack, micro_batches)
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
        ending=ending,
        chunks=_virtual(stage, pieces, plan, stack, micro_batches),
    )
    return MicroBatch(stage=stage, exposed=exposed, hidden=hidden, slot=slot)


def _virtual(
    stage: Stage, pieces: dict[str, Piece], plan: Plan, stack: Stack, micro_batches: Count
) -> tuple[Slot, ...]:
    """The slots of a stage's virtual stages, each folded as a stage of its own: the embedding is in the first, the head in
    the last. Leaves out: what a stage shows once and not once a turn (the first copy from the host)."""
    if plan.pp == 1 or plan.virtual_stages == 1:
        return ()
    rows, alone = chunks(stage, plan), changed(plan, virtual_stages=1)
    found: dict[tuple[Blocks, bool, bool], Slot] = {}
    kinds = [(row, stage.embedding and at == 0, stage.head and at == len(rows) - 1) for at, row in enumerate(rows)]
    for row, first, final in dict.fromkeys(kinds):
        layers = sum(count for _, count in row)
        part = changed(stage, layers=layers, contents=row, embedding=first, head=final)
        found[row, first, final] = micro_batch(part, pieces, alone, stack, micro_batches).slot
    return tuple(found[kind] for kind in kinds)


def chunks(stage: Stage, plan: Plan) -> tuple[Blocks, ...]:
    """The layers of each virtual stage of a stage, by kind in order; the remainder to the earliest. Leaves out, where a stage
    holds two kinds of layers, in which of its virtual stages they really lie."""
    counts = pipeline.even(stage.layers, plan.virtual_stages if plan.pp > 1 else 1)
    return pipeline.contents(counts, stage.contents)


def _sharded(
    stage: Stage, pieces: dict[str, Piece], plan: Plan, stack: Stack
) -> tuple[Ledger, Ledger, Seconds, Seconds]:
    """Sharded parameters behind a micro-batch: (exposed, hidden, extra forward seconds, extra backward seconds).

    The root unit (embedding and head) is gathered first and kept; one layer is gathered ahead of the one that computes, and
    its gradients are reduced behind the next. So the first gather and the last reduction of every turn show, unless the
    embedding or the head computes beside them, and the end of a backward waits for its reductions. Leaves out: a backward
    that is parted into two turns."""
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
    stalls, reductions, slowed_back = behind(_backward_windows(stage, pieces, rows), stack.contention)
    gathers = gathers + stalls
    reductions = reductions + _turn_ends(stage, pieces, rows)
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
        "contention": slowed_there + slowed_back,
    }
    return exposed, hidden, there + slowed_there, gathers + reductions + slowed_back


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


def _backward_windows(stage: Stage, pieces: dict[str, Piece], rows: Sequence[tuple[str, ...]]) -> list[Window]:
    """Computes behind which the layer before is gathered again and the gradients of the one after are reduced; at the edges
    those of the head (with a gather only) and of the embedding (with a reduction only)."""
    triples: Counter[tuple[str, str, str, bool]] = Counter()
    for row in filter(None, rows):
        begun = (at == len(row) - 2 for at in range(len(row)))
        triples.update(zip(("", *row[:-1]), row, (*row[1:], ""), begun, strict=True))
    if stage.head and rows[-1]:
        triples[rows[-1][-1], "head", "", False] += 1
    windows = [
        Window(
            count=count, period=pieces[own].backward, serial=pieces[own].serial_backward,
            gather=pieces[before].gather_again if before else NOTHING,
            reduce=pieces[after].reduce if after else NOTHING,
            lag=_lag(pieces[after], pieces[own].backward) if begun else 0.0,
        )
        for (before, own, after, begun), count in triples.items()
    ]  # fmt: skip
    return windows + _edge(stage, pieces, rows[0])


def _lag(reduced: Piece, window: Seconds) -> Seconds:
    """How long a layer's sum over replicas, which follows its scatter, runs on after the window that they began in."""
    return add.larger(reduced.replicate.seconds - add.larger(window - reduced.scatter.seconds, 0.0), 0.0)


def _edge(stage: Stage, pieces: dict[str, Piece], row: tuple[str, ...]) -> list[Window]:
    """The embedding's backward, beside which the first layer is reduced: its sum over replicas follows its scatter on
    whatever channel."""
    if not (stage.embedding and row):
        return []
    reduce, own = pieces[row[0]].reduce, pieces["embedding"]
    ending = Charge(reduce.seconds, reduce.scale_up, np.where(np.greater(reduce.fabric, 0.0), reduce.seconds, 0.0))
    return [Window(count=1, period=own.backward, serial=own.serial_backward, reduce=ending)]


def _turn_ends(stage: Stage, pieces: dict[str, Piece], rows: Sequence[tuple[str, ...]]) -> Seconds:
    """Reductions that a turn waits for at its end, over the turns of a micro-batch: the last layer's, unless the embedding
    computes beside it, and the root unit's."""
    shown: Seconds = 0.0
    for at, row in enumerate(rows):
        here = {"embedding": stage.embedding and at == 0, "head": stage.head and at == len(rows) - 1}
        jobs = [pieces[name].reduce for name, found in here.items() if found]
        scattering: Seconds = 0.0
        stall: Seconds = 0.0
        if row and here["embedding"]:
            for window in _edge(stage, pieces, row):
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


def lasting(layer: Piece, plan: Plan) -> tuple[Seconds, Seconds]:
    """How long one layer's forward and its backward last in the middle of a train, with what they wait for there."""
    if not fsdp.applies(plan):
        return layer.forward, layer.backward
    there = Window(count=1, period=layer.forward, serial=layer.serial[FORWARD])
    back = Window(count=1, period=layer.backward, serial=layer.serial_backward)
    moved = layer.gather_again.plus(layer.reduce)
    return layer.forward + there.stall(layer.gather), layer.backward + back.stall(moved)


def _accumulated(
    stage: Stage, pieces: dict[str, Piece], plan: Plan, stack: Stack, micro_batches: Count
) -> tuple[Ledger, Ledger, Seconds, Seconds, Seconds]:
    """`_sharded` of the mean micro-batch (exposed and hidden), the extra seconds of one's forward and backward, and what the
    last backward of the step takes longer than the others: where gradients are reduced with the last micro-batch only, the
    others reduce nothing, and it is the last one that every stage before this one waits for."""
    loud = _sharded(stage, pieces, plan, stack)
    if data.reduces_each(plan, stack.accumulate):
        return *loud, 0.0
    still = {name: changed(piece, scatter=NOTHING, replicate=NOTHING) for name, piece in pieces.items()}
    quiet = _sharded(stage, still, plan, stack)
    share = 1.0 / micro_batches

    def mean(one: Ledger, other: Ledger) -> Ledger:
        return {label: share * one[label] + (1.0 - share) * other[label] for label in one}

    return mean(loud[0], quiet[0]), mean(loud[1], quiet[1]), quiet[2], quiet[3], loud[3] - quiet[3]


def _copied(
    stage: Stage, pieces: dict[str, Piece], plan: Plan, exposed: Ledger, hidden: Ledger
) -> tuple[Seconds, Seconds]:
    """Copies between device and host behind a stage's layers: what they add to the forward and to the backward.

    They share the window with the gathers of sharded parameters, each on a channel of its own."""
    shown: tuple[Seconds, Seconds] = (0.0, 0.0)
    for name, count in stage.contents:
        layer = pieces[name]
        there, back = lasting(layer, plan)
        forward, behind = hide.stall(layer.copies.forward, there, count)
        backward, more = hide.stall(layer.copies.backward, back, count)
        add.merged(exposed, {HOST: forward + backward}, 1.0)
        add.merged(hidden, {HOST: behind + more}, 1.0)
        shown = shown[0] + forward, shown[1] + backward
    return shown
