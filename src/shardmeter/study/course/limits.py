"""Whether a run keeps its deadline and its budget, by how much, and how likely that is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from shardmeter.core.errors import BadScenario, Violation
from shardmeter.specs import Run, Scenario
from shardmeter.study import intervals
from shardmeter.study.course import beside, phases
from shardmeter.study.course.beside import Practice
from shardmeter.study.course.phases import Leg

WAYS_OUT = (
    ("traffic", "fleet.wan", "say fleet.wan.default.egress: $0.02/GB"),
    ("electricity", "fleet", "say power: ... W of the accelerator"),
    ("data set", "run.dataset", "say run.dataset.region: aws:us-east-1, or egress: $0.02/GB"),
    ("storage of the data set", "run.dataset", "say run.dataset.price: $0.023/GB/month"),
    ("storage", "run.storage", "say run.storage.price: $0.023/GB/month"),
    ("", "fleet", "say --price '$2.10/gpu/h', or name an instance"),
)  # fmt: skip
"""By the beginning of a term: the field that lacks a price, and how it is said."""
RULE = "a cost is known when all its terms are"


def check(scenario: Scenario, parts: Sequence[Leg] | None) -> None:
    """Raise BadScenario with everything that a deadline or a budget cannot be held to: a run without an end, terms without a price."""
    run = scenario.run
    asked = [name for name in ("deadline", "budget") if getattr(run, name) is not None]
    if not asked:
        return
    found = []
    if parts is None or any(np.any(np.isnan(leg.steps)) for leg in parts):
        found = [_endless(name) for name in asked]
    elif run.budget is not None:
        lacking = [term for term, usd, _ in phases.charges_of(run, tuple(parts)) if np.any(np.isnan(usd))]
        found = [unpriced(term) for term in dict.fromkeys(lacking)]
    if found:
        raise BadScenario(f"{scenario.name}: {len(found)} problem{'s' if len(found) > 1 else ''}", found)


def _endless(name: str) -> Violation:
    return Violation(
        field=f"run.{name}", says=f"a {name}, but no length of the run",
        way_out="say --tokens, run.steps, or a run.target_loss that the law tells",
    )  # fmt: skip


def unpriced(term: str, what: str = "a budget") -> Violation:
    """The refusal of a budget, or of another question of money, where one term has no price."""
    _, field, way_out = next(one for one in WAYS_OUT if term.startswith(one[0]))
    return Violation(field=field, says=f"{what}, but no price of {term} is known", rule=RULE, way_out=way_out)


def keeps(verdict: Mapping[str, Any] | None) -> bool:
    """Whether a limit of an answer is kept; one that was not asked is."""
    return verdict is None or bool(verdict["met"])


def verdicts(
    run: Run, answer: Mapping[str, Any], bounds: Mapping[str, Any], seen: Practice | None = None
) -> dict[str, Any]:
    """`deadline` and `budget` of the run's answer, those that were asked: what is left of them, negative where they are broken. Of steps
    that nothing is said to interrupt, `practice` has what whole runs took (`seen`). The length of a run that goes to a loss is that of one
    law, and how likely it is nobody knows: it has no probability, unless the law's own refits tell how far off its tokens may be."""
    asked = (
        ("deadline", "s", run.deadline, "wall_clock_s"),
        ("budget", "usd", run.budget, "cost_usd"),
    )
    told = run.target_loss is None or bool(run.law and run.law.draws)
    found = {}
    for name, unit, most, key in asked:
        if most is None or answer[key] is None:
            continue
        limit, spent = float(most), float(answer[key])
        found[name] = _verdict(unit, limit, spent, bounds.get(key) if told else None)
        if seen is not None:
            growing = spent if key == "wall_clock_s" else beside.hourly(answer["cost_terms"])
            found[name]["practice"] = beside.answer(seen, unit, limit, spent, growing, told=told)
    return found


def _verdict(unit: str, most: float, spent: float, ends: Sequence[float] | None) -> dict[str, Any]:
    return {
        unit: most,
        f"margin_{unit}": most - spent,
        "margin": (most - spent) / most,
        "met": spent <= most,
        "probability": None if ends is None else intervals.probability_between(most, *ends),
    }
