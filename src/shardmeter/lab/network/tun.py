"""Lines that a forwarder emulates: on any Linux kernel with TUN devices and network namespaces."""

from __future__ import annotations

import json
import math
import os
import select
import subprocess
import sys
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from shardmeter.core.errors import Unavailable
from shardmeter.core.units import BytesPerS
from shardmeter.lab.network import forwarder, hosts, kernel
from shardmeter.lab.network.contract import Punctuality
from shardmeter.lab.network.namespaces import Namespace
from shardmeter.lab.records import Experiment, Line, Traffic

PATIENCE = 5.0
"""Seconds that a forwarder has to answer in."""
CARRIED: BytesPerS = 2.5e8
"""What one forwarder can carry of large packets: 1 Gbit/s both ways was measured, at three quarters of a core."""


class Carrier:
    """A process that forwards what some islands send."""

    def __init__(self, said: dict[str, Any]) -> None:
        """Start it. Raises Unavailable where it does not begin."""
        self.process = subprocess.Popen(  # noqa: S603  (our own file)
            [sys.executable, "-I", "-S", forwarder.__file__],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, pass_fds=said["devices"],
        )  # fmt: skip
        self._said = said

    def begin(self) -> str:
        """Tell it what to do; returns the priority that it was granted. Raises Unavailable."""
        return str(self.ask(json.dumps(self._said))["ready"])

    def ask(self, order: str) -> Any:
        """Its answer. Raises Unavailable where it does not give one."""
        orders, answers = self.process.stdin, self.process.stdout
        assert orders is not None and answers is not None  # noqa: S101, PT018  (both are pipes)
        text = b""
        with suppress(OSError):  # a process that has ended: told below
            os.write(orders.fileno(), order.encode() + b"\n")
            while not text.endswith(b"\n"):
                if not select.select([answers], (), (), PATIENCE)[0]:
                    raise Unavailable(f"the forwarder of the emulated lines has not answered for {PATIENCE:g} s")
                came = os.read(answers.fileno(), 1 << 16)
                if not came:
                    break
                text += came
        if not text.endswith(b"\n"):
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(1.0)
            raise Unavailable(self.broken() or "the forwarder of the emulated lines has closed its output")
        return json.loads(text)

    def broken(self) -> str:
        """Why it has ended; empty as long as it has not."""
        code = self.process.poll()
        if code is None:
            return ""
        said = ""
        if self.process.stderr is not None and not self.process.stderr.closed:
            said = self.process.stderr.read().decode(errors="replace").strip()
        return f"the forwarder of the emulated lines has ended (exit code {code}){': ' + said.splitlines()[-1] if said else ''}"

    def close(self) -> None:
        """Close its input, by which it ends; kill it if it does not. Twice is once."""
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()
        try:
            self.process.wait(2.0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class TunNetwork:
    """Islands in namespaces of their own, whose lines are forwarders; see `contract.Network`."""

    kind = "tun"
    interface = hosts.INTERFACE

    def __init__(
        self, namespaces: tuple[Namespace, ...], carriers: tuple[Carrier, ...], notes: tuple[str, ...]
    ) -> None:
        self.namespaces = namespaces
        self.carriers = carriers
        self.addresses = tuple(map(hosts.address, range(len(namespaces))))
        self.congestion = namespaces[0].setting(hosts.CONGESTION)
        self.notes = notes

    def entered(self, island: int) -> str | None:
        """The namespace of an island."""
        return self.namespaces[island].path

    def traffic(self) -> tuple[Traffic, ...] | None:
        """By the interfaces' counters; what was dropped, by the forwarder's, and by the kernel where the forwarder was too slow."""
        dropped = [0] * len(self.namespaces)
        for said in self._counts():
            for one, _, _, lost in said["ways"]:
                dropped[one] += lost
        return tuple(
            traffic_of(namespace.counters(self.interface), dropped=lost)
            for namespace, lost in zip(self.namespaces, dropped, strict=True)
        )

    def cut(self, one: int, other: int | None = None) -> None:
        """At once: orders come before packets."""
        for peer in range(len(self.namespaces)) if other is None else (other,):
            if peer != one:
                for carrier in self.carriers:
                    carrier.ask(f"cut {one} {peer}")
                    carrier.ask(f"cut {peer} {one}")

    def broken(self) -> str:
        """Why a forwarder has ended."""
        return next(filter(None, (carrier.broken() for carrier in self.carriers)), "")

    def punctuality(self) -> Punctuality | None:
        """Of all forwarders together."""
        counts = self._counts()
        packets = sum(said["delivered"] for said in counts)
        return Punctuality(
            packets=packets,
            late=sum(said["late_sum"] for said in counts) / max(1, packets),
            late_most=max((said["late_most"] for said in counts), default=0.0),
            processor=sum(said["processor"] for said in counts),
        )

    def _counts(self) -> list[Any]:
        return [carrier.ask("count") for carrier in self.carriers]


def traffic_of(counters: tuple[int, ...], *, dropped: int = 0, header: int = 0) -> Traffic:
    """What an interface carried. `header`: bytes of a link header, which the kernel counts and IP does not."""
    received_bytes, received, sent_bytes, sent, overrun = (counters[k] for k in (0, 1, 8, 9, 11))
    return Traffic(
        sent_bytes=sent_bytes - header * sent,
        sent_packets=sent,
        received_bytes=received_bytes - header * received,
        received_packets=received,
        dropped_packets=dropped + overrun,
    )


def described(line: Line) -> dict[str, float]:
    """A line in the forwarder's words."""
    names = {
        "rate": line.bandwidth,
        "delay": line.rtt / 2,
        "queue": line.queue,
        "jitter": line.jitter,
        "loss": line.loss,
    }
    return {name: float(value) for name, value in names.items()}


def processes_for(experiment: Experiment) -> int:
    """Forwarders that carry what all islands can send at once, each on its fastest line; no more than there are processors."""
    lines = [hosts.lines_of(experiment, island).values() for island in range(len(experiment.sites))]
    sent = sum(max((line.bandwidth for line in own), default=0.0) for own in lines)
    return max(1, min(os.cpu_count() or 1, math.ceil(sent / CARRIED)))


@contextmanager
def open_tun(experiment: Experiment, congestion: str = "", processes: int | None = None) -> Iterator[TunNetwork]:
    """The network of an experiment. `processes`: that forward, at most one an island; where none are said as many as its rates need.

    Raises Unavailable where the kernel refuses."""
    count = len(experiment.sites)
    processes = min(count, processes or processes_for(experiment))
    with ExitStack() as opened:
        namespaces = []
        notes: list[str] = []
        devices = []
        try:
            for island in range(count):
                namespace = Namespace()
                opened.callback(namespace.close)
                namespaces.append(namespace)
                notes += hosts.settle(namespace, experiment, island, congestion)
                devices.append(namespace.within(lambda: kernel.tun_device(hosts.INTERFACE)))
                namespace.within(lambda island=island: hosts.raise_host(experiment, island, backlog=hosts.BACKLOG))  # type: ignore[misc]
            carriers = _carriers(experiment, devices, processes, opened)
        except OSError as failure:
            raise Unavailable(f"the emulated network cannot be made here: {kernel.reason(failure)}") from failure
        finally:
            for device in devices:  # the forwarder's from here on: they are gone with it
                os.close(device)
        if any(carrier.begin() == "usual" for carrier in carriers):
            notes.append("the forwarder could not be put before other processes: packets may be late on a busy machine")
        yield TunNetwork(tuple(namespaces), carriers, tuple(dict.fromkeys(notes)))


def _carriers(experiment: Experiment, devices: list[int], processes: int, opened: ExitStack) -> tuple[Carrier, ...]:
    """Processes that share the islands between them."""
    lines = [{"one": one, "other": other, "way": described(line)} for one, other, line in hosts.pairs(experiment)]
    carriers = []
    for first in range(processes):
        said = {
            "devices": devices, "lines": lines, "senders": list(range(len(devices)))[first::processes],
            "seed": zlib.crc32(experiment.name.encode()), "title": kernel.title(os.getpid()),
        }  # fmt: skip
        carrier = Carrier(said)
        opened.callback(carrier.close)
        carriers.append(carrier)
    return tuple(carriers)
