"""The whole run of a prediction: how long, how many accelerator-hours, what it costs, what it learns.

One file a question: `hours` (how long it holds what), `dollars` (what is paid, term by term), `energy` (what it draws and emits), `loss`
(what is learned), `phases` (parts with batches of their own)."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardmeter.core.units import Number
from shardmeter.engine.course import is_interrupted
from shardmeter.engine.fleet import Whole
from shardmeter.specs.scenario import Scenario
from shardmeter.study.course import energy, hours, loss, phases
from shardmeter.study.course.dollars import charges, summed, unpriced
from shardmeter.study.course.hours import HOUR, durations, is_apart, step_times, step_tokens

__all__ = [
    "HOUR",
    "charges",
    "check",
    "course",
    "durations",
    "energy",
    "is_apart",
    "step_times",
    "step_tokens",
    "summed",
    "unpriced",
    "warnings",
]


def course(scenario: Scenario, whole: Whole) -> dict[str, Any] | None:
    """`run` of the answer; None where neither tokens, steps nor a loss are asked, or no token counts.

    The cost is the sum of its terms: every island's accelerators, what is sent between islands, what is kept and brought where that
    was asked; null where a price is not known. Raises BadScenario for a loss that no data reaches. The goodput is null where nothing is
    said that interrupts the run."""
    asked = loss.question(scenario, whole)
    steps = _steps(scenario, whole, asked)
    if steps is None:
        return None
    parts = phases.legs(scenario, whole, steps)
    duration, accelerators = phases.durations_of(parts)
    paid = phases.charges_of(scenario.run, parts)
    seen = [(float(leg.steps * step_tokens(leg.whole)), float(step_tokens(leg.whole))) for leg in parts]
    entries = phases.answer(parts)
    return {
        "wall_clock_s": float(duration),
        "gpu_hours": float(accelerators) / HOUR,
        "tokens": sum(tokens for tokens, _ in seen),
        "steps": float(np.ceil(sum(leg.steps for leg in parts))),  # the last one may be partial
        **hours.answer([(leg.whole, leg.steps) for leg in parts]),
        "cost_usd": None if np.isnan(summed(paid)) else float(summed(paid)),
        "cost_terms": [
            {"term": one, "usd": float(usd), "basis": basis} for one, usd, basis in paid if not np.isnan(usd)
        ],
        **phases.energy_of(parts),
        **({"loss": None} if asked is None else loss.answer(asked, seen)),
        **({"phases": entries} if entries else {}),
        **({} if asked is None else {"intervals": loss.intervals(asked, seen, _plain(scenario.run.target_loss))}),
    }


def check(scenario: Scenario, whole: Whole) -> None:
    """Raise BadScenario for a loss that no data reaches, and for a run that does not end."""
    loss.check(scenario, whole)
    steps = _steps(scenario, whole, loss.question(scenario, whole))
    if steps is not None and is_interrupted(whole):
        hours.check(whole, steps)


def warnings(scenario: Scenario, whole: Whole, run: dict[str, Any] | None) -> list[str]:
    """What a reader of the run may overlook."""
    steps = None if run is None else run["steps"]
    return [*loss.warnings(scenario, whole, run), *phases.warnings(run), *hours.warnings(whole, steps)]


def _steps(scenario: Scenario, whole: Whole, asked: loss.Question | None) -> Number | None:
    """Steps of the run as it is asked, the last one partial; None where it has no length, or no token counts."""
    run, each = scenario.run, step_tokens(whole)
    if float(whole.estimate.tokens) == 0.0:
        return None
    if run.target_loss is not None:
        return None if asked is None else loss.tokens_for(asked, float(run.target_loss), float(each)) / each
    if run.steps is not None:
        return run.steps
    return None if run.tokens is None else run.tokens / each


def _plain(number: Number | None) -> float | None:
    return None if number is None else float(number)
