"""What passes between servers: one message after another, each with its bytes on the wire and its way."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from shardmeter.core.formula import under
from shardmeter.core.record import record
from shardmeter.core.sums import plain_sum
from shardmeter.core.units import Bytes, Count, Seconds
from shardmeter.engine import add
from shardmeter.engine.links import Array, Links, bounded, links_of
from shardmeter.engine.ring import ring_front
from shardmeter.physics import wan as link
from shardmeter.specs import Island, Wan

WIRE, DELAY = "transfer between islands", "delay between islands"
TOKEN = 4.0
"""Bytes of a token's number."""

EVERY = 7
"""Islands up to which every order of a row is weighed."""


@record
class Hop:
    """One message from a server to the next."""

    wire: Seconds
    """Payload and headers at the rate of the pair."""
    start: Seconds
    """What a cold connection loses until it has that rate."""
    delay: Seconds
    """One way."""
    busy: Seconds
    """That it occupies the narrowest of link and sites: what no number of streams gets round."""
    coming: Seconds
    """The same of what comes into its target alone, which messages from several places share."""

    @property
    def seconds(self) -> Seconds:
        """Until all has arrived."""
        return self.wire + self.start + self.delay


NO_HOP = Hop(wire=0.0, start=0.0, delay=0.0, busy=0.0, coming=0.0)
"""To oneself."""


def crossed(hops: Sequence[Hop]) -> dict[str, Seconds]:
    """Ledger terms of messages one after another."""
    return {WIRE: add.folded(one.wire + one.start for one in hops), DELAY: add.folded(one.delay for one in hops)}


def lines(wan: Wan | None, islands: Sequence[Island], senders: Sequence[Count]) -> Links | None:
    """The lines between islands whose servers send with so many accelerators at once; None without a network."""
    return None if wan is None else links_of(bounded(wan, islands, senders))


def hop(
    links: Links | None, source: int | Array, target: int | Array, size: Bytes, *, cold: bool, sharers: Count = 1.0
) -> Hop:
    """A message of `size` bytes. `cold`: its connection has carried nothing for a while, so TCP starts slowly; tokens follow one
    another on warm ones. `sharers`: messages that come into the target at once. One of the two may be several places, all others."""
    if links is None or np.all(np.equal(source, target)):
        return NO_HOP
    rate = np.minimum(links.rate[source, target], links.down[target] / sharers)
    capacity = np.minimum(np.minimum(links.capacity[source, target], links.up[source]), links.down[target])
    with under(WIRE):
        start = link.slow_start(size, rate, links.rtt[source, target], links.first[source, target]) if cold else 0.0
        wire = link.pass_time(size, rate, 0.0, 0.0)
        busy, coming = (link.pass_time(size, own, 0.0, 0.0) for own in (capacity, links.down[target]))
    return Hop(wire=wire, start=start, delay=links.delay[source, target], busy=busy, coming=coming)


@record
class Sent:
    """Messages of one size between two servers, so many of them, on cold connections or warm ones."""

    size: Bytes
    times: Count = 1.0
    cold: bool = False


def row(links: Links | None, islands: int, there: Sequence[Sent], back: Sequence[Sent]) -> tuple[int, ...]:
    """The order of islands in which what is sent `there` from each to the next, and `back` from the last to the first, takes the
    least time: of all orders up to EVERY islands, beyond of those that make a good ring, begun anywhere."""
    if links is None or islands == 1:
        return tuple(range(islands))
    forward, closing = (_pairs(links, islands, sent) for sent in (there, back))
    orders = _orders(links, islands)
    taken = forward[orders[:, :-1], orders[:, 1:]].sum(axis=1) + closing[orders[:, -1], orders[:, 0]]
    return tuple(orders[int(np.argmin(taken))].tolist())


def _pairs(links: Links, islands: int, sent: Sequence[Sent]) -> Array:
    """Seconds of messages from each island (rows) to each other."""

    def seconds(source: int, target: int) -> float:
        return plain_sum(float(one.times * hop(links, source, target, one.size, cold=one.cold).seconds) for one in sent)

    return np.array([[seconds(source, target) for target in range(islands)] for source in range(islands)])


def _orders(links: Links, islands: int) -> Array:
    """(orders, islands): what is weighed."""
    if islands <= EVERY:
        return np.array(list(itertools.permutations(range(islands))))
    rings = [way for ring in ring_front(links.rate, links.rtt) for way in (ring.order, ring.order[::-1])]
    return np.array([np.roll(way, -first) for way in rings for first in range(islands)])
