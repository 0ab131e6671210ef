"""One plan on many networks: its step on each, what it is made of, and whether it fits."""

from __future__ import annotations

from shardmeter.core.errors import BadScenario
from shardmeter.core.record import changed
from shardmeter.engine.fleet import Whole, evaluate_fleet
from shardmeter.engine.networks import Overall, over_networks
from shardmeter.engine.wans import Networks
from shardmeter.specs import Estimate, Scenario, Wan
from shardmeter.study.legal import checked
from shardmeter.study.scale_across.networks import ideal


class Stopped(Exception):
    """The search was asked to end."""


def between(scenario: Scenario) -> Wan:
    """What joins the buildings. Raises ValueError where nothing does."""
    if scenario.fleet.wan is None:
        raise ValueError("several buildings and no network between them")
    return scenario.fleet.wan


def whole_of(scenario: Scenario, wan: Wan) -> Whole:
    """The fleet's answer on a network."""
    fleet = changed(scenario.fleet, wan=wan)
    return evaluate_fleet(scenario.model, fleet, scenario.plan, scenario.run, scenario.stack, scenario.plans)


def over(scenario: Scenario, lines: Networks) -> Overall:
    """The fleet's answers on several networks."""
    return over_networks(
        scenario.model, scenario.fleet, scenario.plan, scenario.run, scenario.stack, lines, scenario.plans, says=False
    )


def at_best(scenario: Scenario) -> Estimate | None:
    """The answer of a legal plan on lines that nothing is faster than: no network makes its step shorter. None for an illegal one."""
    return whole_of(scenario, ideal(between(scenario))).estimate if legal(scenario) else None


def legal(scenario: Scenario) -> bool:
    """Whether a scenario keeps every rule."""
    try:
        checked(scenario)
    except BadScenario:
        return False
    return True


def fits(estimate: Estimate) -> bool:
    """Whether the peak of the fullest building is within its device, as `plan` asks."""
    return bool(estimate.memory_peak <= estimate.memory_limit)
