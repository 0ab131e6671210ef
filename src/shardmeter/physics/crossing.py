"""Collectives between islands: the ring of NCCL over long round trips, relays, servers, gathers; and islands reduced first.

Fitted numbers are from the NCCL rows of Yuan 2022 (TCP between V100 nodes, 1 to 10 Gbit/s, delays of 0 to 50 ms, 4 to 32 nodes).
"""

from __future__ import annotations

import numpy as np

from shardmeter.core.formula import formula
from shardmeter.core.units import Bytes, BytesPerS, Count, Ratio, Seconds
from shardmeter.physics.wan import WIRE

RING_CHUNK = 4.0 * 2**20
"""Bytes that a rank of NCCL's ring passes on in one step: two channels, half a buffer of 4 MiB each (NCCL's defaults)."""
AHEAD = 0.3
"""Share of a whole chunk's own time that lies behind its delay, its first slices travelling while its last are sent; four slices
allow up to 0.75. Fitted on the 6 all-reduce rows of 50 ms (2.6 %; 0 and 0.5 leave 10 and 9 %)."""
RING_START = 5.3
"""Delays that an all-reduce takes to start and to end, for any number of members: 3.9 to 5.9 in the 24 rows of one all-reduce."""
BACK_TO_BACK = 1.12
"""Time of a ring's bytes in collectives that follow one another at once, over that of one alone. Fitted on the 24 rows of several
calls and ≤ 10 ms (1.06 to 1.37 each where bandwidth binds); its cause is not known."""
RELAYED = 1.25
"""The same of a relay (reduce to one member, broadcast from it): 29 rows, from 1.12 with 4 nodes to 1.36 with 16."""
CROWDED = 1.3
"""The same where all send to all: 29 rows, 1.13 to 1.45; streams that meet at one receiver."""
SEGMENT = 2.0**20
"""Bytes of the largest part of gloo's all-reduce (its default)."""
PER_HOP = 3.0
"""Delays that a hop of a relay costs, and a turn of a member that is served both ways: the same rows, 2 to 4."""


@formula(cite="yuan2022")
def ring_loops(size: Bytes, members: Count, chunk: Bytes) -> Count:
    """Times that a ring goes round for `size` bytes: so many that no step carries more than `chunk`.

    Leaves out: a last loop that is shorter (all are taken as equal)."""
    return np.maximum(np.ceil(size / (members * chunk)), 1.0)


@formula(cite="yuan2022")
def ring_hop(part: Bytes, chunk: Bytes, narrowest: BytesPerS, delay: Seconds) -> Seconds:
    """Time from a part's start at one member until it may start at the next: the delay, and its own time but for what is ahead.

    A part smaller than the `chunk` has fewer slices that travel ahead. Leaves out: the reduction itself, wider links."""
    return delay + part / narrowest * (1.0 - AHEAD * part / chunk)


@formula(cite="yuan2022")
def ring_step(part: Bytes, narrowest: BytesPerS, factor: Ratio, hop: Seconds) -> Seconds:
    """One step of a ring: what its narrowest link needs for a part, or what a part needs from member to member, on average.

    A step cannot begin before the part of the step before has come: 4 MiB at 1 Gbit/s and 50 ms take 75 ms, not 34.
    Leaves out: links that are idle in turn, because the others are slower."""
    return np.maximum(factor * part / narrowest, hop)


@formula(cite="yuan2022")
def ring_factor(calls: Count) -> Ratio:
    """Time of a ring's bytes over that at the rate of its link: headers, and more where several collectives follow one another.

    Leaves out: how long they have gone on."""
    return np.where(np.greater(calls, 1.0), BACK_TO_BACK, WIRE)


@formula(cite="patarasuk2009")
def ring_time(members: Count, loops: Count, calls: Count, step: Seconds, delay: Seconds) -> Seconds:
    """A ring all-reduce, `calls` times `loops` rounds of 2·(members − 1) steps; `delay` is the mean of the ring.

    The 24 rows under 10 ms: 0.2 %; 6 of 50 ms: 2 %; 24 of several calls: 8 %. Leaves out: barriers around it."""
    return 2.0 * (members - 1.0) * loops * calls * step + RING_START * delay


@formula(cite="yuan2022")
def relay_time(size: Bytes, rate: BytesPerS, depth: Count, delay: Seconds) -> Seconds:
    """All to one and back along a chain or tree of `depth` hops: every link passes the whole once each way.

    Leaves out: how the members cut the message (the parts of a pipeline are in the two numbers)."""
    return 2.0 * (RELAYED * size / rate + PER_HOP * depth * delay)


@formula(cite="yuan2022")
def sharded_time(size: Bytes, members: Count, rate: BytesPerS, delay: Seconds) -> Seconds:
    """Every member serves its part: all parts to their servers, the means back; `rate` is what each of a member's transfers gets.

    The members are served in turn, a turn each way behind the one before: they cost PER_HOP of its delays.
    Leaves out: unequal parts."""
    return 2.0 * CROWDED * size / members / rate + (members - 1.0) * PER_HOP * delay


@formula(cite="shardmeter")
def hierarchical_time(first: Seconds, across: Seconds, last: Seconds, chunks: Count) -> Seconds:
    """Reduce-scatter inside (`first`), all-reduce across, all-gather inside (`last`), chunk by chunk: the longest, and one chunk
    of each of the others.

    Leaves out: what inside and across share (memory, adapters)."""
    longest = np.maximum(np.maximum(first, across), last)
    return longest + (first + across + last - longest) / chunks


# ---- gloo: segments that their receivers ask for ---------------------------------------------------------------------------------


@formula(cite="gloo2026")
def segments(size: Bytes, members: Count, segment: Bytes) -> Count:
    """Parts into which gloo cuts an all-reduce: of one `segment` at most, two a member at least, as many for each.

    Leaves out: messages of fewer numbers than parts, which take one round trip."""
    fewest = np.maximum(np.ceil(size / segment), 2.0 * members)
    return np.ceil(fewest / members) * members


@formula(cite="gloo2026")
def asked_pair(part: Seconds, delay: Seconds, members: Count) -> Seconds:
    """Two parts of a ring, of which gloo has two under way: either the line is busy with both, or one waits for its receiver's word that
    it is wanted (a delay) and passes (a delay). Between two members the word waits behind the part that goes the same way.

    From the order of sends, receives and notices in the source, run event by event. Leaves out: send buffers of the system
    that fill: messages of 16 MB and more over 100 ms take 5 to 16 % longer."""
    behind = np.where(np.less_equal(members, 2.0), delay, 0.0)
    return np.maximum(2.0 * part + behind, part + 2.0 * delay)


@formula(cite="gloo2026")
def asked_train(parts: Count, part: Seconds, delay: Seconds, pair: Seconds) -> Seconds:
    """`parts` sent one after the other round a ring, each asked for by who receives it: the first two are asked for and come, the
    others follow by twos.

    Leaves out: members that begin at unlike times; unlike lines, of which the slowest and the mean delay are taken."""
    return 2.0 * (delay + part) + np.maximum(parts / 2.0 - 1.0, 0.0) * pair


@formula(cite="gloo2026")
def asked_time(size: Bytes, rate: BytesPerS, delay: Seconds, start: Seconds) -> Seconds:
    """One message that its receiver asks for: the word goes one way, then it comes.

    Leaves out: receivers that asked long before."""
    return WIRE * size / rate + 2.0 * delay + start
