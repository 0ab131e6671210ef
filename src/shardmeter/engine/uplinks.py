"""The uplinks of a site: what flows that are hashed or sprayed make of them, what their buffers allow, what planes lose.

A network is read as its record says while it says nothing of uplinks (`asked`). Networks side by side (`engine.abreast`) have their axis
before those of islands.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from shardmeter.core.record import changed
from shardmeter.core.units import BytesPerS, Count, Fraction, Ratio
from shardmeter.physics import network
from shardmeter.physics.wan import PACKET
from shardmeter.specs.assumed import Assumed
from shardmeter.specs.fleet import Island
from shardmeter.specs.wan import TRANSPORTS, Wan

Array: TypeAlias = npt.NDArray[Any]
TCP, RDMA, SELECTIVE, CODED, LOSSLESS = range(len(TRANSPORTS))
"""Places in TRANSPORTS."""
MOST_LOSS = 0.9
NO_PORTS = np.array(np.inf)
ENOUGH = 1e30
"""Bytes that no buffer has."""


def asked(wan: Wan) -> bool:
    """Whether anything is said of uplinks."""
    return bool(wan.balance) or not (is_left(wan.buffer, np.inf) and is_left(wan.planes, 1.0))


def is_left(value: Any, unsaid: float) -> bool:
    """Whether a field of a network has the value that says nothing."""
    return isinstance(value, float) and value == unsaid


def sites(number: Any, count: int) -> Array:
    """A number of every site: (…, islands)."""
    return np.broadcast_to(np.asarray(number, dtype=float), np.broadcast_shapes(np.shape(number), (count,)))


def pairs(number: Any, count: int) -> Array:
    """A number of every pair: (…, islands, islands)."""
    return np.broadcast_to(np.asarray(number, dtype=float), np.broadcast_shapes(np.shape(number), (count, count)))


def shared(wan: Wan, islands: Sequence[Island] = (), ports: Array = NO_PORTS) -> tuple[Wan, Array]:
    """The network with what the balance of its sites leaves of every rate, its uplinks counted; and what is left of the sites' `ports`
    (B/s of all adapters together). A network that was counted already stays.

    Without `islands` a site is taken to have an adapter for each of its uplinks, or for each lane. A pair's link keeps the lesser share
    of its two ends. Leaves out: hashing in the routers between sites."""
    if np.all(np.isfinite(wan.uplinks)):
        return wan, ports
    adapters, wire = _adapters(wan, islands)
    reach = network.uplink_rate(adapters, wire, network.HEADER, 1.0)
    up = np.where(np.isinf(wan.up), reach, wan.up)
    down = np.where(np.isinf(wan.down), reach, wan.down)
    each = np.where(np.isinf(wan.uplink), wire, wan.uplink) * network.HEADER
    known = np.isfinite(up) & np.isfinite(each)
    with np.errstate(invalid="ignore"):
        uplinks = np.where(known, np.maximum(up / each, 1.0), adapters)
        incast = np.where(np.isfinite(reach), np.maximum(reach / up, 1.0), 1.0)
    share = _share(wan, adapters, uplinks)
    ports = ports * _planes(wan, adapters)
    gpus = np.array([float(island.gpus) for island in islands]) if islands else 1.0
    made = changed(
        wan,
        up=up * share,
        down=down * share,
        bandwidth=np.multiply(wan.bandwidth, np.minimum(share[..., :, None], share[..., None, :])),
        uplinks=uplinks,
        incast=incast,
        adapter=ports / gpus,
    )
    return made, ports


def _adapters(wan: Wan, islands: Sequence[Island]) -> tuple[Array, Array]:
    """Adapters of every site and the wire rate of one; inf where it is not known."""
    if not islands:
        count = len(wan.islands)
        lanes = np.where(np.eye(count, dtype=bool), 1.0, pairs(wan.lanes, count)).max(axis=-1)
        up, uplink = sites(wan.up, count), sites(wan.uplink, count)
        with np.errstate(invalid="ignore"):
            said = np.isfinite(up) & np.isfinite(uplink)
            return np.where(said, np.maximum(up / uplink / network.HEADER, 1.0), lanes), np.full(count, np.inf)
    found = np.array([adapters_of(island) for island in islands])
    return found[:, 0], found[:, 1]


def adapters_of(island: Island) -> tuple[Count, BytesPerS]:
    """How many adapters an island has, and the wire rate of one, one direction; inf where its fabric is not known."""
    if len(island.tiers) > 1:
        tier = island.tiers[1]
        one = tier.bandwidth if tier.adapter is None else tier.adapter
        return float(island.gpus * tier.bandwidth / one), float(one)
    fabric = island.outside
    if fabric is None:
        return float(island.gpus), np.inf
    each = island.gpus_per_node if fabric.nics_per_node is None else fabric.nics_per_node
    return float(each * island.nodes), float(fabric.bandwidth)


def _share(wan: Wan, adapters: Array, uplinks: Array) -> Array:
    """What the balance of each site leaves of its uplinks."""
    count = len(wan.islands)
    numbers = (sites(wan.flows, count), adapters / uplinks, uplinks, sites(wan.slowest, count))
    flows, crowd, uplinks, slowest = np.broadcast_arrays(*numbers)
    share, words = np.full(flows.shape, wan.assumed.planned), np.array(wan.balance)
    for word in dict.fromkeys(wan.balance):
        at: Any = (..., words == word)
        share[at] = hashed(word, flows[at], crowd[at], uplinks[at], slowest[at], wan.assumed)
    return share


def hashed(word: str, flows: Count, crowd: Ratio, uplinks: Count, slowest: Fraction, assumed: Assumed) -> Fraction:
    """What a word of BALANCES leaves of the rate of `uplinks` that share the `flows` of `crowd` adapters each.

    A single uplink is shared by all and loses nothing to a hash."""
    if word == "spray":
        down = network.down_share(assumed.failures, assumed.repair)
        return network.spray_share(assumed.spray, down)
    if word != "ecmp":
        return assumed.planned
    most = network.hashed_slowest(flows * crowd, 2.0 * uplinks, assumed.hashing)
    mean = network.hashed_mean(flows * np.maximum(crowd, 1.0), assumed.collisions)
    return np.where(np.greater(uplinks, 1.0), network.hashed_share(most, mean, slowest), 1.0)


def _planes(wan: Wan, adapters: Array) -> Array:
    """What the adapters of every site keep while links fail, one at a time anywhere: 1 where they have one port (a failed link then
    stops the job, which is a matter of its interruptions)."""
    planes = sites(wan.planes, len(wan.islands))
    if not (planes > 1.0).any():
        return np.ones(len(wan.islands))
    links = np.sum(np.where(planes > 1.0, adapters * planes, 0.0), axis=-1, keepdims=True)
    down = network.down_share(wan.assumed.failures, wan.assumed.repair)
    return np.where(planes > 1.0, network.plane_share(links, planes, down), 1.0)


def buffered(wan: Wan, rtt: Array, loss: Array, under_way: Array, weaker: Array) -> tuple[Array, Array]:
    """What the buffers of uplinks allow every pair at once (inf where they are no limit), and its loss with what they drop.

    A lossless line ends in the receiver's buffers; what slows down when it is marked queues in the sender's, no more than windows hold
    beyond a round trip (`under_way`: bytes of all windows of a pair). `wan` has its uplinks counted; `weaker` are places in TRANSPORTS.
    Streams of TCP are left alone. Leaves out: uplinks onto which more flows were hashed than onto others."""
    count = len(wan.islands)
    numbers = (wan.buffer, wan.up, wan.down, wan.uplinks, wan.incast)
    buffer, up, down, many, incast = (sites(one, count)[..., None] for one in numbers)
    bandwidth = pairs(wan.bandwidth, count)
    allowed = np.full((count, count), np.inf)
    if (weaker == LOSSLESS).any():
        buffers, all_of, into = (np.swapaxes(one, -1, -2) for one in (buffer, many, down))
        ends = all_of * np.minimum(bandwidth / np.minimum(into, ENOUGH), 1.0)
        allowed = np.where(weaker == LOSSLESS, ends * network.lossless_rate(buffers, PACKET, rtt), allowed)
    marked = (weaker != LOSSLESS) & (weaker != TCP)
    if marked.any():
        rate = np.minimum(np.minimum(up, bandwidth) / many, ENOUGH)
        queue = np.maximum(under_way / many - rate * rtt, PACKET)
        wanted = np.minimum(network.buffer_wanted(rate, rtt, incast, wan.assumed.incast), queue)
        dropped = network.buffer_loss(buffer, wanted, wan.assumed.drops)
        loss = np.where(marked, np.minimum(loss + dropped, MOST_LOSS), loss)
    return allowed, loss


def words(balance: Sequence[str], uplinks: Array) -> tuple[str, ...]:
    """What takes from the rates of every site, whose flows find its `uplinks` by such words; empty where nothing does."""
    said = {"ecmp": "flows hashed onto {:,.0f} uplinks", "spray": "packets sprayed over {:,.0f} uplinks"}
    return tuple(said.get(word, "").format(n) for word, n in zip(balance, uplinks, strict=False))
