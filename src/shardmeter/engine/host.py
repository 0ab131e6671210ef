"""The host's channels: what an offloading plan copies behind each layer, and its optimizer step. Part of *hide*."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import numpy as np

from shardmeter.core.formula import under
from shardmeter.core.units import Count, Seconds
from shardmeter.engine import add, demand, hide, memory
from shardmeter.engine.demand import Work
from shardmeter.engine.layer import HOST, Copies
from shardmeter.engine.price import Prices
from shardmeter.specs.model import Model
from shardmeter.specs.plan import Plan
from shardmeter.specs.stack import Stack
from shardmeter.strategies import adapters, data, fsdp, offload, pipeline, precision


def copies(model: Model, work: Work, price: Prices, plan: Plan, stack: Stack, name: str) -> Copies:
    """What one layer of a block copies per micro-batch, priced."""
    if not {"parameters", "activations"} & set(plan.offload):
        return Copies()
    kept, _, _ = memory.layer_kept(model, work.blocks[name], plan, stack)
    kept = kept * adapters.input_share(plan.trainable, work.blocks[name].block)
    shards = data.shards(plan) if fsdp.applies(plan) else 1.0
    held = work.blocks[name].held + work.blocks[name].experts
    width, layers = precision.gather_width(plan, name), float(model.layers + model.mtp)
    there, back = offload.layer(held, kept, plan, shards, width, layers)
    with under(HOST):
        down, parameters, both = (price.host_copy(size) for size in (there.down, there.up, back.up))
    return Copies(down=down, parameters=parameters, up=both - parameters)


def update(
    work: Work, price: Prices, plan: Plan, lasting: Mapping[str, Seconds], waited: Mapping[pipeline.Stage, Seconds]
) -> tuple[Seconds, Seconds]:
    """(exposed, hidden) seconds of an offloaded optimizer step: gradients go down behind the last backward, unit by unit; the host
    updates unit by unit while what is done comes up again (Ren 2021 §5.2). `lasting`: the last backward of one piece of a block,
    empty where all reductions come after it: gradients then go down behind the reduction of the next unit; `waited`: for
    reductions after the last compute of each stage's backward (of a device with two stages, the less).

    Two machines in a row are done at the largest, over every unit, of the first's work up to it and the second's from it on; in
    a row of equals that is at the first or the last. The device with most to do, element by element."""
    shown: Seconds = 0.0
    whole: Seconds = 0.0
    for stages, part in dict.fromkeys(demand.devices(work, plan)):
        units = [
            (name, part * demand.unit_share(work, name, plan), count)
            for stage in stages for name, count in demand.contents(stage) if count
        ]  # fmt: skip
        waits = functools.reduce(np.minimum, (waited[stage] for stage in stages))
        every = np.maximum(add.folded(float(count) * owned for _, owned, count in units), 1.0)
        groups = [
            (*unit(owned, price, plan), lasting[name] if lasting else waits * owned / every, count)
            for name, owned, count in units
        ]
        if not groups:
            continue
        behind = [*(lasts for _, _, _, lasts, _ in groups[-2::-1]), 0.0]
        downs = [
            row
            for (down, _, _, own, count), after in zip(groups[::-1], behind, strict=True)
            for row in ((down, own, count - 1), (down, after, 1))
        ]
        late = np.maximum(hide.chain(downs) - (waits if lasting else 0.0), groups[0][0])
        total = add.folded(float(count) * (down + busy + up) for down, busy, up, _, count in groups)
        mine = late + _flow([(busy, up, count) for _, busy, up, _, count in groups])
        more = np.greater(mine, shown)
        shown, whole = np.maximum(mine, shown), add.chosen(more, total, whole)
    return shown, whole - shown


def _flow(groups: Sequence[tuple[Seconds, Seconds, int]]) -> Seconds:
    """When the second of two machines in a row is done with (first's seconds, second's, how many) units."""
    longest: Seconds = 0.0
    left = add.folded(float(count) * up for _, up, count in groups)
    done: Seconds = 0.0
    for busy, up, count in groups:
        longest = np.maximum(longest, done + busy + left)
        done, left = done + float(count) * busy, left - float(count) * up
        longest = np.maximum(longest, done + up + left)
    return longest


def unit(owned: Count, price: Prices, plan: Plan) -> tuple[Seconds, Seconds, Seconds]:
    """(down, host, up): seconds to bring the gradients of `owned` parameters to the host, to update them, to bring them back."""
    move, traffic = offload.update(owned, plan)
    return price.host_copy(move.down), price.host_update(traffic), price.host_copy(move.up)
