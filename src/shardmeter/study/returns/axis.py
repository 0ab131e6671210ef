"""What the curve goes along: one number that grows, and the fields of the scenario that grow with it.

A size (`gpus`, `islands`) goes in whole units, a number of the scenario in any steps; both are a place on the axis, from which every
tied field has its value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shardmeter.core.record import record
from shardmeter.study.levers import Lever

GPUS, ISLANDS, FABRIC, WAN = "gpus", "islands", "fabric", "wan"
GPU, ISLAND = "GPU", "island"
"""What sizes count."""
WORDS = (GPUS, ISLANDS, FABRIC, WAN)
"""Axes that have a name of their own; any other is a field."""
DIGITS = 12
"""Significant digits of a value that is written into a scenario, as those of a range are."""


@record
class Tied:
    """A field that follows the axis in proportion: `before` `number` `after` is how its value is written."""

    field: str
    own: float
    before: str = ""
    after: str = ""
    whole: bool = False

    def value(self, times: float) -> Any:
        """The value at so many times its own, or None where that is no whole number and must be one."""
        number = float(f"{self.own * times:.{DIGITS}g}")
        if self.whole and not number.is_integer():
            return None
        if not self.before and not self.after:
            return number
        return f"{self.before}{number:.{DIGITS}g}{self.after}"


@record
class Axis:
    """One axis: `own` is the scenario's place on it, and `x = base + each · place` what is drawn.

    Of a size the places are whole numbers of units (all nodes, or islands, in the mix that the scenario has); of a number they are its
    values in SI."""

    name: str
    """As it was asked for."""
    title: str
    unit: str
    """Of x, in SI; empty for what is counted."""
    one: str
    """What is counted, in the singular: GPU, island."""
    own: float
    whole: bool
    is_size: bool = False
    """Whether more of it is more machines: then the batch is to be told, and x is what the rate should grow with."""
    base: float = 0.0
    each: float = 1.0
    step: float = 1.0
    """How much further the next unit is."""
    step_title: str = ""
    tied: tuple[Tied, ...] = ()
    batch: Tied | None = None
    """The global batch where it grows with x (weak scaling)."""
    always: Mapping[str, Any] | None = None
    """Values that hold at every place."""
    lever: Lever | None = None
    """A number that is moved after the scenario is resolved, where no field says it."""

    def x(self, place: float) -> float:
        """What is drawn."""
        return self.base + self.each * place

    def place(self, x: float) -> float:
        """The place of an x."""
        return (x - self.base) / self.each

    def overrides(self, place: float) -> dict[str, Any] | str:
        """The values of all fields there, or why there are none."""
        made = dict(self.always or {})
        ratio = place / self.own
        for one in self.tied:
            if (value := one.value(ratio)) is None:
                return f"{one.field}: {one.own * ratio:.6g} is no whole number"
            made[one.field] = value
        if self.batch is not None:
            grown = self.x(place) / self.x(self.own)
            if (value := self.batch.value(grown)) is None:
                return f"{self.batch.field}: weak scaling makes it {self.batch.own * grown:.6g}, which is no whole number of sequences"
            made[self.batch.field] = value
        return made


def default_places(axis: Axis) -> tuple[float, ...]:
    """Where the curve is evaluated if nobody says: in factors of two around the scenario's own place. GPUs from one unit to 64 times as
    many, islands from one to 8 times as many (every pair of them has a line), a number from a sixteenth to 16 times."""
    down = axis.own if axis.is_size else 16.0
    up = 16.0 if not axis.is_size else 8.0 if axis.one == ISLAND else 64.0
    found, place = [axis.own], axis.own
    while place > axis.own / down and len(found) < MOST_DOWN:
        place = float(place // 2) if axis.whole else place / 2
        if place < 1.0 and axis.whole:
            break
        found.append(place)
    place = axis.own
    while place < axis.own * up:
        place *= 2
        found.append(place)
    return tuple(sorted(set(found)))


MOST_DOWN = 24
"""Halvings of the largest fleet."""
