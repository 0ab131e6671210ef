"""How efficient the worlds of a trial are over its line, where its figure lies among them, and what line it would take."""

from __future__ import annotations

from functools import cache

import numpy as np

from shardmeter.core.record import changed, record
from shardmeter.core.sums import plain_sum
from shardmeter.core.units import Ratio, Seconds
from shardmeter.engine.fleet import Whole, evaluate_fleet, joined, refolded
from shardmeter.specs import Scenario
from shardmeter.study.roots import zero
from shardmeter.study.trust import ACROSS
from shardmeter.study.validate.cross_site.trials import EACH_ALONE, Trial
from shardmeter.study.validate.cross_site.worlds import (
    LINES,
    OVERSUBSCRIPTIONS,
    Line,
    World,
    across,
    laid,
    together,
    worlds,
)

NARROWEST = 4096.0
"""Oversubscription at which no figure is looked for any more."""
ALIKE = 32.0
"""Oversubscription at which lines are compared."""
NEAR = 1.5
"""An iteration of so many times the published one, or one part of that, may be the one that was meant."""


@record
class Case:
    """One world over one line."""

    world: World
    line: Line
    rtt: Seconds
    oversubscription: float
    step: float
    efficiency: float
    low: float
    """With all messages as slow as messages between sites were seen to be; pipelines: as predicted."""
    high: float


@record
class Verdict:
    """A trial beside the cases of one plan and line."""

    trial: Trial
    plan: str
    line: Line
    cases: tuple[Case, ...]

    @property
    def span(self) -> tuple[float, float]:
        """Lowest and highest efficiency of all cases, messages spread."""
        return min(one.low for one in self.cases), max(one.high for one in self.cases)

    @property
    def nominal(self) -> tuple[float, float]:
        """The same with messages as predicted."""
        return min(one.efficiency for one in self.cases), max(one.efficiency for one in self.cases)

    @property
    def inside(self) -> bool:
        """Whether some case is as efficient as published."""
        return self.off == 0.0

    @property
    def off(self) -> float:
        """How far the published figure lies above all cases (positive) or below them."""
        low, high = self.span
        return max(self.trial.low - high, 0.0) + min(self.trial.high - low, 0.0)

    def least(self) -> tuple[float | None, ...]:
        """B/s a GPU from which on each world reaches the figure over the shorter round trip; None where its own adapters do not."""
        return tuple(
            least_rate(self.trial, world, self.line) for world in dict.fromkeys(one.world for one in self.cases)
        )


def plan_of(world: World) -> str:
    """What crosses, in words."""
    late = "" if world.release == "layers" else ", at the end"
    return f"dp, {world.format}{late}" if world.placement == "dp" else f"pp, {world.layout.says}"


def verdicts(trial: Trial) -> tuple[Verdict, ...]:
    """A trial against every plan and line; those that the published seconds of an iteration rule out are left out."""
    plans = dict.fromkeys(plan_of(world) for world in worlds(trial))
    found = (verdict(trial, plan, line) for plan in plans for line in trial.lines)
    return tuple(one for one in found if one.cases)


def verdict(trial: Trial, plan: str, line: str) -> Verdict:
    """A trial against one plan and line, by their words."""
    some = [world for world in worlds(trial) if plan_of(world) == plan]
    cases = tuple(case for world in some for case in _cases(trial, world, LINES[line]))
    return Verdict(trial=trial, plan=plan, line=LINES[line], cases=cases)


def alike(trial: Trial) -> Trial:
    """A trial of its first model over its shorter round trip and one line, whatever an iteration took: there it is seen what one piece
    of the network does."""
    over = trial.oversubscription or ALIKE
    return changed(trial, models=trial.models[:1], oversubscription=over, rtts=trial.rtts[:1], step=None)


def _cases(trial: Trial, world: World, line: Line) -> list[Case]:
    said = trial.oversubscription
    cases = [
        _case(trial, world, line, rtt, each)
        for rtt in trial.rtts
        for each in ((said,) if said is not None else OVERSUBSCRIPTIONS)
    ]
    if trial.step is None:
        return cases
    return [one for one in cases if trial.step / NEAR <= one.step <= trial.step * NEAR]


def _case(trial: Trial, world: World, line: Line, rtt: Seconds, oversubscription: float) -> Case:
    scenario, whole = crossed(world, line, rtt, oversubscription)
    reference = _reference(trial, world)
    rate = _rate(whole)
    ends = [rate, rate]
    if whole.round is not None and world.placement == "dp":
        folded = [refolded(whole, scenario.plan, 1.0, factor) for factor in reversed(ACROSS)]
        ends = [float(one.tokens / one.seconds) for one in folded if one is not None]
    return Case(
        world=world, line=line, rtt=rtt, oversubscription=oversubscription, step=float(whole.estimate.step_time),
        efficiency=rate / reference, low=ends[0] / reference, high=ends[1] / reference,
    )  # fmt: skip


def crossed(world: World, line: Line, rtt: Seconds, oversubscription: Ratio) -> tuple[Scenario, Whole]:
    """A world over a line, by the fastest of its topologies. Where gradients cross, what happens inside the sites is evaluated once
    for all lines."""
    found = []
    for topology in line.topologies if world.placement == "dp" else line.topologies[:1]:
        scenario = laid(_over(world, line.word, topology), oversubscription, rtt)
        known = inner(world) if world.placement == "dp" else None
        found.append((scenario, _whole(scenario) if known is None else _joined(scenario, known)))
    return min(found, key=lambda one: float(one[1].estimate.step_time))


@cache
def _over(world: World, line: str, topology: str) -> Scenario:
    return across(world, LINES[line], topology)


def _joined(scenario: Scenario, known: Whole) -> Whole:
    return joined(scenario.model, known.parts, scenario.fleet.wan, scenario.plan, known)


@cache
def inner(world: World) -> Whole:
    """A world over some line."""
    return _whole(across(changed(world, placement="dp"), LINES["default"], "ring"))


@cache
def _alone(world: World) -> float:
    return _rate(_whole(together(world)))


def _reference(trial: Trial, world: World) -> float:
    """Tokens a second of what the trial is held against."""
    if trial.against == EACH_ALONE:
        return plain_sum(float(one.tokens / one.step_time) for one in inner(world).inner)
    return _alone(changed(world, placement="", release="layers", layout=changed(world.layout, ahead=0)))


def _whole(scenario: Scenario) -> Whole:
    return evaluate_fleet(scenario.model, scenario.fleet, scenario.plan, scenario.run, scenario.stack, scenario.plans)


def _rate(whole: Whole) -> float:
    return float(whole.estimate.tokens / whole.estimate.step_time)


def least_rate(trial: Trial, world: World, line: Line) -> float | None:
    """B/s a GPU at which the figure is just reached over the shorter round trip; None where it is not at the adapters' own rate."""

    def short(log: float) -> float:
        return _case(trial, world, line, trial.rtts[0], float(np.exp(log))).efficiency - trial.low

    ends = 0.0, float(np.log(NARROWEST))
    at = short(ends[0]), short(ends[1])
    if at[0] < 0.0:
        return None
    place = ends[1] if at[1] >= 0.0 else zero(short, *ends, *at, tolerance=0.05)
    wan = _over(world, line.word, line.topologies[0]).fleet.wan
    return None if wan is None else float(np.min(wan.up) / np.exp(place) / (world.gpus / 2))
