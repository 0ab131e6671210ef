"""`returns`: what more of an axis buys. The curve of tokens a second, time and dollars over the size of the fleet, a bandwidth or any other
number; its knee; the regimes of its diminishing returns; what the next unit buys.

`axis` (what a curve goes along), `words` and `said` (what is asked, as an axis of a scenario), `curve` (its points), `knee`, `spans`,
`marginal`, `says` (what was found, in sentences)."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from shardmeter.core.errors import BadScenario, Violation, shown
from shardmeter.core.record import record
from shardmeter.core.sums import plain_sum
from shardmeter.scenario.choices import left_open
from shardmeter.scenario.parts import Rows
from shardmeter.scenario.ranges import Over, axes
from shardmeter.scenario.read import Document
from shardmeter.scenario.resolve import resolve
from shardmeter.specs import Scenario
from shardmeter.study import trust
from shardmeter.study.intervals import LEVEL
from shardmeter.study.planning.automatic import settled
from shardmeter.study.returns import said, says
from shardmeter.study.returns.axis import FABRIC, GPUS, ISLANDS, WAN, WORDS, Axis, default_places
from shardmeter.study.returns.curve import Curve, Reading, Report, Settle
from shardmeter.study.returns.knee import HALF, NOTHING, Knee, knee_of_number, knee_of_sizes
from shardmeter.study.returns.marginal import marginal
from shardmeter.study.returns.spans import LEAST, At, lost, spans
from shardmeter.study.returns.words import axis_of, counts_of, scaled, scaling_of

__all__ = ["WORDS", "Returns", "returns"]
MOST = 1_000
"""Points of a curve, each a prediction of its own."""
REFINING = 8
"""Places that the knee and what is next may take, for the sign of life alone."""


@record
class Returns:
    """A curve, its knee, and what is next. `print` shows it as a page; `to_dict` is the JSON."""

    scenario: Scenario
    """The scenario's own point, with its plan."""
    answer: Mapping[str, Any]

    def __repr__(self) -> str:
        """One line."""
        points = self.answer["points"]
        fits = sum(bool(point["fits"]) for point in points)
        return (
            f"<Returns along {self.answer['axis']['name']}: {len(points)} points, {fits} fit, {self.answer['says'][0]}>"
        )

    def __str__(self) -> str:
        """The page that the command prints, without what was assumed."""
        import shardmeter

        return shardmeter.page(self)

    def to_dict(self) -> dict[str, Any]:
        """The `returns` JSON: SI units as each key says, fractions for shares, null for what is not known."""
        return dict(self.answer)


def returns(
    document: Document, rows: Rows, asked: str = GPUS, over: Over = (), scaling: str = "", *, settle: Settle = settled, report: Report | None = None
) -> Returns:  # fmt: skip
    """The curve of a scenario along an axis: a word of WORDS, or a field; `over` says the values of one instead of those around the
    scenario's own point.

    Held fixed is all the scenario says. A batch that it says stays (strong scaling), one that it leaves out follows the machines (weak
    scaling), unless `scaling` says otherwise. `settle` finds the plan at every point where it is left open. Raises BadScenario for an axis
    that the scenario does not have, values that are no numbers, and what is wrong with the scenario itself."""
    own = _resolved(document, rows)
    document, notes = _with_length(document, own)
    name, values = _asked(asked, over)
    axis = scaled(axis_of(document, own, name), document, own, scaling)
    if own.choices is not None and axis.lever is not None:
        raise BadScenario(
            f"{axis.name} is no field, and plan: auto has to read its fleet from fields: state the plan, or go over a field"
        )
    curve = Curve(document, rows, axis, settle, report)
    places = _places(axis, values)
    curve.expected = len(places) + REFINING
    here = _own(curve, own)
    readings = [curve.at(place) for place in places]
    _refuse_all(axis, readings)
    good = [one for one in readings if one.rate is not None]
    knee = _knee(curve, [one.place for one in good])
    answer = _answer(curve, readings, here, knee) | {"next": _others(curve, own)}
    batch = scaling_of(axis, document, own)
    answer |= {"scaling": batch or None, "held": says.held(axis, own, here.prediction, batch, document)}
    answer |= {
        "regimes": [one | {"says": says.span(one, answer["axis"])} for one in answer["regimes"]],
        "says": says.found(answer),
    }
    answer |= {"assumptions": [*_assumed(here, own), *notes], "warnings": _warnings(here)}
    return Returns(scenario=own if here.prediction is None else here.prediction.scenario, answer=answer)


def _resolved(document: Document, rows: Rows) -> Scenario:
    """The scenario as it is said, its plan left open where it is. Raises what is wrong with it."""
    mine = copy.deepcopy(document)
    return resolve(mine, rows, left_open(mine, planning=False))


def _with_length(document: Document, own: Scenario) -> tuple[Document, list[str]]:
    """The document with a run of 10^9 tokens where it says no length, so that time and dollars are told."""
    if own.run.tokens is not None or own.run.steps is not None or own.run.target_loss is not None or own.run.phases:
        return document, []
    made = copy.deepcopy(document)
    made.data["run"] = {**(made.data.get("run") or {}), "tokens": 1e9}
    return made, ["no length of the run was said: time and dollars are those of 10^9 tokens"]


def _asked(asked: str, over: Over) -> tuple[str, list[Any] | None]:
    """What to go along, and its values where they are said."""
    if not over and "=" in asked:
        asked, over = GPUS, (asked,)
    if not over:
        return asked, None
    found = axes(over, MOST)
    if len(found) != 1 or len(found[0].fields) != 1:
        raise BadScenario("over: a curve goes along one field; as in --over fleet.islands.0.nodes=1..64:x2")
    field = found[0].fields[0]
    if asked not in (GPUS, field):
        raise BadScenario(f"over: {shown(field)} has values and the axis is {shown(asked)}: one of the two")
    return field, [point[0] for point in found[0].points]


def _places(axis: Axis, values: Sequence[Any] | None) -> tuple[float, ...]:
    """The places of the points, ascending. Raises BadScenario with every value that is none."""
    if values is None:
        return default_places(axis)
    found: list[Violation] = []
    made: set[float] = set()
    for value in values:
        number = said.read(value, axis.tied[0].field if axis.tied else axis.name)
        if number is None or number.si <= 0.0 or (number.unit != axis.unit and bool(axis.unit)):
            out = f"as in {axis.own:g}" + (f" {axis.unit}" if axis.unit else "")
            found.append(
                Violation(
                    field=axis.name,
                    says=f"{shown(value)} is no number on this axis",
                    rule="numbers above 0 in its unit",
                    way_out=out,
                )
            )
            continue
        place = axis.place(number.si) if axis.name in (GPUS, ISLANDS) else number.si
        if axis.whole and (place != round(place) or place < 1.0):
            says_ = (
                f"{number.si:g} is no whole number of units of {axis.each:g}"
                if axis.each != 1.0
                else f"{number.si:g} is not whole"
            )
            out = f"the nearest is {axis.x(max(round(place), 1)):g}"
            found.append(Violation(field=axis.name, says=says_, way_out=out))
            continue
        made.add(place)
    if found:
        raise BadScenario(f"{len(found)} problem{'s' if len(found) > 1 else ''} in what to go over", found)
    return tuple(sorted(made))


def _own(curve: Curve, own: Scenario) -> Reading:
    """The scenario's own point. Raises what is wrong with its field, as the scenario with it says."""
    here = curve.at(curve.axis.own)
    if here.prediction is None:
        curve.scenario(curve.axis.own)
        raise BadScenario(here.why)
    if curve.axis.name == ISLANDS and len(own.fleet.islands) == 1:
        _ask_for_network(curve)
    return here


def _ask_for_network(curve: Curve) -> None:
    """Raise BadScenario where a second island would have no line to the first."""
    try:
        curve.scenario(2.0)
    except BadScenario as error:
        lines = [one for one in error.violations if one.field.startswith("fleet.wan")]
        if lines:
            way_out = "say one, as in --set fleet.wan.default='{bandwidth: 10 Gbps, rtt: 40 ms}'"
            found = [Violation(field="fleet.wan", says="no network joins more islands than one", way_out=way_out)]
            raise BadScenario(
                "islands: there is one, and nothing is said of what would join it to others", found
            ) from None


def _refuse_all(axis: Axis, readings: Sequence[Reading]) -> None:
    """Raise BadScenario where no point is legal."""
    if all(one.prediction is None for one in readings):
        reasons = dict.fromkeys(one.why for one in readings)
        found = [Violation(field=axis.name, says=why) for why in list(reasons)[:3]]
        raise BadScenario(f"no point along {axis.name} is legal", found)


def _knee(curve: Curve, places: Sequence[float]) -> Knee | None:
    """None where there is none, or the rate does not depend on the axis."""
    axis = curve.axis

    def rate(place: float) -> float | None:
        return curve.at(place).rate

    def following(place: float, until: float) -> float | None:
        found = curve.next_legal(place, until)
        return None if found is None else found.place

    rates = [one for place in places if (one := rate(place)) is not None]
    if not rates or max(rates) < (1.0 + NOTHING) * min(rates):
        return None
    if axis.whole:
        return knee_of_sizes(rate, axis.x, following, places)
    return knee_of_number(rate, places)


def _answer(curve: Curve, readings: Sequence[Reading], here: Reading, knee: Knee | None) -> dict[str, Any]:
    """The axis, the points, the regimes and the knee."""
    axis = curve.axis
    good = [one for one in readings if one.rate is not None]
    told = [_at(curve, one) for one in good]
    first = told[0] if told else None
    return {
        "axis": {"name": axis.name, "title": axis.title, "unit": axis.unit, "one": axis.one, "is_size": axis.is_size,
                 "fields": [one.field for one in axis.tied], "own": here.x},
        "level": LEVEL,
        "points": [_point(curve, one, first) for one in readings],
        "own": _point(curve, here, first),
        "regimes": spans(told),
        "thresholds": [{"returns": name, "least_exponent": None if least < -1e9 else least} for least, name in LEAST],
        "knee": None if knee is None else _told(curve, knee, told),
        "fits": bool(good),
    }  # fmt: skip


def _at(curve: Curve, reading: Reading) -> At:
    """A point of the curve. The rate of a fleet's step may count tokens that not every island takes: seconds a token by its step."""
    one = reading.prediction
    if one is None:  # pragma: no cover  (asked where something runs)
        raise AssertionError
    tokens = float(one.estimate.tokens)
    return At(
        x=reading.x,
        rate=one.tokens_per_s,
        seconds={name: s / tokens for name, s in curve.seconds(reading.place).items()},
    )


def _point(curve: Curve, reading: Reading, first: At | None) -> dict[str, Any]:
    """One point: x, why it is illegal or null, the figures, and the efficiency against the first point of the curve."""
    axis, made = curve.axis, curve.figures(reading.place)
    rate = made["tokens_per_s"]
    ideal = None if first is None else first.rate / first.x * reading.x
    fields = axis.overrides(reading.place)
    moved = {} if isinstance(fields, str) else {one.field: fields[one.field] for one in axis.tied}
    return {
        "x": reading.x, "set": moved, "why": reading.why or None, **made, "ideal_tokens_per_s": ideal,
        "efficiency": None if rate is None or ideal is None else rate / ideal,
    }  # fmt: skip


def _told(curve: Curve, knee: Knee, told: Sequence[At]) -> dict[str, Any]:
    """The knee with what is lost up to it, regime by regime."""
    reading, further = curve.at(knee.place), curve.at(knee.next_place)
    here, beyond, first = _at(curve, reading), _at(curve, further), told[0]
    parts = lost(first, here)
    whole = plain_sum(value for value in parts.values() if value > 0.0)
    most = sorted(((name, value / whole) for name, value in parts.items() if value > 0.0), key=lambda one: -one[1])
    bought = (beyond.rate - here.rate) / (beyond.x - here.x)
    return _point(curve, reading, first) | {
        "rule": f"no step ahead buys {HALF:g} of what a unit bought on average",
        "at_start": knee.at_start,
        "after_x": None if knee.before is None else curve.axis.x(knee.before),
        "next_x": further.x,
        "of_average": knee.of_average,
        "of_first": bought / (first.rate / first.x),
        "lost": [{"regime": name, "share": share} for name, share in most],
    }


def _others(curve: Curve, own: Scenario) -> list[dict[str, Any]]:
    """What the next unit buys along the axis and, where the plan is stated, along every other word that the scenario has lines or
    machines for."""
    made = [marginal(curve)]
    words: set[str] = {GPUS} if own.choices is None else set()
    if own.choices is None and len(own.fleet.islands) > 1:
        words |= {WAN, *counts_of(curve.document, own)}
    if own.choices is None and any(float(one.nodes) > 1.0 for one in own.fleet.islands):
        words |= {FABRIC}
    for word in sorted(words - {curve.axis.name}):
        try:
            axis = axis_of(curve.document, own, word)
        except BadScenario:  # there is no such number here
            continue
        made.append(marginal(curve.beside(axis)))
    return [one for one in made if one is not None]


def _assumed(here: Reading, own: Scenario) -> list[str]:
    return list((own if here.prediction is None else here.prediction.scenario).assumptions)


def _warnings(here: Reading) -> list[str]:
    """Those of the scenario at its own point, but for those of single points."""
    one = here.prediction
    return [] if one is None else [*one.scenario.warnings, *trust.warnings(one.scenario)]
