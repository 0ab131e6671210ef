"""Prices, electricity and what fails: numbers of the whole run that leave a step as it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from shardmeter.core.record import changed
from shardmeter.specs import Island, Scenario
from shardmeter.study.levers.lever import Lever


def levers(scenario: Scenario) -> Iterator[Lever]:
    """Of islands that have a price of their own each one's; of the run its failures and its checkpoints."""
    islands = scenario.fleet.islands
    for at, island in enumerate(islands):
        where, path = (f" of {island.name}", island.name) if len(islands) > 1 else ("", "0")
        for name, title, unit, value, change in _numbers(island):
            if value is not None:
                yield Lever(
                    name=f"fleet.islands.{path}.{name}", title=f"{title}{where}", unit=unit, kind="money", value=float(value),
                    whole=False, scaled=_of_island(scenario, at, change),
                )  # fmt: skip
    for record, field, title, unit in _RUN:
        part = getattr(scenario.run, record)
        value = None if part is None else getattr(part, field)
        if value is not None:
            yield Lever(
                name=f"run.{record}.{field}", title=title, unit=unit, kind="money", value=float(value), whole=False,
                scaled=_of_run(scenario, record, field),
            )  # fmt: skip


_RUN = (
    ("failures", "mtbf", "time between failures", "s"),
    ("failures", "restart", "restart after a failure", "s"),
    ("checkpoint", "bandwidth", "bandwidth of the checkpoints' store", "B/s"),
    ("evaluation", "lasts", "one evaluation", "s"),
)


def _numbers(island: Island) -> Iterator[tuple[str, str, str, Any, Callable[[Any, float], Island]]]:
    """(name, title, unit, value or None, change) of each number of one island."""
    yield (
        "price",
        "price of an accelerator",
        "USD/s",
        island.price,
        lambda one, times: changed(one, price=one.price * times),
    )
    yield (
        "electricity",
        "price of electricity",
        "USD/(W*s)",
        island.tariff.electricity,
        (lambda one, times: changed(one, tariff=changed(one.tariff, electricity=one.tariff.electricity * times))),
    )
    yield (
        "pue",
        "overhead of the hall (PUE)",
        "",
        island.power.pue,
        (lambda one, times: changed(one, power=changed(one.power, pue=one.power.pue * times))),
    )
    taken = island.preemption
    yield (
        "preemption.mtbf",
        "time until capacity is taken",
        "s",
        None if taken is None else taken.mtbf,
        (lambda one, times: changed(one, preemption=changed(one.preemption, mtbf=one.preemption.mtbf * times))),
    )


def _of_island(scenario: Scenario, at: int, change: Callable[[Island, float], Island]) -> Callable[[float], Scenario]:
    def scaled(factor: float) -> Scenario:
        islands = scenario.fleet.islands
        moved = (*islands[:at], change(islands[at], factor), *islands[at + 1 :])
        return changed(scenario, fleet=changed(scenario.fleet, islands=moved))

    return scaled


def _of_run(scenario: Scenario, record: str, field: str) -> Callable[[float], Scenario]:
    def scaled(factor: float) -> Scenario:
        part = getattr(scenario.run, record)
        return changed(
            scenario, run=changed(scenario.run, **{record: changed(part, **{field: getattr(part, field) * factor})})
        )

    return scaled
