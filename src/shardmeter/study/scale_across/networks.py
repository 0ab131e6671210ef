"""How a transfer uses the lines between buildings: what software and switches decide, with the adapters that are there."""

from __future__ import annotations

import numpy as np

from shardmeter.core.quantity import show
from shardmeter.core.record import changed, record
from shardmeter.core.units import Bytes, BytesPerS, Count, Ratio, Seconds
from shardmeter.engine import wans
from shardmeter.specs import Wan

MIB = 2.0**20


@record
class Network:
    """How transfers are balanced, sent and windowed."""

    balance: str = "ecmp"
    flows: Count = 16.0
    """Queue pairs that a hash sees of one adapter's transfer."""
    transport: str = "rdma"
    streams: Count = 2.0
    """Channels of one adapter."""
    window: Bytes = 4.0 * MIB
    """Of a channel."""
    sends: Bytes = 4.0 * MIB
    """Under way of one send to the next stage."""

    @property
    def says(self) -> str:
        """It in words."""
        hashed = (
            f"{self.flows:g} flow{'s' * (self.flows != 1)} by {self.balance}"
            if self.balance == "ecmp"
            else self.balance
        )
        window = f"{self.streams:g} × {show(float(self.window), 'B')}"
        return f"{hashed}, {SAYS[self.transport]}, {window} under way, {show(float(self.sends), 'B')} a send"


SAYS = {
    "tcp": "TCP", "rdma": "go-back-N", "selective": "selective repeat", "coded": "redundant packets", "lossless": "lossless",
}  # fmt: skip
"""Transports in words."""
PRODUCTION = Network()
"""Hashed with as many flows as Llama 3 was trained with (16), go-back-N, NCCL's usual window."""
BALANCES = (("ecmp", 1.0), ("ecmp", 16.0), ("ecmp", 64.0), ("planned", 16.0))
"""Of adapters that cannot spray: plain hashing, hashing of many queue pairs, routes laid out by a controller."""
TRANSPORTS = ("rdma", "selective")
WINDOWS = ((2.0, 4.0 * MIB, 4.0 * MIB), (16.0, 4.0 * MIB, 16.0 * MIB), (16.0, 128.0 * MIB, 2048.0 * MIB))
"""(channels, window of each, bytes of a send): NCCL's usual ones, as many channels as it makes, 16 queue pairs of 128 × 1 MiB."""


def networks() -> tuple[Network, ...]:
    """Every choice, production's first."""
    found = [
        Network(balance=balance, flows=flows, transport=transport, streams=streams, window=window, sends=sends)
        for streams, window, sends in WINDOWS
        for transport in TRANSPORTS
        for balance, flows in BALANCES
    ]
    return (PRODUCTION, *(one for one in found if one != PRODUCTION))


BULK = 0.3
"""Weight of the most loaded uplink beside the mean one, where all-reduces pass in many rings (0: all-to-all, 1: one ring)."""
HEALTHY = 1e-8
"""Packets that a healthy line loses."""


def networked(wan: Wan, one: Network) -> Wan:
    """The network between buildings, used as a choice says."""
    count = len(wan.islands)
    return changed(
        wan, balance=(one.balance,) * count, flows=one.flows, transport=(one.transport,) * count, streams=one.streams,
        window=one.window, sends=one.sends, slowest=BULK, loss=np.maximum(wan.loss, HEALTHY),
    )  # fmt: skip


def lined(wan: Wan, rate: BytesPerS, rtt: Seconds) -> Wan:
    """The network with lines of so much between any two buildings, and no more out of one to all others together."""
    return changed(wan, bandwidth=rate, up=rate, down=rate, rtt=rtt)


def ideal(wan: Wan) -> Wan:
    """Lines that nothing is faster than."""
    count = len(wan.islands)
    return changed(
        wan, bandwidth=FASTEST, up=FASTEST, down=FASTEST, rtt=0.0, loss=0.0, transport=("lossless",) * count,
        balance=("planned",) * count, streams=1.0, lanes=wan.lanes, sends=np.inf, planes=1.0, buffer=np.inf,
    )  # fmt: skip


FASTEST = 1e18
"""B/s of a line beyond any."""


def widened(wan: Wan, times: Ratio) -> Wan:
    """The network with every line so many times as wide, and as many uplinks to them."""
    return changed(wans.widened(wan, times), uplink=wan.uplink * times)


def slowed(wan: Wan, times: Ratio) -> Wan:
    """The network on which every message takes so many times as long."""
    return changed(widened(wan, 1.0 / times), rtt=wan.rtt * times)


def farther(wan: Wan, times: Ratio) -> Wan:
    """The network with round trips so many times as long."""
    return changed(wan, rtt=wan.rtt * times)
