"""`transitions`: what rules a step at every point of one or two axes of a scenario, and where that changes."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from shardmeter.core.errors import BadScenario, Violation
from shardmeter.core.record import record
from shardmeter.scenario.choices import left_open
from shardmeter.scenario.parts import Rows
from shardmeter.scenario.read import Document
from shardmeter.scenario.resolve import resolve
from shardmeter.specs import Scenario
from shardmeter.specs.estimate import Estimate
from shardmeter.study import islands
from shardmeter.study.levers import answered
from shardmeter.study.predict import NO_COST
from shardmeter.study.sweep.points import FITS, FITS_NOT, ILLEGAL
from shardmeter.study.sweep.space import space_of
from shardmeter.study.transitions import says
from shardmeter.study.transitions.axes import Sought, likely, sought
from shardmeter.study.transitions.crossings import KINDS, Crossing, Side, crossings
from shardmeter.study.transitions.reading import Array, Reader, Reading
from shardmeter.study.transitions.regimes import REGIMES, communication, seconds, without_limits

__all__ = ["KINDS", "REGIMES", "Line", "Transitions", "transitions"]

NAMES = tuple(REGIMES)


@record
class Line:
    """One axis, everything else as the scenario has it."""

    sought: Sought
    reading: Reading
    found: tuple[says.Told, ...]

    @property
    def nearest(self) -> str:
        """What happens next along this axis, in a sentence."""
        first = says.nearest(self.found)
        if first is not None:
            return first.says
        legal = [at for at in range(len(self.reading.step)) if self.reading.legal[at]]
        if not legal:
            return f"no value of {self.sought.title} is legal but the scenario's own"
        if self.sought.numbers is None:
            names = self.sought.names
            return ", ".join(f"{names[at]}: {NAMES[self.reading.ruling[at]]}" for at in legal)
        numbers = self.sought.numbers
        ordered = sorted(legal, key=lambda at: numbers[at])
        return says.kept(self.sought, [self._end(ordered[0]), self._end(ordered[-1])])

    def _end(self, at: int) -> Side:
        reading, numbers = self.reading, self.sought.numbers or ()
        own = int(reading.ruling[at])
        share = float(reading.seconds[own, at] / reading.step[at])
        return Side(value=numbers[at], regime=NAMES[own], share=share, margin=0.0, fits=True, rate=0.0)

    def to_dict(self) -> dict[str, Any]:
        """The entry of the JSON: one number or word a value, null where it is illegal."""
        reading = self.reading
        shown = [at for at in range(len(NAMES)) if np.any(np.nan_to_num(reading.seconds[at]) > 0.0)]
        return {
            **_axis(self.sought),
            "says": self.nearest,
            "crossings": [_crossing(self.sought, one) for one in self.found],
            "status": [_status(text) for text in reading.status],
            "regime": [None if at < 0 else NAMES[at] for at in reading.ruling],
            "seconds": {NAMES[at]: _plain(reading.seconds[at]) for at in shown},
            "step_time_s": _plain(reading.step),
            "communication_s": _plain(reading.under_way),
            "exposed_s": _plain(reading.exposed),
            "compute_s": _plain(reading.compute),
            "memory_left": _plain(reading.room),
            "tokens_per_s": _plain(reading.rate),
        }


@record
class Transitions:
    """What rules a scenario's step, and where along its axes that changes. `print` shows it as a page; `to_dict` is the JSON."""

    scenario: Scenario
    estimate: Estimate
    """Of the scenario itself."""
    seconds: dict[str, float]
    """Its step by regime."""
    lines: tuple[Line, ...]
    x: Sought | None
    y: Sought | None
    area: Reading | None
    """Of all points of x and y, the last fastest; None without y."""
    assumptions: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def regime(self) -> str:
        """What takes most of the scenario's own step."""
        return max(self.seconds, key=lambda name: self.seconds[name])

    @property
    def fits(self) -> bool:
        """Whether any point does."""
        readings = [line.reading for line in self.lines] + ([] if self.area is None else [self.area])
        return any(bool(np.any(one.status == FITS)) for one in readings)

    def __repr__(self) -> str:
        """One line."""
        found = sum(len(line.found) for line in self.lines)
        axes = ", ".join(line.sought.title for line in self.lines)
        return f"<Transitions of {self.scenario.model.name}: {self.regime} rules, {found} crossings along {axes}>"

    def __str__(self) -> str:
        """The page that the command prints, without what was assumed."""
        import shardmeter

        return shardmeter.page(self)

    def to_dict(self) -> dict[str, Any]:
        """The `transitions` JSON: SI numbers, fractions for shares, null for what is illegal or not known."""
        step = float(np.max(self.estimate.step_time))
        shares = {name: value / step for name, value in self.seconds.items()}
        under_way, exposed = communication(self.estimate, self.scenario.plan)
        return {
            "own": {
                "regime": self.regime,
                "share": shares[self.regime],
                "shares": shares,
                "step_time_s": step,
                "communication_s": float(np.max(under_way)),
                "exposed_share": float(np.max(exposed)) / step,
                "compute_s": float(np.max(self.estimate.compute_seconds)),
                "tokens_per_s": float(np.max(self.estimate.tokens)) / step,
            },
            "lines": [line.to_dict() for line in self.lines],
            "map": self._map(),
            "kinds": dict(KINDS),
            "regimes": {name: REGIMES[name] for name in NAMES if name in self._met()},
            "assumptions": list(self.assumptions),
            "warnings": list(self.warnings),
        }

    def _met(self) -> set[str]:
        """Regimes that take something anywhere."""
        readings = [line.reading for line in self.lines] + ([] if self.area is None else [self.area])
        there = {
            name
            for one in readings
            for name, row in zip(NAMES, one.seconds, strict=True)
            if np.nanmax(row, initial=0.0) > 0.0
        }
        return there | {name for name, value in self.seconds.items() if value > 0.0}

    def _map(self) -> dict[str, Any] | None:
        """Rows over y, columns over x."""
        if self.area is None or self.x is None or self.y is None:
            return None
        shape = (len(self.x.axis.points), len(self.y.axis.points))
        ruling = self.area.ruling
        share = np.where(
            ruling >= 0,
            np.take_along_axis(self.area.seconds, np.maximum(ruling, 0)[None, :], axis=0)[0] / self.area.step,
            np.nan,
        )

        def rows(values: list[Any]) -> list[list[Any]]:
            return [values[at :: shape[1]] for at in range(shape[1])]

        return {
            "x": _axis(self.x),
            "y": _axis(self.y),
            "regime": rows([None if at < 0 else NAMES[at] for at in ruling]),
            "share": rows(_plain(share)),
            "status": rows([_status(text) for text in self.area.status]),
        }


def transitions(document: Document, rows: Rows, x: str | None = None, y: str | None = None) -> Transitions:
    """Which regime rules along `x`, over `x` and `y`, or along every likely axis where none is said; each is FIELD or FIELD=VALUES.

    Raises BadScenario with everything that is wrong, UnknownName; a `y` without an `x` is refused. Leaves out: what islands that do not
    set the pace wait for it, as the ledger is that of the island that does."""
    if y is not None and x is None:
        raise BadScenario(
            "transitions: y without x", [Violation(field="y", says="has no x beside it", way_out="say x first")]
        )
    if left_open(copy.deepcopy(document), planning=False) is not None:
        says = "plan: auto leaves the plan open, and regimes are those of one plan"
        raise BadScenario(f"{says}: state it (shardmeter plan finds one)")
    scenario = resolve(document, rows)
    axes = (
        likely(document, scenario)
        if x is None
        else tuple(sought(document, scenario, one) for one in (x, y) if one is not None)
    )
    if y is not None and set(axes[0].axis.fields) & set(axes[1].axis.fields):
        raise BadScenario(f"transitions: {axes[0].field} is on two axes; keep one of the two")
    if y is not None:
        _refuse_many(axes)
    checked = (
        [space_of(document, rows, {one.field: _values(one) for one in axes}, ("step_time_s",))] if x is not None else []
    )
    reader = Reader(document, rows)
    lines = tuple(_line(reader, one) for one in axes)
    area = None if y is None else reader.read([one.axis for one in axes])
    whole, wide = answered(scenario), answered(without_limits(scenario))
    plan = islands.critical(whole).plan
    warned = dict.fromkeys((*scenario.warnings, *(text for one in checked for text in one.warnings)))
    by = {name: float(np.max(value)) for name, value in seconds(whole.estimate, wide.estimate, plan).items()}
    return Transitions(
        scenario=scenario, estimate=whole.estimate, seconds=by, lines=lines, x=axes[0] if x is not None else None,
        y=axes[1] if y is not None else None, area=area, assumptions=scenario.assumptions,
        warnings=tuple(text for text in warned if NO_COST not in text),
    )  # fmt: skip


MOST_OF_MAP = 10_000
"""Points of a map."""


def _refuse_many(axes: Sequence[Sought]) -> None:
    """Raises BadScenario for a map of more points than that."""
    sizes = [len(one.axis.points) for one in axes]
    if (points := math.prod(sizes)) > MOST_OF_MAP:
        says_ = f"{' · '.join(f'{one:,}' for one in sizes)} = {points:,} points"
        bad = Violation(
            field="x, y", says=says_, rule=f"at most {MOST_OF_MAP:,} in a map", way_out="fewer values of one"
        )
        raise BadScenario("1 problem in what to go over", [bad])


def _values(one: Sought) -> list[Any]:
    return [point if len(one.axis.fields) > 1 else point[0] for point in one.axis.points]


def _line(reader: Reader, one: Sought) -> Line:
    reading = reader.read([one.axis])
    return Line(sought=one, reading=reading, found=says.told(one, crossings(reader, one, reading)))


def _axis(one: Sought) -> dict[str, Any]:
    """What the JSON says of an axis: its values as numbers in SI, or as names."""
    return {
        "field": one.field, "title": one.title, "unit": one.unit, "whole": one.whole, "own": one.own,
        "values": list(one.names if one.numbers is None else one.numbers), "log": _is_log(one),
    }  # fmt: skip


def _is_log(one: Sought) -> bool:
    """Whether the values lie in steps of a factor."""
    return one.numbers is not None and min(one.numbers) > 0.0 and max(one.numbers) / min(one.numbers) > 20.0


def _crossing(one: Sought, told: says.Told) -> dict[str, Any]:
    found: Crossing = told.crossing
    return {
        "kind": found.kind, "value": found.value, "says": told.says, "away": told.away, "below": _side(found.below),
        "above": _side(found.above), "field": one.field,
    }  # fmt: skip


def _side(side: Side) -> dict[str, Any]:
    return {
        "value": side.value, "regime": side.regime, "share": side.share, "margin": side.margin, "fits": side.fits,
        "tokens_per_s": side.rate,
    }  # fmt: skip


def _status(text: str) -> str:
    return text if text in (FITS, FITS_NOT) else text.removeprefix(f"{ILLEGAL}: ")


def _plain(values: Array) -> list[float | None]:
    """Numbers, null where there is none."""
    return [float(one) if np.isfinite(one) else None for one in values]
