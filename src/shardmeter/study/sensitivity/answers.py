"""One figure of a scenario, and of many variants of it: what an effect is told by."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shardmeter.core.errors import BadScenario, ShardMeterError, Violation, nearest, shown
from shardmeter.core.record import changed, record
from shardmeter.core.sums import plain_sum
from shardmeter.engine.fleet import Whole, alone, joined, stretched
from shardmeter.engine.many import Case, evaluate_fleets
from shardmeter.scenario.together import reason
from shardmeter.specs import Plan, Scenario, Sync, bare
from shardmeter.study import trust
from shardmeter.study.course import check, legs_of, slowed
from shardmeter.study.course.phases import Leg
from shardmeter.study.levers import answered
from shardmeter.study.sweep.figures import FIGURES, TEXTS, TRUTHS
from shardmeter.study.sweep.one import number, point_of
from shardmeter.sync import inner_of

OF = tuple(name for name in FIGURES if name not in TEXTS | TRUTHS)
"""Figures that are numbers."""
HOUR = 3600.0


@record
class Reading:
    """The figure of one variant."""

    value: float | None
    """None where it is not known, or the variant cannot be answered."""
    ends: tuple[float | None, float | None] = (None, None)
    """The same with every inner step and message as fast, and as slow, as the interval of a step leaves possible."""
    fits: bool = True
    traffic: float | None = None
    """USD a second for what is sent between islands; None where no price is known, 0 for one island."""
    why: str = ""
    """Why there is no figure."""


def known(of: object) -> str:
    """The name of a figure that is a number. Raises BadScenario with the nearest three."""
    if isinstance(of, str) and of in OF:
        return of
    near = ", ".join(nearest(str(of), OF))
    broken = Violation(
        field="of", says=f"{shown(of, 40)} is no figure that is a number", way_out=f"the nearest are {near}"
    )
    raise BadScenario("1 problem", [broken])


class Answers:
    """What a scenario answers, and its variants: those that leave the inner steps of its islands as they are share them, the others
    are evaluated together."""

    def __init__(self, scenario: Scenario, of: str) -> None:
        """Raises ShardMeterError where the scenario itself has no such figure."""
        self.scenario, self.of = scenario, of
        self.of_run = of.startswith("run.")
        self.whole = answered(scenario)
        if self.of_run:
            check(scenario, self.whole)
        self.paces = trust.paces(scenario)
        self.base = self._reading(scenario, self.whole, sure=True)
        if self.base.value is None or not self.base.value > 0.0:
            says = f"{of} is {'null' if self.base.value is None else f'{self.base.value:g}'} here"
            rule = "an effect is a ratio of two answers above 0"
            way_out = "a length of the run, prices, or another figure" if of.startswith("run.") else "another figure"
            raise BadScenario("1 problem", [Violation(field="of", says=says, rule=rule, way_out=way_out)])

    def read(self, moved: Sequence[Scenario], *, sure: bool = False) -> list[Reading]:
        """The figure of every variant; `sure`: at the ends of its interval too."""
        found: dict[int, Reading] = {}
        cases: dict[int, Case] = {}
        for at, one in enumerate(moved):
            if not _same_steps(self.scenario, one):
                cases[at] = _case(one)
            elif (
                self.of_run or one.fleet.wan is not self.scenario.fleet.wan or one.plan.sync != self.scenario.plan.sync
            ):
                found[at] = self._read(one, self._joined(one), sure=sure)
            else:  # what differs is of the whole run, and the figure is not
                found[at] = self.base
        wholes = evaluate_fleets(self.scenario.model, list(cases.values()))
        found |= {at: self._read(moved[at], whole, sure=sure) for at, whole in zip(cases, wholes, strict=True)}
        return [found[at] for at in range(len(moved))]

    def _joined(self, moved: Scenario) -> Whole:
        """A variant whose inner steps are those of the scenario."""
        plans = moved.plans or (moved.plan,) * len(moved.fleet.islands)
        inner = self.whole.inner or (self.whole.estimate,)
        parts = [
            changed(part, island=island, plan=plan, run=changed(moved.run, global_batch=part.run.global_batch), estimate=one)
            for part, island, plan, one in zip(self.whole.parts, moved.fleet.islands, plans, inner, strict=True)
        ]  # fmt: skip
        if len(parts) == 1:
            return alone(parts[0].island, parts[0].plan, parts[0].run, parts[0].estimate)
        return joined(moved.model, parts, moved.fleet.wan, moved.plan)

    def _read(self, moved: Scenario, whole: Whole | ShardMeterError, *, sure: bool) -> Reading:
        if isinstance(whole, ShardMeterError):
            return Reading(value=None, why=reason(whole))
        if self.of_run:
            try:
                check(moved, whole)
            except ShardMeterError as error:
                return Reading(value=None, why=reason(error))
        return self._reading(moved, whole, sure=sure)

    def _reading(self, moved: Scenario, whole: Whole, *, sure: bool) -> Reading:
        legs = legs_of(moved, whole) if self.of_run else None
        point = point_of(moved, whole, legs)
        ends: tuple[float | None, float | None] = (None, None)
        if sure and self.paces is not None:
            fast, slow = (self._end(moved, whole, legs, *pace) for pace in self.paces)
            ends = fast, slow
        return Reading(value=number(self.of, point), ends=ends, fits=bool(point.fits[0]), traffic=_traffic(whole))

    def _end(
        self, moved: Scenario, whole: Whole, legs: tuple[Leg, ...] | None, inner: float, across: float
    ) -> float | None:
        """The figure if all inner steps and messages took so many times as long."""
        longer = None if legs is None else slowed(moved, legs, inner, across)
        return number(self.of, point_of(moved, stretched(whole, moved.plan, inner, across), longer))


def _case(one: Scenario) -> Case:
    return Case(fleet=one.fleet, plan=one.plan, plans=one.plans, run=one.run, stack=one.stack)


def _traffic(whole: Whole) -> float | None:
    """USD a second for what is sent between islands."""
    if whole.folded is None:
        return 0.0
    paid = float(plain_sum(whole.paid) / whole.folded.seconds)
    return paid if np.isfinite(paid) else None


def _same_steps(one: Scenario, other: Scenario) -> bool:
    """Whether the inner steps of all islands are the same: what differs is between islands, or of the whole run."""
    if one.model is not other.model or one.stack is not other.stack or len(one.plans) != len(other.plans):
        return False
    if one.plan.placement and one.fleet.wan is not other.fleet.wan:
        return False
    alike = zip(one.fleet.islands, other.fleet.islands, strict=True)
    if not all(a is b or bare(a) == bare(b) for a, b in alike):
        return False
    runs = ((run.seq_len, run.global_batch, run.document_len, id(run.reference)) for run in (one.run, other.run))
    if len(set(runs)) > 1:
        return False
    return all(_inner(a) == _inner(b) for a, b in zip((one.plan, *one.plans), (other.plan, *other.plans), strict=True))


def _inner(plan: Plan) -> tuple[object, ...]:
    """What a plan says of an inner step."""
    return changed(plan, sync=Sync(split=plan.sync.split)), inner_of(plan.sync).blocks
