"""What no plans of some islands fall below where a run is more than so many steps: the whole of it, at the least step."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np

from shardmeter.core.record import changed
from shardmeter.core.units import Number, Seconds
from shardmeter.engine import add
from shardmeter.engine.course import is_elastic
from shardmeter.engine.fleet import Whole
from shardmeter.engine.round import Folded, Pace
from shardmeter.study.course.energy import KWH
from shardmeter.study.course.phases import Leg
from shardmeter.study.course.totals import of_step, totals
from shardmeter.study.planning.objective import Goal
from shardmeter.study.planning.team import Bound


def least_value(goal: Goal, bound: Bound, step: Seconds, whole: Number) -> Number:
    """The first objective of a run of `whole` tokens whose steps take no less than `step`, of the shape of the way. A longer step never
    makes a run shorter or cheaper, whatever interrupts it."""
    team, word = bound.team, goal.objectives[0]
    if word == "throughput":
        return -1.0 * team.tokens / step
    steps = whole / team.tokens
    found = [totals(team.scenario.run, [Leg(whole=one, steps=steps)]) for one in _hurried(bound, step)]
    if word == "cost":
        return functools.reduce(np.minimum, [one.paid for one in found]) + bound.egress * steps
    return functools.reduce(np.minimum, [one.drawn * KWH if word == "energy" else one.seconds for one in found])


def _hurried(bound: Bound, step: Seconds) -> Iterator[Whole]:
    """The fleet with such a step, on which nobody computes or sends. Islands that go on without one another miss no more than the most
    reliable of them, which has all tokens: one fleet for each kind."""
    team, run, plan = bound.team, bound.team.scenario.run, bound.team.scenario.plan
    each = [of_step(island, plan, run, step, 0.0) for island in team.islands]
    if len(each) == 1 or bound.asked is None:
        yield each[0]
        return
    parts = tuple(changed(one.parts[0], cell=at) for at, one in enumerate(each))
    gpus = add.folded(part.estimate.gpus for part in parts)
    estimate = changed(each[0].estimate, tokens=team.tokens, gpus=gpus)
    count = len(parts)
    steps = np.asarray(bound.asked.steps, dtype=float)
    folded = Folded(
        seconds=step * steps, inner=0.0, steps=steps[..., None] * np.ones(count), counted=np.ones(count), tokens=team.tokens,
        exposed=(), hidden=(), update=0.0, wait=0.0, critical=0.0,
    )  # fmt: skip
    for kind in dict.fromkeys(team.kind):
        pace = Pace(step=np.ones(count), tokens=np.eye(count)[team.kind.index(kind)])
        made = Whole(parts=parts, estimate=estimate, round=bound.asked, pace=pace, folded=folded)
        yield made
        if not is_elastic(made):
            return
