"""What a run that nothing is said to interrupt takes beside its steps, as whole runs of its class took: for its limits only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shardmeter.core.record import record
from shardmeter.core.sums import plain_sum
from shardmeter.core.units import Ratio
from shardmeter.engine.course import is_interrupted
from shardmeter.engine.fleet import Whole
from shardmeter.study import intervals, practice

BY_STEPS = ("traffic", "data set")
"""Beginnings of the terms of a cost that follow the steps and the tokens, not the hours."""


@record
class Practice:
    """Hours of whole runs over the hours of their steps: evaluation, restarts, ramps, input, idle machines."""

    kind: str
    """Which runs, in words."""
    factor: Ratio
    low: Ratio
    high: Ratio
    """Ends of the 90 % interval of one future run; what a step is off by is in it."""


def beside(whole: Whole, family: str) -> Practice | None:
    """Of the class of a run: that of most of its accelerators. None where something is said that interrupts it, which is then counted
    term by term.

    Leaves out: that the runs it rests on were of one site each."""
    if is_interrupted(whole):
        return None
    first = max((part.island for part in whole.parts), key=lambda one: float(one.gpus))
    name = practice.class_of(float(whole.estimate.gpus), True, family, first.accelerator.name, "")
    ends, factor = practice.spread("A", ""), practice.factor(name)
    if ends is None:
        return None
    return Practice(kind=practice.CLASSES[name], factor=factor, low=factor * ends[0], high=factor * ends[1])


def hourly(terms: Sequence[dict[str, Any]]) -> float:
    """Dollars that grow with the hours that a run lasts."""
    return plain_sum(float(one["usd"]) for one in terms if not one["term"].startswith(BY_STEPS))


def answer(seen: Practice, unit: str, most: float, spent: float, growing: float, *, told: bool) -> dict[str, Any]:
    """`practice` of a limit: factors on the hours, what the run then takes, and how likely that keeps the limit (`told`: whether its
    length is known)."""

    def taken(factor: Ratio) -> float:
        return spent + growing * (float(factor) - 1.0)

    return {
        "runs": seen.kind,
        "factor": float(seen.factor),
        "low": float(seen.low),
        "high": float(seen.high),
        unit: taken(seen.factor),
        "probability": intervals.probability_between(most, taken(seen.low), taken(seen.high)) if told else None,
    }
