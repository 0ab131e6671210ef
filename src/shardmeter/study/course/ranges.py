"""How sure the figures of a run are: the same run with all steps as fast, and as slow, as the interval of a step leaves possible and, where
it goes to a loss by a law that was fitted here, as short and as long as the refits of the law."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from shardmeter.core.record import changed
from shardmeter.specs import Scenario
from shardmeter.study.course import hours
from shardmeter.study.course.phases import Leg
from shardmeter.study.course.totals import slowed, totals

Paces: TypeAlias = tuple[tuple[float, float], tuple[float, float]]
"""(inner steps, messages): times as long as predicted, at the fast end and at the slow one."""
Lengths: TypeAlias = tuple[float, float]
"""Tokens of a run over those predicted, at both ends of their interval."""
KEYS = ("wall_clock_s", "gpu_hours", "cost_usd", "energy_kwh", "carbon_kg", "goodput")


def ranges(
    scenario: Scenario, parts: Sequence[Leg], point: dict[str, Any], paces: Paces | None, lengths: Lengths | None = None
) -> dict[str, Any]:
    """[low, high] of every figure of `run` that depends on the step time; null where the figure is, or where no token counts if all is
    slow. What does not depend on it (bytes, their way to the islands) is the same at both ends; failures and prices are as said.
    `lengths`: the interval of the run's tokens over its tokens, by the refits of a law; an infinite one makes all of them null. Steps and
    law are off independently: their logarithms add as squares.

    Leaves out: how sure prices, failures, powers of machines and the laws of others are."""
    ends = [] if paces is None else [_figures(scenario, slowed(scenario, parts, *one)) for one in paces]
    found = {key: _around(point[key], [one.get(key) for one in ends]) for key in KEYS}
    if lengths is None:
        return found
    long = [
        _figures(scenario, tuple(changed(leg, steps=leg.steps * one) for leg in parts))
        for one in lengths
        if np.isfinite(one)
    ]
    return {
        key: None if found[key] is None or len(long) < len(lengths) else _both(point[key], found[key], [one[key] for one in long])
        for key in KEYS
    }  # fmt: skip


def _both(point: float | None, paced: list[float] | None, long: Sequence[float | None]) -> list[float] | None:
    """The ends of two independent intervals around one figure: their logarithms add as squares."""
    ends = _around(point, long)
    if not point or paced is None or ends is None or min(point, *paced, *ends) <= 0.0:
        return paced
    low, high = (
        float(np.hypot(np.log(one / point), np.log(other / point))) for one, other in zip(paced, ends, strict=True)
    )
    return [point * float(np.exp(-low)), point * float(np.exp(high))]


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
