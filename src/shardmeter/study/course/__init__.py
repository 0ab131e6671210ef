"""The whole run of a prediction: how long, how many accelerator-hours, what it costs.

One file a question: `hours` (how long it holds what), `dollars` (what is paid, term by term), `energy` (what it draws and emits)."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardmeter.engine.fleet import Whole
from shardmeter.physics import money
from shardmeter.specs.scenario import Scenario
from shardmeter.study.course import energy
from shardmeter.study.course.dollars import charges, summed, unpriced
from shardmeter.study.course.hours import HOUR, durations, is_apart, step_times, step_tokens

__all__ = [
    "HOUR",
    "charges",
    "course",
    "durations",
    "energy",
    "is_apart",
    "step_times",
    "step_tokens",
    "summed",
    "unpriced",
]


def course(scenario: Scenario, whole: Whole) -> dict[str, Any] | None:
    """`run` of the answer; None where neither tokens nor steps are asked, or no token counts.

    The cost is the sum of its terms: every island's accelerators, what is sent between islands, what is kept and brought where that
    was asked; null where a price is not known. Leaves out: failures, checkpoints, evaluation (goodput is null)."""
    e, run = whole.estimate, scenario.run
    steps = run.steps
    if float(e.tokens) == 0.0:
        return None
    if steps is None and run.tokens is not None:
        steps = run.tokens / step_tokens(whole)
    if steps is None:
        return None
    duration, held = durations(whole, steps)
    paid = charges(run, whole, steps)
    return {
        "wall_clock_s": float(duration),
        "gpu_hours": float(held) / HOUR,
        "tokens": float(steps * step_tokens(whole)),
        "steps": float(np.ceil(steps)),  # the last one may be partial
        "goodput": None,
        "cost_usd": None if np.isnan(summed(paid)) else float(summed(paid)),
        "cost_terms": [
            {"term": one, "usd": float(usd), "basis": basis} for one, usd, basis in paid if not np.isnan(usd)
        ],
        **energy.answer(whole, [money.run_time(steps, one) for one in step_times(whole)]),
        "loss": None,
    }
