"""What plans are compared by, as numbers to minimise, and the limits that a run may be held to."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from shardmeter.core.errors import BadScenario, Violation, shown
from shardmeter.core.record import record
from shardmeter.core.units import Fraction, Joules, Number, Seconds, Usd
from shardmeter.engine import add
from shardmeter.engine.fleet import Whole
from shardmeter.physics import money
from shardmeter.scenario.limits import unpaid
from shardmeter.scenario.values import OBJECTIVES, objectives_near
from shardmeter.specs import Choices, Island, Run, Scenario
from shardmeter.study.course import hours, loss
from shardmeter.study.course.dollars import cost
from shardmeter.study.course.energy import KWH, joules, rating
from shardmeter.study.course.hours import step_tokens
from shardmeter.study.course.limits import unpriced
from shardmeter.study.course.totals import Totals, has_length, is_plain, legs_of, of_step, totals

UNITS = {"time": "s", "cost": "USD", "throughput": "tokens/s", "energy": "J"}
"""Of each objective; without a length of the run, time, cost and energy are those of one token."""


@record
class Goal:
    """What is looked for: the first objective orders the plans, all of them make the front."""

    objectives: tuple[str, ...]
    deadline: Seconds | None
    budget: Usd | None


@record
class Spent:
    """What a run on one island takes, for one plan or an array of them."""

    island: Island
    lasts: Seconds
    """Wall clock."""
    rate: Number
    """Tokens a second while it trains."""
    busy: Fraction
    """Share of the steps that accelerators compute. 0 makes bounds of costs and energies: who computes less draws less."""
    together: Totals | None = None
    """Where a run is more than so many steps: what `predict` says of it."""
    ends: Any = True
    """Whether it comes to its end."""

    @property
    def paid(self) -> Usd | None:
        """None where a price is not known."""
        return cost(self.island, self.lasts, self.busy) if self.together is None else self.together.paid

    @property
    def drawn(self) -> Joules | None:
        """None where a power is not known."""
        return joules(self.island, self.lasts, self.busy) if self.together is None else self.together.drawn * KWH

    def value(self, objective: str) -> Any:
        """An objective as a number to minimise."""
        if objective == "cost":
            return self.paid
        if objective == "energy":
            return self.drawn
        return -1.0 * self.rate if objective == "throughput" else self.lasts


def is_simple(scenario: Scenario) -> bool:
    """Whether what a run takes is so many steps, or that of a token."""
    return not has_length(scenario.run) or is_plain(scenario.run, scenario.fleet.islands)


def spent(scenario: Scenario, step: Seconds, busy: Fraction) -> Spent:
    """What a run takes of which a step is known: `scenario` has one island, its plan and its run, which may be arrays."""
    run, island = scenario.run, scenario.fleet.islands[0]
    tokens = run.global_batch * run.seq_len
    if is_simple(scenario):
        return Spent(island=island, lasts=duration(run, step, tokens), rate=tokens / step, busy=busy)
    return spent_of(scenario, of_step(island, scenario.plan, run, step, busy))


def spent_of(scenario: Scenario, whole: Whole) -> Spent:
    """The same of one island that was evaluated."""
    e, island = whole.estimate, scenario.fleet.islands[0]
    busy, rate = e.compute_seconds / e.step_time, e.tokens / e.step_time
    legs = None if is_simple(scenario) else legs_of(scenario, whole)
    if legs is None:
        return Spent(island=island, lasts=duration(scenario.run, e.step_time, e.tokens), rate=rate, busy=busy)
    found = totals(scenario.run, legs)
    ends = functools.reduce(np.logical_and, [hours.ends(leg.whole, leg.steps) for leg in legs])
    return Spent(island=island, lasts=found.seconds, rate=rate, busy=busy, together=found, ends=ends)


def tokens_of(scenario: Scenario, whole: Whole) -> float:
    """Tokens of the run, or one."""
    legs = legs_of(scenario, whole)
    return 1.0 if legs is None else float(add.folded(leg.steps * step_tokens(leg.whole) for leg in legs))


def duration(run: Run, step_time: Seconds, tokens: Number) -> Seconds:
    """Seconds of so many steps or, where no length was said, of one token."""
    steps = run.steps if run.steps is not None else (1.0 if run.tokens is None else run.tokens) / tokens
    return money.run_time(steps, step_time)


def goal_of(scenario: Scenario, choices: Choices, objectives: tuple[str, ...] = ()) -> Goal:
    """What the scenario, or the caller (who wins), looks for. Raises BadScenario for words and for what cannot be counted: a
    cost without a price, an energy without a rating, a limit without the length of the run, a loss that no law tells."""
    asked = objectives or choices.objectives or ("time",)
    found = [
        Violation(
            field="run.objective",
            says=f"unknown objective {shown(word, 40)}",
            rule=f"one of {', '.join(OBJECTIVES)}",
            way_out=f"did you mean {objectives_near(word)[0]}?",
        )
        for word in asked
        if word not in OBJECTIVES
    ]
    found += [*_unpriced(scenario, choices, asked), *_unrated(choices, asked), *_of_length(scenario, choices)]
    if found:
        count = len(found)
        raise BadScenario(f"{scenario.name}: {count} problem{'s' if count > 1 else ''}", found)
    if len(scenario.fleet.islands) == 1:
        loss.check(scenario, _one(scenario, choices))
    return Goal(objectives=tuple(dict.fromkeys(asked)), deadline=choices.deadline, budget=choices.budget)


def _unpriced(scenario: Scenario, choices: Choices, asked: tuple[str, ...]) -> list[Violation]:
    """What a cost lacks."""
    if "cost" not in asked and choices.budget is None:
        return []
    what = "objective cost" if "cost" in asked else "a budget"
    found, run = [], scenario.run
    says, way_out = unpaid(choices.islands)
    if says:
        found.append(Violation(field="fleet", says=f"{what}, but {says}", way_out=way_out))
    beside = [one.name for one in run.stocks if one.price is None] + [
        one.name for one in run.hauls if one.price is None
    ]
    return [*found, *(unpriced(term, what) for term in dict.fromkeys(beside) if has_length(run))]


def _unrated(choices: Choices, asked: tuple[str, ...]) -> list[Violation]:
    """What an energy lacks."""
    lacking = sorted({island.accelerator.name for island in choices.islands if rating(island) is None})
    owned = any(island.tariff.electricity is not None for island in choices.islands)
    if not lacking or not ("energy" in asked or (owned and ("cost" in asked or choices.budget is not None))):
        return []
    what = "objective energy" if "energy" in asked else "electricity is to be paid"
    says = f"{what}, but the rated power of {' and '.join(lacking)} is not known"
    return [Violation(field="fleet", says=says, way_out=f"say accelerator: {{base: {lacking[0]}, power: ... W}}")]


def _one(scenario: Scenario, choices: Choices) -> Whole:
    """An island of the choices with any step: what a law asks of a plan."""
    return of_step(choices.islands[0], scenario.plan, scenario.run, 1.0, 1.0)


def _of_length(scenario: Scenario, choices: Choices) -> list[Violation]:
    """What keeps a run from having a length, or one plan from having its own."""
    run, found = scenario.run, []
    if not has_length(run):
        found += [
            Violation(
                field=f"run.{name}", says=f"a {name}, but no length of the run", way_out="say --tokens, or run.steps"
            )
            for name in ("deadline", "budget")
            if getattr(choices, name) is not None
        ]
    if run.target_loss is not None and len(scenario.fleet.islands) == 1:
        why = loss.why_not(scenario, _one(scenario, choices))
        if why:
            found.append(Violation(field="run.target_loss", says=why, way_out="say the tokens (--tokens)"))
    several = [name for name in ("seq_len", "global_batch") if len(getattr(choices, name)) > 1]
    if run.phases and several:
        says = f"phases have batches and sequences of their own, and {' and '.join(several)} are open too"
        found.append(Violation(field="run.phases", says=says, way_out="say one value, or leave out the phases"))
    return found
