"""The next legal values of a number that is whole: the smallest step up, and down, after which a scenario still keeps every rule."""

from __future__ import annotations

import math
from collections.abc import Iterator

from shardmeter.core.errors import ShardMeterError
from shardmeter.specs import Scenario
from shardmeter.study.legal import checked
from shardmeter.study.levers import Lever

FINE = 64.0
"""Numbers up to which a step is 1; beyond, the largest power of two that is no more than so small a part of the number."""
STEPS = 8
"""Steps that are tried one by one; then multiples."""
MULTIPLES = (1.25, 1.5, 2.0, 3.0, 4.0, 8.0)


def legal(lever: Lever, factor: float) -> Scenario | None:
    """The scenario with so many times the number where that keeps every rule. Of hardware, lines, software and prices any number does."""
    moved = lever.times(factor)
    if moved is None or lever.kind not in ("plan", "run"):
        return moved
    try:
        return checked(moved)
    except ShardMeterError:
        return None


def beside(lever: Lever, way: int) -> tuple[float, Scenario] | None:
    """(value, scenario) of the next legal value above (`way` 1) or below (-1); None where none of those tried is legal."""
    for value in _candidates(lever.value, way):
        moved = legal(lever, value / lever.value)
        if moved is not None:
            return value, moved
    return None


def _candidates(value: float, way: int) -> Iterator[float]:
    grain = 1.0 if value <= FINE else 2.0 ** math.floor(math.log2(value / FINE))
    tried = [value + way * grain * step for step in range(1, STEPS + 1)]
    tried += [value * times if way > 0 else value / times for times in MULTIPLES]
    for one in dict.fromkeys(tried):
        if one >= 1.0 and one.is_integer():
            yield one
