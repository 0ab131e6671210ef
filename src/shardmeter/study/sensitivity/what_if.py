"""Several numbers moved together: whether what they do multiplies."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Any

from shardmeter.core import quantity
from shardmeter.core.errors import BadQuantity, BadScenario, ShardMeterError, Violation, nearest, shown
from shardmeter.core.record import record
from shardmeter.specs import Scenario
from shardmeter.study.levers import Lever, levers
from shardmeter.study.sensitivity.answers import Answers
from shardmeter.study.sensitivity.effects import Effect, Sensed, effect
from shardmeter.study.sensitivity.neighbours import legal

_TIMES = re.compile(r"x\s*([0-9.]+(?:e[-+]?[0-9]+)?)$", re.IGNORECASE)
_PERCENT = re.compile(r"([-+][0-9.]+)\s*%$")
_DIMENSIONS = {
    "B/s": "bandwidth", "B": "size", "s": "time", "FLOP/s": "flops_rate", "W": "power", "USD/B": "egress",
    "USD/(B*s)": "storage", "USD/(W*s)": "electricity", "kg/(W*s)": "carbon",
}  # fmt: skip
"""What a number of a unit is read as; a count else."""


@record
class Move:
    """One number, and what becomes of it."""

    lever: Lever
    factor: float

    @property
    def text(self) -> str:
        """As the command takes it."""
        return f"{self.lever.name}=x{self.factor:.4g}"


@record
class Pair:
    """Two moves, by themselves and together."""

    one: Move
    other: Move
    alone: tuple[float | None, float | None]
    """The change that each makes."""
    together: float | None
    why: str = ""

    @property
    def product(self) -> float | None:
        """The change if the two multiplied."""
        first, second = self.alone
        return None if first is None or second is None else (1.0 + first) * (1.0 + second) - 1.0

    @property
    def interaction(self) -> float | None:
        """How much more both do than the product of what each does: above 0 they help one another."""
        product = self.product
        return None if product is None or self.together is None else (1.0 + self.together) / (1.0 + product) - 1.0

    def to_dict(self) -> dict[str, Any]:
        """Its part of the JSON."""
        return {
            "moves": [self.one.text, self.other.text], "titles": [self.one.lever.title, self.other.lever.title],
            "factors": [self.one.factor, self.other.factor], "changes": list(self.alone), "together": self.together,
            "product": self.product, "interaction": self.interaction, "why": self.why,
        }  # fmt: skip


def moves(texts: Iterable[str], known: Sequence[Lever]) -> tuple[Move, ...]:
    """What `NAME=x2`, `NAME=+10%` or `NAME=20 Gbps` says, a name being a path or the end of one. Raises BadScenario with everything
    that is wrong."""
    found, wrong = [], []
    for text in texts:
        try:
            found.append(_move(text, known))
        except ShardMeterError as error:
            wrong.append(Violation(field="what-if", says=str(error)))
    if wrong:
        raise BadScenario(f"{len(wrong)} problem{'s' if len(wrong) > 1 else ''}", wrong)
    return tuple(found)


def _move(text: object, known: Sequence[Lever]) -> Move:
    if not isinstance(text, str) or "=" not in text:
        raise BadScenario(f"{shown(text)} moves nothing: write NAME=x2, NAME=+10% or NAME=VALUE")
    name, _, value = (part.strip() for part in text.partition("="))
    lever = named(name, known)
    factor = _factor(value, lever)
    if not (math.isfinite(factor) and factor > 0.0):
        raise BadScenario(f"{shown(text)}: a number is moved to one above 0")
    if legal(lever, factor) is None:
        says = f"{lever.name} = {lever.value * factor:g} is not legal here"
        raise BadScenario(f"{says}: shardmeter predict --set tells why")
    return Move(lever=lever, factor=factor)


def named(name: str, known: Sequence[Lever]) -> Lever:
    """The number of that path, or the only one whose path ends so. Raises BadScenario with the nearest."""
    exact = [lever for lever in known if lever.name == name]
    ending = exact or [lever for lever in known if lever.name.endswith(f".{name}")]
    ending = ending if len(ending) == 1 else [lever for lever in ending if not lever.part] or ending
    if len(ending) == 1:
        return ending[0]
    if ending:
        raise BadScenario(f"{name} could be {', '.join(lever.name for lever in ending[:4])}")
    near = ", ".join(nearest(name, [lever.name for lever in known]))
    raise BadScenario(f"no number {shown(name, 60)} that can be moved; the nearest are {near}")


def _factor(text: str, lever: Lever) -> float:
    times, percent = _TIMES.fullmatch(text), _PERCENT.fullmatch(text)
    try:
        if times:
            return float(times[1])
        if percent:
            return 1.0 + float(percent[1]) / 100.0
        if lever.unit == "USD/s":
            return quantity.price(text)[0] / lever.value
        return quantity.quantity(text, _DIMENSIONS.get(lever.unit, "count")) / lever.value
    except (BadQuantity, ValueError) as error:
        raise BadScenario(f"{lever.name}={text}: {error}") from None


def together(one: Move, other: Move) -> Scenario | None:
    """The scenario with both; None where that is not legal."""
    first = legal(one.lever, one.factor)
    if first is None:
        return None
    again = next((lever for lever in levers(first) if lever.name == other.lever.name), None)
    return None if again is None else legal(again, other.factor)


def alone(answers: Answers, asked: Sequence[Move]) -> list[Effect]:
    """Every move by itself. Raises nothing: what is not legal was refused."""
    scenarios = [(one, legal(one.lever, one.factor)) for one in asked]
    there = [(one, moved) for one, moved in scenarios if moved is not None]
    readings = answers.read([moved for _, moved in there], sure=True)
    return [
        effect(answers, one.lever, one.lever.value * one.factor, moved, reading)
        for (one, moved), reading in zip(there, readings, strict=True)
    ]


def pairs_of(answers: Answers, asked: Sequence[tuple[Move, Move]]) -> tuple[Pair, ...]:
    """Pairs of moves, each move by itself evaluated once."""
    distinct = {one.text: one for pair in asked for one in pair}
    single = dict(zip(distinct, alone(answers, list(distinct.values())), strict=True))
    scenarios = [together(*pair) for pair in asked]
    readings = iter(answers.read([one for one in scenarios if one is not None]))
    found = []
    for (one, other), moved in zip(asked, scenarios, strict=True):
        reading = None if moved is None else next(readings)
        value = (
            None if reading is None or reading.value is None else reading.value / float(answers.base.value or 1.0) - 1.0
        )
        why = "both together are not legal" if reading is None else reading.why
        each = single[one.text].change, single[other.text].change
        found.append(Pair(one=one, other=other, alone=each, together=value, why=why))
    return tuple(found)


def top(ranked: Sequence[Sensed], count: int, *, less_is_better: bool) -> list[tuple[Move, Move]]:
    """All pairs of the first so many numbers that can be doubled or halved, each moved the way that betters the answer."""
    chosen: list[Move] = []
    for one in ranked:
        sides = [
            (side.change, factor)
            for side, factor in ((one.doubled, 2.0), (one.halved, 0.5))
            if side is not None and side.change
        ]
        if one.lever.part or not sides or len(chosen) >= count:
            continue
        best = min(sides) if less_is_better else max(sides)
        chosen.append(Move(lever=one.lever, factor=best[1]))
    return list(combinations(chosen, 2))
