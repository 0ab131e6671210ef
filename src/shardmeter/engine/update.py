"""The optimizer step at the end of a step: on the device, over the ranks that share its matrices, or on the host."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from shardmeter.core.formula import under
from shardmeter.core.units import Ratio, Seconds
from shardmeter.engine import demand, host
from shardmeter.engine.demand import Work
from shardmeter.engine.layer import HOST, Ledger, Piece
from shardmeter.engine.micro_batch import lasting, parted
from shardmeter.engine.price import Prices
from shardmeter.specs.demands import WEIGHT_GRAD
from shardmeter.specs.plan import Plan
from shardmeter.specs.stack import Stack
from shardmeter.strategies import data, fsdp, optimizer
from shardmeter.strategies.pipeline import Stage


def update(
    work: Work, pieces: dict[str, Piece], price: Prices, plan: Plan, waited: Mapping[Stage, Seconds]
) -> tuple[Ledger, Ledger]:
    """(exposed, hidden) seconds of the update on the device with most to do. `waited`: for reductions, since the last compute of
    a stage's backward; copies to the host go on meanwhile."""
    if "optimizer" in plan.offload:
        with under(HOST):
            lasting = {name: _backward(piece, plan, price.stack.contention) for name, piece in pieces.items()}
            if _after(plan, price.stack):
                lasting = {}
            shown, behind = host.update(work, price, plan, lasting, waited)
        return {"optimizer": 0.0 * shown, HOST: shown}, {HOST: behind}
    with under("optimizer"):
        seconds = price.streamed(demand.optimizer_traffic(*demand.largest_stage(work, plan), plan))
        return {"optimizer": seconds + matrices(work, price, plan)}, {}


def _after(plan: Plan, stack: Stack) -> bool:
    """Whether all gradients are reduced after the last backward, one unit's after the other's."""
    once = plan.sharding != "none" and not fsdp.applies(plan) and not data.reduces_each(plan, stack.accumulate)
    return once and not stack.gradient_overlap


def _backward(layer: Piece, plan: Plan, contention: Ratio) -> Seconds:
    """How long the last backward of one piece lasts (its weight gradient, where that is a turn of its own), with what it waits
    for."""
    if parted(plan):
        return layer.times[WEIGHT_GRAD]
    return np.maximum(lasting(layer, plan, contention)[1], layer.copies.backward)


def matrices(work: Work, price: Prices, plan: Plan) -> Seconds:
    """What an update multiplies: products of whole matrices, or the sum of perturbations of low rank."""
    return whole_matrices(work, price, plan) if plan.probes is None else _perturbations(work, price, plan)


def _perturbations(work: Work, price: Prices, plan: Plan) -> Seconds:
    """The products that add up the perturbations of a stage, on the one with most; sharded parameters are summed where they lie."""
    most: Seconds = 0.0
    for stage in work.stages:
        seconds: Seconds = 0.0
        for name, pieces in demand.contents(stage):
            for op in work.blocks[name].matrix_updates:
                seconds = seconds + float(pieces) * price.compute(op)
        most = np.maximum(most, seconds)
    return most / (data.shards(plan) if fsdp.applies(plan) else 1.0)


def whole_matrices(work: Work, price: Prices, plan: Plan) -> Seconds:
    """Gathers and products of an optimizer that needs whole matrices: each rank does its share of the layers' matrices."""
    layer, layers = work.blocks[demand.main_layer(work)], float(max(work.counts))
    products = layer.matrix_updates
    if not products or (isinstance(layer.trained, float) and layer.trained == 0.0):
        return 0.0
    seconds: Seconds = 0.0
    for op in products:
        seconds = seconds + price.compute(op)
    seconds = seconds * layers / (data.shards(plan) * plan.tp)
    for transfer in optimizer.update_gathers(layers * layer.trained, plan):
        seconds = seconds + price.transfer(transfer).seconds
    return seconds
