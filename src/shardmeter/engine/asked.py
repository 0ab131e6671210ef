"""How messages pass by gloo: rings of segments that their receivers ask for, over connections that may have stood idle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardmeter.core.record import record
from shardmeter.core.units import Bytes, BytesPerS, Count, Seconds
from shardmeter.engine.links import Array, fewest, most
from shardmeter.engine.passage import Message, Passage, alike, last
from shardmeter.physics import crossing as collective
from shardmeter.physics import wan as link

BACKEND = "gloo"
UNDER_WAY = 2.0
"""Segments that a member has asked for at once."""


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


def _rates(message: Message, asked: Bytes, parts: Count = 1.0) -> Array:
    """What a transfer gets of every pair of which so many bytes are asked for at once by each of so many `parts` of its streams: a window
    that holds them does not bind."""
    links = message.links
    held = np.less_equal(_wide(asked * parts), links.window)
    return np.where(held, links.unheld, links.rate)


def _wide(number: Any) -> Array:
    """With the two axes of pairs."""
    return np.asarray(number, dtype=float)[..., None, None]


def _lap(message: Message, order: Sequence[int], asked: Bytes) -> _Lap:
    """Through the members one after the other, as they are numbered: no library of gloo looks for a better way round. Rings side by side
    have even parts of lines, windows and streams; one through all accelerators, of whose hops few cross, has a lane. `asked`
    bytes are under way at once in each."""
    links, (members, rings) = message.links, _round(message)
    at, to = np.array(order), np.roll(order, -1)
    flat = _flat(message)
    parts = most(links.lanes) if flat else rings
    rate = _rates(message, asked, parts)[..., at, to].min(axis=-1) / parts
    rtt = links.rtt[..., at, to].mean(axis=-1)
    window, first = fewest(links.window) / parts, fewest(links.first) / parts
    return _Lap(
        order=tuple(order), members=members, size=message.size / (message.calls * rings), rings=rings,
        rate=np.minimum(rate, links.adapter.min(axis=-1)) if flat else rate, delay=rtt / 2.0 * (message.cells / members),
        rtt=most(links.rtt), first=link.window_left(window, first, message.idle, rtt + link.RTO_LEAST),
    )  # fmt: skip


def _flat(message: Message) -> bool:
    """Whether one ring goes through all accelerators."""
    return bool(np.max(message.ranks) > 0.0)


def _round(message: Message) -> tuple[Count, Count]:
    """Members of a ring, and how many rings there are side by side."""
    return (message.ranks, 1.0) if _flat(message) else (float(message.cells), message.rings)


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
    """An all-reduce: round the ring once to add up and once to hand out, each sending to the one before it."""
    members, rings = _round(message)
    size = message.size / (message.calls * rings)
    count = collective.segments(size, members, collective.SEGMENT)
    part = size / count
    lap = _lap(message, range(message.cells)[::-1], UNDER_WAY * part)
    total = message.calls * passed("all_reduce", lap.size, members, lap.rate, lap.delay) + _started(
        UNDER_WAY * part, lap.rate, lap.rtt, lap.first
    )
    return alike(total, _shares(message, lap, 2.0 * (lap.members - 1.0) / lap.members), _said(message, lap))


def _gather(message: Message) -> Passage:
    """Everybody's message round the ring, in halves, each sending to the one behind it."""
    _, rings = _round(message)
    lap = _lap(message, range(message.cells), message.size / (message.calls * rings))
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
    window, first, idle = (last(one) for one in (fewest(links.window), fewest(links.first), message.idle))
    began = link.window_left(window, first, idle, rtt + link.RTO_LEAST)
    size = last(message.size)
    start = _started(size / message.calls, mean, rtt, began)
    seconds = collective.asked_time(size, mean, message.calls * rtt / 2.0, start)
    shares = np.where(apart, 0.0, 1.0 / others)
    narrowest = ""
    if not links.networks:
        every = rate.reshape(-1, *rate.shape[-2:])[0]
        source, target = np.unravel_index(int(np.argmin(every)), every.shape)
        narrowest = links.said(int(source), int(target))
    return Passage(seconds=np.asarray(seconds), shares=shares, narrowest=narrowest)


TOPOLOGIES: dict[str, Callable[[Message], Passage]] = {"ring": _ring, "all_gather": _gather, "exchange": _exchange}
"""Those that gloo passes otherwise than NCCL; the rest are the same."""
