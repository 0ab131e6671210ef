"""How messages pass by gloo: rings of segments that their receivers ask for, over connections that may have stood idle."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from shardmeter.core.record import record
from shardmeter.core.units import Bytes, BytesPerS, Count, Seconds
from shardmeter.engine.links import Array, fewest, most
from shardmeter.engine.passage import Message, Passage, alike, last
from shardmeter.engine.ring import ring_order
from shardmeter.physics import crossing as collective
from shardmeter.physics import wan as link

BACKEND = "gloo"
UNDER_WAY = 2.0
"""Segments that a member has asked for at once."""
BY_WINDOW = 3
"""Place in `links.LIMITS` of a stream's window."""


@record
class _Lap:
    """One of the rings side by side that a message passes by, as one of them sees it."""

    order: tuple[int, ...]
    members: Count
    rings: Count
    size: Bytes
    """Of one call, its part of the message."""
    rate: BytesPerS
    delay: Seconds
    """One way, on the average of its links."""
    rtt: Seconds
    first: Bytes
    """What a connection may send at once when the message begins."""


def _rates(message: Message, asked: Bytes) -> Array:
    """What a transfer gets of every pair of which so many bytes, those of all accelerators together, are asked for at once: a window that
    holds them does not bind."""
    links = message.links
    held = np.less_equal(np.asarray(asked)[..., None, None], links.window)
    return np.where((links.limit == BY_WINDOW) & held, links.lines, links.rate)


def _lap(message: Message, asked: Bytes) -> _Lap:
    """Through the members in the order whose narrowest link is widest; over all accelerators as one ring, of whose hops few cross.
    `asked` bytes are under way at once, all rings together."""
    links = message.links
    order = ring_order(links.rate, links.rtt) if not links.networks else tuple(range(message.cells))
    at, to = np.array(order), np.roll(order, -1)
    members, rings = _round(message)
    trips = links.rtt[..., at, to]
    rtt = trips.mean(axis=-1)
    began = link.window_left(fewest(links.window), fewest(links.first), message.idle, rtt + link.RTO_LEAST)
    return _Lap(
        order=tuple(order), members=members, size=message.size / (message.calls * rings), rings=rings,
        rate=_rates(message, asked)[..., at, to].min(axis=-1) / rings, delay=rtt / 2.0 * (message.cells / members), rtt=most(links.rtt), first=began,
    )  # fmt: skip


def _round(message: Message) -> tuple[Count, Count]:
    """Members of a ring, and how many rings there are side by side."""
    flat = bool(np.max(message.ranks) > 0.0)
    return (message.ranks, 1.0) if flat else (float(message.cells), message.rings)


def _said(message: Message, lap: _Lap) -> str:
    """The narrowest link of a ring."""
    links = message.links
    if links.networks:
        return ""
    at, to = np.array(lap.order), np.roll(lap.order, -1)
    worst = int(np.argmin(links.rate[at, to]))
    return links.said(int(at[worst]), int(to[worst]))


def _started(size: Bytes, rate: BytesPerS, rtt: Seconds, first: Bytes) -> Seconds:
    """What a connection loses on its way to its rate, with so many bytes asked for; nothing where they all may leave at once."""
    lost = link.slow_start(size, rate, rtt, np.minimum(first, np.maximum(rate * rtt, 1.0)))
    return np.where(np.less_equal(size, first), 0.0, lost)


def passed(kind: str, size: Bytes, members: Count, rate: BytesPerS, delay: Seconds) -> Seconds:
    """One collective of `size` bytes, the whole buffer of each member, round a ring of warm connections. A reduce_scatter is PyTorch's over gloo: an
    all_reduce of which everybody keeps a part; a gather passes in halves of what each member holds."""
    if kind == "all_gather":
        half = link.WIRE * size / members / 2.0 / rate
        pair = collective.asked_pair(half, delay, members)
        return collective.asked_train(2.0 * (members - 1.0), half, delay, pair)
    count = collective.segments(size, members, collective.SEGMENT)
    part = link.WIRE * size / count / rate
    pair = collective.asked_pair(part, delay, members)
    return 2.0 * collective.asked_train(count * (members - 1.0) / members, part, delay, pair)


def _ring(message: Message) -> Passage:
    """An all-reduce: round the ring once to add up and once to hand out."""
    members, rings = _round(message)
    count = collective.segments(message.size / (message.calls * rings), members, collective.SEGMENT)
    lap = _lap(message, UNDER_WAY * message.size / (message.calls * count))
    part = lap.size / count
    total = message.calls * passed("all_reduce", lap.size, members, lap.rate, lap.delay) + _started(
        UNDER_WAY * part, lap.rate, lap.rtt, lap.first
    )
    return alike(total, _shares(message, lap, 2.0 * (lap.members - 1.0) / lap.members), _said(message, lap))


def _gather(message: Message) -> Passage:
    """Everybody's message round the ring, in halves."""
    lap = _lap(message, message.size / message.calls)
    whole = passed("all_gather", lap.size * lap.members, lap.members, lap.rate, lap.delay)
    total = message.calls * whole + _started(lap.size, lap.rate, lap.rtt, lap.first)
    return alike(total, _shares(message, lap, message.cells - 1.0), _said(message, lap))


def _shares(message: Message, lap: _Lap, share: Count) -> Array:
    """(cells, cells): what goes from each to the next, over the message."""
    shares = np.zeros((message.cells, message.cells))
    shares[np.array(lap.order), np.roll(lap.order, -1)] = share
    return shares


def _exchange(message: Message) -> Passage:
    """With one other member, both ways at once: the mean over all that it may be."""
    links, others = message.links, message.cells - 1
    apart = np.eye(message.cells, dtype=bool)
    each = _rates(message, message.size / message.calls)
    rate = np.where(apart, np.inf, np.minimum(each, np.swapaxes(each, -1, -2)))
    mean = others / np.sum(1.0 / rate, axis=-1)
    trips = np.maximum(links.rtt, np.swapaxes(links.rtt, -1, -2))
    rtt = np.sum(np.where(apart, 0.0, trips), axis=-1) / others
    began = link.window_left(last(fewest(links.window)), last(fewest(links.first)), message.idle, rtt + link.RTO_LEAST)
    size = last(message.size)
    start = _started(size / message.calls, mean, rtt, began)
    seconds = collective.asked_time(size, mean, message.calls * rtt / 2.0, start)
    shares = np.where(apart, 0.0, 1.0 / others)
    narrowest = ""
    if not links.networks:
        source, target = np.unravel_index(int(np.argmin(rate)), rate.shape)
        narrowest = links.said(int(source), int(target))
    return Passage(seconds=np.asarray(seconds), shares=shares, narrowest=narrowest)


TOPOLOGIES: dict[str, Callable[[Message], Passage]] = {"ring": _ring, "all_gather": _gather, "exchange": _exchange}
"""Those that gloo passes otherwise than NCCL; the rest are the same."""
