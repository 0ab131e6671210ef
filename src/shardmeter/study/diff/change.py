"""One input that two scenarios have unlike, and the part of them that it belongs to."""

from __future__ import annotations

from typing import Any, TypeAlias

from shardmeter.core.record import record

OF_SCENARIO = {"model": "model", "assembled": "model", "stack": "stack", "fleet": "fleet", "plan": "plan", "run": "run"}
"""The group of each field of a scenario."""
PRICES = frozenset({"price", "electricity", "egress", "kind"})
"""Fields of islands, networks and stores that say what is paid."""
Plain: TypeAlias = float | int | str | bool | list[Any] | None


@record
class Change:
    """One input that differs; None on the side that does not have it."""

    field: str
    """As in `fleet.islands.oregon.nodes`."""
    unit: str = ""
    a: Plain
    b: Plain
    group: str
    """The part of the scenario that it belongs to."""
    follows: bool = False
    """Whether it is derived from another that differs."""


def group_of(field: str) -> str:
    """The part of a scenario that a field of its record belongs to."""
    steps = field.split(".")
    priced = steps[0] in ("fleet", "run") and steps[-1] in PRICES
    return "prices" if priced else OF_SCENARIO.get(steps[0], "plan")
