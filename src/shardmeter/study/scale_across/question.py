"""What is asked of a search over buildings: axes and their values, what the scenario itself has, everything that is wrong at once."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np

from shardmeter.core.errors import BadQuantity, BadScenario, UnknownName, Violation, nearest, shown
from shardmeter.core.quantity import quantity
from shardmeter.core.record import record
from shardmeter.core.units import BytesPerS, Ratio, Seconds
from shardmeter.physics.wan import EQUIPMENT, PER_KILOMETRE, ROUTE
from shardmeter.scenario.geography import round_trip
from shardmeter.scenario.parts import Findings, Rows
from shardmeter.scenario.ranges import parts, values
from shardmeter.scenario.read import Document
from shardmeter.scenario.resolve import read_parts
from shardmeter.scenario.wan import resolve_wan
from shardmeter.specs import Island, Wan

EVERY_STEP = "every_step"
AXES = ("oversubscription", "distance", "buildings", "gpus", "model")
NETWORK = AXES[:2]
USUAL: dict[str, tuple[float, ...]] = {
    "oversubscription": (1.0, 2.0, 4.0, 8.0), "distance": (10e3, 80e3, 400e3, 1000e3, 2000e3),
}  # fmt: skip
"""The map that is drawn where nothing is asked: from every GPU's rate down to an eighth, from a campus to a continent."""
MOST_POINTS = 5_000
SEVERAL = (str, list, tuple, range)
"""Kinds of what may hold several values of an axis."""
FARTHEST, MOST_BUILDINGS, MOST_GPUS = 40_000e3, 64, 10_000_000
LEAST_OVER, MOST_OVER = 0.1, 1_000.0
Over: TypeAlias = Iterable[str] | Mapping[str, Any]


@record
class Question:
    """Every model on so many GPUs in so many buildings, over every network: the product of its axes, the scenario's own value first."""

    models: tuple[Any, ...]
    """As a scenario writes them: a name, a file, a mapping."""
    buildings: tuple[int, ...]
    gpus: tuple[int, ...]
    """Of all buildings together."""
    oversubscription: tuple[Ratio, ...]
    """Rate of a GPU's adapter over its share of a line between two buildings."""
    distance: tuple[float, ...]
    """In metres, in a straight line."""
    own: tuple[Ratio, float] | None
    """The scenario's own network or, where it says none, the point that the page is about; None where no point is asked there."""
    said: bool = True
    """Whether the scenario says what lies between its buildings."""

    @property
    def cases(self) -> int:
        """How many clusters are asked about."""
        return len(self.models) * len(self.buildings) * len(self.gpus)

    @property
    def network(self) -> tuple[tuple[Ratio, float], ...]:
        """Every network of a case: the scenario's own, then the map, distances fastest."""
        pairs = [(over, far) for over in self.oversubscription for far in self.distance]
        return tuple(pairs) if self.own is None or self.own in pairs else (self.own, *pairs)


@record
class Own:
    """What a document says itself of what can be an axis."""

    buildings: int
    gpus: int
    island: Island
    """The first building."""
    network: tuple[Ratio, float]


def adapter_rate(island: Island) -> BytesPerS:
    """Wire rate of one GPU's part of its node's adapters: what an oversubscription of 1 carries between buildings too."""
    fabric = island.outside
    if fabric is None:
        return float(island.tiers[-1].bandwidth)
    adapters = island.gpus_per_node if fabric.nics_per_node is None else fabric.nics_per_node
    return float(fabric.bandwidth * adapters / island.gpus_per_node)


def line(island: Island, over: Ratio, distance: float) -> tuple[BytesPerS, Seconds]:
    """Capacity of a line from one building to another, all GPUs of the building together, and its round trip."""
    return adapter_rate(island) * float(island.gpus) / over, round_trip(distance / 1e3)


def network_of(wan: Wan, island: Island) -> tuple[Ratio, float]:
    """The oversubscription and the distance of the worst pair of a network: `line` backwards, no nearer than 0 m.

    A distance is a whole number of metres, so that a network reads as it was said."""
    apart = ~np.eye(len(wan.islands), dtype=bool)
    shape = apart.shape
    rate = float(np.min(np.broadcast_to(np.asarray(wan.bandwidth), shape)[apart]))
    trip = float(np.max(np.broadcast_to(np.asarray(wan.rtt), shape)[apart]))
    far = max(0.0, (trip - EQUIPMENT) / (PER_KILOMETRE * ROUTE)) * 1e3
    return float(f"{adapter_rate(island) * float(island.gpus) / rate:.6g}"), float(round(far))


def own_of(document: Document, rows: Rows) -> Own:
    """What the document itself has. Raises as resolving it does, and BadScenario where it has one building."""
    found = Findings(document)
    read = read_parts(found, rows)
    entries = [(entry.island, name) for entry in read.entries for name in entry.names if entry.island is not None]
    wan = None
    if len(entries) > 1:
        wan = resolve_wan(read.given.fleet.wan if read.given.fleet else None, read.everyone, rows, found)
    found.stop()
    if wan is None:
        raise BadScenario(
            "scale-across asks about several buildings, and the fleet is one island", [_one(entries[0][0])]
        )
    if read.sync.method != EVERY_STEP:
        raise BadScenario("scale-across: 1 problem", [_rarely(read.sync.method)])
    gpus = sum(int(float(island.gpus)) for island, _ in entries)
    return Own(buildings=len(entries), gpus=gpus, island=entries[0][0], network=network_of(wan, entries[0][0]))


def _rarely(method: str) -> Violation:
    """That a method does not send the gradients of every step, which is what is placed here."""
    return Violation(
        field="plan.sync.method",
        says=f"{method}: scale-across compares plans that average the gradients of every step",
        way_out=f"--set 'plan.sync={{method: {EVERY_STEP}}}'; without --scale-across, plan compares methods",
    )


def _one(island: Island) -> Violation:
    """How a fleet of one island is said as buildings."""
    half = f"{float(island.gpus) / 2:g}x{island.accelerator.name}"
    return Violation(
        field="fleet.islands",
        says=f"{float(island.gpus):,.0f} × {island.accelerator.name} in one building",
        way_out=f"--buildings 2 divides them, or fleet: {{islands: [{{name: building, count: 2, gpus: {half}}}], "
        "wan: {default: {preset: dci-4to1}}}",
    )


def question(document: Document, rows: Rows, over: Over = (), *, said: bool = True) -> Question:
    """The question of a document with several buildings: `over` holds AXIS=VALUES texts, or values by axis. `said`: whether the
    document says the network itself, which is then always asked about.

    Without a network axis the scenario's own network stands beside the usual map; where one of the two is asked, the other stays the
    scenario's. Of a network that nobody said, the point that is asked nearest to it stands for the own one.
    Raises BadScenario with everything that is wrong with the axes, and as resolving the document does."""
    found: list[Violation] = []
    asked = _said(over, rows, found)
    try:
        own = own_of(document, rows)
    except BadScenario as error:
        if found:
            raise BadScenario(error.message, [*found, *error.violations]) from None
        raise
    if not any(axis in asked for axis in NETWORK):
        asked |= USUAL
    rates = tuple(asked.get("oversubscription", own.network[:1]))
    distances = tuple(asked.get("distance", own.network[1:]))
    made = Question(
        models=tuple(asked.get("model", (document.data.get("model"),))),
        buildings=tuple(asked.get("buildings", (own.buildings,))),
        gpus=tuple(asked.get("gpus", (own.gpus,))),
        oversubscription=rates,
        distance=distances,
        own=own.network if said else _nearest(own.network, rates, distances),
        said=said,
    )
    points = made.cases * len(made.network)
    if points > MOST_POINTS:
        sizes = " × ".join(f"{len(asked[axis]):,} {axis}" for axis in AXES if axis in asked)
        found.append(Violation(field="--over", says=f"{points:,} points ({sizes})", way_out=f"at most {MOST_POINTS:,}"))
    else:
        found += _undivided(made, own)
    if found:
        raise BadScenario(f"scale-across: {len(found)} problem{'s' if len(found) > 1 else ''}", found)
    return made


def _nearest(
    network: tuple[Ratio, float], rates: tuple[Ratio, ...], distances: tuple[float, ...]
) -> tuple[Ratio, float] | None:
    """The point of a map that a network lies nearest to, both in factors; None where an axis could not be read."""
    if not rates or not distances:
        return None
    over, far = network
    return (
        min(rates, key=lambda one: abs(math.log(one / over))),
        min(distances, key=lambda one: abs(math.log(max(one, 1.0) / max(far, 1.0)))),
    )


def _said(over: Over, rows: Rows, found: list[Violation]) -> dict[str, tuple[Any, ...]]:
    """Values by axis; what cannot be read is noted."""
    if isinstance(over, str | bytes) or not isinstance(over, Iterable):
        raise BadScenario(
            f"{shown(over)} is no list of axes, and no mapping; as in ['distance=10 km,400 km'], or {{'gpus': [8192]}}"
        )
    pairs = list(over.items()) if isinstance(over, Mapping) else [_parted(str(text)) for text in over]
    made: dict[str, tuple[Any, ...]] = {}
    for axis, count in Counter(name for name, _ in pairs).items():
        if axis not in AXES:
            close = ", ".join(nearest(str(axis), AXES))
            way_out = f"the nearest are {close}; axes are {', '.join(AXES)}"
            found.append(Violation(field="--over", says=f"{shown(axis)} is no axis of scale-across", way_out=way_out))
        elif count > 1:
            found.append(
                Violation(field=f"--over {axis}", says="is given twice", way_out=f"--over {axis}={AS_IN[axis]}")
            )
    for axis, text in pairs:
        if axis in AXES:
            made[axis] = _values(axis, text, rows, found)
    return made


def _parted(text: str) -> tuple[str, str | None]:
    axis, equals, given = text.partition("=")
    return axis.strip(), given.strip() if equals else None


AS_IN = {
    "oversubscription": "1,2,4,8", "distance": "'10 km,400 km,2000 km'", "buildings": "2,4,8", "gpus": "8192,16384,32768",
    "model": "llama-3.1-405b,deepseek-v3",
}  # fmt: skip
"""How values of every axis are written."""


def _values(axis: str, given: Any, rows: Rows, found: list[Violation]) -> tuple[Any, ...]:
    """The values of one axis in SI, each once, in the order given; none after noting what is wrong."""
    field, way_out = f"--over {axis}", f"as in --over {axis}={AS_IN[axis]}"
    given = given.tolist() if isinstance(given, np.ndarray) else given
    if given is None or (isinstance(given, SEVERAL) and not given):
        found.append(Violation(field=field, says="has no values", way_out=way_out))
        return ()
    try:
        read_text = parts if axis == "model" else lambda text: values(text, field)
        several = read_text(given) if isinstance(given, str) else given if isinstance(given, SEVERAL) else (given,)
    except BadScenario as error:
        found += error.violations
        return ()
    if len(several) > MOST_POINTS:
        found.append(Violation(field=field, says=f"{len(several):,} values", way_out=f"at most {MOST_POINTS:,} points"))
        return ()
    read = {"model": _model(rows), "distance": _distance, "oversubscription": _ratio}.get(axis) or _whole(axis)
    made: list[Any] = []
    for one in several:
        try:
            value = read(one)
        except (BadQuantity, UnknownName, ValueError) as error:
            found.append(Violation(field=field, says=str(error), way_out=way_out))
            continue
        made += [] if value in made else [value]
    return tuple(made)


def _distance(value: Any) -> float:
    far = value if isinstance(value, float) else quantity(value, "length")
    return _within(float(far), value, 0.0, FARTHEST, "lies within 0 and 40,000 km")


def _ratio(value: Any) -> Ratio:
    """4, 4:1 and 1:4 are one."""
    text = re.sub(r"^1:(?=[^:]*$)|(?<=[^:]):1$", "", str(value).replace(" ", "")) or "1"
    return _within(
        quantity(text, "ratio"), value, LEAST_OVER, MOST_OVER, f"lies within {LEAST_OVER:g} and {MOST_OVER:,g}"
    )


def _within(number: float, value: Any, low: float, high: float, rule: str) -> float:
    if not low <= number <= high:
        raise ValueError(f"{shown(value)} is out of reason ({rule})")
    return number


def _whole(axis: str) -> Callable[[Any], int]:
    least, most = (2, MOST_BUILDINGS) if axis == "buildings" else (2, MOST_GPUS)

    def read(value: Any) -> int:
        number = quantity(value, "count")
        if number != int(number) or not least <= number <= most:
            raise ValueError(f"{shown(value)} is no whole number from {least} to {most:,}")
        return int(number)

    return read


def _model(rows: Rows) -> Callable[[Any], Any]:
    """A name of the catalog, checked; a file or a mapping is read with its case."""

    def read(value: Any) -> Any:
        if isinstance(value, str) and "/" not in value and "." not in value.rpartition("-")[2]:
            rows.model(value)
        return value

    return read


def _undivided(made: Question, own: Own) -> list[Violation]:
    """Sizes that buildings do not share evenly, in whole nodes, each with the nearest that they do; the scenario's own is as it is."""
    found = []
    each = int(float(own.island.gpus_per_node))
    for gpus in made.gpus:
        for buildings in made.buildings:
            unit = buildings * each
            if gpus % unit and (buildings, gpus) != (own.buildings, own.gpus):
                low, high = gpus // unit * unit, math.ceil(gpus / unit) * unit
                close = " or ".join(f"{one:,}" for one in (low, high) if one)
                node = f" of {each}" if each > 1 else ""
                says = f"{gpus:,} GPUs are no whole nodes{node} in {buildings} equal buildings"
                rule = f"{gpus:,} = {buildings} × {gpus / buildings:,.2f}"
                found.append(Violation(field="gpus", says=says, rule=rule, way_out=f"{close} are"))
    return found
