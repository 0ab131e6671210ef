"""Numbers of what joins islands: all pairs of them, or all sites, are moved together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from shardmeter.core.record import changed
from shardmeter.specs import Scenario, Wan
from shardmeter.study.levers.lever import Lever


def levers(scenario: Scenario) -> Iterator[Lever]:
    """Of a fleet of several islands; `value` is the least of its pairs or sites, of a round trip and of loss the largest."""
    wan = scenario.fleet.wan
    if wan is None:
        return
    for name, title, unit, fields, least in _NUMBERS:
        numbers = _numbers(wan, fields[0])
        if numbers.size:
            value = float(np.min(numbers) if least else np.max(numbers))
            yield Lever(
                name=f"fleet.wan.{name}", title=title, unit=unit, kind="network", value=value, whole=False,
                scaled=_scaled(scenario, fields),
            )  # fmt: skip


_NUMBERS = (
    ("bandwidth", "bandwidth between islands", "B/s", ("bandwidth",), True),
    ("sites", "bandwidth of sites", "B/s", ("up", "down"), True),
    ("rtt", "round trip between islands", "s", ("rtt",), False),
    ("loss", "loss between islands", "", ("loss",), False),
    ("streams", "streams of a transfer", "", ("streams",), True),
    ("window", "window of a stream", "B", ("window",), True),
    ("egress", "price of traffic", "USD/B", ("egress",), False),
)
"""(name, title, unit, fields of the network that it moves, whether the least of them binds)."""


def _numbers(wan: Wan, field: str) -> Any:
    """The finite numbers of a field, those of an island to itself left out."""
    islands = len(wan.islands)
    value = np.asarray(getattr(wan, field), dtype=float)
    if field not in ("up", "down"):
        value = np.broadcast_to(value, (islands, islands))[~np.eye(islands, dtype=bool)]
    return value[np.isfinite(value)]


def _scaled(scenario: Scenario, fields: tuple[str, ...]) -> Callable[[float], Scenario]:
    def scaled(factor: float) -> Scenario:
        wan: Any = scenario.fleet.wan
        moved = changed(wan, **{field: np.asarray(getattr(wan, field), dtype=float) * factor for field in fields})
        return changed(scenario, fleet=changed(scenario.fleet, wan=moved))

    return scaled
