"""The price list of the network between islands: what one message between cells takes, what is sent, what is narrowest.

Cells are tuples of islands' places in `Wan.islands`. A cell of several islands holds its message in equal parts, one an island;
each part passes between the islands of one position, and the slowest position counts; an island that is in several positions, because
its cell has fewer islands, shares its site and links among them. Sizes may be arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardmeter.core.errors import UnknownName
from shardmeter.core.record import changed, record
from shardmeter.core.sums import plain_sum
from shardmeter.core.units import Bytes, BytesPerS, Count, Seconds, Usd
from shardmeter.engine import asked
from shardmeter.engine.links import Array, Links, fewest, links_of, most
from shardmeter.engine.passage import Message, Passage, alike, last
from shardmeter.engine.ring import Ring, ring_front, ring_ways
from shardmeter.physics import crossing as collective
from shardmeter.physics import wan as link
from shardmeter.specs.plan import Sync
from shardmeter.specs.round import COLLECTIVES, Crossing
from shardmeter.specs.wan import Wan

WORDS = ("auto", "ring", "tree", "star", "sharded_star", "all_gather")
"""What `topology` may say."""


@record
class Crossed:
    """One message of a crossing."""

    seconds: Seconds
    """Of shape (…), until the last cell has it; (…, cells) where each has its own."""
    caused: Bytes
    """(…, cells, islands): what leaves each island for the exchange of each cell."""
    charged: Usd
    """(…, cells, islands): what each island pays for the exchange of each cell; NaN where a price is not known."""
    narrowest: str
    """The pair that is slowest, and why."""
    start: Seconds = 0.0
    """Of one that leaves in pieces: what its last piece takes of the seconds, however small it is."""

    @property
    def sent(self) -> Bytes:
        """(…, islands): what leaves each island, every cell exchanging once."""
        total: Bytes = np.sum(self.caused, axis=-2)
        return total

    @property
    def egress(self) -> Usd:
        """What that costs, all islands together."""
        total: Usd = np.sum(self.charged, axis=(-2, -1))
        return total


def price(
    one: Crossing,
    wan: Wan,
    cells: Sequence[Sequence[int]],
    sync: Sync,
    *,
    own: bool = False,
    accelerators: Sequence[Count] = (),
    weights: Sequence[float] = (),
    segment: Bytes = link.SEGMENT,
    idle: Seconds = 0.0,
) -> Crossed:
    """What one message takes between cells of a network of which TCP packets carry `segment` bytes; the rest as of `crossed`."""
    links = links_of(wan, segment)
    return crossed(one, links, cells, sync, own=own, accelerators=accelerators, weights=weights, idle=idle)


def crossed(
    one: Crossing,
    links: Links,
    cells: Sequence[Sequence[int]],
    sync: Sync,
    *,
    own: bool = False,
    accelerators: Sequence[Count] = (),
    weights: Sequence[float] = (),
    idle: Seconds = 0.0,
) -> Crossed:
    """What one message takes, by the topology of `sync` or the collective's own; of networks side by side that are of one of `ways`, whose
    axis is then the first and `narrowest` empty. `idle` seconds nothing passed before it, which gloo's connections, once warm, feel.

    `own`: seconds of every cell, else of the slowest. `accelerators` of every island: hierarchical messages pass in as
    many rings side by side as the smallest island has; without it as many as the link has lanes. `weights` of every
    island: what it holds of its cell's message, over an even part (stages of a pipeline). Raises UnknownName for a
    topology that is none. One cell: nothing. Messages that are gathered, not averaged, pass whole by every topology:
    with a server all of the others' come back, and a ring, a tree and servers of parts carry M/2 times what they carry
    of a mean. Leaves out: messages of other crossings on the wire, those of other groups where they share a line."""
    if one.groups:
        return _apart(one, links, cells, sync, own=own, accelerators=accelerators, weights=weights, idle=idle)
    (passing, gathers), islands = _way(one, sync, links), len(links.names)
    if len(cells) < 2:
        return _nothing(one, len(cells), islands, own=own)
    groups, links = _positions(cells, links)
    size = np.asarray(one.size, dtype=float) / len(groups)
    if gathers and passing is not _star:
        size = size * len(cells) / 2.0
    caused, charged = np.zeros((len(cells), islands)), np.zeros((*links.networks, len(cells), islands))
    passages: dict[Any, Passage] = {}
    starts: dict[Any, Array] = {}
    with np.errstate(divide="ignore", invalid="ignore"):
        for members in groups:
            weight = max(weights[at] for at in members) if weights else 1.0
            message = _message(one, weight * size, links.among(members), sync, [*accelerators], members, idle)
            tables = message.links.tables if len(groups) > 1 else ()  # of one group nothing is compared
            seen = weight, tables, np.asarray(message.rings).tobytes(), message.ranks
            if seen not in passages:
                message = changed(message, back=len(cells) - 1.0) if gathers else message
                passages[seen] = passing(message)
                least = changed(message, size=0.0 * size, calls=1.0)
                starts[seen] = passing(least).seconds if one.behind else np.zeros(1)
            passage = passages[seen]
            source, target = np.nonzero(passage.shares)
            owner, gone = np.where(source == passage.server, target, source), weight * passage.shares[source, target]
            at, to = np.array(members)[source], np.array(members)[target]
            np.add.at(caused, (owner, at), gone)
            where: Any = (..., owner, at)
            np.add.at(charged, where, gone * links.egress[..., at, to])
    seconds = np.maximum.reduce([passage.seconds for passage in passages.values()])
    seconds = seconds + last(one.calls * links.waited(size / one.calls))
    slowest = max(passages.values(), key=lambda passage: float(np.max(passage.seconds)))
    return Crossed(
        seconds=seconds if own else np.max(seconds, axis=-1),
        caused=np.multiply.outer(size, caused),
        charged=np.multiply.outer(size, charged),
        narrowest=slowest.narrowest,
        start=np.max(np.maximum.reduce([*starts.values()]), axis=-1),
    )


def _way(one: Crossing, sync: Sync, links: Links) -> tuple[Callable[[Message], Passage], bool]:
    """How a message passes by the backend's own topologies or those of all, and whether it is gathered by one that averages."""
    topology = topology_of(one, sync)
    known = TOPOLOGIES | asked.TOPOLOGIES if links.backend == asked.BACKEND else TOPOLOGIES
    return known[topology], one.collective == "all_gather" and topology != "all_gather"


def _nothing(one: Crossing, cells: int, islands: int, *, own: bool) -> Crossed:
    """Of one cell, or none."""
    nothing = 0.0 * np.asarray(one.size, dtype=float)
    none = np.multiply.outer(nothing, np.zeros((cells, islands)))
    return Crossed(seconds=nothing[..., None] if own else nothing, caused=none, charged=none, narrowest="")


def _apart(
    one: Crossing, links: Links, cells: Sequence[Sequence[int]], sync: Sync, *, own: bool, **more: Any
) -> Crossed:
    """A message that passes inside groups of cells at the same time: each pays its own group's, or all that of the slowest."""
    size = np.asarray(one.size, dtype=float)
    seconds = np.zeros((*np.broadcast_shapes(size.shape, np.shape(more["idle"])), len(cells)))
    caused = np.zeros((*size.shape, len(cells), len(links.names)))
    charged = np.zeros_like(caused)
    slowest, said, start = -1.0, "", np.zeros(())
    for group in one.groups:
        members = list(group)
        found = crossed(changed(one, groups=()), links, [cells[at] for at in members], sync, own=True, **more)
        seconds[..., members], charged[..., members, :] = found.seconds, found.charged
        caused[..., members, :] = found.caused
        start = np.maximum(start, found.start)
        if float(np.max(found.seconds)) > slowest:
            slowest, said = float(np.max(found.seconds)), found.narrowest
    whole = seconds if own else np.max(seconds, axis=-1)
    return Crossed(seconds=whole, caused=caused, charged=charged, narrowest=said, start=start)


def ways(one: Crossing, links: Links, cells: Sequence[Sequence[int]], sync: Sync) -> list[list[int]]:
    """The places of networks side by side through which a message passes by the same rings, and which `crossed` answers at once; each
    of the others by itself."""
    alone = [[at] for at in range(len(links.rate))]
    if one.groups or len(cells) < 2 or topology_of(one, sync) != "ring":
        return alone
    groups, links = _positions(cells, links)
    seen = [links.among(members) for members in groups]
    found: dict[Any, list[int]] = {}
    for at, orders in enumerate(zip(*(ring_ways(some.rate, some.rtt) for some in seen), strict=True)):
        found.setdefault(at if None in orders else orders, []).append(at)
    return list(found.values())


def _positions(cells: Sequence[Sequence[int]], links: Links) -> tuple[list[list[int]], Links]:
    """The islands of every position, and the links as messages of all positions at once have them."""
    most = max(len(cell) for cell in cells)
    groups = [[cell[place * len(cell) // most] for cell in cells] for place in range(most)]
    if most == 1:
        return groups, links
    return groups, links.parted(np.sum([_together(members, len(links.names)) for members in groups], axis=0))


def _together(members: Sequence[int], islands: int) -> Array:
    """1 for every pair of members, and for each with itself."""
    found = np.zeros((islands, islands))
    found[np.ix_(members, members)] = 1.0
    return found


def topology_of(one: Crossing, sync: Sync) -> str:
    """The word of TOPOLOGIES by which a message passes: a pair's exchange has no other. Raises UnknownName."""
    if sync.topology not in WORDS:
        raise UnknownName("topology", sync.topology, WORDS)
    if one.collective not in COLLECTIVES:
        raise UnknownName("collective", one.collective, COLLECTIVES)
    own = "ring" if one.collective == "all_reduce" else one.collective
    return own if sync.topology == "auto" or own == "exchange" else sync.topology


def _message(
    one: Crossing, size: Bytes, links: Links, sync: Sync, accelerators: list[Count], members: list[int], idle: Seconds
) -> Message:
    counts = [float(np.max(accelerators[at])) for at in members] if accelerators else []
    lanes = fewest(links.lanes)
    return Message(
        size=size,
        calls=one.calls,
        links=links,
        rings=np.maximum(min(counts), lanes) if counts else lanes,
        ranks=0.0 if sync.hierarchical else plain_sum(counts) or float(len(members)),
        idle=idle,
    )


# ---- how a message passes --------------------------------------------------------------------------------------------------------


def _ring(message: Message) -> Passage:
    """NCCL's ring, in the order that is fastest: all islands at the pace of its narrowest link, or of its round trips."""
    front = _front(message.links)
    times = [_around(message, ring) for ring in front]
    best = front[int(np.argmin([np.max(one) for one in times]))]
    at, to = np.array(best.order), np.roll(best.order, -1)
    ranks = message.ranks or float(message.cells)
    shares = np.zeros((message.cells, message.cells))
    shares[at, to] = 2.0 * (ranks - 1.0) / ranks
    return alike(np.minimum.reduce(times), shares, "" if message.links.networks else _said(message, best, times))


def _front(links: Links) -> tuple[Ring, ...]:
    """The rings worth trying; over networks side by side one, which goes the same way on all (`ways`)."""
    if not links.networks:
        return ring_front(links.rate, links.rtt)
    first = ring_front(links.rate[0], links.rtt[0])[0]
    at, to = np.array(first.order), np.roll(first.order, -1)
    rates, trips = (np.ascontiguousarray(one[:, at, to]) for one in (links.rate, links.rtt))
    return (changed(first, narrowest=rates.min(axis=-1), rtt=trips.sum(axis=-1)),)


def _said(message: Message, best: Ring, times: Sequence[Array]) -> str:
    """The narrowest link of a ring, and whether it is not that but the way round which sets the pace."""
    at, to = np.array(best.order), np.roll(best.order, -1)
    worst = int(np.argmin(message.links.rate[at, to]))
    said = message.links.said(int(at[worst]), int(to[worst]))
    without = _around(message, changed(best, rtt=0.0))
    waits = np.all(np.greater(np.min(times, axis=0), 2.0 * without))
    return said + "; round trips set the pace" * bool(waits)


def _around(message: Message, ring: Ring) -> Array:
    """An all-reduce in one order: as rings side by side, or one through all accelerators, of whose hops few cross."""
    flat = bool(np.max(message.ranks) > 0.0)
    ranks, rings = (message.ranks, 1.0) if flat else (float(message.cells), message.rings)
    lanes = most(message.links.lanes) if flat else 1.0
    own = np.min(message.links.adapter, axis=-1) if flat else np.inf
    rate = np.minimum(ring.narrowest / lanes, own)
    chunk, held = collective.RING_CHUNK * rings, _held(message, flat=flat)
    whole = np.maximum(chunk, held / 2.0)
    loops = collective.ring_loops(message.size / message.calls, ranks, whole)
    part = message.size / (message.calls * ranks * loops)
    delay = ring.rtt / 2.0 / message.cells
    wires = np.minimum(np.maximum(_wires(message.links) / lanes, rate), own)
    alone = np.where(np.greater(held, 0.0), wires, rate)[()]
    hop = collective.ring_hop(part, np.maximum(part, chunk), alone, delay) * (message.cells / ranks)
    step = collective.ring_step(part, rate, collective.ring_factor(message.calls), hop)
    return np.asarray(collective.ring_time(ranks, loops, message.calls, step, delay))


def _held(message: Message, *, flat: bool) -> Bytes:
    """Bytes that the windows of all rings hold, of which each passes on half a step; 0 over TCP, where NCCL's own are known."""
    links = message.links
    held = fewest(links.under_way)
    return held if flat else held * fewest(links.lanes)


def _wires(links: Links) -> BytesPerS:
    """What the narrowest pair carries whatever its windows: a part that they hold passes at this rate."""
    return fewest(links.lines)


def _tree(message: Message) -> Passage:
    """All to one and back along the tree whose narrowest link is widest, or along the widest ring without one of its links where that is
    better; its hops are as long as those of the shortest ring."""
    links = message.links
    front = ring_front(links.rate, links.rtt)
    delay = message.calls * front[-1].rtt / 2.0 / message.cells
    depth = np.ceil(np.log2(message.cells))
    trees = [_widest_tree(np.minimum(links.rate, links.rate.T), links.rtt + links.rtt.T), _chain(front[0], links)]
    shares, (rate, said) = max(((tree, _slowest(tree, links)) for tree in trees), key=lambda one: one[1][0])
    return alike(collective.relay_time(message.size, rate, depth, delay), shares, said)


def _slowest(tree: Array, links: Links) -> tuple[BytesPerS, str]:
    """What a tree's narrowest link carries, and which that is: a member sends and takes in once for each of its neighbours, both ways
    together."""
    often = np.maximum(tree.sum(axis=1) / 2.0, 1.0)
    rates = link.shared_rate(links.rate, links.up[:, None], often[:, None])
    rates = np.where(tree > 0.0, link.shared_rate(rates, links.down[None, :], often[None, :]), np.inf)
    source, target = (int(at) for at in np.unravel_index(int(np.argmin(rates)), rates.shape))
    return rates[source, target], links.said(source, target, float(often[source]), float(often[target]))


def _chain(ring: Ring, links: Links) -> Array:
    """A ring without its narrowest link, both ways."""
    at, to = np.array(ring.order), np.roll(ring.order, -1)
    kept = np.arange(len(at)) != np.argmin(np.minimum(links.rate[at, to], links.rate[to, at]))
    shares = np.zeros_like(links.rate)
    shares[at[kept], to[kept]] = shares[to[kept], at[kept]] = 1.0
    return shares


def _star(message: Message) -> Passage:
    """All to the server at once and back; the server is the member from which the slowest is nearest, of
    equals the one from which all are, of equals still the first: of two members it is the first."""
    links, others = message.links, message.cells - 1
    inward = np.asarray(link.shared_rate(links.rate, links.down[None, :], float(others)))
    outward = np.transpose(link.shared_rate(links.rate, links.up[:, None], float(others)))
    apart = np.eye(message.cells, dtype=bool)

    def times(size: Bytes, at: Any) -> Array:
        """Of members (rows) to and from servers (columns)."""
        there = _passed(size, inward[at], links.rtt[at], links.first[at], message.calls)
        back = _passed(message.back * size, outward[at], links.rtt.T[at], links.first.T[at], message.calls)
        return np.where(apart[at], 0.0, there + back)

    largest = times(np.max(message.size), np.s_[:, :])
    server = int(np.lexsort((largest.sum(axis=0), largest.max(axis=0)))[0])
    seconds = times(last(message.size), np.s_[:, server])
    shares = np.zeros_like(links.rate)
    shares[server, :], shares[:, server] = message.back, 1.0
    shares[server, server] = 0.0
    slowest = int(np.argmax(largest[:, server]))
    there, back = inward[slowest, server], outward[slowest, server] / message.back
    said = links.said(slowest, server, coming=others) if there <= back else links.said(server, slowest, leaving=others)
    return Passage(seconds=seconds, shares=shares, narrowest=said, server=server)


def _all_gather(message: Message) -> Passage:
    """Every member's message up once (to a store that serves it), all others' down at once."""
    links, others = message.links, message.cells - 1
    apart = np.eye(message.cells, dtype=bool)
    down = np.where(apart, np.inf, link.shared_rate(links.rate, links.down[None, :], float(others)))
    slowest = np.argmin(down, axis=0)
    inward = down[slowest, np.arange(message.cells)]
    rtt, first = np.where(apart, 0.0, links.rtt).max(axis=0), np.where(apart, np.inf, links.first).min(axis=0)
    seconds = _passed(last(message.size), np.minimum(inward, links.up.min()), rtt, first, message.calls)
    shares = np.where(apart, 0.0, 1.0 / others)
    worst = int(np.argmin(inward))
    return Passage(seconds=seconds, shares=shares, narrowest=links.said(int(slowest[worst]), worst, coming=others))


def _sharded_star(message: Message) -> Passage:
    """Every member serves its part: all to all, and all to all again."""
    links, others = message.links, message.cells - 1
    apart = np.eye(message.cells, dtype=bool)
    shared = link.shared_rate(links.rate, np.minimum(links.up[:, None], links.down[None, :]), float(others))
    shared = np.where(apart, np.inf, shared)
    rate = np.minimum(shared.min(axis=0), shared.min(axis=1))
    delay = message.calls * np.where(apart, 0.0, links.delay).max(axis=0)
    seconds = np.asarray(collective.sharded_time(last(message.size), float(message.cells), rate, delay))
    source, target = np.unravel_index(int(np.argmin(shared)), shared.shape)
    shares = np.where(apart, 0.0, 2.0 / message.cells)
    return Passage(seconds=seconds, shares=shares, narrowest=links.said(int(source), int(target), others, others))


def _exchange(message: Message) -> Passage:
    """With one other member, both ways at once: the mean over all that it may be."""
    links, others = message.links, message.cells - 1
    apart = np.eye(message.cells, dtype=bool)
    rate = np.where(apart, np.inf, np.minimum(links.rate, links.rate.T))
    mean = others / np.sum(1.0 / rate, axis=-1)
    rtt = np.sum(np.where(apart, 0.0, np.maximum(links.rtt, links.rtt.T)), axis=-1) / others
    first = np.where(apart, np.inf, links.first).min(axis=-1)
    seconds = _passed(last(message.size), mean, rtt, first, message.calls)
    source, target = np.unravel_index(int(np.argmin(rate)), rate.shape)
    shares = np.where(apart, 0.0, 1.0 / others)
    return Passage(seconds=seconds, shares=shares, narrowest=links.said(int(source), int(target)))


TOPOLOGIES: dict[str, Callable[[Message], Passage]] = {
    "ring": _ring,
    "tree": _tree,
    "star": _star,
    "sharded_star": _sharded_star,
    "all_gather": _all_gather,
    "exchange": _exchange,
}


def _passed(size: Bytes, rate: BytesPerS, rtt: Seconds, first: Bytes, calls: Count) -> Array:
    """One transfer, its start included."""
    return np.asarray(link.pass_time(size, rate, calls * rtt / 2.0, link.slow_start(size, rate, rtt, first)))


def _widest_tree(rates: Array, trips: Array) -> Array:
    """What passes between whom, once each way over the links of the tree; of links equally wide, the shorter."""
    rows = np.stack([rates.ravel(), -trips.ravel()])
    wide = np.unique(rows, axis=1, return_inverse=True)[1].reshape(rates.shape)
    shares = np.zeros_like(rates)
    joined, best, parent = np.zeros(len(rates), dtype=bool), wide[0].copy(), np.zeros(len(rates), dtype=int)
    joined[0] = True
    for _ in range(len(rates) - 1):
        new = int(np.argmax(np.where(joined, -np.inf, best)))
        old = int(parent[new])
        shares[old, new] = shares[new, old] = 1.0
        joined[new] = True
        closer = wide[new] > best
        best, parent = np.where(closer, wide[new], best), np.where(closer, new, parent)
    return shares
