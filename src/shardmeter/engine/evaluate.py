"""The four verbs in order, scope by scope: layer ⊂ micro-batch ⊂ step.

Every function here takes and returns numbers of the broadcast shape; only names (blocks, stages, sharding, schedule) loop.
"""

from __future__ import annotations

import math

import numpy as np

from shardmeter.core.record import changed, record
from shardmeter.core.units import Number, Seconds
from shardmeter.engine import add, demand, hide, memory
from shardmeter.engine.demand import BlockWork, Work
from shardmeter.engine.price import NOTHING, Charge, Prices, prices
from shardmeter.physics import memory_bound
from shardmeter.schedules import schedule
from shardmeter.specs.demands import FORWARD, Transfer
from shardmeter.specs.estimate import Estimate
from shardmeter.specs.fleet import Island
from shardmeter.specs.model import Model
from shardmeter.specs.plan import Plan
from shardmeter.specs.run import Run
from shardmeter.specs.stack import Stack
from shardmeter.strategies import data, fsdp
from shardmeter.strategies.pipeline import Stage

LABELS = {"gemm": "matrix products", "attention": "core attention", "traffic": "memory-bound kernels"}
BUSY = ("matrix products", "core attention", "memory-bound kernels", "recompute")
Ledger = dict[str, Number]


@record
class Piece:
    """One piece of a block for one micro-batch, layer scope folded: where its seconds go, by direction."""

    forward: Ledger
    backward: Ledger
    forward_time: Seconds
    backward_time: Seconds
    gather: Charge
    gather_again: Charge
    scatter: Charge
    replicate: Charge


@record
class Slot:
    """One micro-batch on one stage: exposed and hidden seconds, and the backward period of one layer."""

    stage: Stage
    exposed: Ledger
    hidden: Ledger
    time: Seconds


def evaluate(model: Model, island: Island, plan: Plan, run: Run, stack: Stack) -> Estimate:
    """Predict one optimizer step of one island. Any numeric field may be an array; results have the broadcast shape.

    Raises UnknownName for a family or schedule that is not built. Legality is the constraints' business: an illegal plan
    gives meaningless numbers here, not an error. Leaves out: jitter between ranks, data loading, evaluation."""
    work = demand.collect(model, plan, run, stack)
    price = prices(island, stack, plan, demand.WIDTH[plan.precision])
    pieces = {name: _piece(block, price, stack) for name, block in work.blocks.items()}
    slots = [_slot(stage, work, pieces, price, plan, stack) for stage in work.stages]
    exposed, hidden = _step(model, work, slots, pieces, price, plan, stack)
    terms = add.ledger(exposed, hidden)
    busy: Seconds = 0.0
    for label in BUSY:
        busy = busy + exposed.get(label, 0.0)
    memory_terms, allocated = memory.residents(model, work, plan, run, stack)
    device = island.accelerator
    return Estimate(
        step_time=add.total(terms), terms=terms, memory=memory_terms, memory_allocated=allocated,
        memory_peak=add.memory_total(memory_terms), memory_limit=device.memory,
        tokens=run.global_batch * run.seq_len, samples=run.global_batch, model_flops=work.model_flops,
        hardware_flops=work.model_flops + work.replay_flops, compute_seconds=busy, gpus=island.gpus,
        peak_flops=island.gpus * device.peak.get("bf16", device.peak.get("fp16", math.nan)),
    )  # fmt: skip


def _piece(work: BlockWork, price: Prices, stack: Stack) -> Piece:
    """Layer scope: device seconds by kind and direction, serial collectives, then the launch floor over both."""
    forward: Ledger = {}
    backward: Ledger = {}
    for op, portion in work.ops:
        label = "recompute" if op.replay else LABELS[op.kind]
        add.merged(forward if op.phase == FORWARD else backward, {label: price.compute(op)}, portion)
    for transfer, portion in work.serial:
        side = forward if transfer.phase == FORWARD else backward
        add.merged(side, {"tensor parallel": price.transfer(transfer).seconds}, portion)
    forward_time = _floored(forward, work.launches_forward, stack)
    backward_time = _floored(backward, work.launches_backward, stack)
    gathers = [price.transfer(t) for t in work.sharded if t.collective == "all_gather"]
    return Piece(
        forward=forward, backward=backward, forward_time=forward_time, backward_time=backward_time,
        gather=gathers[0] if gathers else NOTHING,
        gather_again=gathers[1] if len(gathers) > 1 else NOTHING,
        scatter=_priced(work.sharded, "reduce_scatter", price),
        replicate=_priced(work.sharded, "all_reduce", price),
    )  # fmt: skip


def _priced(transfers: tuple[Transfer, ...], collective: str, price: Prices) -> Charge:
    found = [t for t in transfers if t.collective == collective]
    return price.transfer(found[0]) if found else NOTHING


def _floored(side: Ledger, launches: Number, stack: Stack) -> Seconds:
    """Total of one direction with the host's pace; the excess becomes a term of its own."""
    device: Seconds = 0.0
    for seconds in side.values():
        device = device + seconds
    time: Seconds = memory_bound.launch_floor(device, memory_bound.host_time(launches, stack.launch_overhead))
    side["launch overhead"] = time - device
    return time


def _slot(stage: Stage, work: Work, pieces: dict[str, Piece], price: Prices, plan: Plan, stack: Stack) -> Slot:
    """Micro-batch scope on one stage: its pieces, what of the sharding's traffic shows, sends to the neighbours."""
    exposed: Ledger = {}
    hidden: Ledger = {}
    for name, times in _contents(stage):
        add.merged(exposed, pieces[name].forward, float(times))
        add.merged(exposed, pieces[name].backward, float(times))
    if fsdp.applies(plan):
        _sharded(stage, pieces, exposed, hidden, stack)
    for send in work.sends:
        seconds = price.transfer(send).seconds
        add.merged(hidden if stack.pipeline_overlap else exposed, {"stage sends": seconds}, 1.0)
    time: Seconds = 0.0
    for seconds in exposed.values():
        time = time + seconds
    return Slot(stage=stage, exposed=exposed, hidden=hidden, time=time)


def _contents(stage: Stage) -> list[tuple[str, int]]:
    return [("embedding", int(stage.embedding)), ("layer", stage.layers), ("head", int(stage.head))]


def _sharded(stage: Stage, pieces: dict[str, Piece], exposed: Ledger, hidden: Ledger, stack: Stack) -> None:
    """FSDP behind a micro-batch: one unit is prefetched, so all but the first gather and the last scatter may hide.

    The root unit (embedding and head) is gathered first and kept. Both ends show in every micro-batch: the backward's end
    waits for its scatters."""
    layer = pieces["layer"]
    steady = float(max(stage.layers - 1, 0))
    edges = [pieces[name] for name, times in _contents(stage) if times and name != "layer"]
    head_window = pieces["head"].backward_time if stage.head else 0.0
    forward_stall = hide.train_stall(layer.forward_time, (layer.gather.scale_up, layer.gather.fabric))
    gather_stall = hide.train_stall(layer.backward_time, (layer.gather_again.scale_up, layer.gather_again.fabric))
    backward_stall = hide.train_stall(
        layer.backward_time,
        (
            layer.gather_again.scale_up + layer.scatter.scale_up + layer.replicate.scale_up,
            layer.gather_again.fabric + layer.scatter.fabric + layer.replicate.fabric,
        ),
    )
    first_again = np.maximum(layer.gather_again.seconds - head_window, 0.0)
    some = float(min(stage.layers, 1))  # a stage may hold nothing but the embedding or the head
    gather = some * (layer.gather.seconds + first_again) + steady * (forward_stall + gather_stall)
    reduce = some * (layer.scatter.seconds + layer.replicate.seconds) + steady * (backward_stall - gather_stall)
    again_behind = some * (layer.gather_again.seconds - first_again)
    behind = steady * (layer.gather.seconds - forward_stall) + again_behind
    behind = behind + steady * (
        layer.gather_again.seconds + layer.scatter.seconds + layer.replicate.seconds - backward_stall
    )
    for edge in edges:
        gather = gather + edge.gather.seconds
        reduce = reduce + edge.scatter.seconds + edge.replicate.seconds
    behind = np.maximum(behind, 0.0)
    exposed["parameter gather"] = gather
    exposed["gradient reduction"] = reduce
    exposed["contention"] = stack.contention * behind
    hidden["parameter gather"] = again_behind + steady * (
        layer.gather.seconds + layer.gather_again.seconds - forward_stall - gather_stall
    )
    hidden["gradient reduction"] = behind - hidden["parameter gather"]


def _step(
    model: Model, work: Work, slots: list[Slot], pieces: dict[str, Piece], price: Prices, plan: Plan, stack: Stack
) -> tuple[Ledger, Ledger]:
    """Step scope: micro-batches through the pipeline (the critical stage's seconds and the bubble), then what is once a step."""
    longest = slots[0].time
    for slot in slots[1:]:
        longest = np.maximum(longest, slot.time)
    exposed: Ledger = {}
    hidden: Ledger = {}
    add.merged(exposed, _critical(slots, longest, "exposed"), work.micro_batches)
    add.merged(hidden, _critical(slots, longest, "hidden"), work.micro_batches)
    if plan.pp > 1:
        fill = schedule(plan.schedule).idle(plan.pp, plan.virtual_stages)
        bubble = hide.pipeline_idle([(s.time, s.stage.count) for s in slots], longest, fill)
        add.merged(exposed, {"pipeline bubble": bubble}, 1.0)
    if not fsdp.applies(plan):
        _whole_gradients(model, work, pieces, price, plan, stack, exposed, hidden)
    parameters = demand.largest_stage(work, model)
    exposed["optimizer"] = price.streamed(demand.optimizer_traffic(parameters, plan))
    exposed["software"] = stack.step_overhead
    return exposed, hidden


def _critical(slots: list[Slot], longest: Seconds, which: str) -> Ledger:
    """The ledger of the slowest stage (the earliest of equals), element by element."""
    result: Ledger = dict(getattr(slots[-1], which))
    for slot in reversed(slots[:-1]):
        is_longest = np.greater_equal(slot.time, longest)
        ledger: Ledger = getattr(slot, which)
        for label in {**result, **ledger}:
            result[label] = add.chosen(is_longest, ledger.get(label, 0.0), result.get(label, 0.0))
    return result


def _whole_gradients(
    model: Model,
    work: Work,
    pieces: dict[str, Piece],
    price: Prices,
    plan: Plan,
    stack: Stack,
    exposed: Ledger,
    hidden: Ledger,
) -> None:
    """DDP and ZeRO-1/2: the reduction behind the last backward of the first stage, the gather of updated parameters."""
    stage = work.stages[0]
    parameters = demand.gradient_parameters(work, stage, model)
    layer = pieces["layer"]
    layers = float(max(stage.layers, 1))
    reduce: Seconds = 0.0
    for transfer in data.gradient_transfers(parameters, plan, demand.WIDTH[plan.reduce_dtype]):
        buckets = np.maximum(np.ceil(transfer.size / data.BUCKET), 1.0)
        reduce = reduce + price.transfer(changed(transfer, size=transfer.size / buckets, messages=buckets)).seconds
    shown = hide.tail(reduce, layer.backward_time, layers) if stack.gradient_overlap else reduce
    times = work.micro_batches if plan.sharding == "zero2" else 1.0
    gather: Seconds = 0.0
    for transfer in data.update_transfers(parameters, plan, demand.WIDTH[plan.gather_dtype]):
        buckets = np.maximum(np.ceil(transfer.size / data.BUCKET), 1.0)
        gather = gather + price.transfer(changed(transfer, size=transfer.size / buckets, messages=buckets)).seconds
    window = layers * layer.forward_time if stack.gather_overlap else 0.0
    gather_shown = np.maximum(gather - window, 0.0)
    add.merged(exposed, {"parameter gather": gather_shown, "gradient reduction": times * shown}, 1.0)
    add.merged(hidden, {"parameter gather": gather - gather_shown, "gradient reduction": times * (reduce - shown)}, 1.0)
    add.merged(exposed, {"contention": stack.contention * (gather - gather_shown + times * (reduce - shown))}, 1.0)
