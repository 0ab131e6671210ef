"""What the next unit of an axis buys: the scenario's own point beside the same scenario with a unit more, both predicted whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from shardmeter.core.units import Number
from shardmeter.study.returns.axis import Axis
from shardmeter.study.returns.curve import BILLION, Curve, Reading

DAY = 86400.0
_DIFFERENCES = ("tokens_per_s", "mfu", "step_time_s", "wall_clock_s", "cost_usd", "usd_per_1e9_tokens")
EACH = 16.0
"""Sizes after the scenario's own that are tried one by one."""


def marginal(curve: Curve) -> dict[str, Any] | None:
    """One entry: from the scenario's own place to the next one; None where nothing runs at its own.

    `of_average`: what a unit of x buys over what those there bought on average. `usd_per_1e9_tokens_marginal`: dollars a second that are
    spent more over tokens a second that are won, for 10^9 of them, interruptions and checkpoints counted in both; of sizes alone, since a
    bandwidth has no price here; null where the run is no faster.
    `usd_per_day_saved`: dollars of the run more over days less, negative where the run is shorter and cheaper at once; null where it is not shorter."""
    axis = curve.axis
    own = curve.at(axis.own)
    if own.rate is None:
        return None
    found, tried = _next(curve)
    entry = _entry(axis, own, found)
    if found.rate is None:
        return entry | {"why": found.why or "it does not fit"}
    return (
        entry
        | _bought(curve, own, found)
        | {
            "skipped": tried,
            "why_skipped": curve.at(own.place + 1.0).why if tried else None,
        }
    )


def _next(curve: Curve) -> tuple[Reading, int]:
    """The next unit of a number, or of a size the first legal one; and how many illegal ones were tried before it. Where none is legal the
    reading of the very next says why."""
    axis = curve.axis
    if not axis.whole:
        return curve.at(axis.own + axis.step), 0
    for tried, units in enumerate(_units(axis)):
        if (found := curve.at(axis.own + units)).rate is not None:
            return found, tried
    return curve.at(axis.own + 1.0), 0


def _units(axis: Axis) -> Iterator[float]:
    """Units further that are tried: all of the next EACH, then 2, 4, 8 … times as far, and twice the size; of what is no size the next alone."""
    units = 1.0
    while units < axis.own and (axis.is_size or units < 2.0):
        yield units
        units += 1.0 if units < EACH else units
    if axis.is_size or axis.own == 1.0:
        yield axis.own


def _entry(axis: Axis, own: Reading, further: Reading) -> dict[str, Any]:
    empty = dict.fromkeys(
        (*_DIFFERENCES, "of_average", "usd_per_1e9_tokens_marginal", "usd_per_day_saved", "why", "why_skipped")
    )
    return {
        "axis": axis.name,
        "unit": axis.unit,
        "next": axis.step_title,
        "from": own.x,
        "to": further.x,
        "skipped": 0,
        **empty,
    }


def _bought(curve: Curve, own: Reading, further: Reading) -> dict[str, Any]:
    a, b = curve.figures(own.place), curve.figures(further.place)
    found = {name: _less(b[name], a[name]) for name in _DIFFERENCES}
    rate, paid, time = found["tokens_per_s"], found["cost_usd"], found["wall_clock_s"]
    won = _less(b["run_tokens_per_s"], a["run_tokens_per_s"])
    spent = None if paid is None else b["cost_usd"] / b["wall_clock_s"] - a["cost_usd"] / a["wall_clock_s"]
    return {
        **found,
        "of_average": rate / (further.x - own.x) / (a["tokens_per_s"] / own.x),
        "usd_per_1e9_tokens_marginal": None
        if spent is None or won is None or won <= 0.0 or not curve.axis.is_size
        else spent / won * BILLION,
        "usd_per_day_saved": None if paid is None or time is None or time >= 0.0 else paid / (-time / DAY),
    }


def _less(b: Number | None, a: Number | None) -> Any:
    return None if a is None or b is None else b - a
