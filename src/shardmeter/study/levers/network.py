"""Numbers of what joins islands: all pairs of them, or all sites, are moved together; of few islands each pair and site apart too."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from shardmeter.core.record import changed
from shardmeter.specs import Scenario, Wan
from shardmeter.study.levers.lever import Lever

MOST = 4
"""Islands up to which every pair is moved by itself too."""
MOST_SITES = 8
"""The same of sites."""
COUNTS = ("streams", "lanes", "flows")
_SITE = ("up", "down")
_ROWS = (*_SITE, "flows", "uplink", "buffer")
"""Fields of one number a site."""
Places: TypeAlias = Sequence[tuple[int, int]]
"""(from, to) of links; (site, site) of sites; empty = all."""

_NUMBERS = (
    ("bandwidth", "bandwidth between islands", "B/s", ("bandwidth",), True, math.inf),
    ("sites", "bandwidth of sites", "B/s", _SITE, True, math.inf),
    ("rtt", "round trip between islands", "s", ("rtt",), False, math.inf),
    ("loss", "loss between islands", "", ("loss",), False, 0.9),
    ("streams", "streams of a transfer", "", ("streams",), True, math.inf),
    ("window", "window of a stream", "B", ("window",), True, math.inf),
    ("lanes", "lanes of a link", "", ("lanes",), False, math.inf),
    ("sends", "bytes of a send under way", "B", ("sends",), True, math.inf),
    ("hold", "time until a buffer is free", "s", ("hold",), False, math.inf),
    ("flows", "flows of an adapter's transfer", "", ("flows",), True, math.inf),
    ("uplink", "rate of an uplink", "B/s", ("uplink",), True, math.inf),
    ("buffer", "buffer of an uplink", "B", ("buffer",), True, math.inf),
    ("egress", "price of traffic", "USD/B", ("egress",), False, math.inf),
)
"""(name, title, unit, fields of the network that it moves, whether the least of them binds, largest value)."""


def levers(scenario: Scenario) -> Iterator[Lever]:
    """Of a fleet of several islands; `value` is the least of its pairs or sites, of a round trip and of loss the largest."""
    wan = scenario.fleet.wan
    if wan is None:
        return
    for name, title, unit, fields, least, most in _NUMBERS:
        numbers = np.concatenate([_numbers(wan, field) for field in fields])
        if numbers.size and _is_read(wan, name):
            value = float(np.min(numbers) if least else np.max(numbers))
            yield _lever(scenario, name, title, unit, fields, value, most=most)
    yield from _of_sites(scenario, wan)
    yield from _of_pairs(scenario, wan)


def _lever(
    scenario: Scenario, name: str, title: str, unit: str, fields: Sequence[str], value: float, places: Places = (),
    most: float = math.inf,
) -> Lever:  # fmt: skip
    return Lever(
        name=f"fleet.wan.{name}", title=title, unit=unit, kind="network", value=value, whole=name in COUNTS, most=most,
        part=bool(places), scaled=functools.partial(_scaled, scenario, tuple(fields), tuple(places)),
    )  # fmt: skip


def _of_sites(scenario: Scenario, wan: Wan) -> Iterator[Lever]:
    """What leaves every site, and what comes in, where it has a limit of its own."""
    islands = len(wan.islands)
    for at, site in enumerate(wan.islands if islands <= MOST_SITES else ()):
        for field, title in zip(_SITE, ("bandwidth out of", "bandwidth into"), strict=True):
            value = float(np.broadcast_to(np.asarray(getattr(wan, field), dtype=float), (islands,))[at])
            if np.isfinite(value):
                yield _lever(scenario, f"sites.{site}.{field}", f"{title} {site}", "B/s", (field,), value, ((at, at),))


def _of_pairs(scenario: Scenario, wan: Wan) -> Iterator[Lever]:
    """The link of every pair, both ways; the value is that of the slower way."""
    islands = len(wan.islands)
    if not 2 < islands <= MOST:
        return
    table = _table(wan, "bandwidth")
    for one in range(islands):
        for other in range(one + 1, islands):
            ways, names = ((one, other), (other, one)), (wan.islands[one], wan.islands[other])
            value = min(float(table[way]) for way in ways)
            if np.isfinite(value):
                title = f"bandwidth between {names[0]} and {names[1]}"
                yield _lever(scenario, f"links.{'-'.join(names)}.bandwidth", title, "B/s", ("bandwidth",), value, ways)


def _is_read(wan: Wan, name: str) -> bool:
    """Whether the network reads a number that has a value also where nothing is said of it."""
    if name == "flows":
        return "ecmp" in wan.balance
    return name != "hold" or bool(np.any(np.greater(wan.hold, 0.0)))


def _table(wan: Wan, field: str) -> Any:
    islands = len(wan.islands)
    shape = (islands,) if field in _ROWS else (islands, islands)
    return np.broadcast_to(np.asarray(getattr(wan, field), dtype=float), shape)


def _numbers(wan: Wan, field: str) -> Any:
    """The finite numbers of a field, those of an island to itself left out."""
    table = _table(wan, field)
    found = table if field in _ROWS else table[~np.eye(len(wan.islands), dtype=bool)]
    return found[np.isfinite(found)]


def _scaled(scenario: Scenario, fields: tuple[str, ...], places: Places, factor: float) -> Scenario:
    wan: Any = scenario.fleet.wan
    moved = {}
    for field in fields:
        if not places:
            moved[field] = np.asarray(getattr(wan, field), dtype=float) * factor
            continue
        table = np.array(_table(wan, field))
        for place in places:
            table[place[:1] if field in _ROWS else place] *= factor
        moved[field] = table
    return changed(scenario, fleet=changed(scenario.fleet, wan=changed(wan, **moved)))
