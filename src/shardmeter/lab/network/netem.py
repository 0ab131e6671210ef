"""Lines that the kernel emulates (`tc … netem`), where it can: pairs of virtual cables, joined by a bridge in a namespace of its own.

Each island has one interface. What it sends is told apart by where it goes, one class a line, and waits there in a netem queue that has
the line's rate, delay, jitter and loss.
Leaves out, where the forwarder of `tun` has it: a queue in bytes (netem counts packets, small ones like large ones, and those under way
as well); jitter is drawn packet by packet and evenly spread; losses are not the same in every run, take no time on the line and are not in
what was sent. The bridge shows the first packet of an island to all others, which count it as received.
"""

from __future__ import annotations

import json
import math
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from shardmeter.core.errors import Unavailable
from shardmeter.lab.network import hosts, kernel
from shardmeter.lab.network.contract import Punctuality
from shardmeter.lab.network.namespaces import Namespace
from shardmeter.lab.network.tun import traffic_of
from shardmeter.lab.records import Experiment, Line, Traffic

Command = tuple[str, ...]

ETHERNET = 14
"""Bytes of a link header, which the kernel counts on such an interface."""
ANY_RATE = "32gbit"
"""Of a class: netem has the rate."""


def netem_words(line: Line) -> Command:
    """A line in netem's words: times in microseconds, rate in bits per second, loss in percent, queue in packets of the line's MTU."""
    delay = line.rtt / 2
    words = [
        "netem",
        "limit",
        str(math.ceil((line.queue + line.bandwidth * delay) / line.mtu) + 1),
        "delay",
        f"{delay * 1e6:.0f}us",
    ]
    if line.jitter:
        words.append(f"{line.jitter * math.sqrt(3) * 1e6:.0f}us")  # evenly spread over ± this
    if line.loss:
        words += ["loss", f"{line.loss * 100:g}%"]
    return (*words, "rate", f"{line.bandwidth * 8:.0f}bit")


def leaf(other: int) -> Command:
    """Where the queue to another island stands."""
    return ("dev", hosts.INTERFACE, "parent", f"1:{other + 1:x}", "handle", f"{other + 0x10:x}:")


def hardware(island: int) -> str:
    """The link address of an island's interface: a local one."""
    return f"02:00:00:00:00:{island + 1:02x}"


def hub_commands(experiment: Experiment, paths: list[str]) -> list[Command]:
    """What joins islands, in the namespace of the bridge; `paths` of the islands' namespaces."""
    largest = max(hosts.mtu(experiment, island) for island in range(len(paths)))
    commands: list[Command] = [("ip", "link", "add", "name", "hub0", "mtu", f"{largest}", "type", "bridge")]
    for island, path in enumerate(paths):
        name, size = f"site{island}", ("mtu", f"{largest}")
        peer = ("peer", "name", hosts.INTERFACE, "address", hardware(island), *size, "netns", path)
        commands += [
            ("ip", "link", "add", "name", name, *size, "type", "veth", *peer),
            ("ip", "link", "set", "dev", name, "master", "hub0", "up"),
        ]
    return [*commands, ("ip", "link", "set", "dev", "hub0", "up")]


def island_commands(experiment: Experiment, island: int) -> list[Command]:
    """What shapes an island's lines, in its namespace, after its interface is up. Packets leave one by one, as on a real line; whom an
    address belongs to is known and not asked for."""
    device = ("dev", hosts.INTERFACE)
    commands: list[Command] = [
        ("ip", "link", "set", *device, "gso_max_segs", "1"),
        ("tc", "qdisc", "add", *device, "root", "handle", "1:", "htb"),
    ]
    for other, line in hosts.lines_of(experiment, island).items():
        address, flow = hosts.address(other), f"1:{other + 1:x}"
        commands += [
            ("ip", "neigh", "add", address, "lladdr", hardware(other), *device, "nud", "permanent"),
            ("tc", "class", "add", *device, "parent", "1:", "classid", flow, "htb", "rate", ANY_RATE, "quantum", "200000"),
            ("tc", "qdisc", "add", *leaf(other), *netem_words(line)),
            ("tc", "filter", "add", *device, "parent", "1:", "protocol", "ip", "prio", "1", "u32", "match", "ip", "dst", f"{address}/32", "flowid", flow),
        ]  # fmt: skip
    return commands


def cut_command(other: int) -> Command:
    """What ends the way to another island, in the sender's namespace: what waits there is lost, too."""
    return ("tc", "qdisc", "replace", *leaf(other)[:-2], "blackhole")


def called(command: Command) -> str:
    """Run a command of the system in the calling thread's namespace; what it prints. Raises Unavailable with what it says."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  (words of our own)
    except OSError as failure:
        raise Unavailable(f"{command[0]}: {kernel.reason(failure)}") from failure
    if done.returncode:
        raise Unavailable(f"`{' '.join(command)}` failed: {done.stderr.strip() or f'exit code {done.returncode}'}")
    return done.stdout


def dropped(text: str) -> int:
    """Packets that the queues of lines have dropped, of what `tc -s -j qdisc show` prints."""
    return sum(int(one.get("drops", 0)) for one in json.loads(text or "[]") if "parent" in one)


class NetemNetwork:
    """Islands in namespaces of their own, whose lines are netem queues; see `contract.Network`."""

    kind = "netem"
    interface = hosts.INTERFACE

    def __init__(self, namespaces: tuple[Namespace, ...], notes: tuple[str, ...]) -> None:
        self.namespaces = namespaces
        self.addresses = tuple(map(hosts.address, range(len(namespaces))))
        self.congestion = namespaces[0].setting(hosts.CONGESTION)
        self.notes = notes
        self._before_cuts = [0] * len(namespaces)

    def entered(self, island: int) -> str | None:
        """The namespace of an island."""
        return self.namespaces[island].path

    def traffic(self) -> tuple[Traffic, ...] | None:
        """By the interfaces' counters, without link headers; what netem dropped has not left the interface and is not in what was sent."""
        return tuple(
            traffic_of(
                namespace.counters(self.interface),
                dropped=self._before_cuts[island] + self._dropped(island),
                header=ETHERNET,
            )
            for island, namespace in enumerate(self.namespaces)
        )

    def cut(self, one: int, other: int | None = None) -> None:
        """By queues that keep nothing."""
        for peer in range(len(self.namespaces)) if other is None else (other,):
            for sender, receiver in ((one, peer), (peer, one)) if peer != one else ():
                before = self._dropped(sender)
                self.namespaces[sender].within(lambda receiver=receiver: called(cut_command(receiver)))  # type: ignore[misc]
                self._before_cuts[sender] += before - self._dropped(sender)  # of the queue that is gone

    def broken(self) -> str:
        """Never: the kernel has no process that could end."""
        return ""

    def punctuality(self) -> Punctuality | None:
        """Not known."""
        return None

    def _dropped(self, island: int) -> int:
        show = ("tc", "-s", "-j", "qdisc", "show", "dev", self.interface)
        return dropped(self.namespaces[island].within(lambda: called(show)))


@contextmanager
def open_netem(experiment: Experiment, congestion: str = "") -> Iterator[NetemNetwork]:
    """The network of an experiment. Raises Unavailable where the kernel refuses."""
    with ExitStack() as opened:
        try:
            hub, *namespaces = (Namespace() for _ in range(1 + len(experiment.sites)))
            for namespace in (hub, *namespaces):
                opened.callback(namespace.close)
            notes = [note for k, one in enumerate(namespaces) for note in hosts.settle(one, experiment, k, congestion)]
            for which in ("all", "default"):
                hub.set(f"ipv6/conf/{which}/disable_ipv6", "1")
            commands = hub_commands(experiment, [namespace.path for namespace in namespaces])
            hub.within(lambda: [called(command) for command in commands])
            for island, namespace in enumerate(namespaces):
                own = island_commands(experiment, island)
                namespace.within(lambda island=island: hosts.raise_host(experiment, island))  # type: ignore[misc]
                namespace.within(lambda own=own: [called(command) for command in own])  # type: ignore[misc]
        except OSError as failure:
            raise Unavailable(f"the emulated network cannot be made here: {kernel.reason(failure)}") from failure
        yield NetemNetwork(tuple(namespaces), tuple(dict.fromkeys(notes)))


def tried() -> str:
    """Why netem cannot be had, by trying it in a namespace of its own; empty where it can."""
    try:
        namespace = Namespace()
    except OSError as failure:
        return f"the kernel refuses a network namespace: {kernel.reason(failure)}"
    try:
        namespace.within(lambda: called(("tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms")))
    except Unavailable as failure:
        return str(failure)
    finally:
        namespace.close()
    return ""
