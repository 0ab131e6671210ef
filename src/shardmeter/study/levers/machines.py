"""Numbers of accelerators and of the links inside an island; islands of the same machine and fabric are moved together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from shardmeter.core.record import changed
from shardmeter.core.units import Number
from shardmeter.specs import Accelerator, Island, Scenario, Tier
from shardmeter.study.levers.lever import Lever

Changed = Callable[[Island, float], Island]


def levers(scenario: Scenario) -> Iterator[Lever]:
    """Of every kind of island: the device, its scale-up link, and each tier beyond it."""
    groups = alike(scenario.fleet.islands)
    for places in groups:
        first = scenario.fleet.islands[places[0]]
        where = _where(scenario.fleet.islands, places) if len(groups) > 1 else ""
        path = f"fleet.islands.{first.name if len(scenario.fleet.islands) > 1 else 0}"
        for name, title, unit, value, change in _numbers(first):
            yield Lever(
                name=f"{path}.{name}", title=f"{title}{where}", unit=unit, kind="machine", value=float(value), whole=False,
                scaled=_scaled(scenario, places, change),
            )  # fmt: skip


def alike(islands: Sequence[Island]) -> tuple[tuple[int, ...], ...]:
    """Places of the islands that have the same accelerator and the same links, group by group."""
    groups: dict[str, list[int]] = {}
    for at, island in enumerate(islands):
        links = tuple((tier.name, tier.bandwidth, tier.share) for tier in island.tiers)
        groups.setdefault(repr((island.accelerator, links)), []).append(at)
    return tuple(tuple(places) for places in groups.values())


def _where(islands: Sequence[Island], places: Sequence[int]) -> str:
    names = [islands[at].name for at in places]
    return f" of {names[0]}" if len(names) == 1 else f" of {names[0]} and {len(names) - 1} more"


def _scaled(scenario: Scenario, places: Sequence[int], change: Changed) -> Callable[[float], Scenario]:
    def scaled(factor: float) -> Scenario:
        islands = tuple(
            change(island, factor) if at in places else island for at, island in enumerate(scenario.fleet.islands)
        )
        return changed(scenario, fleet=changed(scenario.fleet, islands=islands))

    return scaled


def _numbers(island: Island) -> Iterator[tuple[str, str, str, Number, Changed]]:
    """(name, title, unit, value, change) of each number of one island."""
    device = island.accelerator
    yield "accelerator.peak", "matrix rate", "FLOP/s", device.peak["bf16"] if "bf16" in device.peak else max(device.peak.values()), (
        lambda one, times: _device(one, peak={dtype: rate * times for dtype, rate in one.accelerator.peak.items()})
    )  # fmt: skip
    yield (
        "accelerator.memory_bandwidth",
        "memory bandwidth",
        "B/s",
        device.memory_bandwidth,
        (lambda one, times: _device(one, memory_bandwidth=one.accelerator.memory_bandwidth * times)),
    )
    yield (
        "accelerator.memory",
        "memory",
        "B",
        device.memory,
        (lambda one, times: _device(one, memory=one.accelerator.memory * times)),
    )
    if island.gpus > 1:
        yield "accelerator.scale_up_bandwidth", "scale-up bandwidth", "B/s", island.tiers[0].bandwidth, _scale_up
        yield "accelerator.scale_up_latency", "scale-up latency", "s", island.tiers[0].latency, _scale_up_latency
    if device.host_link is not None:
        yield (
            "accelerator.host_link",
            "host link",
            "B/s",
            device.host_link,
            (lambda one, times: _device(one, host_link=(one.accelerator.host_link or 0.0) * times)),
        )
    if len(island.tiers) > 1:
        yield "fabric.bandwidth", "fabric bandwidth", "B/s", island.tiers[1].bandwidth, _fabric
        yield "fabric.latency", "fabric latency", "s", island.tiers[1].latency, _fabric_latency


def _device(island: Island, **fields: object) -> Island:
    device: Accelerator = changed(island.accelerator, **fields)
    return changed(island, accelerator=device)


def _wider(tier: Tier, times: float) -> Tier:
    """A tier of so many times the rate, in all its numbers that are rates."""
    rates = {
        name: value * times
        for name in ("bandwidth", "pair_bandwidth", "exchange_bandwidth", "adapter")
        if (value := getattr(tier, name)) is not None
    }
    return changed(tier, **rates)


def _slower(tier: Tier, times: float) -> Tier:
    """A tier of so many times the latency."""
    names = ("latency", "latency_base", "latency_step", "latency_start")
    return changed(tier, **{name: getattr(tier, name) * times for name in names})


def _scale_up(island: Island, times: float) -> Island:
    device = changed(island.accelerator, scale_up_bandwidth=island.accelerator.scale_up_bandwidth * times)
    return changed(island, accelerator=device, tiers=(_wider(island.tiers[0], times), *island.tiers[1:]))


def _scale_up_latency(island: Island, times: float) -> Island:
    return changed(island, tiers=(_slower(island.tiers[0], times), *island.tiers[1:]))


def _fabric(island: Island, times: float) -> Island:
    """Everything outside the scale-up domain, and what would join the island to others."""
    outside = island.outside
    wider = outside if outside is None else changed(outside, bandwidth=outside.bandwidth * times)
    tiers = (island.tiers[0], *(_wider(tier, times) for tier in island.tiers[1:]))
    return changed(island, tiers=tiers, outside=wider)


def _fabric_latency(island: Island, times: float) -> Island:
    return changed(island, tiers=(island.tiers[0], *(_slower(tier, times) for tier in island.tiers[1:])))
