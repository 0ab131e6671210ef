"""Numbers of accelerators and of the links inside an island; islands of the same machine and fabric are moved together."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from shardmeter.core.record import changed, record
from shardmeter.core.units import Number
from shardmeter.specs import Accelerator, Island, Scenario, Tier
from shardmeter.study.levers.lever import Lever

Device: TypeAlias = Callable[[Accelerator, float], Accelerator]
Tiers: TypeAlias = Callable[[tuple[Tier, ...], float], tuple[Tier, ...]]


@record
class Change:
    """What a lever of a machine changes, each by a factor."""

    name: str
    title: str
    unit: str
    value: Number | None
    """None where the machine has no such number."""
    device: Device | None = None
    tiers: Tiers | None = None
    fabric: str = ""
    """Field of the fabric that would join the island's domains, where that moves too."""
    most: float = math.inf
    part: bool = False


def levers(scenario: Scenario) -> Iterator[Lever]:
    """Of every kind of island: the device, its scale-up link, and each tier beyond it."""
    islands = scenario.fleet.islands
    groups = alike(islands)
    for places in groups:
        first = islands[places[0]]
        where = named(islands, places) if len(groups) > 1 else ""
        path = f"fleet.islands.{first.name if len(islands) > 1 else 0}"
        for one in _changes(first):
            if one.value is not None:
                yield Lever(
                    name=f"{path}.{one.name}", title=f"{one.title}{where}", unit=one.unit, kind="machine",
                    value=float(one.value), whole=False, scaled=functools.partial(_scaled, scenario, places, one),
                    most=one.most, part=one.part,
                )  # fmt: skip


def alike(islands: Sequence[Island]) -> tuple[tuple[int, ...], ...]:
    """Places of the islands that have the same accelerator and the same links, group by group."""
    groups: dict[str, list[int]] = {}
    for at, island in enumerate(islands):
        links = tuple((tier.name, tier.bandwidth, tier.share) for tier in island.tiers)
        groups.setdefault(repr((island.accelerator, links)), []).append(at)
    return tuple(tuple(places) for places in groups.values())


def named(islands: Sequence[Island], places: Sequence[int]) -> str:
    """` of oregon and 3 more`."""
    names = [islands[at].name for at in places]
    return f" of {names[0]}" if len(names) == 1 else f" of {names[0]} and {len(names) - 1} more"


def _scaled(scenario: Scenario, places: Sequence[int], one: Change, factor: float) -> Scenario:
    """Equal islands keep one accelerator between them: by it the engine knows that they are equal."""
    devices: dict[int, Accelerator] = {}
    islands = list(scenario.fleet.islands)
    for at in places:
        island, fields = islands[at], dict[str, Any]()
        if one.device is not None:
            old = island.accelerator
            fields["accelerator"] = devices.setdefault(id(old), one.device(old, factor))
        if one.tiers is not None:
            fields["tiers"] = one.tiers(island.tiers, factor)
        if one.fabric and island.outside is not None:
            rate = getattr(island.outside, one.fabric) * factor
            fields["outside"] = changed(island.outside, **{one.fabric: rate})
        islands[at] = changed(island, **fields)
    return changed(scenario, fleet=changed(scenario.fleet, islands=tuple(islands)))


_DEVICE = (
    ("memory_bandwidth", "memory bandwidth", "B/s", math.inf),
    ("memory_share", "kernels' share of the memory bandwidth", "", 1.0),
    ("memory", "memory", "B", math.inf),
    ("processors", "processors", "", math.inf),
    ("host_link", "host link", "B/s", math.inf),
    ("host_memory_bandwidth", "memory bandwidth of the host", "B/s", math.inf),
    ("power", "power", "W", math.inf),
    ("power_limit", "power limit", "W", math.inf),
)
"""(field of the accelerator, title, unit, largest value)."""


def _changes(island: Island) -> Iterator[Change]:
    """Every number of one island's machine."""
    device = island.accelerator
    peak = device.peak["bf16"] if "bf16" in device.peak else max(device.peak.values())
    yield Change(name="accelerator.peak", title="matrix rate", unit="FLOP/s", value=peak, device=_each("peak"))
    for name, title in _SHARES:
        value = _largest(getattr(device, name))
        yield Change(name=f"accelerator.{name}", title=title, unit="", value=value, device=_each(name))
    for name, title, unit, most in _DEVICE:
        value = getattr(device, name)
        yield Change(
            name=f"accelerator.{name}", title=title, unit=unit, value=value, device=_field(name), most=most
        )  # fmt: skip
    if island.gpus > 1:
        yield from _inside(island.tiers[0])
    if len(island.tiers) > 1:
        yield from _outside(island.tiers)


_SHARES = (
    ("matmul_share", "products' share of the matrix rate"),
    ("attention_share", "attention's share of the matrix rate"),
)


def _largest(shares: Mapping[str, Any]) -> float | None:
    """The largest of a table of shares, of which some are pairs."""
    values = [float(v) for value in shares.values() for v in (value if isinstance(value, tuple) else (value,))]
    return max(values, default=None)


def _each(name: str) -> Device:
    """All numbers of a table by dtype or kernel."""

    def change(device: Accelerator, factor: float) -> Accelerator:
        table = {
            key: tuple(one * factor for one in value) if isinstance(value, tuple) else value * factor
            for key, value in getattr(device, name).items()
        }
        return changed(device, **{name: table})

    return change


def _field(*names: str) -> Device:
    def change(device: Accelerator, factor: float) -> Accelerator:
        there = {name: value for name in names if (value := getattr(device, name)) is not None}
        return changed(device, **{name: value * factor for name, value in there.items()})

    return change


RATES = ("bandwidth", "pair_bandwidth", "exchange_bandwidth", "adapter")
STARTS = ("latency", "latency_base", "latency_step")
SUSTAINED = ("share", "reduce_share")


def _inside(tier: Tier) -> Iterator[Change]:
    """The scale-up domain. Its shares are of the wire rate, that of an all-to-all included."""

    def first(names: Sequence[str]) -> Tiers:
        return lambda tiers, factor: (_moved(tiers[0], names, factor), *tiers[1:])

    yield Change(
        name="accelerator.scale_up_bandwidth", title="scale-up bandwidth", unit="B/s", value=tier.bandwidth,
        device=_field("scale_up_bandwidth", "pair_bandwidth", "exchange_bandwidth"), tiers=first(RATES),
    )  # fmt: skip
    yield Change(
        name="accelerator.scale_up_latency", title="scale-up latency", unit="s", value=tier.latency,
        device=_field("scale_up_latency", "scale_up_step"), tiers=first(STARTS),
    )  # fmt: skip
    yield Change(
        name="accelerator.scale_up_start", title="start of a ring or a send inside the scale-up domain", unit="s",
        value=tier.latency_start, tiers=first(("latency_start",)),
    )  # fmt: skip
    yield Change(
        name="accelerator.scale_up_share", title="collectives' share of the scale-up bandwidth", unit="",
        value=tier.share, device=_field("scale_up_share", "scale_up_reduce_share"), tiers=first(SUSTAINED), most=1.0,
    )  # fmt: skip


def _outside(tiers: Sequence[Tier]) -> Iterator[Change]:
    """The fabric with all that is above it; above it tier by tier, by what it takes away."""

    def beyond(names: Sequence[str], first: int = 1) -> Tiers:
        return lambda tiers, factor: (*tiers[:first], *(_moved(tier, names, factor) for tier in tiers[first:]))

    yield Change(
        name="fabric.bandwidth", title="fabric bandwidth", unit="B/s", value=tiers[1].bandwidth, tiers=beyond(RATES),
        fabric="bandwidth",
    )  # fmt: skip
    yield Change(name="fabric.latency", title="fabric latency", unit="s", value=tiers[1].latency, tiers=beyond(STARTS))
    yield Change(
        name="fabric.share", title="collectives' share of the fabric", unit="", value=tiers[1].share,
        tiers=beyond(SUSTAINED), fabric="share", most=1.0,
    )  # fmt: skip
    for at in range(2, len(tiers)):
        inner, outer = tiers[at - 1], tiers[at]
        path, of = f"tiers.{at - 2}", outer.name.removeprefix("between ").removesuffix(" units")
        yield Change(
            name=f"{path}.oversubscription", title=f"oversubscription of the {of}", unit="", part=True,
            value=inner.bandwidth / outer.bandwidth, tiers=_inverse(beyond(("bandwidth",), at)),
        )  # fmt: skip
        yield Change(
            name=f"{path}.latency", title=f"latency beyond the {of}", unit="s", part=True, value=outer.latency,
            tiers=beyond(("latency",), at),
        )  # fmt: skip


def _inverse(change: Tiers) -> Tiers:
    return lambda tiers, factor: change(tiers, 1.0 / factor)


def _moved(tier: Tier, names: Sequence[str], factor: float) -> Tier:
    """A tier with so many times those of its numbers that it has."""
    there = {name: value for name in names if (value := getattr(tier, name)) is not None}
    return changed(tier, **{name: value * factor for name, value in there.items()})
