"""Between two virtual stages of a device: the turns of the other micro-batches of a round, and what it waits and sends."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shardmeter.core.units import Count, Seconds
from shardmeter.engine.demand import Work
from shardmeter.engine.micro_batch import MicroBatch
from shardmeter.schedules import traits
from shardmeter.specs.plan import Plan


def passes(work: Work, plan: Plan) -> Count:
    """Micro-batches that go through one virtual stage of a device before any goes through its next one."""
    known = traits(plan.schedule)
    return float(plan.pp) if known.groups or known.route == "vee" else work.micro_batches


def between(
    work: Work, stages: Sequence[MicroBatch], run: int, plan: Plan, hop: Seconds, way: str
) -> tuple[Seconds, ...]:
    """Seconds between a device's turns on each virtual stage and the next that it does not compute: the next begins when the
    slowest device that a micro-batch comes through, or wire, has served the others, or when it has been round all devices.

    `run` is the device's place in the line of stages, `way` forward or backward (from the last virtual stage to the first);
    the virtual stages are in the order of the model. Leaves out: chunks that are laid in a V, where nothing is waited for."""
    rounds = plan.virtual_stages
    if plan.pp == 1 or rounds == 1 or traits(plan.schedule).route != "ring":
        return (0.0,) * rounds
    each, blocks = passes(work, plan), traits(plan.schedule).blocking
    line = [(stages[kind].slot, count) for kind, _, count in work.runs]
    found: list[Seconds] = []
    for at in range(rounds - 1):
        own = getattr(line[run][0].chunk(at, rounds), way)
        slowest = np.maximum(own, 0.0 if blocks else hop)
        around: Seconds = float(plan.pp) * hop
        for place, (slot, count) in enumerate(line):
            now, later = (getattr(slot.chunk(one, rounds), way) for one in (at, at + 1))
            around = around + float(count) * (later if place < run else now)
            if way == "backward":
                slowest = np.maximum(slowest, later if place < run else now)
            elif place < run:
                slowest = np.maximum(slowest, now)
        found.append(np.maximum(each * (slowest + (hop if blocks else 0.0)), around) - each * own)
    return (*found, 0.0)
