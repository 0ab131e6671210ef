"""Cloud regions: what the catalog measured between two of them, what it estimates where it did not, what traffic costs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from shardmeter.core.quantity import show
from shardmeter.core.record import record
from shardmeter.core.units import Bytes, BytesPerS, Count, Seconds, UsdPerByte
from shardmeter.physics.wan import EQUIPMENT, PER_KILOMETRE, ROUTE, rtt_of_distance
from shardmeter.specs import Region

if TYPE_CHECKING:
    from shardmeter.scenario.parts import Rows

EARTH = 6371.0
"""Kilometres: the mean radius."""
ROUTE_OF_REGIONS = 1.7
"""Kilometres of fibre for one of the straight line between two cloud regions: the median of the 313 pairs of `data/geo/pairs.csv`
that are 300 km or more apart; half of them lie within 1.43 and 2.18."""
STREAMS = 64.0
"""Streams over which the catalog's rates were measured."""


def round_trip(kilometres: float, route: float = ROUTE) -> float:
    """Seconds between places so far apart in a straight line and back."""
    return float(rtt_of_distance(kilometres, route, PER_KILOMETRE, EQUIPMENT))


@record
class Between:
    """What the catalog says of one direction between two regions, one virtual machine at each end."""

    bandwidth: BytesPerS | None
    rtt: Seconds
    streams: Count
    basis: str


def known_region(name: str, rows: Rows) -> Region | None:
    """The region of a name, if the catalog has it."""
    return rows.region(name) if rows.knows("regions", name) else None


def kilometres(one: Region, other: Region) -> float:
    """Along the great circle."""
    north, south = math.radians(float(one.latitude)), math.radians(float(other.latitude))
    east = math.radians(float(other.longitude) - float(one.longitude))
    half = math.sin((south - north) / 2) ** 2 + math.cos(north) * math.cos(south) * math.sin(east / 2) ** 2
    return 2.0 * EARTH * math.asin(math.sqrt(min(half, 1.0)))


def between(one: Region, other: Region, rows: Rows) -> Between:
    """What was measured from one region to another, or an estimate from their distance and the sender's cap."""
    for name, forth in ((f"{one.name}/{other.name}", True), (f"{other.name}/{one.name}", False)):
        if not rows.knows("pairs", name):
            continue
        row = rows.pair(name)
        rate = row.bandwidth if forth else row.bandwidth_back
        basis = (
            f"{one.name} → {other.name} measured {row.date}: {show(float(rate), 'B/s')} a VM over {row.streams:g} "
            f"streams, round trip {show(float(row.rtt), 's')}"
        )
        return Between(bandwidth=rate, rtt=row.rtt, streams=row.streams, basis=basis)
    far = kilometres(one, other)
    rtt = round_trip(far, ROUTE_OF_REGIONS)
    cap = "no rate known" if one.vm_bandwidth is None else f"{show(float(one.vm_bandwidth), 'B/s')} a VM (its cap)"
    basis = f"{one.name} → {other.name} never measured: {cap}, round trip {show(rtt, 's')} estimated from {far:.0f} km"
    return Between(bandwidth=one.vm_bandwidth, rtt=rtt, streams=STREAMS, basis=basis)


def reach(one: Region, other: Region) -> str:
    """How far traffic goes, in the words of price lists."""
    if one.provider != other.provider:
        return "internet"
    if one.name == other.name:
        return "region"
    return "continent" if one.continent == other.continent else "world"


def egress(one: Region, other: Region | None, rows: Rows) -> tuple[UsdPerByte, str] | None:
    """The price of traffic from a region to another, or to the internet, with its basis; None where none is known."""
    name = f"{one.provider}/{one.continent}/{'internet' if other is None else reach(one, other)}"
    if not rows.knows("egress", name):
        return None
    row = rows.egress(name)
    return row.price, f"{name} {show(float(row.price), 'USD/B')} ({row.date})"


def window_into(region: Region | None) -> Bytes | None:
    """What one stream into a region has under way, where that was measured."""
    return None if region is None else region.window
