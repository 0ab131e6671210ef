"""The whole run of a prediction: how long, how many accelerator-hours, what it costs, what it learns.

One file a question: `hours` (how long it holds what), `dollars` (what is paid, term by term), `energy` (what it draws and emits), `loss`
(what is learned), `phases` (parts with batches of their own), `totals` (all of it together, for arrays of plans too), `ranges` (how sure),
`limits` (whether it keeps a deadline and a budget), `beside` (what whole runs took beside their steps)."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from shardmeter.core.sums import plain_sum
from shardmeter.core.units import Number
from shardmeter.engine.course import is_interrupted
from shardmeter.engine.fleet import Whole
from shardmeter.specs.run import Run
from shardmeter.specs.scenario import Scenario
from shardmeter.study.course import beside, energy, hours, limits, loss, phases
from shardmeter.study.course.dollars import charges, summed, unpriced
from shardmeter.study.course.hours import HOUR, durations, is_apart, step_times, step_tokens
from shardmeter.study.course.phases import Leg
from shardmeter.study.course.ranges import Paces, ranges
from shardmeter.study.course.totals import Totals, legs_of, slowed, totals

__all__ = [
    "HOUR",
    "Totals",
    "charges",
    "check",
    "course",
    "durations",
    "energy",
    "is_apart",
    "legs_of",
    "refusable",
    "slowed",
    "step_times",
    "step_tokens",
    "summed",
    "totals",
    "unpriced",
    "warnings",
]


def course(scenario: Scenario, whole: Whole, paces: Paces | None = None) -> dict[str, Any] | None:
    """`run` of the answer, its intervals under `intervals`; None where neither tokens, steps nor a loss are asked, or no token counts.

    `paces`: how many times as long inner steps and messages may take, at the fast and the slow end of the interval of a step.
    The cost is the sum of its terms: every island's accelerators, what is sent between islands, what is kept and brought where that
    was asked; null where a price is not known. The goodput is null where nothing is said that interrupts the run."""
    asked, parts = loss.question(scenario, whole), legs_of(scenario, whole)
    if parts is None or float(whole.estimate.tokens) == 0.0:
        return None
    duration, accelerators = phases.durations_of(parts)
    paid = phases.charges_of(scenario.run, parts)
    seen = [(float(leg.steps * step_tokens(leg.whole)), float(step_tokens(leg.whole))) for leg in parts]
    entries = phases.answer(parts)
    found = {
        "wall_clock_s": float(duration),
        "gpu_hours": float(accelerators) / HOUR,
        "tokens": plain_sum(tokens for tokens, _ in seen),
        "steps": float(np.ceil(plain_sum(leg.steps for leg in parts))),  # the last one may be partial
        **hours.answer([(leg.whole, leg.steps) for leg in parts]),
        "cost_usd": None if np.isnan(summed(paid)) else float(summed(paid)),
        "cost_terms": [
            {"term": one, "usd": float(usd), "basis": basis} for one, usd, basis in paid if not np.isnan(usd)
        ],
        **phases.energy_of(parts),
        **({"loss": None} if asked is None else loss.answer(asked, seen)),
        **({"phases": entries} if entries else {}),
    }
    target = _plain(scenario.run.target_loss)
    lengths = None if asked is None or target is None else loss.lengths(asked, target, seen[0])
    bounds = ranges(scenario, parts, found, paces, lengths)
    bounds |= {} if asked is None else loss.intervals(asked, seen, target)
    others = loss.rivals(scenario, whole, found, seen[0][1])
    found |= {"other_laws": others} if scenario.run.target_loss is not None else {}
    return found | _limits(scenario, whole, found, bounds) | {"intervals": bounds}


def _limits(scenario: Scenario, whole: Whole, found: dict[str, Any], bounds: dict[str, Any]) -> dict[str, Any]:
    """The deadline and the budget that are asked, if any."""
    if scenario.run.deadline is None and scenario.run.budget is None:
        return {}
    seen = beside.beside(whole, (scenario.assembled or scenario.model).family)
    return limits.verdicts(scenario.run, found, bounds, seen)


def check(scenario: Scenario, whole: Whole) -> None:
    """Raise BadScenario for a loss that no data reaches, for a run that does not end, and for limits that cannot be told."""
    loss.check(scenario, whole)
    parts = legs_of(scenario, whole)
    if parts is not None and is_interrupted(whole):
        for leg in parts:
            hours.check(leg.whole, leg.steps)
    limits.check(scenario, parts)


def refusable(run: Run, parts: tuple[Leg, ...] | None) -> Any:
    """Which points of an array `check` may refuse: runs that have no steps or no end, costs that a budget is held to and nobody knows."""
    if parts is None:
        return run.deadline is not None or run.budget is not None
    found = [np.isnan(leg.steps) | ~hours.ends(leg.whole, leg.steps) for leg in parts]
    if run.budget is not None:
        found.append(np.isnan(summed(phases.charges_of(run, parts))))
    return functools.reduce(np.logical_or, found)


def warnings(scenario: Scenario, whole: Whole, run: dict[str, Any] | None) -> list[str]:
    """What a reader of the run may overlook."""
    steps = None if run is None else run["steps"]
    return [*loss.warnings(scenario, whole, run), *phases.warnings(run), *hours.warnings(whole, steps)]


def _plain(number: Number | None) -> float | None:
    return None if number is None else float(number)
