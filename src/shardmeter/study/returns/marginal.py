"""What the next unit of an axis buys: the scenario's own point beside the same scenario with a unit more, both predicted whole."""

from __future__ import annotations

from typing import Any

from shardmeter.core.units import Number
from shardmeter.study.returns.axis import Axis
from shardmeter.study.returns.curve import BILLION, Curve, Reading

DAY = 86400.0
_DIFFERENCES = ("tokens_per_s", "mfu", "step_time_s", "wall_clock_s", "cost_usd", "usd_per_1e9_tokens")
MOST_AHEAD = 64.0
"""Units of a size in which the next legal one is looked for, at least; else up to twice the own one."""


def marginal(curve: Curve) -> dict[str, Any] | None:
    """One entry: from the scenario's own place to the next one; None where nothing runs at its own.

    `of_average`: what a unit of x buys over what those there bought on average. `usd_per_1e9_tokens_marginal`: dollars a second that are
    spent more over tokens a second that are won, for 10^9 of them; of sizes alone, since a bandwidth has no price here. `usd_per_day_saved`: dollars of the run more over days less, negative
    where the run is shorter and cheaper at once; null where it is not shorter."""
    axis = curve.axis
    own = curve.at(axis.own)
    if own.rate is None:
        return None
    found = _next(curve)
    entry = _entry(axis, own, found)
    if found.rate is None:
        return entry | {"why": found.why or "it does not fit"}
    skipped = max(round((found.place - own.place) / axis.step) - 1, 0) if axis.whole else 0
    return (
        entry
        | _bought(curve, own, found)
        | {"skipped": skipped, "why_skipped": curve.at(own.place + axis.step).why if skipped else None}
    )


def _next(curve: Curve) -> Reading:
    """The next legal unit of a size, or the next unit of a number; where there is none the reading that says why."""
    axis = curve.axis
    if not axis.whole:
        return curve.at(axis.own + axis.step)
    further = curve.next_legal(axis.own, max(2.0 * axis.own, axis.own + (MOST_AHEAD if axis.is_size else 1.0)))
    return further or curve.at(axis.own + 1.0)


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
    spent = None if paid is None else b["cost_usd"] / b["wall_clock_s"] - a["cost_usd"] / a["wall_clock_s"]
    return {
        **found,
        "of_average": rate / (further.x - own.x) / (a["tokens_per_s"] / own.x),
        "usd_per_1e9_tokens_marginal": None
        if spent is None or rate <= 0.0 or not curve.axis.is_size
        else spent / rate * BILLION,
        "usd_per_day_saved": None if paid is None or time is None or time >= 0.0 else paid / (-time / DAY),
    }


def _less(b: Number | None, a: Number | None) -> Any:
    return None if a is None or b is None else b - a
