"""One transfer between islands: round trips of distance, what windows and loss allow, how a transfer starts.

Rates are of payload in bytes per second; a delay is one way, a round trip is both.
"""

from __future__ import annotations

import numpy as np

from shardmeter.core.formula import formula
from shardmeter.core.units import Bytes, BytesPerS, Count, Fraction, Ratio, Seconds

PER_KILOMETRE = 10.09e-6
"""Round trip of a kilometre of fibre, in seconds: fit of six routes from 50 to 500 km (HPE 2026), within 0.3 %."""
EQUIPMENT = 123e-6
"""Round trip through the equipment at both ends of those routes, in seconds."""
ROUTE = 1.3
"""Kilometres of fibre for one of a straight line: cables take 1.2 to 1.5."""
SEGMENT = 1448.0
"""Payload of a TCP segment where packets have 1,500 bytes; 8,949 where they have 9,001."""
PACKET = 4096.0
"""Payload of an RDMA packet."""
FIRST = 10.0
"""Segments that a TCP stream sends before anything was acknowledged (RFC 6928)."""
WIRE = 1.0075
"""Bytes on the wire for one of payload: 66 of headers to a segment of 8,949. The 20 point-to-point rows of Yuan 2022 have 1.008;
packets of 1,500 bytes have up to 1.046, which capacities that were measured as payload already leave out."""
HEADERS = 52.0
"""Of a TCP packet: 20 of IPv4, 20 of TCP, 12 of timestamps."""
RTO_LEAST = 0.2
"""Seconds that a retransmission timeout is longer than the round trip (Linux)."""
LN2 = float(np.log(2.0))
LEAST_LOSS = 1e-18
"""Loss that no transfer lives to see: stands for none."""


@formula(cite="hpe2026")
def rtt_of_distance(kilometres: Count, route: Ratio, per_kilometre: Seconds, equipment: Seconds) -> Seconds:
    """Round trip between places `kilometres` apart in a straight line, the fibre being `route` times as long.

    Leaves out: queues, detours beyond the route factor, routers of the public internet."""
    return kilometres * route * per_kilometre + equipment


@formula(cite="mathis1997")
def loss_limit(segment: Bytes, rtt: Seconds, loss: Fraction) -> BytesPerS:
    """What a TCP stream carries at a share `loss` of lost packets: 1.22·segment/(rtt·√loss).

    Leaves out: CUBIC and BBR, which carry more over long round trips; timeouts at losses of some per cent."""
    return 1.22 * segment / (rtt * np.sqrt(np.maximum(loss, LEAST_LOSS)))


@formula(cite="mathis1997")
def stream_rate(window: Bytes, rtt: Seconds, segment: Bytes, loss: Fraction) -> BytesPerS:
    """What one TCP stream carries on a link of any capacity: a window a round trip, or what loss leaves it.

    Leaves out: windows that the two ends tune while a transfer runs."""
    return np.minimum(window / rtt, loss_limit(segment, rtt, loss))


@formula(cite="shardmeter")
def window_rate(window: Bytes, rtt: Seconds) -> BytesPerS:
    """What one stream (of RDMA, a queue pair) carries at most: what it may have under way, once a round trip.

    Leaves out: the time from arrival until a buffer is free again (20 to 50 µs)."""
    return window / rtt


@formula(cite="shardmeter")
def pair_rate(capacity: BytesPerS, up: BytesPerS, down: BytesPerS, streams: Count, stream: BytesPerS) -> BytesPerS:
    """What one transfer gets that has a pair of islands to itself: the least of link, sites and its streams together.

    Leaves out: other traffic, streams that take unequal shares."""
    return np.minimum(np.minimum(capacity, streams * stream), np.minimum(up, down))


@formula(cite="shardmeter")
def packets_under_way(rate: BytesPerS, rtt: Seconds, window: Bytes, packet: Bytes) -> Count:
    """Packets that one stream of `rate` has under way: a round trip of them, no more than its window, one at least.

    Leaves out: what waits in queues."""
    return np.maximum(np.minimum(rate * rtt, window) / packet, 1.0)


@formula(cite="shardmeter")
def go_back_n(loss: Fraction, packets: Count) -> Fraction:
    """Share of its rate that go-back-N keeps: every lost packet sends again the `packets` under way,
    (1 − loss)/(1 − loss + loss·packets).

    Leaves out: lost acknowledgements and timeouts, which at losses of a per cent leave nothing."""
    return (1.0 - loss) / (1.0 - loss + loss * packets)


@formula(cite="shardmeter")
def wire_share(mtu: Bytes, headers: Bytes) -> Ratio:
    """Bytes on the wire for one of payload over TCP with packets of `mtu`: `headers` to each (IPv4, TCP, timestamps), and one
    acknowledgement for every two that come, as the other direction carries as much.

    Measured in all-reduces: 1.051 for 1,500 (1.054 here), 1.009 for 9,000 (1.0088), 1.0024 for 36,000 (1.0022). Leaves out: framing below
    IP, packets that are sent again, the last packet of a message, which is smaller."""
    return mtu / (mtu - headers) + 0.5 * headers / (mtu - headers)


@formula(cite="rfc2861")
def window_left(window: Bytes, first: Bytes, idle: Seconds, timeout: Seconds) -> Bytes:
    """What a connection may send in its first round trip after `idle`: its window halved for every `timeout` that has passed, but what a
    new one begins with at least. A timeout is a round trip and RTO_LEAST.

    Leaves out: congestion control that keeps a rate instead (BBR); variance in the timeout."""
    return np.maximum(window * 0.5 ** (idle / timeout), first)


@formula(cite="rfc6928")
def slow_start(size: Bytes, rate: BytesPerS, rtt: Seconds, first: Bytes) -> Seconds:
    """Time that a transfer loses on its way to its rate: it begins with `first` a round trip and doubles every round trip.

    After y doublings' worth (2^t = y) it has sent (y − 1)·first/ln 2 where the full rate would have taken less time; y is
    rate·rtt/first, or what the size ends at. The 20 NCCL rows between two nodes of Yuan 2022 (16 streams of 10 segments) follow
    within 2 % without a fitted number. Leaves out: connections still warm from the transfer before, losses on the way up."""
    doubled = np.minimum(np.maximum(rate * rtt / first, 1.0), 1.0 + size * LN2 / first)
    return rtt * np.log2(doubled) - (doubled - 1.0) * first / LN2 / rate


@formula(cite="hockney1994")
def pass_time(size: Bytes, rate: BytesPerS, delay: Seconds, start: Seconds) -> Seconds:
    """Time until `size` bytes have arrived: start, headers and payload at the rate of the transfer, one delay.

    Leaves out: what else a site sends meanwhile (its share is in the rate)."""
    return WIRE * size / rate + delay + start


@formula(cite="shardmeter")
def shared_rate(rate: BytesPerS, site: BytesPerS, transfers: Count) -> BytesPerS:
    """What each of `transfers` gets that use a site's connection at once: an equal part of it, no more than alone.

    Leaves out: what those that are limited elsewhere leave to the others."""
    return np.minimum(rate, site / transfers)
