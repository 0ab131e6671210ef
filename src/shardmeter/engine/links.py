"""What each pair of islands gives one transfer, as matrices from row to column, and which limit it is that binds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from shardmeter.core.quantity import show
from shardmeter.core.record import changed, field_names, record
from shardmeter.core.units import Bytes, Count, Seconds
from shardmeter.engine import uplinks
from shardmeter.engine.uplinks import CODED, LOSSLESS, RDMA, SELECTIVE, TCP
from shardmeter.physics import network
from shardmeter.physics import wan as link
from shardmeter.specs.fleet import Island
from shardmeter.specs.wan import TRANSPORTS, Wan

Array: TypeAlias = npt.NDArray[Any]

AT_ONCE = 1e30
"""Bytes that a transfer sends in its first round trip where nothing holds it back."""
LARGE = 9000.0
"""Any packet, where none is said and nothing is read of it."""
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
    sending: Array
    """What the sends of a pipeline's stage get, all ranks of the site at once: `rate`, or less where their own windows are smaller."""
    adapter: Array
    """(islands,): what one accelerator gets through the adapters of a site whose uplinks all share; inf = not said."""
    late: Array
    """Share of packets that are lost and sent again, which a message waits for at its end; 0 = of none."""
    under_way: Array
    """Bytes that the windows of one lane's streams hold; 0 of TCP, whose collectives know their own."""
    held: Array
    """Bytes that the windows of one lane's sends hold; 0 of TCP, and where there are none."""
    buffer: Array
    """(islands,): of one uplink port."""
    uplinks: Array
    """(islands,): how many they are; inf where nothing is said of them."""
    window: Array
    """Bytes that the streams of all lanes have under way at most."""
    unheld: Array
    """What a transfer gets whose windows hold all that is asked for at once: `rate` but for them."""
    backend: str = "nccl"
    """Software of the collectives."""
    balance: tuple[str, ...] = ()
    """How flows find them; of networks side by side left empty."""

    @property
    def words(self) -> tuple[str, ...]:
        """What takes from the uplinks of each site, where anything does."""
        return uplinks.words(self.balance, self.uplinks)

    @property
    def networks(self) -> tuple[int, ...]:
        """How many are side by side; empty of one alone."""
        return self.rate.shape[:-2]

    def some(self, at: int | list[int], balance: tuple[str, ...] = ()) -> Links:
        """Of networks side by side some, or one, whose flows find uplinks by `balance`."""
        return changed(self, balance=balance, **{name: getattr(self, name)[at] for name in (*TABLES, "uplinks")})

    def among(self, islands: list[int]) -> Links:
        """The part of these islands, in this order."""
        if islands == list(range(len(self.names))):
            return self
        grid: Any = (..., *np.ix_(islands, islands))
        row: Any = (..., np.array(islands))
        return Links(
            names=tuple(self.names[at] for at in islands), rate=self.rate[grid], capacity=self.capacity[grid],
            limit=self.limit[grid], delay=self.delay[grid], rtt=self.rtt[grid], first=self.first[grid], up=self.up[row],
            down=self.down[row], lanes=self.lanes[grid], streams=self.streams[grid], egress=self.egress[grid],
            sending=self.sending[grid], window=self.window[grid], unheld=self.unheld[grid], backend=self.backend, late=self.late[grid], under_way=self.under_way[grid], held=self.held[grid],
            adapter=self.adapter[row], buffer=self.buffer[row], uplinks=self.uplinks[row],
            balance=tuple(self.balance[at] for at in islands if self.balance),
        )  # fmt: skip

    @property
    def lines(self) -> Array:
        """What a pair carries whatever its windows."""
        return np.minimum(self.capacity, np.minimum(self.up[..., :, None], self.down[..., None, :]))

    @property
    def tables(self) -> tuple[bytes, ...]:
        """Equal for members that see equal links of one another, whatever their names."""
        return tuple(getattr(self, name).tobytes() for name in TABLES)

    def parted(self, times: Array) -> Links:
        """One part of each pair and site of which several messages use as many at once: `times` (islands, islands) how many a pair
        carries, on its diagonal how many a site."""
        sites = np.maximum(np.diagonal(times), 1.0)
        up, down, capacity = self.up / sites, self.down / sites, self.capacity / np.maximum(times, 1.0)
        rate = np.minimum(np.minimum(self.rate, capacity), np.minimum(up[..., :, None], down[..., None, :]))
        unheld = np.minimum(np.minimum(self.unheld, capacity), np.minimum(up[..., :, None], down[..., None, :]))
        sending = np.minimum(self.sending, rate)
        return changed(self, rate=rate, unheld=unheld, sending=sending, capacity=capacity, up=up, down=down)

    def waited(self, size: Bytes, at: tuple[int, int] | None = None, parts: Count = 1.0) -> Seconds:
        """What a message of `size` waits at its end for packets that are sent again: that of the pair `at`, or the longest of all; of
        messages in `parts` that wait apart each for its own."""
        if not self.late.any():
            return 0.0
        trip, late = np.where(self.late > 0.0, self.rtt, 0.0), self.late
        if at is None:
            trip, late = most(trip), most(late)
        else:
            trip, late = trip[(..., *at)], late[(..., *at)]
        waited: Seconds = trip * network.extra_rounds(late, size / (parts * link.PACKET))
        return waited if np.ndim(waited) else float(waited)

    def said(self, source: int, target: int, leaving: float = 1.0, coming: float = 1.0) -> str:
        """A pair, what a transfer gets of it that is one of so many `leaving` the source and `coming` to the target, and why."""
        own = float(self.rate[source, target])
        up, down = float(self.up[source]) / leaving, float(self.down[target]) / coming
        limit = int(self.limit[source, target])
        if min(up, down) < own:
            limit = 1 if up <= down else 2
            at_once = f", {leaving if limit == 1 else coming:g} at once"
        else:
            at_once = ""
        streams = float(self.streams[source, target])
        buffer = show(float(self.buffer[target]), "B")
        why = LIMITS[limit].format(streams=f"{streams:g} stream{'s' * (streams != 1)}", buffer=buffer)
        if self.words and limit <= 2:
            taken = self.words[target if limit == 2 else source]
            why += f" ({taken})" * bool(taken)
        rate = show(min(own, up, down) * 8.0, "bit/s")
        return f"{self.names[source]} → {self.names[target]} at {rate}, {why}{at_once}"


TABLES = tuple(name for name in field_names(Links) if name not in ("names", "uplinks", "balance", "backend"))
"""The fields of `Links` that are numbers."""
LIMITS = ("the link", "what leaves the site", "what comes into the site", "window of {streams}", "loss on {streams}",
          "buffers of {buffer}")  # fmt: skip
"""What can set the rate of a pair."""


def bounded(wan: Wan, islands: Sequence[Island], transfers: Sequence[Count] = ()) -> Wan:
    """The network with each site's rates cut to what all adapters of its island carry together (one whose adapters are not known is
    not cut), and with the streams of all transfers that an island has at once: one for every accelerator that sends its part of a
    message, each with streams of its own. Without `transfers`, one a lane."""
    ports = np.array([_ports(island) for island in islands])
    if uplinks.asked(wan):
        wan, ports = uplinks.shared(wan, islands, ports)
    cut = changed(wan, up=np.minimum(wan.up, ports), down=np.minimum(wan.down, ports))
    if not transfers:
        return cut
    counts = np.array([float(np.max(one)) for one in transfers])
    both = np.minimum(counts[:, None], counts[None, :])
    each = np.maximum(both / wan.lanes, 1.0)
    sends = {} if uplinks.is_left(wan.sends, math.inf) else {"sends": wan.sends * each}
    return changed(cut, streams=wan.streams * each, **sends)


def _ports(island: Island) -> float:
    """B/s out of an island through its own adapters."""
    if len(island.tiers) > 1:
        return float(island.tiers[-1].bandwidth * island.tiers[-1].share * island.gpus)
    fabric = island.outside
    if fabric is None:
        return math.inf
    adapters = island.gpus_per_node if fabric.nics_per_node is None else fabric.nics_per_node
    return float(fabric.bandwidth * fabric.share * adapters * island.nodes)


def fewest(pairs: Array) -> Array:
    """The least number of two islands, of which the diagonal means nothing; networks side by side have one each."""
    found: Array = np.min(np.where(np.eye(pairs.shape[-1], dtype=bool), np.inf, pairs), axis=(-2, -1))
    return found


def most(pairs: Array) -> Array:
    """The largest."""
    return -fewest(-pairs)


def links_of(wan: Wan, segment: Bytes = link.SEGMENT) -> Links:
    """The price list's matrices. TCP packets carry `segment` bytes.

    Every lane of a pair has streams of its own. The diagonal means nothing."""
    islands, asked = len(wan.islands), uplinks.asked(wan)
    if asked:
        wan, _ = uplinks.shared(wan)

    def matrix(numbers: object) -> Array:
        return uplinks.pairs(numbers, islands)

    rtt = np.maximum(matrix(wan.rtt), LEAST_RTT)
    bandwidth, loss, window, lanes = (matrix(x) for x in (wan.bandwidth, wan.loss, wan.window, wan.lanes))
    payload: Any = 1.0
    if not uplinks.is_left(wan.mtu, 0.0):
        mtu = matrix(wan.mtu)
        segment = np.where(mtu > 0.0, mtu - link.HEADERS, segment)
        payload = np.where(mtu > 0.0, link.WIRE / link.wire_share(np.where(mtu > 0.0, mtu, LARGE), link.HEADERS), 1.0)
        bandwidth = bandwidth * payload
    streams = matrix(wan.streams)
    flows = lanes * streams
    up, down, adapter, buffer, ports = (
        uplinks.sites(x, islands) for x in (wan.up, wan.down, wan.adapter, wan.buffer, wan.uplinks)
    )
    up, down = up * _least(payload, -1), down * _least(payload, -2)
    leaving, coming = up[..., :, None], down[..., None, :]
    sends = np.array([TRANSPORTS.index(word) for word in wan.transport])
    weaker = np.minimum(sends[:, None], sends[None, :])
    tcp = weaker == TCP
    capacity, headroom = bandwidth, bandwidth
    if asked:
        headroom, loss = uplinks.buffered(wan, rtt, loss, flows * window, weaker)
        capacity = np.minimum(bandwidth, headroom)
    windowed = np.where(weaker == LOSSLESS, np.inf, _windowed(wan, window, rtt, tcp))
    stream = np.where(tcp, link.stream_rate(window, rtt, segment, loss), windowed)
    rate = link.pair_rate(capacity, leaving, coming, flows, stream)
    limits = (bandwidth, leaving, coming, flows * windowed, flows * stream, headroom)
    limit = _first_least(limits)
    kept = _kept(wan, weaker, loss, link.packets_under_way(rate / flows, rtt, window, link.PACKET))
    free = np.where(tcp, link.loss_limit(segment, rtt, loss), np.inf)
    unheld = kept * link.pair_rate(capacity, leaving, coming, flows, free)
    rate = rate * kept
    sending = rate
    if not uplinks.is_left(wan.sends, math.inf):
        own = np.where(weaker == LOSSLESS, np.inf, lanes * kept * _windowed(wan, matrix(wan.sends), rtt, tcp))
        sending = np.minimum(rate, own)
    first = np.where(tcp, link.FIRST * segment * flows, AT_ONCE)
    return Links(
        names=wan.islands, rate=rate, capacity=capacity, limit=limit, delay=rtt / 2.0, rtt=rtt, first=first, up=up, down=down,
        lanes=lanes, streams=streams, egress=matrix(wan.egress), sending=sending, window=flows * window, unheld=unheld, backend=wan.backend,
        late=np.where((weaker == SELECTIVE) | (weaker == RDMA), loss, 0.0), under_way=np.where(tcp, 0.0, streams * window),
        held=np.where(tcp | (weaker == LOSSLESS), 0.0, np.minimum(streams * window, matrix(wan.sends))),
        adapter=adapter, buffer=buffer,
        uplinks=ports, balance=wan.balance if asked else (),
    )  # fmt: skip


def _first_least(numbers: Sequence[Any]) -> Array:
    """At every place which of some arrays is least, the first of equals: `argmin` of them stacked, without the stack."""
    least, place = np.asarray(numbers[0]), np.zeros((), dtype=np.intp)
    for at, one in enumerate(numbers[1:], start=1):
        lower = ~np.greater_equal(one, least) & ~np.isnan(least)
        least, place = np.where(lower, one, least), np.where(lower, at, place)
    return place


def _least(payload: Any, axis: int) -> Any:
    """Of the pairs of every site the least share of payload: sites send and take in by all of them. 1 where no packet is said."""
    if not np.ndim(payload):
        return payload
    least = np.where(np.eye(payload.shape[-1], dtype=bool), np.inf, payload).min(axis=axis)
    return np.where(np.isinf(least), 1.0, least)


def _windowed(wan: Wan, window: Array, rtt: Array, tcp: Array) -> Array:
    """What one stream carries by its window alone; those of RDMA's kinds wait until a buffer is free."""
    if uplinks.is_left(wan.hold, 0.0):
        return np.asarray(link.window_rate(window, rtt))
    return np.asarray(network.held_rate(window, rtt, np.where(tcp, 0.0, wan.hold)))


def _kept(wan: Wan, weaker: Array, loss: Array, under_way: Count) -> Array:
    """Share of its rate that a pair's transport keeps at its loss."""
    again = weaker == RDMA
    if "selective" in wan.transport or wan.assumed.go_back != 1.0:
        selective = weaker == SELECTIVE
        under_way = network.resent(under_way, np.where(selective, wan.assumed.selective, wan.assumed.go_back))
        again = again | selective
    kept = np.where(again, link.go_back_n(loss, under_way), 1.0)
    if "coded" in wan.transport:
        kept = np.where(weaker == CODED, network.coded_share(loss, wan.redundancy), kept)
    return kept


def rates(wan: Wan) -> Array:
    """(islands, islands), B/s: what one transfer gets that has its pair of islands to itself, all lanes at work."""
    return np.asarray(links_of(wan).rate)
