"""Prices, electricity and what fails: numbers of the whole run that leave a step as it is."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from shardmeter.core.record import changed, record
from shardmeter.core.units import Number
from shardmeter.specs import Island, Scenario
from shardmeter.specs.course import AUTO, TIME
from shardmeter.study.levers.lever import Lever
from shardmeter.study.levers.machines import named


def levers(scenario: Scenario) -> Iterator[Lever]:
    """Of islands that are paid, powered and taken away alike together; of the run its failures, checkpoints and stores."""
    islands = scenario.fleet.islands
    groups: dict[str, list[int]] = {}
    for at, island in enumerate(islands):
        groups.setdefault(repr((island.price, island.tariff, island.power, island.preemption)), []).append(at)
    for places in groups.values():
        first = islands[places[0]]
        where, path = (named(islands, places), first.name) if len(islands) > 1 else ("", "0")
        for one in _of_island(first):
            if one.value is not None:
                yield Lever(
                    name=f"fleet.islands.{path}.{one.name}", title=f"{one.title}{where}", unit=one.unit, kind="money",
                    value=float(one.value), whole=False,
                    scaled=functools.partial(_with_islands, scenario, tuple(places), one.change),
                )  # fmt: skip
    yield from _of_run(scenario)


Change: TypeAlias = Callable[[Any, float], Any]


@record
class Paid:
    """A number of one island."""

    name: str
    title: str
    unit: str
    value: Number | None
    change: Change


def _of_island(island: Island) -> Iterator[Paid]:
    yield Paid(
        name="price", title="price of an accelerator", unit="USD/s", value=island.price, change=_inside("", "price")
    )
    for part, field, title, unit in _PARTS:
        there = getattr(island, part)
        value = None if there is None else getattr(there, field)
        name = field if part in ("tariff", "power") else f"{part}.{field}"
        yield Paid(name=name, title=title, unit=unit, value=value, change=_inside(part, field))


_PARTS = (
    ("tariff", "electricity", "price of electricity", "USD/(W*s)"),
    ("power", "pue", "overhead of the hall (PUE)", ""),
    ("power", "carbon", "carbon of the grid", "kg/(W*s)"),
    ("preemption", "mtbf", "time until capacity is taken", "s"),
    ("preemption", "wait", "wait for other capacity", "s"),
    ("preemption", "restart", "restart after capacity is taken", "s"),
)
"""(record of the island, its field, title, unit)."""
_RUN = (
    ("failures", "mtbf", "time between failures", "s"),
    ("failures", "detect", "time until a failure is seen", "s"),
    ("failures", "restart", "restart after a failure", "s"),
    ("failures", "wait", "wait for another machine", "s"),
    ("checkpoint", "size", "size of a checkpoint", "B"),
    ("checkpoint", "bandwidth", "bandwidth of the checkpoints' store", "B/s"),
    ("checkpoint", "every", "distance of checkpoints", ""),
    ("evaluation", "every", "distance of evaluations", ""),
    ("evaluation", "lasts", "one evaluation", "s"),
)
"""(record of the run, its field, title, unit)."""
_STORES = (
    ("stocks", "price", "price of keeping the", "USD/(B*s)"),
    ("stocks", "size", "bytes kept of the", "B"),
    ("stocks", "each", "bytes kept a token of the", "B"),
    ("hauls", "price", "price of bringing the", "USD/B"),
    ("hauls", "each", "bytes brought a token of the", "B"),
)
"""(list of the run, field of its records, title, unit)."""


def _of_run(scenario: Scenario) -> Iterator[Lever]:
    run = scenario.run
    for part, field, title, unit in _RUN:
        there = getattr(run, part)
        value = None if there is None else getattr(there, field)
        chosen = part == "checkpoint" and field == "every" and there is not None and there.unit == AUTO
        if value is not None and not chosen:
            seconds = field == "every" and there.unit == TIME
            change = functools.partial(_with_run, scenario, _inside(part, field))
            yield _lever(f"run.{part}.{field}", title, "s" if seconds else unit, value, change)
    for part, field, title, unit in _STORES:
        for at, one in enumerate(getattr(run, part)):
            value = getattr(one, field)
            if value is not None:
                change = functools.partial(_with_run, scenario, _inside(part, field, at))
                yield _lever(f"run.{part}.{at}.{field}", f"{title} {one.name}", unit, value, change)


def _lever(name: str, title: str, unit: str, value: Number, scaled: Callable[[float], Scenario]) -> Lever:
    return Lever(name=name, title=title, unit=unit, kind="money", value=float(value), whole=False, scaled=scaled)


def _inside(part: str, field: str, at: int | None = None) -> Change:
    """So many times a number of a record, of a record inside it, or of one of a list of them."""

    def change(record_: Any, factor: float) -> Any:
        if not part:
            return changed(record_, **{field: getattr(record_, field) * factor})
        inner = getattr(record_, part)
        if at is None:
            return changed(record_, **{part: changed(inner, **{field: getattr(inner, field) * factor})})
        moved = changed(inner[at], **{field: getattr(inner[at], field) * factor})
        return changed(record_, **{part: (*inner[:at], moved, *inner[at + 1 :])})

    return change


def _with_islands(scenario: Scenario, places: Sequence[int], change: Change, factor: float) -> Scenario:
    islands = tuple(
        change(island, factor) if at in places else island for at, island in enumerate(scenario.fleet.islands)
    )
    return changed(scenario, fleet=changed(scenario.fleet, islands=islands))


def _with_run(scenario: Scenario, change: Change, factor: float) -> Scenario:
    return changed(scenario, run=change(scenario.run, factor))
