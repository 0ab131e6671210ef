"""The whole run of a prediction: how long, how many accelerator-hours, what it costs."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardmeter.engine.fleet import Part, Whole
from shardmeter.physics import money
from shardmeter.specs.scenario import Scenario
from shardmeter.study import islands

HOUR = 3600.0


def course(scenario: Scenario, whole: Whole) -> dict[str, Any] | None:
    """`run` of the answer; None where neither tokens nor steps are asked.

    The cost is that of every island's accelerators and of what is sent between islands; null where a price of either is not
    known. Leaves out: failures, checkpoints, evaluation (goodput is null), energy, storage."""
    e, run = whole.estimate, scenario.run
    steps = run.steps
    if steps is None and run.tokens is not None:
        steps = run.tokens / e.tokens
    if steps is None:
        return None
    duration = money.run_time(steps, e.step_time)
    terms = _terms(whole, float(steps), float(duration))
    known = all(term["usd"] is not None for term in terms)
    return {
        "wall_clock_s": float(duration),
        "gpu_hours": float(duration * e.gpus) / HOUR,
        "tokens": float(steps * e.tokens),
        "steps": float(np.ceil(steps)),  # the last one may be partial
        "goodput": None,
        "cost_usd": sum(term["usd"] for term in terms) if known else None,
        "cost_terms": [term for term in terms if term["usd"] is not None],
        "energy_kwh": None,
        "carbon_kg": None,
        "loss": None,
    }


def _terms(whole: Whole, steps: float, duration: float) -> list[dict[str, Any]]:
    terms = [_rent(part, duration, alone=len(whole.parts) == 1) for part in whole.parts]
    sent, cost = islands.egress(whole)
    if sent:
        basis = f"{sent * steps / 1e12:,.2f} TB between islands" if cost is not None else "not known"
        terms.append({"term": "traffic between islands", "usd": None if cost is None else cost * steps, "basis": basis})
    return terms


def _rent(part: Part, duration: float, *, alone: bool) -> dict[str, Any]:
    """Rent of one island's accelerators."""
    island = part.island
    usd = None if island.price is None else float(money.rent(part.estimate.gpus, duration, island.price))
    return {
        "term": "accelerators" if alone else f"accelerators of {island.name}",
        "usd": usd,
        "basis": island.price_basis,
    }


def unpriced(scenario: Scenario, whole: Whole) -> str | None:
    """A warning where the rent is known and what is sent between islands is not."""
    sent, cost = islands.egress(whole)
    if not sent or cost is not None or any(island.price is None for island in scenario.fleet.islands):
        return None
    if not np.isfinite(sent):
        return "what an axis across islands sends is counted for pp and for sharded parameters only: the cost is null"
    return (
        "no price is known of what is sent between islands: the cost is null (say fleet.wan.default.egress: $0.02/GB)"
    )
