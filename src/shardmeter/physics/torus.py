"""A torus of point-to-point links: which of its axes a group of ranks lies along, and what they give it.

Legend: a row of `degree` ranks, `stride` apart, lies along an axis whose neighbours are `inner` ranks apart and whose next
axis begins at `outer` ranks; on the axis the group has `members`, and they spread over `span` places of it. `ports` is 2 where
those places close to a ring (both ways round), else 1: the end of a line has one neighbour.
"""

from __future__ import annotations

import numpy as np

from shardmeter.core.formula import formula
from shardmeter.core.units import Bytes, BytesPerS, Count


@formula(cite="shardmeter")
def axis_members(degree: Count, stride: Count, inner: Count, outer: Count) -> Count:
    """Members of a row of ranks along one axis: ranks fill the first axis, then the second, and so on.

    Leaves out: rows that fill no whole number of an axis (the fraction is kept: the product over axes is the degree)."""
    return np.maximum(np.minimum(degree * stride, outer) / np.maximum(stride, inner), 1.0)


@formula(cite="shardmeter")
def axis_span(degree: Count, stride: Count, inner: Count, outer: Count) -> Count:
    """Places of one axis over which a row of ranks spreads: with members s places apart, s groups lie between one another and
    share the links.

    Leaves out: what the last member does not reach beyond itself."""
    members = np.minimum(degree * stride, outer) / np.maximum(stride, inner)
    return np.where(np.greater(members, 1.0), np.minimum(degree * stride, outer) / inner, 1.0)


@formula(cite="scaling-book")
def axis_rate(members: Count, span: Count, ports: Count, link: BytesPerS) -> BytesPerS:
    """What one group receives along one axis: links on both sides of a ring, on one side of a line's end, shared by the groups
    that lie between one another.

    Leaves out: a middle of a line that waits less than its ends."""
    return ports * link * members / span


@formula(cite="scaling-book")
def axis_hops(members: Count, span: Count, ports: Count) -> Count:
    """Hops of a gather or a scatter along one axis: half way round a ring, all along a line.

    Leaves out: routes that are not along one axis after the other."""
    return np.ceil((members - 1.0) / ports) * (span / members)


@formula(cite="scaling-book")
def bisection_traffic(size: Bytes, members: Count) -> Bytes:
    """Bytes that an all-to-all sends through the cut that halves one axis, one way: every member on one side has, of its
    `size`, the part of the members on the other: size · ⌊m²/4⌋/m.

    Over a ring that is twice through 2 links, a quarter of what a gather takes. Leaves out: routing that evens out axes of
    unlike length."""
    odd = np.where(np.equal(np.mod(members, 2.0), 1.0), 1.0, 0.0)
    return size * (members * members - odd) / (4.0 * members)
