"""One number that can be moved."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import cast

import numpy as np
import numpy.typing as npt

from shardmeter.core.record import record
from shardmeter.engine.fleet import Whole, evaluate_fleet
from shardmeter.specs import Scenario

KINDS = ("machine", "network", "plan", "run", "software", "money")
"""In the order in which levers are listed."""
WHOLE = 1e-9
"""Relative distance from a whole number below which a product is one: 3 · (7/3) is 7."""


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
    most: float = math.inf
    """Largest value that means something: 1 of a share."""
    part: bool = False
    """Whether another lever moves it too, together with its like: one site of all, one tier of several, one island's nodes."""

    def times(self, factor: float) -> Scenario | None:
        """The scenario with so many times the number; None where no such value means anything."""
        value = product(self.value, factor)
        if not math.isfinite(value) or value > self.most or (self.whole and not value.is_integer()):
            return None
        return self.scaled(factor)

    def at(self, value: float) -> Scenario | None:
        """The scenario with this value of the number."""
        return self.times(value / self.value)


def product(value: float, factor: float) -> float:
    """So many times a number, or so many of each of an array; whole ones where floating point misses them by a hair."""
    found = np.asarray(np.multiply(value, factor), dtype=float)
    near = np.where(np.isfinite(found), np.rint(found), 0.0)
    made: npt.NDArray[np.float64] = np.where(np.abs(found - near) <= WHOLE * np.abs(found), near, found)
    return cast("float", made) if made.ndim else float(made)


def answered(scenario: Scenario) -> Whole:
    """One inner step of a scenario's fleet, as `predict` evaluates it."""
    return evaluate_fleet(scenario.model, scenario.fleet, scenario.plan, scenario.run, scenario.stack, scenario.plans)
