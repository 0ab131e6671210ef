"""The host's channels: what an offloading plan copies behind each layer, and its optimizer step. Part of *hide*."""

from __future__ import annotations

import numpy as np

from shardmeter.core.formula import under
from shardmeter.core.units import Seconds
from shardmeter.engine import demand, hide, memory
from shardmeter.engine.demand import Work
from shardmeter.engine.layer import HOST, Copies
from shardmeter.engine.price import Prices
from shardmeter.specs.model import Model
from shardmeter.specs.plan import Plan
from shardmeter.specs.stack import Stack
from shardmeter.strategies import adapters, data, fsdp, offload, precision


def copies(model: Model, work: Work, price: Prices, plan: Plan, stack: Stack, name: str) -> Copies:
    """What one layer of a block copies per micro-batch, priced."""
    if not {"parameters", "activations"} & set(plan.offload):
        return Copies()
    kept, _, _ = memory.layer_kept(model, work.blocks[name], plan, stack)
    kept = kept * adapters.input_share(plan.trainable, work.blocks[name].block)
    shards = data.shards(plan) if fsdp.applies(plan) else 1.0
    there, back = offload.layer(
        work.blocks[name].held + work.blocks[name].experts, kept, plan, shards, precision.gather_width(plan, name)
    )
    with under(HOST):
        ways = [price.host_copy(size) for size in (there.down, there.up, back.down, back.up)]
    return Copies(forward=np.maximum(ways[0], ways[1]), backward=np.maximum(ways[2], ways[3]))


def update(work: Work, price: Prices, plan: Plan, window: Seconds) -> tuple[Seconds, Seconds]:
    """(exposed, hidden) seconds of an offloaded optimizer step: gradients go down behind the last backward, `window`; the
    host updates its share while what is done comes up again (Ren 2021 §5.2)."""
    owned, _ = demand.largest_stage(work, plan)
    move, traffic = offload.update(owned, plan)
    down, up, busy = price.host_copy(move.down), price.host_copy(move.up), price.host_update(traffic)
    shown = hide.late(down, window)
    return shown + np.maximum(busy, up), down - shown + np.minimum(busy, up)
