"""How sure the figures of a run are: the same run with all steps as fast, and as slow, as the interval of a step leaves possible."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from shardmeter.specs import Scenario
from shardmeter.study.course import hours
from shardmeter.study.course.phases import Leg
from shardmeter.study.course.totals import slowed, totals

Paces: TypeAlias = tuple[tuple[float, float], tuple[float, float]]
"""(inner steps, messages): times as long as predicted, at the fast end and at the slow one."""
KEYS = ("wall_clock_s", "gpu_hours", "cost_usd", "energy_kwh", "carbon_kg", "goodput")


def ranges(scenario: Scenario, parts: Sequence[Leg], point: dict[str, Any], paces: Paces | None) -> dict[str, Any]:
    """[low, high] of every figure of `run` that depends on the step time; null where the figure is, or where no token counts if all is
    slow. What does not depend on it (bytes, their way to the islands) is the same at both ends; failures and prices are as said.

    Leaves out: how sure prices, failures, powers of machines and the law of a loss are."""
    ends = [] if paces is None else [_figures(scenario, slowed(scenario, parts, *one)) for one in paces]
    return {key: _around(point[key], [one.get(key) for one in ends]) for key in KEYS}


def _figures(scenario: Scenario, legs: tuple[Leg, ...] | None) -> dict[str, float | None]:
    """The figures of one end; empty where the run has none."""
    if legs is None:
        return {}
    found = totals(scenario.run, legs)
    return {
        "wall_clock_s": float(found.seconds),
        "gpu_hours": float(found.held) / hours.HOUR,
        "cost_usd": float(found.paid),
        "energy_kwh": float(found.drawn),
        "carbon_kg": float(found.emitted),
        "goodput": hours.answer([(leg.whole, leg.steps) for leg in legs])["goodput"],
    }


def _around(point: float | None, ends: Sequence[float | None]) -> list[float] | None:
    """The ends with the figure between them: a goodput may be highest where neither is."""
    known = [one for one in ends if one is not None and np.isfinite(one)]
    return None if point is None or len(known) < 2 else [min(point, *known), max(point, *known)]
