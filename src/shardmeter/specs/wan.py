"""What joins islands: links as matrices over (from, to) islands, and what a site's own connection takes and gives."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

from shardmeter.core.record import record
from shardmeter.core.units import Bytes, BytesPerS, Count, Fraction, Ratio, Seconds, UsdPerByte
from shardmeter.specs.assumed import Assumed

Matrix: TypeAlias = Any
"""A float, or an array of shape (islands, islands): row = from, column = to. The diagonal is not read."""
TRANSPORTS = ("tcp", "rdma", "selective", "coded", "lossless")
"""tcp: windows and loss of TCP streams; rdma: go-back-N over a lossy path; selective: what is lost is sent again alone (SACK, SRD, MRC);
coded: redundant packets make up for losses (FEC); lossless: neither window nor loss bind. The weaker first."""
BALANCES = ("ecmp", "planned", "spray")
"""How a site's flows find its uplinks: hashed, each flow to one; laid out so that none is shared; packet by packet over all."""

BACKENDS = ("nccl", "gloo")
"""Software of the collectives between islands: rings in chunks of 4 MiB; rings of 1 MiB segments, each asked for by its receiver."""

PACKETS = (576.0, 65535.0)
"""Bytes that every IPv4 host takes, and that no packet exceeds."""
PAIRS = ("bandwidth", "rtt", "loss", "window", "streams", "lanes", "sends", "hold", "redundancy", "mtu")
"""Numbers of every pair of islands; egress, which changes no time, is one too."""
SITES = ("up", "down", "flows", "uplink", "slowest", "buffer", "planes")
"""Numbers of every site."""


@record
class Wan:
    """Wide-area network of a fleet. Every matrix has the shape (islands, islands), every row of a site (islands,)."""

    islands: tuple[str, ...]
    """Names, in the order of the fleet."""
    bandwidth: BytesPerS
    """Capacity of a pair's link, one direction, everything that shares it together."""
    rtt: Seconds
    loss: Fraction
    window: Bytes
    """Bytes that one stream has under way (no more than so many a round trip)."""
    streams: Count
    """Streams that a transfer opens: one accelerator's part of a message, or one lane's where there are more of these."""
    lanes: Count
    """Equal parts of the capacity that cannot use one another's (nodes or accelerators with a limit of their own); 1 = none."""
    egress: UsdPerByte
    """Paid by the sender; NaN where no price is known."""
    up: BytesPerS
    """(islands,): what leaves a site, all its transfers together; inf = no limit of its own."""
    down: BytesPerS
    """(islands,): what comes into a site."""
    transport: tuple[str, ...]
    """Per island: how it sends, a word of TRANSPORTS; a pair has the weaker of its two ends."""
    basis: tuple[tuple[str, str, str], ...] = ()
    """(from, to, where the numbers come from) of the pairs that no scenario gave."""
    prices: tuple[tuple[str, str, str], ...] = ()
    """(from, to, which row of `data/geo/egress.csv`) of the pairs whose price of traffic no scenario gave."""
    balance: tuple[str, ...] = ()
    """Per island, a word of BALANCES; empty = planned everywhere."""
    flows: Count = 1.0
    """(islands,): flows (queue pairs) that a hash sees of one adapter's transfer."""
    uplink: BytesPerS = math.inf
    """(islands,): rate of one uplink of a site; inf = not said, that of one adapter."""
    slowest: Fraction = 1.0
    """(islands,): weight of the most loaded uplink beside the mean one: 1 where all wait for the slowest flow."""
    buffer: Bytes = math.inf
    """(islands,): of one uplink port."""
    planes: Count = 1.0
    """(islands,): ports of an adapter, each into a network of its own."""
    sends: Bytes = math.inf
    """(islands, islands): bytes that one accelerator's send to the next stage has under way; inf = as its streams."""
    hold: Seconds = 0.0
    """(islands, islands): from the arrival of data until its buffer is free for more; of RDMA's kinds alone."""
    redundancy: Fraction = 0.1
    """(islands, islands): share of the packets that make up for lost ones; of `coded` alone."""
    mtu: Bytes = 0.0
    """(islands, islands): largest packet, its IP header included; rates are then of all that is on the wire. 0 = not said: rates are
    of payload and the few headers of `wan.WIRE`."""
    backend: str = "nccl"
    """A word of BACKENDS."""
    assumed: Assumed = Assumed()
    """What nobody said of how networks behave; read where `balance` or a transport asks for it."""
    uplinks: Count = math.inf
    """(islands,): how many they are. This and the two below are filled in where the islands are known (`engine.links.bounded`)."""
    incast: Ratio = 1.0
    """(islands,): what a site's adapters can send over what its uplinks carry, 1 at least."""
    adapter: BytesPerS = math.inf
    """(islands,): what one accelerator gets through the adapters."""

    def sends_alike(self, one: int, other: int) -> bool:
        """Whether two islands have the same words: how they send, how flows find their uplinks."""
        words = (self.transport, self.balance or ("",) * len(self.islands))
        return all(word[one] == word[other] for word in words)
