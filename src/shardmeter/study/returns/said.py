"""Numbers of a scenario where its document says them, and where it does not, those that it was resolved to."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, get_type_hints

from shardmeter.core.errors import BadQuantity, BadScenario
from shardmeter.core.formula import unit_of
from shardmeter.core.quantity import EXAMPLES, counted, quantity
from shardmeter.core.record import record
from shardmeter.scenario.grammar import parse_plan
from shardmeter.scenario.read import Document
from shardmeter.specs import Island, Scenario
from shardmeter.study.levers import Lever

_TEXT = re.compile(r"(\$?)\s*([+-]?(?:\d[\d_]*(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,4})?)(\s*.*?)\s*", re.DOTALL)
_UNITS = {"bandwidth": "B/s", "time": "s", "size": "B", "flops_rate": "FLOP/s", "power": "W", "price": "USD/s", "egress": "USD/B",
          "money": "USD", "storage": "USD/(B*s)", "electricity": "USD/(W*s)", "carbon": "kg/(W*s)", "length": "m"}  # fmt: skip
_WRITTEN = ("B/s", "s", "B", "FLOP/s", "W", "m", "")
"""Units of numbers that can be written as `core.quantity` reads them."""
_PARTS = {"fabric": "outside"}
"""What a field of a document is called in a record, where that differs."""


@record
class Said:
    """A number as it is written: `before` `number` `after`, and `scale` of that in SI `unit`."""

    number: float
    before: str = ""
    after: str = ""
    scale: float = 1.0
    unit: str = ""

    @property
    def si(self) -> float:
        """The number in SI."""
        return self.number * self.scale


def read(value: Any, field: str) -> Said | None:
    """A value of a document as a number; None where it is none. Outside of the fleet `8B` is a count, inside it is a size."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return Said(number=float(value))
    match = _TEXT.fullmatch(value) if isinstance(value, str) and len(value) < 100 else None
    if match is None:
        return None
    before, number, after = match[1], float(match[2].replace("_", "")), match[3]
    if not before and not after.strip():
        return Said(number=number)
    sizes = field.startswith(("fleet.", "model."))
    for name in sorted(EXAMPLES, key=lambda one: (one == "count") is sizes):
        try:
            one = counted(f"1{after}")[0] if name == "count" and not before else quantity(f"{before}1{after}", name)
        except BadQuantity:
            continue
        return Said(number=number, before=before, after=after, scale=one, unit=_UNITS.get(name, ""))
    return None


def said(document: Document, field: str) -> Any:
    """What a document says of a field; None where it says nothing."""
    value: Any = document.data
    for step in field.split("."):
        if isinstance(value, str):
            value = _line(value)
        if isinstance(value, list):
            value = _item(value, step)
        elif isinstance(value, Mapping):
            value = value.get(step)
        else:
            return None
    return value


def _line(text: str) -> dict[str, Any]:
    """A plan that is written as a line."""
    try:
        return parse_plan(text)
    except BadScenario:
        return {}


def _item(items: Sequence[Any], step: str) -> Any:
    for at, one in enumerate(items):
        name = one.get("name") if isinstance(one, Mapping) else None
        if step == str(at) or (name is not None and step == name) or (name is None and step == f"island-{at + 1}"):
            return one
    return None


def resolved(scenario: Scenario, field: str, levers: Mapping[str, Lever]) -> Said | None:
    """The number that a scenario has in a field which its document leaves out; None where there is no such number, or none that can
    be written."""
    lever = levers.get(field)
    if lever is not None and lever.unit in (*_WRITTEN, "tokens", "sequences", "steps", "bits"):
        unit = lever.unit if lever.unit in _WRITTEN else ""
        return Said(number=lever.value, after=f" {unit}" if unit else "", unit=unit)
    value: Any = scenario
    unit = ""
    for step in field.split("."):
        name = _PARTS.get(step, step)
        if isinstance(value, tuple):
            value = _island(value, step)
            continue
        if not hasattr(type(value), "__dataclass_fields__") or not hasattr(value, name):
            return None
        unit = unit_of(get_type_hints(type(value), include_extras=True)[name]) or ""
        value = getattr(value, name)
    unit = "" if unit == "1" else unit
    if isinstance(value, bool) or not isinstance(value, int | float) or unit not in _WRITTEN:
        return None
    return Said(number=float(value), after=f" {unit}" if unit else "", unit=unit)


def _island(islands: tuple[Any, ...], step: str) -> Any:
    named = [one for at, one in enumerate(islands) if isinstance(one, Island) and step in (one.name, str(at))]
    return named[0] if named else None
