"""A knob at every value: what the sweep says of each, beside the scenario as it is."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from shardmeter.core.errors import ShardMeterError
from shardmeter.core.record import changed, record
from shardmeter.engine.fleet import Whole
from shardmeter.scenario.parts import Rows
from shardmeter.scenario.read import Document
from shardmeter.specs import Scenario
from shardmeter.study.course import legs_of, loss
from shardmeter.study.course.hours import step_tokens
from shardmeter.study.levers import answered
from shardmeter.study.sweep import space_of, sweep
from shardmeter.study.sweep.figures import FIGURES, TEXTS, Point, figure
from shardmeter.study.sweep.one import number, point_of
from shardmeter.study.sweep.space import Space
from shardmeter.study.tradeoffs.knobs import Knob

DAY = 86400.0
DIGITS = 9
"""Of a difference of losses: what is beyond is the rounding of floats."""
COLUMNS = (
    "fits", "tokens_per_s", "step_time_s", "mfu", "memory.peak_gib", "memory.limit_gib", "sync.round_s", "sync.sent_bytes",
    "sync.paid_usd", "sync.loss_effect.factor", "sync.loss_effect.nats", "run.wall_clock_s", "run.cost_usd", "run.tokens", "run.loss",
    "bottleneck.cause",
)  # fmt: skip
"""Figures of a point, as `sweep` has them."""
NO_LAW = "no law of loss is named (run.law: docs/loss.md)"


@record
class Base:
    """The scenario as it is: what every value is set beside."""

    scenario: Scenario
    whole: Whole
    figures: dict[str, Any]
    tokens: float | None
    """Of its run; None where that has no length."""
    loss: float | None
    """What its run reaches by the law that is named; None where none tells it."""
    why: str
    """Why that is not known."""


def base_of(scenario: Scenario) -> Base:
    """Raises ShardMeterError where the scenario cannot be answered."""
    whole = answered(scenario)
    point = point_of(scenario, whole, legs_of(scenario, whole))
    figures = {name: _value(name, point) for name in COLUMNS}
    told = figures["run.loss"]
    why = ""
    if told is None:
        why = (
            NO_LAW
            if scenario.run.law is None
            else loss.why_not(scenario, whole) or "the run has no length, or is too short for its law"
        )
    return Base(scenario=scenario, whole=whole, figures=figures, tokens=figures["run.tokens"], loss=told, why=why)


def _value(name: str, point: Point) -> Any:
    return figure(name, point)[0] if name == "fits" or name in TEXTS else number(name, point)


@record
class Turned:
    """One knob, and an entry for every value of it."""

    knob: Knob
    entries: tuple[dict[str, Any], ...]


def turned(document: Document, rows: Rows, knob: Knob, base: Base) -> Turned:
    """A knob at every value of it. Raises BadScenario for a field or values that are malformed."""
    space = space_of(document, rows, {knob.field: list(knob.values)}, _columns(knob.field))
    entries = []
    for at, (value, row) in enumerate(zip(knob.values, sweep(space).rows(), strict=True)):
        own = dict(row)
        legal = not own["status"].startswith("illegal")
        ratio, sooner = _to_loss(space, (at,), own, base) if legal else (None, None)
        entries.append(entry(value, own, base, ratio, sooner) | {"now": knob.now is not None and value == knob.now})
    return Turned(knob=knob, entries=tuple(entries))


def _columns(*fields: str) -> list[str]:
    return [name for name in COLUMNS if name in FIGURES and name not in fields]


def entry(
    value: Any, row: dict[str, Any], base: Base, ratio: float | None = None, sooner: float | None = None
) -> dict[str, Any]:
    """What is said of one value: figures, what it costs in loss, and how much sooner the run is at the same loss: `sooner`, the wall
    clock of the scenario over that to the same loss, where the run has a length (interruptions and checkpoints count)."""
    told, sent, paid, round_s = row.get("run.loss"), row["sync.sent_bytes"], row["sync.paid_usd"], row["sync.round_s"]
    speed = _over(row["tokens_per_s"], base.figures["tokens_per_s"])
    return {
        "value": value,
        "status": row["status"],
        "fits": row["fits"],
        "tokens_per_s": row["tokens_per_s"],
        "step_time_s": row["step_time_s"],
        "mfu": row["mfu"],
        "memory_peak_gib": row["memory.peak_gib"],
        "memory_limit_gib": row["memory.limit_gib"],
        "sent_bytes_per_day": None if sent is None or not round_s else sent / round_s * DAY,
        "egress_usd_per_day": None if paid is None or not round_s else paid / round_s * DAY,
        "loss": told,
        "loss_change": None if told is None or base.loss is None else round(told - base.loss, DIGITS),
        "loss_factor": row["sync.loss_effect.factor"],
        "loss_nats": row["sync.loss_effect.nats"],
        "tokens_ratio": ratio,
        "speed": speed,
        "speed_to_loss": sooner if sooner is not None or speed is None or ratio is None else speed / ratio,
        "wall_clock_s": row["run.wall_clock_s"],
        "cost_usd": row["run.cost_usd"],
        "bottleneck": row["bottleneck.cause"],
    }


def _over(one: float | None, other: float | None) -> float | None:
    return None if one is None or not other else one / other


def _to_loss(
    space: Space, place: tuple[int, ...], row: dict[str, Any], base: Base
) -> tuple[float | None, float | None]:
    """Tokens that the loss of the scenario takes at a point over those that it takes as it is, and the wall clock that it takes as it is
    over that at the point. None where no law tells; infinite tokens, and 0, where no data is enough."""
    lasts = base.figures["run.wall_clock_s"]
    if base.loss is None or base.tokens is None:
        return None, None
    if base.scenario.run.target_loss is not None:
        return _over(row["run.tokens"], base.tokens), _over(lasts, row["run.wall_clock_s"])
    try:
        one = space.scenario(place)
        whole = answered(one)
    except ShardMeterError:
        return None, None
    asked = loss.question(one, whole)
    if asked is None:
        return None, None
    needed = float(loss.tokens_for(asked, base.loss, step_tokens(whole)))
    if not math.isfinite(needed):
        return np.inf, 0.0
    return needed / base.tokens, _over(lasts, _wall_clock(one, whole, needed))


def _wall_clock(one: Scenario, whole: Whole, tokens: float) -> float | None:
    """Seconds of a run of so many tokens; None where it is one of phases, whose lengths are said."""
    if one.run.phases:
        return None
    longer = changed(one, run=changed(one.run, tokens=tokens, steps=None))
    return number("run.wall_clock_s", point_of(longer, whole, legs_of(longer, whole)))
