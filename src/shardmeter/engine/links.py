"""What each pair of islands gives one transfer, as matrices from row to column, and which limit it is that binds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from shardmeter.core.quantity import show
from shardmeter.core.record import changed, field_names, record
from shardmeter.core.units import Bytes, Count
from shardmeter.physics import wan as link
from shardmeter.specs.fleet import Island
from shardmeter.specs.wan import TRANSPORTS, Wan

Array: TypeAlias = npt.NDArray[Any]

AT_ONCE = 1e30
"""Bytes that a transfer sends in its first round trip where nothing holds it back."""
LEAST_RTT = 1e-6
"""Seconds of a round trip at least: windows are divided by it."""


@record
class Links:
    """A network, or the part of it that some islands see of one another: SI units; (islands, islands), of sites (islands,). Networks
    side by side have their axis before these."""

    names: tuple[str, ...]
    rate: Array
    """What a transfer gets that has the pair to itself and uses all its lanes."""
    capacity: Array
    """Of the link, all transfers together."""
    limit: Array
    """Place in LIMITS of what sets it."""
    delay: Array
    """One way."""
    rtt: Array
    first: Array
    """What a transfer sends in its first round trip."""
    up: Array
    down: Array
    lanes: Array
    streams: Array
    egress: Array

    def among(self, islands: list[int]) -> Links:
        """The part of these islands, in this order."""
        grid: Any = (..., *np.ix_(islands, islands))
        row: Any = (..., np.array(islands))
        return Links(
            names=tuple(self.names[at] for at in islands), rate=self.rate[grid], capacity=self.capacity[grid],
            limit=self.limit[grid], delay=self.delay[grid], rtt=self.rtt[grid], first=self.first[grid], up=self.up[row],
            down=self.down[row], lanes=self.lanes[grid], streams=self.streams[grid], egress=self.egress[grid],
        )  # fmt: skip

    @property
    def tables(self) -> tuple[bytes, ...]:
        """Equal for members that see equal links of one another, whatever their names."""
        return tuple(getattr(self, name).tobytes() for name in TABLES)

    def parted(self, times: Array) -> Links:
        """One part of each pair and site of which several messages use as many at once: `times` (islands, islands) how many a pair
        carries, on its diagonal how many a site."""
        sites = np.maximum(np.diagonal(times), 1.0)
        up, down, capacity = self.up / sites, self.down / sites, self.capacity / np.maximum(times, 1.0)
        rate = np.minimum(np.minimum(self.rate, capacity), np.minimum(up[:, None], down[None, :]))
        return changed(self, rate=rate, capacity=capacity, up=up, down=down)

    def said(self, source: int, target: int, leaving: float = 1.0, coming: float = 1.0) -> str:
        """A pair, what a transfer gets of it that is one of so many `leaving` the source and `coming` to the target, and why."""
        own = float(self.rate[source, target])
        up, down = float(self.up[source]) / leaving, float(self.down[target]) / coming
        streams = float(self.streams[source, target])
        why = LIMITS[int(self.limit[source, target])].format(streams=f"{streams:g} stream{'s' * (streams != 1)}")
        if min(up, down) < own:
            why = f"{LIMITS[1]}, {leaving:g} at once" if up <= down else f"{LIMITS[2]}, {coming:g} at once"
        rate = show(min(own, up, down) * 8.0, "bit/s")
        return f"{self.names[source]} → {self.names[target]} at {rate}, {why}"


TABLES = tuple(name for name in field_names(Links) if name != "names")
"""The fields of `Links` that are numbers."""
LIMITS = ("the link", "what leaves the site", "what comes into the site", "window of {streams}", "loss on {streams}")
"""What can set the rate of a pair."""


def bounded(wan: Wan, islands: Sequence[Island], transfers: Sequence[Count] = ()) -> Wan:
    """The network with each site's rates cut to what all adapters of its island carry together (one whose adapters are not known is
    not cut), and with the streams of all transfers that an island has at once: one for every accelerator that sends its part of a
    message, each with streams of its own. Without `transfers`, one a lane."""
    ports = np.array([_ports(island) for island in islands])
    cut = changed(wan, up=np.minimum(wan.up, ports), down=np.minimum(wan.down, ports))
    if not transfers:
        return cut
    counts = np.array([float(np.max(one)) for one in transfers])
    both = np.minimum(counts[:, None], counts[None, :])
    return changed(cut, streams=wan.streams * np.maximum(both / wan.lanes, 1.0))


def _ports(island: Island) -> float:
    """B/s out of an island through its own adapters."""
    if len(island.tiers) > 1:
        return float(island.tiers[-1].bandwidth * island.tiers[-1].share * island.gpus)
    fabric = island.outside
    if fabric is None:
        return math.inf
    adapters = island.gpus_per_node if fabric.nics_per_node is None else fabric.nics_per_node
    return float(fabric.bandwidth * fabric.share * adapters * island.nodes)


def links_of(wan: Wan, segment: Bytes = link.SEGMENT) -> Links:
    """The price list's matrices. TCP packets carry `segment` bytes.

    Every lane of a pair has streams of its own. The diagonal means nothing."""
    islands = len(wan.islands)
    shape = (islands, islands)

    def matrix(numbers: object) -> Array:
        return np.broadcast_to(np.asarray(numbers, dtype=float), shape)

    rtt = np.maximum(matrix(wan.rtt), LEAST_RTT)
    bandwidth, loss, window, lanes = (matrix(x) for x in (wan.bandwidth, wan.loss, wan.window, wan.lanes))
    streams = matrix(wan.streams)
    up, down = (np.broadcast_to(np.asarray(x, dtype=float), (islands,)) for x in (wan.up, wan.down))
    sends = np.array([TRANSPORTS.index(word) for word in wan.transport])
    weaker = np.minimum(sends[:, None], sends[None, :])
    tcp, rdma = weaker == 0, weaker == 1
    windowed = np.where(tcp | rdma, link.window_rate(window, rtt), np.inf)
    stream = np.where(tcp, link.stream_rate(window, rtt, segment, loss), windowed)
    flows = lanes * streams
    rate = link.pair_rate(bandwidth, up[:, None], down[None, :], flows, stream)
    limits = (bandwidth, matrix(up[:, None]), matrix(down), flows * windowed, flows * stream)
    limit = np.argmin(np.stack(limits), axis=0)
    under_way = link.packets_under_way(rate / flows, rtt, window, link.PACKET)
    rate = rate * np.where(rdma, link.go_back_n(loss, under_way), 1.0)
    first = np.where(tcp, link.FIRST * segment * flows, AT_ONCE)
    return Links(
        names=wan.islands, rate=rate, capacity=bandwidth, limit=limit, delay=rtt / 2.0, rtt=rtt, first=first, up=up, down=down,
        lanes=lanes, streams=streams, egress=matrix(wan.egress),
    )  # fmt: skip


def rates(wan: Wan) -> Array:
    """(islands, islands), B/s: what one transfer gets that has its pair of islands to itself, all lanes at work."""
    return np.asarray(links_of(wan).rate)


def send_rates(wan: Wan) -> Array:
    """The same of a transfer between two nodes, which use one lane."""
    found = links_of(wan)
    return np.asarray(found.rate / found.lanes)
