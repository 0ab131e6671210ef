"""Two causes together, where no single one suffices: a named difference or a number at its limit, and a number that is solved for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from shardmeter.core.record import changed, record
from shardmeter.study.doctor.cause import Named, Numeric
from shardmeter.study.doctor.findings import Finding, finding
from shardmeter.study.doctor.measured import Measured, Spread
from shardmeter.study.doctor.numbers import numeric

FIRST, SECOND = 4, 4
"""Causes that are taken first, and numbers that are solved for beside each."""
MOST = 5


@record
class Pair:
    """Two causes that explain together what neither does alone."""

    first: Finding
    second: Finding

    @property
    def plausibility(self) -> float:
        """Of both: they have nothing to do with each other."""
        return self.second.plausibility

    def entry(self) -> dict[str, Any]:
        """`pairs[]` of the answer."""
        return {"plausibility": self.plausibility, "causes": [self.first.entry(), self.second.entry()]}


def pairs(found: Sequence[Finding], primary: Measured, spread: Spread) -> tuple[Pair, ...]:
    """The most plausible pairs, of at most FIRST · SECOND that are tried."""
    firsts = sorted((one for one in found if _can_be_first(one)), key=lambda one: -one.plausibility)[:FIRST]
    wanted = [one.cause.name for one in found if isinstance(one.cause, Numeric)]
    made = [Pair(first=first, second=second) for first in firsts for second in _seconds(first, wanted, primary, spread)]
    return tuple(sorted(made, key=lambda one: -one.plausibility)[:MOST])


def _can_be_first(found: Finding) -> bool:
    """A word that does not suffice, or a number that is not enough at its limit."""
    return (isinstance(found.cause, Named) and not found.explains) or (
        found.solution is not None and not found.explains
    )


def _seconds(first: Finding, wanted: Sequence[str], primary: Measured, spread: Spread) -> Iterator[Finding]:
    numbers = {
        one.name: one for one in numeric(first.world.scenario, first.world) if primary.quantity.kind in one.touches
    }
    chance = first.plausibility if not isinstance(first.cause, Named) else first.cause.chance
    for name in [one for one in wanted if one in numbers and one != first.cause.name][:SECOND]:
        found = finding(numbers[name], first.world, primary, spread)
        if found is not None and found.explains:
            yield changed(found, plausibility=found.plausibility * chance)
