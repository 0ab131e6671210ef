"""Scenarios that have some parts of A and the others of B: what a scenario derives from a part follows that part."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from typing import Any, cast

from shardmeter.core.record import changed
from shardmeter.scenario.parts import Rows
from shardmeter.scenario.read import Document
from shardmeter.scenario.resolve import resolve
from shardmeter.specs import Fleet, Haul, Island, Run, Scenario, Stock
from shardmeter.specs.course import Tariff
from shardmeter.study.diff.said import GROUPS, differences
from shardmeter.study.diff.sides import Side
from shardmeter.study.legal import checked

KEYS: Mapping[str, tuple[str, ...]] = {
    "model": ("model",), "stack": ("stack",), "fleet": ("fleet", "gpus"), "plan": ("plan",), "run": ("run",),
}  # fmt: skip
"""The keys of a document that belong to a group."""
FIELDS: Mapping[str, tuple[str, ...]] = {
    "model": ("model", "assembled"), "stack": ("stack",), "fleet": ("fleet",), "plan": ("plan", "plans"), "run": ("run",),
}  # fmt: skip
"""The fields of a record that do."""


def groups(a: Side, b: Side) -> tuple[str, ...]:
    """The parts that were said differently and are so once resolved; prices apart from the fleet where either fleet can have both."""
    one, other = a.scenario, b.scenario
    priced = _comparable(one, other)
    moved = {change.group if priced or change.group != "prices" else "fleet" for change in differences(one, other)}
    if _by_document(a, b):
        moved = {name for name in moved if name == "prices" or _said(a, name) != _said(b, name)}
    return tuple(name for name in GROUPS if name in moved)


def mixture(a: Side, b: Side, from_b: Collection[str], apart: Collection[str]) -> Scenario:
    """A with the groups `from_b` of B; `apart` are those that differ. Raises ShardMeterError where that is no legal scenario."""
    made = _of_documents(a, b, from_b) if _by_document(a, b) else _of_records(a, b, from_b)
    if "prices" in apart:
        made = _priced(made, (b if "prices" in from_b else a).scenario)
    return made


def _by_document(a: Side, b: Side) -> bool:
    return a.said is not None and b.said is not None


def _said(side: Side, group: str) -> dict[str, Any]:
    """What a document says of a group."""
    said = side.said or {}
    return {key: said[key] for key in KEYS[group] if said.get(key) is not None}


def _of_documents(a: Side, b: Side, from_b: Collection[str]) -> Scenario:
    data: dict[str, Any] = {}
    for group in KEYS:
        data |= copy.deepcopy(_said(b if group in from_b else a, group))
    return resolve(Document(data, "mixture"), cast("Rows", a.rows))


def _of_records(a: Side, b: Side, from_b: Collection[str]) -> Scenario:
    taken = {
        field: getattr(b.scenario, field) for group, fields in FIELDS.items() if group in from_b for field in fields
    }
    return checked(changed(a.scenario, **taken))


def _comparable(a: Scenario, b: Scenario) -> bool:
    """Whether one fleet can be paid by the prices of the other: islands of the same names with the same accelerators."""
    each = [[(island.name, island.accelerator.name) for island in one.fleet.islands] for one in (a, b)]
    return each[0] == each[1] and (a.fleet.wan is None) == (b.fleet.wan is None)


def _priced(made: Scenario, like: Scenario) -> Scenario:
    """A scenario with the prices of another."""
    paid = zip(made.fleet.islands, like.fleet.islands, strict=True)
    islands = tuple(_paid(island, other) for island, other in paid)
    wan, lines = made.fleet.wan, like.fleet.wan
    if wan is not None and lines is not None:
        wan = changed(wan, egress=lines.egress, prices=lines.prices)
    return changed(made, fleet=Fleet(islands=islands, wan=wan), run=_stored(made.run, like.run))


def _paid(island: Island, like: Island) -> Island:
    """An island that is paid as another."""
    tariff: Tariff = like.tariff
    return changed(island, price=like.price, price_basis=like.price_basis, tariff=tariff)


def _stored(run: Run, like: Run) -> Run:
    """A run that pays for what it keeps and is brought as another; what the other does not have keeps its own price."""
    found: dict[str, Any] = {}
    for field in ("stocks", "hauls"):
        mine: tuple[Stock | Haul, ...] = getattr(run, field)
        other: tuple[Stock | Haul, ...] = getattr(like, field)
        if [one.name for one in mine] == [one.name for one in other]:
            pairs = zip(mine, other, strict=True)
            found[field] = tuple(changed(one, price=two.price, basis=two.basis) for one, two in pairs)
    return changed(run, **found)
