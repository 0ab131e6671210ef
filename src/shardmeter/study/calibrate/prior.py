"""What is believed of a stack's numbers before any of its runs is seen: its present numbers, as far off as stacks lie from each other.

The numbers of `make fit` scatter as its priors say (quartiles over 15 stacks); three more that a stack seldom has of its own are let loose here,
because a few rows of one machine tell of them (links inside the node, attention, what happens once a step, waits of experts).
Beside them: an offset that all runs share (clocks, cooling, a driver), and a misfit that plans alike share: what the physics
leaves out is the same for neighbours. Its widths are chosen on sources other than those that the calibration is scored on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from shardmeter.core.record import changed, record
from shardmeter.core.units import Number
from shardmeter.specs import Scenario
from shardmeter.specs.stack import Stack
from shardmeter.study.fit.batch import Floats
from shardmeter.study.fit.stacks import PRIORS, WITH_EXPERTS, Prior

SELDOM: dict[str, Prior] = {
    "attention_factor": Prior(centre=0.92, spread=0.12, low=0.30, high=1.0),
    "scale_up_factor": Prior(centre=1.0, spread=0.25, low=0.30, high=1.05),
    "step_overhead": Prior(centre=5e-3, spread=0.7, low=5e-4, high=5e-2),
}
"""Numbers that no fit of the shipped stacks moves: spreads by choice, not fitted."""
LOOSE: dict[str, Prior] = {**PRIORS, **SELDOM, **WITH_EXPERTS}
"""Spread and bounds of every number that a calibration may move; its centre is the stack's own."""
SCALED = {
    "gemm_factor": -1.0, "attention_factor": -1.0, "nic_factor": -1.0, "scale_up_factor": -1.0, "traffic_factor": 1.0,
    "launch_overhead": 1.0, "step_overhead": 1.0, "dispatch_wait": 1.0, "collective_overhead": 1.0,
}  # fmt: skip
"""The power with which a number grows when everything takes longer by one factor: how an offset is kept in a stack."""


@record
class Widths:
    """The widths of what no number of a stack explains, as logarithms of time."""

    offset: float
    """Standard deviation of what all runs of one machine share."""
    misfit: float
    """Of what plans alike share."""
    noise: float
    """Of a row about its model."""
    bad: float = 0.5
    """Of a row that is measured or described wrongly."""
    odds: float = 0.05
    """Share of such rows."""
    unlike: float = 0.06
    """What a future run adds because its plan is not among the given ones; counts in intervals alone."""


WIDTHS = Widths(offset=0.10, misfit=0.05, noise=0.04)
"""Of 54 sets tried on grids of other sources (not Aleph Alpha's sweep, not the Ultra-Scale playbook), one whose errors after 1, 2, 3 and
5 rows are within 1 % of the least. `unlike` was set by eye there, before numbers followed the average of the draws."""
TRUSTED = {0: 0.0, 1: 0.6, 2: 0.9}
"""Share of the way from the numbers of before that so few runs are followed; more runs all the way. The largest shares, in tenths, at
which no grid of those other sources got worse by more than one point (averages of draws, before numbers were settled on them)."""
ALIKE = {
    "tp": 1.5,
    "pp": 1.5,
    "cp": 1.5,
    "micro_batch": 1.5,
    "recompute": 0.7,
    "beyond": 1.0,
    "seq": 2.0,
    "gpus": 2.0,
    "size": 2.0,
}
"""Doublings over which plans stop to be alike, by what they differ in; `recompute` counts none, half and full as 0, 0.5 and 1."""
_RECOMPUTE = {"none": 0.0, "full": 1.0}


def loose(stack: Stack) -> dict[str, Prior]:
    """The priors of a stack: of every number it has above nought, the spread about its own value."""
    found = {}
    for name, prior in LOOSE.items():
        value = float(getattr(stack, name))
        if value > 0.0:
            found[name] = Prior(
                centre=min(max(value, prior.low), prior.high), spread=prior.spread, low=prior.low, high=prior.high
            )
    return found


def sampled(priors: dict[str, Prior], count: int, seed: int = 0) -> Floats:
    """Logarithms of `count` draws of the numbers, shape (count, numbers); the first is the centre. Seeded."""
    centre = np.log([one.centre for one in priors.values()])
    spread = np.array([one.spread for one in priors.values()])
    low, high = (np.log([getattr(one, end) for one in priors.values()]) for end in ("low", "high"))
    points = centre + spread * np.random.default_rng(seed).standard_normal((count, len(priors)))
    points[0] = centre
    clipped: Floats = np.clip(points, low, high)
    return clipped


def covariance(scenarios: Sequence[Scenario], widths: Widths) -> Floats:
    """Covariance of the misfit of log step times between scenarios, shape (n, n): plans alike are off alike."""
    places = np.array([_place(one) for one in scenarios])
    apart = ((places[:, None, :] - places[None, :, :]) ** 2).sum(axis=2)
    near: Floats = widths.misfit**2 * np.exp(-0.5 * apart)
    return near


def _place(scenario: Scenario) -> list[float]:
    """Where a plan lies among others, in lengths of `ALIKE`."""
    plan, run, island = scenario.plan, scenario.run, scenario.fleet.islands[0]
    at = {
        "tp": math.log2(plan.tp), "pp": math.log2(plan.pp), "cp": math.log2(plan.cp),
        "micro_batch": math.log2(plan.micro_batch), "recompute": _RECOMPUTE.get(plan.recompute, 0.5),
        "beyond": math.log2(max(1.0, float(plan.tp) / float(island.tiers[0].size))),
        "seq": math.log2(run.seq_len), "gpus": math.log2(island.gpus),
        "size": math.log2(float(scenario.model.layers) * float(scenario.model.hidden) ** 2),
    }  # fmt: skip
    return [value / ALIKE[name] for name, value in at.items()]


def teaches(scenario: Scenario) -> bool:
    """Whether a run tells of its stack's numbers: tensor parallelism wider than a node does not, as in `make fit`; a setting that
    nobody states doubles its time."""
    return bool(scenario.plan.tp <= scenario.fleet.islands[0].tiers[0].size)


def around(scenario: Scenario) -> list[Scenario]:
    """The plan, and those with half and twice its tensor parallelism and micro-batch, as far as they divide what they must."""
    plan, run, model = scenario.plan, scenario.run, scenario.model
    node = float(scenario.fleet.islands[0].tiers[0].size)
    found = [scenario]
    for factor in (0.5, 2.0):
        tp, shard = plan.tp * factor, plan.dp_shard / factor
        if (
            plan.ep == 1.0
            and 1.0 <= tp <= node
            and shard >= 1.0
            and _whole(shard, model.heads / tp, model.kv_heads / tp)
        ):
            found.append(changed(scenario, plan=changed(plan, tp=tp, dp_shard=shard)))
        micro = plan.micro_batch * factor
        if _whole(micro, run.global_batch / (plan.dp * micro)):
            found.append(changed(scenario, plan=changed(plan, micro_batch=micro)))
    return found


def _whole(*values: Number) -> bool:
    return all(float(value) >= 1.0 and float(value).is_integer() for value in values)
