"""What an analysis goes over: fields with the scenario's own value on them, ranges around it, and the numbers of their values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_type_hints

import numpy as np

from shardmeter.core.errors import BadScenario, Violation, nearest, shown
from shardmeter.core.formula import unit_of
from shardmeter.core.record import record
from shardmeter.scenario.grammar import spelled_out
from shardmeter.scenario.ranges import Axis, Ruler, axes, ruler, typed
from shardmeter.scenario.read import Document
from shardmeter.specs import Scenario
from shardmeter.study.levers import levers
from shardmeter.sync import method

MOST = 1_000
"""Values of one axis."""
SPAN = 32.0
"""A range that was not said goes from the scenario's own value over this to this times it."""
PLACES = 25
"""Values of such a range, of what is no whole number."""
LOSSES = "1e-6..1e-2:log25"
"""Of loss, whose own value is mostly none."""
WORDS = {
    "plan.sync.sync_every": "H", "plan.sync.num_fragments": "P", "plan.sync.fragment_sync_delay": "tau", "plan.sync.bits": "bits",
    "plan.micro_batch": "micro-batch", "run.seq_len": "sequence", "run.global_batch": "global batch", "run.tokens": "tokens",
}  # fmt: skip
"""Fields that people know by another name."""
LAST_WORDS = {
    "bandwidth": "bandwidth", "rtt": "round trip", "loss": "loss", "nodes": "nodes", "latency": "latency", "up": "rate up",
    "down": "rate down", "distance": "distance",
}  # fmt: skip
"""The same by their last step."""
UNITS = {
    "bandwidth": "bit/s",
    "time": "s",
    "size": "B",
    "flops_rate": "FLOP/s",
    "length": "m",
    "count of tokens": "tokens",
}
"""Unit in which values of a dimension are shown."""
BITS = 8.0


@record
class Sought:
    """One axis of an analysis."""

    field: str
    axis: Axis
    scale: Ruler | None
    """None where its values are names, or several fields move together."""
    own: float | str | None
    """The scenario's value: a number in SI, or a name; None where that is not known."""

    @property
    def numbers(self) -> tuple[float, ...] | None:
        """The values in SI."""
        return None if self.scale is None else self.scale.numbers

    @property
    def names(self) -> tuple[str, ...]:
        """The values as they were said."""
        return tuple(", ".join(map(typed, point)) for point in self.axis.points)

    @property
    def whole(self) -> bool:
        """Whether only whole numbers are meant."""
        return self.scale is not None and self.scale.whole

    @property
    def unit(self) -> str:
        """Unit of its numbers."""
        return "" if self.scale is None else UNITS.get(self.scale.dimension, "")

    @property
    def title(self) -> str:
        """The field for people."""
        path = self.field.split(".")
        if len(self.axis.fields) > 1:
            return self.field
        if self.field in WORDS:
            return WORDS[self.field]
        word = LAST_WORDS.get(path[-1], path[-1].replace("_", " "))
        if path[:2] == ["fleet", "wan"]:
            return f"{word} between islands"
        if path[:2] == ["fleet", "islands"] and word in ("bandwidth", "latency"):
            return f"fabric {word}"
        return word

    def at(self, numbers: Sequence[float]) -> Axis:
        """The axis over other numbers."""
        if self.scale is None:
            raise ValueError(f"{self.field} has no numbers between its values")
        return Axis(fields=self.axis.fields, points=tuple((self.scale.write(one),) for one in numbers))


def sought(document: Document, scenario: Scenario, text: str) -> Sought:
    """An axis from `FIELD=VALUES`, or from `FIELD` alone: then a range around the scenario's own value. Raises BadScenario where that is
    not known."""
    field, equals, _ = text.partition("=")
    name = spelled_out(_worded(document, field.strip()))
    if not name:
        raise BadScenario(f"{shown(text)} names no field; as in plan.micro_batch, or plan.micro_batch=1,2,4")
    if equals:
        axis = axes([f"{name}={text.partition('=')[2]}"], MOST)[0]
    else:
        own = own_value(document, scenario, name)
        if own is None and not name.endswith(".loss"):
            raise BadScenario(f"{name}: no range", [_no_value(scenario, name)])
        axis = _around(name, own)
    return _made(document, scenario, axis)


def _made(document: Document, scenario: Scenario, axis: Axis) -> Sought:
    one = len(axis.fields) == 1
    scale = ruler([point[0] for point in axis.points]) if one else None
    own = own_value(document, scenario, axis.fields[0]) if one else None
    if scale is not None and own is not None:
        place = ruler([own])
        same = place is not None and place.dimension == scale.dimension
        own = place.numbers[0] if place is not None and (same or place.dimension == "bare") else None
    elif own is not None:
        own = str(own)
    return Sought(field=axis.name, axis=axis, scale=scale, own=own)


SHORT = {
    "wan": "fleet.wan.default.bandwidth", "rtt": "fleet.wan.default.rtt", "fabric": "fleet.islands.0.fabric.bandwidth",
    "nodes": "fleet.islands.0.nodes", "islands": "fleet.islands.0.count",
}  # fmt: skip
"""Words for fields; of islands those of the only entry."""


def _worded(document: Document, word: str) -> str:
    """The field of a word. `bandwidth` is that between islands, of one island that between its nodes."""
    entries = (document.data.get("fleet") or {}).get("islands") or [{}]
    lone = len(entries) == 1 and not entries[0].get("count")
    field = SHORT.get({"bandwidth": "fabric" if lone else "wan"}.get(word, word), word)
    if field.startswith("fleet.islands.") and field != word and len(entries) > 1:
        last, one = field.partition(".0.")[2], entries[0].get("name", 0)
        raise BadScenario(
            f"{word}: of which island?",
            [
                Violation(
                    field=word,
                    says=f"the fleet has {len(entries)} kinds",
                    way_out=f"say one, as in fleet.islands.{one}.{last}",
                )
            ],
        )
    return field


def _no_value(scenario: Scenario, field: str) -> Violation:
    near = ", ".join(nearest(field, [lever.name for lever in levers(scenario)]))
    says = "has no value in the scenario around which a range could lie"
    return Violation(
        field=shown(field), says=says, way_out=f"the nearest that have one are {near}; or say a range, as in {field}=1..64:x2"
    )  # fmt: skip


def _around(field: str, own: Any) -> Axis:
    """A range around a value."""
    if field.endswith(".loss"):
        return axes([f"{field}={LOSSES}"])[0]
    scale = None if own is None else ruler([own])
    if scale is None or scale.numbers[0] <= 0.0:
        way_out = f"say one: --x {field}=1Gbps..400Gbps:log25, 1..64, none,full"
        raise BadScenario(f"{field}: no range", [Violation(field=field, says=f"is {shown(own)}", way_out=way_out)])
    number = scale.numbers[0]
    if scale.whole or (isinstance(own, float) and own.is_integer()):
        values = sorted(
            {round(number * 2.0**step) for step in range(-5, 6)} | {1, 2, 3, 4}
            if number < 8
            else {round(number * 2.0**step) for step in range(-5, 6)}
        )
        return Axis(fields=(field,), points=tuple((one,) for one in values if one >= 1), spacing="factor")
    numbers = [number * SPAN ** (2.0 * place / (PLACES - 1) - 1.0) for place in range(PLACES)]
    return Axis(fields=(field,), points=tuple((scale.write(float(f"{one:.12g}")),) for one in numbers), spacing="log")


def likely(document: Document, scenario: Scenario) -> tuple[Sought, ...]:
    """The axes along which a scenario is likeliest to change its regime: what joins its parts, its micro-batch, H, its nodes. Those that
    it has no value of are left out."""
    islands = scenario.fleet.islands
    fields = ["plan.micro_batch"]
    if len(islands) > 1:
        fields = ["fleet.wan.default.bandwidth", "fleet.wan.default.rtt"]
        fields += ["plan.sync.sync_every"] if "sync_every" in method(scenario.plan.sync.method).FIELDS else []
        fields += ["plan.micro_batch"]
    else:
        fields = ["fleet.islands.0.fabric.bandwidth"] if float(islands[0].nodes) > 1.0 else []
        fields += ["plan.micro_batch", "fleet.islands.0.nodes"]
    made = []
    for field in fields:
        try:
            made.append(sought(document, scenario, field))
        except BadScenario:
            continue
    return tuple(made)


def own_value(document: Document, scenario: Scenario, field: str) -> Any:
    """What a scenario has at a field, as it was said or, where it was not, as it was resolved: a number in SI, text with a unit, a name;
    None where that is not known."""
    said = own_said(document, field)
    if isinstance(said, int | float | str) and not isinstance(said, bool):
        return said
    part, _, rest = field.partition(".")
    last = rest.rpartition(".")[2]
    found, unit = None, ""
    if rest.startswith("sync."):
        found = getattr(scenario.plan.sync, last, None)
    elif part in ("plan", "run", "model", "stack"):
        found, unit = _of_part(getattr(scenario, part), rest)
    elif rest.startswith("islands."):
        found = _of_island(scenario, rest.split(".")[1:])
    elif rest.startswith("wan.") and scenario.fleet.wan is not None:
        found = _of_network(scenario, last)
    if isinstance(found, str):
        return found
    number = float(found) if isinstance(found, int | float) and not isinstance(found, bool) else None
    return None if number is None else _said(number, last, unit)


def _of_part(part: Any, name: str) -> tuple[Any, str]:
    """A field of a part, and its unit; None where there is none of that name."""
    hints = get_type_hints(type(part), include_extras=True)
    return (getattr(part, name), unit_of(hints[name]) or "") if name in hints else (None, "")


def own_said(document: Document, field: str) -> Any:
    """What a document says at a field; None for nothing."""
    said: Any = document.data
    for step in field.split("."):
        said = _step(said, step)
    return said


def _step(said: Any, step: str) -> Any:
    """What a step of a path leads to; None where nothing is there."""
    if isinstance(said, dict):
        return said.get(step)
    if isinstance(said, list):
        named = [one for one in said if isinstance(one, dict) and one.get("name") == step]
        if named:
            return named[0]
        return said[int(step)] if step.isdigit() and int(step) < len(said) else None
    return None


def _said(number: float, last: str, unit: str) -> Any:
    """A number of a resolved scenario as a document says it."""
    if last in ("bandwidth", "up", "down"):
        return f"{number * BITS / 1e9:.12g}Gbps"
    if last in ("rtt", "latency", "latency_base", "latency_step"):
        return f"{number * 1e3:.12g}ms"
    if unit in _WRITTEN:
        return f"{number:.12g} {unit}"
    return int(number) if number.is_integer() else number


_WRITTEN = ("B/s", "s", "B", "FLOP/s", "W", "m")
"""Units that a number of a document is said with."""


def _of_island(scenario: Scenario, path: Sequence[str]) -> Any:
    islands = scenario.fleet.islands
    named = [one for one in islands if one.name == path[0]]
    at = int(path[0]) if path[0].isdigit() else len(islands)
    island = named[0] if named else islands[at] if at < len(islands) else None
    if island is None:
        return None
    if path[1:2] == ["fabric"] and len(path) == 3:
        return getattr(island.outside, path[2], None)
    return getattr(island, path[1], None) if len(path) == 2 else None


def _of_network(scenario: Scenario, name: str) -> Any:
    """Of lines or sites that differ, the least; of round trips and losses the greatest."""
    numbers = np.asarray(getattr(scenario.fleet.wan, name, np.nan), dtype=float)
    if numbers.ndim == 2:
        numbers = numbers[~np.eye(len(numbers), dtype=bool)]
    numbers = numbers[np.isfinite(numbers)]
    if not numbers.size:
        return None
    return float(np.max(numbers) if name in ("rtt", "loss") else np.min(numbers))
