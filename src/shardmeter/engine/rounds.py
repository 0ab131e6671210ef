"""Between two virtual stages of a device: the turns of the other micro-batches of a round, and what it waits and sends."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shardmeter.core.units import Count, Seconds
from shardmeter.engine.demand import Work
from shardmeter.engine.micro_batch import MicroBatch
from shardmeter.schedules import Slot, traits
from shardmeter.specs.plan import Plan


def passes(work: Work, plan: Plan) -> Count:
    """Micro-batches that go through one virtual stage of a device before any goes through its next one."""
    known = traits(plan.schedule)
    return float(plan.pp) if known.groups or known.route == "vee" else work.micro_batches


def between(
    work: Work, stages: Sequence[MicroBatch], own: Slot, plan: Plan, hop: Seconds, way: str
) -> tuple[Seconds, ...]:
    """Seconds of the round of each virtual stage in which a device does not compute: a round lasts as long as all turns of
    the slowest device or wire, or as one micro-batch on its way round all devices. `way`: forward or backward.

    Leaves out: chunks that are laid in a V, where nothing is waited for."""
    if plan.pp == 1 or plan.virtual_stages == 1 or traits(plan.schedule).route != "ring":
        return (0.0,) * plan.virtual_stages
    each, blocks = passes(work, plan), traits(plan.schedule).blocking
    found: list[Seconds] = []
    for at in range(plan.virtual_stages):
        slowest: Seconds = 0.0 if blocks else hop
        around: Seconds = float(plan.pp) * hop
        for kind, _, count in work.runs:
            seconds = getattr(stages[kind].slot.chunk(at, plan.virtual_stages), way)
            slowest, around = np.maximum(slowest, seconds), around + float(count) * seconds
        mine = each * getattr(own.chunk(at, plan.virtual_stages), way)
        found.append(np.maximum(np.maximum(each * (slowest + (hop if blocks else 0.0)), around) - mine, 0.0))
    return tuple(found)
