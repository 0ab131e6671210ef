"""The whole run of a prediction: how long, how many accelerator-hours, what it costs.

One file a question: `hours` (how long it holds what), `dollars` (what is paid, term by term)."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardmeter.engine.fleet import Whole
from shardmeter.specs.scenario import Scenario
from shardmeter.study.course.dollars import charges, unpriced
from shardmeter.study.course.hours import HOUR, durations, is_apart, step_times, step_tokens

__all__ = ["HOUR", "charges", "course", "durations", "is_apart", "step_times", "step_tokens", "unpriced"]


def course(scenario: Scenario, whole: Whole) -> dict[str, Any] | None:
    """`run` of the answer; None where neither tokens nor steps are asked, or no token counts.

    The cost is that of every island's accelerators and of what is sent between islands; null where a price of either is not
    known. Leaves out: failures, checkpoints, evaluation (goodput is null), energy, storage."""
    e, run = whole.estimate, scenario.run
    steps = run.steps
    if float(e.tokens) == 0.0:
        return None
    if steps is None and run.tokens is not None:
        steps = run.tokens / step_tokens(whole)
    if steps is None:
        return None
    duration, held = durations(whole, steps)
    terms = [{"term": label, "usd": _known(usd), "basis": basis} for label, usd, basis in charges(whole, steps)]
    known = all(term["usd"] is not None for term in terms)
    return {
        "wall_clock_s": float(duration),
        "gpu_hours": float(held) / HOUR,
        "tokens": float(steps * step_tokens(whole)),
        "steps": float(np.ceil(steps)),  # the last one may be partial
        "goodput": None,
        "cost_usd": sum(term["usd"] for term in terms) if known else None,
        "cost_terms": [term for term in terms if term["usd"] is not None],
        "energy_kwh": None,
        "carbon_kg": None,
        "loss": None,
    }


def _known(usd: float) -> float | None:
    return None if np.isnan(usd) else float(usd)
