"""One plan on many networks: its step on each, and whether it fits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shardmeter.core.errors import BadScenario
from shardmeter.core.record import changed
from shardmeter.engine.fleet import Whole, evaluate_fleet, joined
from shardmeter.specs import Scenario, Wan
from shardmeter.study.legal import checked
from shardmeter.study.planning.tally import Floats
from shardmeter.study.scale_across.networks import ideal


def between(scenario: Scenario) -> Wan:
    """What joins the buildings. Raises ValueError where nothing does."""
    if scenario.fleet.wan is None:
        raise ValueError("several buildings and no network between them")
    return scenario.fleet.wan


def whole_of(scenario: Scenario, wan: Wan) -> Whole:
    """The fleet's answer on a network."""
    fleet = changed(scenario.fleet, wan=wan)
    return evaluate_fleet(scenario.model, fleet, scenario.plan, scenario.run, scenario.stack, scenario.plans)


def at_best(scenario: Scenario) -> Whole | None:
    """The answer of a legal plan on lines that nothing is faster than: no network makes its step shorter. None for an illegal one."""
    try:
        return whole_of(checked(scenario), ideal(between(scenario)))
    except BadScenario:
        return None


def fits(whole: Whole) -> bool:
    """Whether the peak of every building is within its device, as `plan` asks."""
    return all(bool(part.estimate.memory_peak <= part.estimate.memory_limit) for part in whole.parts)


def steps(scenario: Scenario, wans: Sequence[Wan], known: Whole) -> Floats:
    """Seconds of a step on every network; `known` is the plan on another one."""
    if not any(axis != "dp_replicate" for axis, _ in scenario.plan.placement):
        found = [joined(scenario.model, known.parts, wan, scenario.plan, known) for wan in wans]
    else:
        found = [whole_of(scenario, wan) for wan in wans]
    return np.array([float(one.estimate.step_time) for one in found])
