"""What every number does to an answer: its elasticity, what doubling and halving it do, and what moving it costs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from shardmeter.core.record import record
from shardmeter.core.sums import plain_sum
from shardmeter.specs import Scenario
from shardmeter.study.levers import Lever
from shardmeter.study.sensitivity.answers import HOUR, Answers, Reading
from shardmeter.study.sensitivity.neighbours import beside, legal

NOTHING = 1e-9
"""Relative change of an answer that is floating point's."""
KINK, KINK_SHARE = 0.02, 0.05
"""Difference of the elasticities above and below a number beyond which they are two, absolute and as a share of the larger: curves
bend by less over one step."""


@record
class Effect:
    """An answer after a number has been moved."""

    value: float
    """The number then."""
    answer: float | None
    change: float | None
    """Relative: 0.11 is 11 % more."""
    range: tuple[float, float] | None
    """The change at both ends of the interval of a step, with the change itself: what is wrong with the answer is wrong with both."""
    fits: bool
    rent: float | None
    """USD an hour more for the accelerators; None where no price is known of what is moved."""
    traffic: float | None
    """USD an hour more for what is sent between islands."""
    why: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Its part of the JSON."""
        return {
            "value": self.value, "answer": self.answer, "change": self.change,
            "change_range": None if self.range is None else list(self.range), "fits": self.fits,
            "rent_usd_per_hour": self.rent, "traffic_usd_per_hour": self.traffic, "why": self.why,
        }  # fmt: skip


@record
class Sensed:
    """One number, and what it does."""

    lever: Lever
    up: float | None
    """Elasticity above the number: d ln answer / d ln number over one small step; of a whole number up to twice of it or, where that is
    not legal, to the next that is. None where there is none."""
    down: float | None
    """The same below it."""
    kink: bool
    """Whether the two differ by more than a curve bends, or by sign: there is no one elasticity."""
    doubled: Effect | None
    halved: Effect | None
    next_up: Effect | None = None
    """Of a number that is whole: at the next legal value."""
    next_down: Effect | None = None

    @property
    def elasticity(self) -> float | None:
        """That of both sides together; of one where the other is out of reach; None at a kink."""
        sides = [one for one in (self.up, self.down) if one is not None]
        return None if self.kink or not sides else plain_sum(sides) / len(sides)

    @property
    def size(self) -> float:
        """The larger of the two elasticities, without its sign."""
        return max((abs(one) for one in (self.up, self.down) if one is not None), default=0.0)

    @property
    def effects(self) -> tuple[Effect, ...]:
        """All that is known of it."""
        found = (self.doubled, self.halved, self.next_up, self.next_down)
        return tuple(one for one in found if one is not None)

    @property
    def swing(self) -> float:
        """The largest change that was seen, as a factor: |ln|."""
        return max((abs(math.log1p(one.change)) for one in self.effects if one.change is not None), default=0.0)

    @property
    def silent(self) -> bool:
        """Whether nothing that was tried changes the answer."""
        return self.swing <= NOTHING and self.size <= NOTHING

    @property
    def stuck(self) -> bool:
        """Whether no other value is legal."""
        return not any(one.answer is not None for one in self.effects)

    def beyond(self, interval: tuple[float, float] | None) -> bool | None:
        """Whether doubling or halving it moves the answer out of its own interval, [low, high] over the answer less 1."""
        if interval is None:
            return None
        moved = [one.change for one in (self.doubled, self.halved) if one is not None and one.change is not None]
        return any(not interval[0] <= one <= interval[1] for one in moved)

    def to_dict(self, interval: tuple[float, float] | None) -> dict[str, Any]:
        """Its part of the JSON."""
        own = self.lever
        return {
            "name": own.name, "title": own.title, "kind": own.kind, "unit": own.unit, "value": own.value, "whole": own.whole,
            "part": own.part, "elasticity": self.elasticity, "elasticity_up": self.up, "elasticity_down": self.down,
            "kink": self.kink, "beyond_interval": self.beyond(interval),
            **{
                key: None if one is None else one.to_dict()
                for key, one in (("doubled", self.doubled), ("halved", self.halved), ("next_up", self.next_up), ("next_down", self.next_down))
            },
        }  # fmt: skip


def sensed(answers: Answers, levers: Sequence[Lever], step: float) -> tuple[Sensed, ...]:
    """Every number moved by itself, `step` a small relative one; as they are listed.

    Leaves out: numbers that are 0, of which nothing is a multiple."""
    tried: list[tuple[int, str, float, Scenario]] = []
    for at, lever in enumerate(levers):
        for key, factor in (("doubled", 2.0), ("halved", 0.5)):
            moved = legal(lever, factor)
            if moved is not None:
                tried.append((at, key, lever.value * factor, moved))
        for key, way in (("next_up", 1), ("next_down", -1)) if lever.whole else ():
            found = beside(lever, way)
            if found is not None:
                tried.append((at, key, *found))
    readings = answers.read([moved for *_, moved in tried], sure=True)
    effects: list[dict[str, Effect]] = [{} for _ in levers]
    for (at, key, value, moved), reading in zip(tried, readings, strict=True):
        effects[at][key] = effect(answers, levers[at], value, moved, reading)
    slopes = _slopes(answers, levers, effects, step)
    return tuple(
        Sensed(
            lever=lever, up=slopes[at][0], down=slopes[at][1], kink=_differ(*slopes[at], whole=lever.whole),
            **{key: effects[at].get(key) for key in ("doubled", "halved", "next_up", "next_down")},
        )
        for at, lever in enumerate(levers)
    )  # fmt: skip


def _slopes(
    answers: Answers, levers: Sequence[Lever], effects: Sequence[dict[str, Effect]], step: float
) -> list[tuple[float | None, float | None]]:
    """(elasticity above, below) of every number: of whole ones to twice and to half of it, of others over one step."""
    found: list[tuple[float | None, float | None]] = [(None, None)] * len(levers)
    small: list[tuple[int, int, Scenario]] = []
    for at, (lever, own) in enumerate(zip(levers, effects, strict=True)):
        if lever.whole:
            sides = (own.get("doubled") or own.get("next_up"), own.get("halved") or own.get("next_down"))
            found[at] = _slope(sides[0], lever.value), _slope(sides[1], lever.value)
        elif own and all(one.change is not None and abs(one.change) <= NOTHING for one in own.values()):
            found[at] = (0.0, 0.0)  # neither twice nor half of it does anything: nor does what lies between
        else:
            for side, factor in enumerate((1.0 + step, 1.0 / (1.0 + step))):
                moved = legal(lever, factor)
                if moved is not None:
                    small.append((at, side, moved))
    base, length = float(answers.base.value or 0.0), math.log1p(step)
    for (at, side, _), reading in zip(small, answers.read([moved for *_, moved in small]), strict=True):
        if reading.value is not None and reading.value > 0.0:
            slope = math.log(reading.value / base) / (-length if side else length)
            found[at] = (slope, found[at][1]) if side == 0 else (found[at][0], slope)
    return found


def _slope(one: Effect | None, value: float) -> float | None:
    if one is None or one.change is None or one.change <= -1.0:
        return None
    return math.log1p(one.change) / math.log(one.value / value)


def _differ(up: float | None, down: float | None, *, whole: bool) -> bool:
    """Of a whole number, between half and twice of which an answer may bend a lot: whether the answer turns round."""
    if up is None or down is None:
        return False
    if whole:
        return up * down < 0.0 and min(abs(up), abs(down)) > KINK
    return abs(up - down) > KINK + KINK_SHARE * max(abs(up), abs(down))


def effect(answers: Answers, lever: Lever, value: float, moved: Scenario, reading: Reading) -> Effect:
    """What one reading says beside the answer as it is."""
    base = answers.base
    change = _change(reading.value, base.value)
    ends = [_change(one, other) for one, other in zip(reading.ends, base.ends, strict=True)]
    sure = [one for one in (change, *ends) if one is not None]
    return Effect(
        value=value, answer=reading.value, change=change, range=(min(sure), max(sure)) if len(sure) == 3 else None,
        fits=reading.fits, rent=_rent(answers.scenario, lever, moved), traffic=_more(reading.traffic, base.traffic), why=reading.why,
    )  # fmt: skip


def _change(after: float | None, before: float | None) -> float | None:
    return None if after is None or not before else after / before - 1.0


def _more(after: float | None, before: float | None) -> float | None:
    return None if after is None or before is None else (after - before) * HOUR


def _rent(before: Scenario, lever: Lever, after: Scenario) -> float | None:
    """USD an hour more of rent. What a plan says costs nothing but the accelerators that it adds; of faster machines, lines and other
    software no price is known, and none is guessed."""
    if lever.kind not in ("plan", "run") and not lever.name.endswith(".price"):
        return None
    rents = []
    for scenario in (before, after):
        owed = [None if one.price is None else float(one.price) * float(one.gpus) for one in scenario.fleet.islands]
        if None in owed and lever.kind == "plan" and after.fleet is not before.fleet:
            return None
        rents.append(plain_sum(one for one in owed if one is not None))
    return (rents[1] - rents[0]) * HOUR
