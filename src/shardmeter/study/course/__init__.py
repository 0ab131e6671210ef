"""The whole run of a prediction: how long, how many accelerator-hours, what it costs.

One file a question: `hours` (how long it holds what), `dollars` (what is paid, term by term), `loss` (what is learned), `phases` (parts
with batches of their own)."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardmeter.core.units import Number
from shardmeter.engine.fleet import Whole
from shardmeter.specs.scenario import Scenario
from shardmeter.study.course import loss, phases
from shardmeter.study.course.dollars import charges, unpriced
from shardmeter.study.course.hours import HOUR, durations, is_apart, step_times, step_tokens

__all__ = ["HOUR", "charges", "course", "durations", "is_apart", "step_times", "step_tokens", "unpriced"]


def course(scenario: Scenario, whole: Whole) -> dict[str, Any] | None:
    """`run` of the answer; None where neither tokens, steps nor a loss are asked, or no token counts.

    The cost is that of every island's accelerators and of what is sent between islands; null where a price of either is not
    known. Raises BadScenario for a loss that no data reaches. Leaves out: failures, checkpoints, evaluation (goodput is null),
    energy, storage."""
    asked = loss.question(scenario, whole)
    steps = _steps(scenario, whole, asked)
    if steps is None:
        return None
    parts = phases.legs(scenario, whole, steps)
    duration, held = phases.durations_of(parts)
    terms = [{"term": label, "usd": _known(usd), "basis": basis} for label, usd, basis in phases.charges_of(parts)]
    known = all(term["usd"] is not None for term in terms)
    seen = [(float(leg.steps * step_tokens(leg.whole)), float(step_tokens(leg.whole))) for leg in parts]
    learned = {"loss": None} if asked is None else loss.answer(asked, seen)
    entries = phases.answer(parts)
    return {
        "wall_clock_s": float(duration),
        "gpu_hours": float(held) / HOUR,
        "tokens": sum(tokens for tokens, _ in seen),
        "steps": float(np.ceil(sum(leg.steps for leg in parts))),  # the last one may be partial
        "goodput": None,
        "cost_usd": sum(term["usd"] for term in terms) if known else None,
        "cost_terms": [term for term in terms if term["usd"] is not None],
        "energy_kwh": None,
        "carbon_kg": None,
        **learned,
        **({"phases": entries} if entries else {}),
        **({} if asked is None else {"intervals": loss.intervals(asked, seen, _plain(scenario.run.target_loss))}),
    }


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


def _known(usd: Number) -> float | None:
    return None if np.isnan(usd) else float(usd)


def _plain(number: Number | None) -> float | None:
    return None if number is None else float(number)
