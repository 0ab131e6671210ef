"""Which axes of a torus a group of ranks lies along. Contiguous: ranks fill the first axis, then the second, and so on, so the
innermost mesh axis of `rank_order` gets the first axis of the torus (and, if it is longer, part of the next)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shardmeter.core.record import record
from shardmeter.core.units import BytesPerS, Count, Number
from shardmeter.physics import torus
from shardmeter.specs.fleet import Tier

Rows = Sequence[tuple[Count, Count]]
"""(degree, stride) of the rows of ranks that a group is made of."""


@record
class Along:
    """What a group has on one axis of a torus: members, the places they spread over, links at the end of a way, their rate."""

    members: Count
    span: Count
    ports: Count
    rate: BytesPerS


def along(tier: Tier, rows: Rows) -> tuple[Along, ...]:
    """A group's part of every axis of a torus. A group of interleaved rows shares each axis with the groups between them."""
    link = tier.bandwidth if tier.pair_bandwidth is None else tier.pair_bandwidth
    found: list[Along] = []
    inner: Count = 1.0
    for axis in tier.torus:
        outer = inner * axis.length
        members: Count = 1.0
        span: Count = 1.0
        for degree, stride in rows:
            members = members * torus.axis_members(degree, stride, inner, outer)
            span = np.maximum(span, torus.axis_span(degree, stride, inner, outer))
        whole = np.greater_equal(span, axis.length) if axis.closed else False
        ports = np.where(whole, 2.0, 1.0)
        found.append(Along(members=members, span=span, ports=ports, rate=torus.axis_rate(members, span, ports, link)))
        inner = outer
    return tuple(found)


def rate(tier: Tier, parts: Sequence[Along]) -> BytesPerS:
    """What a member receives in a gather or a scatter: over all axes that the group spans at once, at most all its links."""
    total: BytesPerS = 0.0
    least: BytesPerS = tier.bandwidth
    for part in parts:
        spanned = np.greater(part.members, 1.0)
        total = total + np.where(spanned, part.rate, 0.0)
        least = np.minimum(least, part.rate)
    return np.minimum(np.maximum(total, least), tier.bandwidth)


def hops(parts: Sequence[Along]) -> Count:
    """Links that the farthest part passes in a gather or a scatter: along one axis after the other."""
    total: Count = 0.0
    for part in parts:
        total = total + torus.axis_hops(part.members, part.span, part.ports)
    return total


def exchanged(parts: Sequence[Along], size: Number) -> tuple[tuple[Number, BytesPerS], ...]:
    """(bytes through the cut that halves an axis, rate of the cut's links for one member) of an all-to-all, axis by axis."""
    return tuple((torus.bisection_traffic(size, part.members), part.rate) for part in parts)


__all__ = ["Along", "along", "exchanged", "hops", "rate"]
