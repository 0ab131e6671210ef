"""The whole run of a prediction: how long, how many accelerator-hours, what it costs."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from shardmeter.core.units import Bytes, Number, Seconds
from shardmeter.engine import add
from shardmeter.engine.fleet import Part, Whole
from shardmeter.physics import money
from shardmeter.specs.scenario import Scenario
from shardmeter.study import islands

HOUR = 3600.0


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


def step_tokens(whole: Whole) -> Number:
    """Tokens that a step adds to a run: those that count or, of models that are trained apart, those of a step of each."""
    return add.folded(part.estimate.tokens for part in whole.parts) if is_apart(whole) else whole.estimate.tokens


def durations(whole: Whole, steps: Number) -> tuple[Seconds, Seconds]:
    """(wall clock, that of every accelerator added up) of a run of so many steps. Models that are trained apart let their island
    go when they are done: the slowest one sets the wall clock."""
    if not is_apart(whole):
        lasts = money.run_time(steps, whole.estimate.step_time)
        return lasts, lasts * whole.estimate.gpus
    own = [money.run_time(steps, one) for one in step_times(whole)]
    return functools.reduce(np.maximum, own), add.folded(
        lasts * part.estimate.gpus for lasts, part in zip(own, whole.parts, strict=True)
    )


def is_apart(whole: Whole) -> bool:
    """Whether islands train models of their own."""
    return whole.round is not None and whole.round.alone


def step_times(whole: Whole) -> list[Seconds]:
    """Seconds that a step needs each island for: its own where models are trained apart, else those of all."""
    common = whole.estimate.step_time
    return [part.estimate.step_time if is_apart(whole) else common for part in whole.parts]


def charges(whole: Whole, steps: Number) -> list[tuple[str, Number, str]]:
    """What a run of so many steps costs: (term, USD, basis); NaN where no price is known. Numbers may be arrays."""
    lasts = [money.run_time(steps, one) for one in step_times(whole)]
    found = [_rent(part, own, alone=len(lasts) == 1) for part, own in zip(whole.parts, lasts, strict=True)]
    sent, cost = islands.egress(whole)
    if np.any(np.greater(sent, 0.0)) or np.any(np.isnan(sent)):
        known = np.all(np.isfinite(cost))
        basis = _volume(float(np.max(sent * steps))) if known else "not known"
        found.append(("traffic between islands", cost * steps, basis))
    return found


def _volume(size: Bytes) -> str:
    """`1.5 TB between islands`: decimal, as traffic is billed."""
    terabytes = float(size) / 1e12
    return f"{terabytes:,.3g} TB between islands" if terabytes < 999.5 else f"{terabytes / 1e3:,.1f} PB between islands"


def _rent(part: Part, duration: Number, *, alone: bool) -> tuple[str, Number, str]:
    """Rent of one island's accelerators."""
    island = part.island
    usd = np.nan if island.price is None else money.rent(part.estimate.gpus, duration, island.price)
    return "accelerators" if alone else f"accelerators of {island.name}", usd, island.price_basis


def _known(usd: Number) -> float | None:
    return None if np.isnan(usd) else float(usd)


def unpriced(scenario: Scenario, whole: Whole) -> str | None:
    """A warning where the rent is known and what is sent between islands is not."""
    sent, cost = islands.egress(whole)
    if not sent or not np.isnan(cost) or any(island.price is None for island in scenario.fleet.islands):
        return None
    if not np.isfinite(sent):
        return "what an axis across islands sends is counted for pp and for sharded parameters only: the cost is null"
    return (
        "no price is known of what is sent between islands: the cost is null (say fleet.wan.default.egress: $0.02/GB)"
    )
