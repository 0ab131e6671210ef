"""Micro-batch scope: one micro-batch on one pipeline stage. Trains of layers with their ends, forward and backward apart."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shardmeter.core.record import record
from shardmeter.core.units import Ratio, Seconds
from shardmeter.engine import add, hide
from shardmeter.engine.layer import DIRECTIONS, Ledger, Piece
from shardmeter.engine.price import NOTHING, Charge
from shardmeter.schedules import Slot
from shardmeter.specs.demands import FORWARD, INPUT_GRAD, WEIGHT_GRAD
from shardmeter.specs.plan import Plan
from shardmeter.specs.stack import Stack
from shardmeter.strategies import fsdp, pipeline
from shardmeter.strategies.pipeline import Stage


@record
class MicroBatch:
    """What a stage does for one micro-batch: exposed and hidden seconds by label, and the slot the schedule is given."""

    stage: Stage
    exposed: Ledger
    hidden: Ledger
    slot: Slot


def micro_batch(stage: Stage, pieces: dict[str, Piece], plan: Plan, stack: Stack) -> MicroBatch:
    """Fold the layers of one stage into its forward, input gradient and weight gradient."""
    exposed: Ledger = {}
    times: dict[str, Seconds] = dict.fromkeys(DIRECTIONS, 0.0)
    for name, count in contents(stage):
        for phase in DIRECTIONS:
            add.merged(exposed, pieces[name].ledgers[phase], float(count))
            times[phase] = times[phase] + float(count) * pieces[name].times[phase]
    hidden: Ledger = {}
    if fsdp.applies(plan):
        shown, hidden, forward, backward = _sharded(stage, pieces, plan, stack)
        add.merged(exposed, shown, 1.0)
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


def contents(stage: Stage) -> list[tuple[str, int]]:
    """The blocks of a stage and how many pieces of each."""
    return [("embedding", int(stage.embedding)), ("layer", stage.layers), ("head", int(stage.head))]


def _sharded(
    stage: Stage, pieces: dict[str, Piece], plan: Plan, stack: Stack
) -> tuple[Ledger, Ledger, Seconds, Seconds]:
    """Sharded parameters behind a micro-batch: (exposed, hidden, extra forward seconds, extra backward seconds).

    The root unit (embedding and head) is gathered first and kept; one layer is gathered ahead of the one that computes, and
    its gradients are reduced behind the next. So the first gather and the last reduction of every turn show, unless the
    embedding or the head computes beside them, and the end of a backward waits for its reductions."""
    layer = pieces["layer"]
    gather, again, reduce = layer.gather, layer.gather_again, layer.scatter.plus(layer.replicate)
    layers = pipeline.even(stage.layers, plan.virtual_stages if plan.pp > 1 else 1)
    turns = sum(1 for n in layers if n)
    first, last = stage.embedding and layers[0] > 0, stage.head and layers[-1] > 0
    rows, inner = sum(1 for n in layers if n > 1), sum(max(n - 2, 0) for n in layers)
    embedding, head = pieces["embedding"], pieces["head"]
    # behind the embedding, the last layer's sum over replicas follows its scatter on whatever channel
    ending = Charge(reduce.seconds, reduce.scale_up, np.where(np.greater(reduce.fabric, 0.0), reduce.seconds, 0.0))
    forward = [
        Window(count=int(first), period=embedding.forward, serial=embedding.serial[FORWARD], gather=gather),
        Window(count=stage.layers - turns, period=layer.forward, serial=layer.serial[FORWARD], gather=gather),
    ]
    back = [
        Window(count=int(last), period=head.backward, serial=head.serial_backward, gather=again),
        Window(count=rows, period=layer.backward, serial=layer.serial_backward, gather=again),
        Window(count=inner, period=layer.backward, serial=layer.serial_backward, gather=again, reduce=reduce),
        Window(count=rows, period=layer.backward, serial=layer.serial_backward, reduce=reduce),
        Window(count=int(first), period=embedding.backward, serial=embedding.serial_backward, reduce=ending),
    ]
    there, _, slowed_there = behind(forward, stack.contention)
    gathers, reductions, slowed_back = behind(back, stack.contention)
    there = there + float(turns - first) * gather.seconds
    gathers = gathers + float(turns - last) * again.seconds
    roots = [pieces[name] for name, here in contents(stage) if here and name != "layer"]
    reductions = reductions + _turn_ends(stage, pieces, layers, back)
    layer_gathers = float(stage.layers) * (gather.seconds + again.seconds)
    all_reductions = float(stage.layers) * reduce.seconds
    all_reductions = all_reductions + add.folded(one.scatter.seconds + one.replicate.seconds for one in roots)
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


def _turn_ends(stage: Stage, pieces: dict[str, Piece], layers: tuple[int, ...], back: Sequence[Window]) -> Seconds:
    """Reductions that a turn waits for at its end, over the turns of a micro-batch: the last layer's, unless the embedding
    computes beside it, and the root unit's. `back` ends with the windows of the last layer and of the embedding."""
    layer, shown = pieces["layer"], add.folded(())
    reduce = layer.scatter.plus(layer.replicate)
    for chunk, count in enumerate(layers):
        here = {"embedding": stage.embedding and chunk == 0, "head": stage.head and chunk == len(layers) - 1}
        jobs = [pieces[name].scatter.plus(pieces[name].replicate) for name, found in here.items() if found]
        beside = back[-1] if count and here["embedding"] else back[-2]
        if count and beside is back[-2]:
            jobs.insert(0, reduce)
        scattering: Seconds = 0.0
        stall: Seconds = 0.0
        if beside is back[-1]:
            scattering, stall = hide.late(beside.reduce.scale_up, beside.period), beside.stall(beside.reduce)
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
        if window.count:
            count, moved = float(window.count), window.gather.plus(window.reduce)
            alone, both = window.stall(window.gather), window.stall(moved)
            gathers = gathers + count * alone
            reductions = reductions + count * (both - alone)
            slowed = slowed + count * hide.slowed(contention, moved.seconds - both, both)
    return gathers, reductions, slowed
