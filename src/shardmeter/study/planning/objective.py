"""What plans are compared by, as numbers to minimise, and the limits that a run may be held to."""

from __future__ import annotations

from typing import Any

from shardmeter.core.errors import BadScenario, Violation, shown
from shardmeter.core.record import record
from shardmeter.core.units import Fraction, Number, Seconds, Usd
from shardmeter.physics import money
from shardmeter.scenario.values import OBJECTIVES, objectives_near
from shardmeter.specs import Choices, Island, Run, Scenario
from shardmeter.study.course.dollars import cost
from shardmeter.study.course.energy import joules, rating

UNITS = {"time": "s", "cost": "USD", "throughput": "tokens/s", "energy": "J"}
"""Of each objective; without tokens or steps, time, cost and energy are those of one token."""


@record
class Goal:
    """What is looked for: the first objective orders the plans, all of them make the front."""

    objectives: tuple[str, ...]
    deadline: Seconds | None
    budget: Usd | None


def duration(run: Run, step_time: Seconds, tokens: Number) -> Seconds:
    """Seconds of the whole run or, where none was said, of one token."""
    steps = run.steps if run.steps is not None else (1.0 if run.tokens is None else run.tokens) / tokens
    return money.run_time(steps, step_time)


def value(objective: str, island: Island, lasts: Seconds, rate: Number, busy: Fraction) -> Any:
    """An objective as a number to minimise; `rate` is tokens a second, `busy` the share of the time that accelerators compute."""
    if objective == "cost":
        return cost(island, lasts, busy)
    if objective == "energy":
        return joules(island, lasts, busy)
    return -1.0 * rate if objective == "throughput" else lasts


def goal_of(scenario: Scenario, choices: Choices, objectives: tuple[str, ...] = ()) -> Goal:
    """What the scenario, or the caller (who wins), looks for. Raises BadScenario for words and for what cannot be counted: a
    cost without a price, an energy without a rating, a limit without the length of the run."""
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
    unpriced = sorted({island.accelerator.name for island in choices.islands if island.price is None})
    unrated = sorted({island.accelerator.name for island in choices.islands if rating(island) is None})
    owned = any(island.tariff.electricity is not None for island in choices.islands)
    if unpriced and ("cost" in asked or choices.budget is not None):
        what = "objective cost" if "cost" in asked else "a budget"
        says = f"{what}, but no price of {' and '.join(unpriced)} is known"
        found.append(Violation(field="fleet", says=says, way_out="say --price '$2.10/gpu/h', or name an instance"))
    if unrated and ("energy" in asked or (owned and ("cost" in asked or choices.budget is not None))):
        what = "objective energy" if "energy" in asked else "electricity is to be paid"
        says = f"{what}, but the rated power of {' and '.join(unrated)} is not known"
        way_out = f"say accelerator: {{base: {unrated[0]}, power: ... W}}"
        found.append(Violation(field="fleet", says=says, way_out=way_out))
    if scenario.run.tokens is None and scenario.run.steps is None:
        found += [
            Violation(
                field=f"run.{name}", says=f"a {name}, but no length of the run", way_out="say --tokens, or run.steps"
            )
            for name in ("deadline", "budget")
            if getattr(choices, name) is not None
        ]
    if found:
        count = len(found)
        raise BadScenario(f"{scenario.name}: {count} problem{'s' if count > 1 else ''}", found)
    return Goal(objectives=tuple(dict.fromkeys(asked)), deadline=choices.deadline, budget=choices.budget)
