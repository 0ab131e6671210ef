"""No emulation: all workers on the machine's own loopback interface, at whatever speed it has. For tests of what methods do, where
namespaces may not be made."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from shardmeter.core.errors import Unavailable
from shardmeter.lab.network.contract import Punctuality
from shardmeter.lab.records import Experiment, Traffic


class LoopbackNetwork:
    """Islands that share a machine and its loopback interface; see `contract.Network`."""

    kind = "loopback"
    interface = "lo"
    congestion = ""
    notes: tuple[str, ...] = (
        "nothing is emulated: lines are as fast as this machine, and what they carried is not counted",
    )

    def __init__(self, islands: int) -> None:
        self.addresses = tuple(f"127.0.0.{island + 1}" for island in range(islands))

    def entered(self, island: int) -> str | None:
        """None: workers stay where they are."""
        del island
        return None

    def traffic(self) -> tuple[Traffic, ...] | None:
        """None: all islands have one interface."""
        return None

    def cut(self, one: int, other: int | None = None) -> None:
        """Raises Unavailable: there is no line that could be cut."""
        del one, other
        raise Unavailable("a line cannot be cut on plain loopback, which has none; kill a worker instead")

    def broken(self) -> str:
        """Never."""
        return ""

    def punctuality(self) -> Punctuality | None:
        """Not known."""
        return None


@contextmanager
def open_loopback(experiment: Experiment) -> Iterator[LoopbackNetwork]:
    """The network of an experiment that has none."""
    yield LoopbackNetwork(len(experiment.sites))
