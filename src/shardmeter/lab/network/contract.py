"""What every kind of network offers those who run on it."""

from __future__ import annotations

from typing import Protocol

from shardmeter.core.record import record
from shardmeter.core.units import Count, Seconds
from shardmeter.lab.records import Traffic


@record
class Punctuality:
    """How well a forwarder kept to its times: packets written later than they were due were held up by a busy processor."""

    packets: Count
    late: Seconds
    """On average."""
    late_most: Seconds
    processor: Seconds
    """Of all its processes, since they began."""


class Network(Protocol):
    """Islands and their lines, as long as they are open.

    `kind`: netem (the kernel's own emulation), tun (a forwarder's), loopback (nothing is emulated). `interface`: name of the interface
    to the other islands, the same in every island. `addresses`: of the islands on it. `congestion`: TCP's congestion control in the
    islands. `notes`: what could not be set as it was wanted.
    """

    kind: str
    interface: str
    addresses: tuple[str, ...]
    congestion: str
    notes: tuple[str, ...]

    def entered(self, island: int) -> str | None:
        """The path of the namespace that a worker of an island enters; None where it stays where it is."""
        ...

    def traffic(self) -> tuple[Traffic, ...] | None:
        """What the interface of every island carried so far; None on plain loopback, where nothing is told apart.

        Raises Unavailable where the emulation broke down."""
        ...

    def cut(self, one: int, other: int | None = None) -> None:
        """End a line for good, in both directions; without `other` all lines of an island. What is under way on it is lost.

        Raises Unavailable on plain loopback, which has no lines."""
        ...

    def broken(self) -> str:
        """Why the emulation does not work any more; empty as long as it does."""
        ...

    def punctuality(self) -> Punctuality | None:
        """How late packets were; None where that is not known."""
        ...
