"""What is paid for a run, term by term, each with what it rests on."""

from __future__ import annotations

import numpy as np

from shardmeter.core.units import Bytes, Number
from shardmeter.engine.fleet import Part, Whole
from shardmeter.physics import money
from shardmeter.specs.scenario import Scenario
from shardmeter.study import islands
from shardmeter.study.course.hours import step_times


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
