"""One number that can be moved."""

from __future__ import annotations

import math
from collections.abc import Callable

from shardmeter.core.record import record
from shardmeter.engine.fleet import Whole, evaluate_fleet
from shardmeter.specs import Scenario

KINDS = ("machine", "network", "plan", "run", "software", "money")
"""In the order in which levers are listed."""


@record
class Lever:
    """A number of a scenario. `scaled(factor)` is the scenario with so many times the number, or None where that means nothing (a
    degree that is not whole, no whole batch). What comes out may break a rule of legality: `study.legal` tells."""

    name: str
    """Its path in a scenario, or the name of a field that a scenario reaches by an inline part."""
    title: str
    """For people, the island among it where there are unlike ones."""
    unit: str
    """SI, as in `render.cells.text`."""
    kind: str
    """A word of KINDS."""
    value: float
    whole: bool
    """Whether only whole numbers mean something."""
    scaled: Callable[[float], Scenario | None]

    def at(self, value: float) -> Scenario | None:
        """The scenario with this value of the number."""
        if self.whole and not float(value).is_integer():
            return None
        return self.scaled(value / self.value) if math.isfinite(value) else None


def answered(scenario: Scenario) -> Whole:
    """One inner step of a scenario's fleet, as `predict` evaluates it."""
    return evaluate_fleet(scenario.model, scenario.fleet, scenario.plan, scenario.run, scenario.stack, scenario.plans)
