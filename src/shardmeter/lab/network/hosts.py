"""What islands are to the network: their numbers, their lines, and the settings that a host on a wide-area line has."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from shardmeter.core.errors import BadScenario, Violation
from shardmeter.core.units import Bytes
from shardmeter.lab.network import kernel
from shardmeter.lab.network.forwarder import PEERS
from shardmeter.lab.network.namespaces import Namespace
from shardmeter.lab.records import Experiment, Line

INTERFACE = "wan0"
BACKLOG = 2000
"""Packets that wait in an island for the emulated line to take them; it takes them at once."""
SMALLEST, LARGEST = 576, 65535
"""Bytes of a packet that every IPv4 host takes, and that none exceeds."""
CONGESTION = "ipv4/tcp_congestion_control"
MOST = 64 << 20
"""Bytes of TCP's buffers that are asked for at most."""


def address(island: int) -> str:
    """Of an island on its interface; its last number is how the forwarder tells islands apart."""
    return f"10.78.0.{island + 1}"


def pairs(experiment: Experiment) -> Iterator[tuple[int, int, Line]]:
    """Every two islands, by their places, and their line."""
    for one, other in combinations(range(len(experiment.sites)), 2):
        yield one, other, experiment.line_between(experiment.sites[one].name, experiment.sites[other].name)


def lines_of(experiment: Experiment, island: int) -> dict[int, Line]:
    """The lines of one island, by the place of the other; empty for one alone."""
    return {one + other - island: line for one, other, line in pairs(experiment) if island in (one, other)}


def mtu(experiment: Experiment, island: int) -> int:
    """Of an island's interface: the largest that one of its lines carries."""
    return int(max([line.mtu for line in lines_of(experiment, island).values()] or [experiment.line.mtu]))


def window(experiment: Experiment, island: int) -> Bytes:
    """What is under way on the fullest line of an island: rate × round trip, and what waits in its queue."""
    return max([line.bandwidth * line.rtt + line.queue for line in lines_of(experiment, island).values()] or [0.0])


def refuse_what_cannot_be(experiment: Experiment) -> None:
    """Raises BadScenario, with every number that no emulated network can have."""
    found = []
    if not 1 <= len(experiment.sites) <= PEERS:
        found.append(Violation(field="sites", says=f"{len(experiment.sites)} islands", rule=f"from 1 to {PEERS}"))
    said = {"line": experiment.line} | {f"lines.{one}-{other}": line for (one, other), line in experiment.lines}
    for name, line in said.items():
        checks = (
            ("bandwidth", line.bandwidth, line.bandwidth > 0, "more than 0"),
            ("rtt", line.rtt, line.rtt >= 0, "0 or more"),
            ("jitter", line.jitter, line.jitter >= 0, "0 or more"),
            ("loss", line.loss, 0 <= line.loss < 1, "from 0 to less than 1"),
            ("queue", line.queue, line.queue >= line.mtu, f"one packet at least, of {line.mtu:g} B"),
            ("mtu", line.mtu, SMALLEST <= line.mtu <= LARGEST, f"from {SMALLEST} B to {LARGEST} B"),
        )
        found += [
            Violation(field=f"{name}.{field}", says=f"is {value:g}", rule=rule)
            for field, value, holds, rule in checks
            if not holds
        ]
    if found:
        raise BadScenario(f"experiment {experiment.name}: this network cannot be emulated", found)


def settle(namespace: Namespace, experiment: Experiment, island: int, congestion: str = "") -> tuple[str, ...]:
    """Set a namespace as a host on its lines would be; returns what could not be set.

    No IPv6, whose own messages would be counted. TCP's buffers may grow to twice what is under way on the fullest line (the kernel
    counts its own records as well), where they could not already. `congestion`: TCP's congestion control, where it is not to be the
    machine's. Everything else is as the machine has it.
    """
    notes = []
    if congestion and not namespace.set(CONGESTION, congestion):
        notes.append(f"TCP's congestion control is {namespace.setting(CONGESTION)}: {congestion} could not be had")
    if namespace.setting("ipv6/conf/all/disable_ipv6") == "0":
        for which in ("all", "default"):
            if not namespace.set(f"ipv6/conf/{which}/disable_ipv6", "1"):
                notes += ["IPv6 could not be switched off: its own messages are counted"]
    wanted = int(min(MOST, 2 * window(experiment, island)))
    for name in ("tcp_rmem", "tcp_wmem"):
        least, usual, most = namespace.setting(f"ipv4/{name}").split() or ("4096", "131072", "0")
        if wanted > int(most) and not namespace.set(f"ipv4/{name}", f"{least} {usual} {wanted}"):
            notes.append(f"{name} could not be raised to {wanted} B: TCP may not fill the line")
    return tuple(notes)


def raise_host(experiment: Experiment, island: int, *, backlog: int = 0) -> None:
    """Inside an island's namespace: switch on its interface, and loopback for its workers among themselves. Raises OSError."""
    own = mtu(experiment, island)
    kernel.raise_interface("lo")
    kernel.raise_interface(INTERFACE, address=address(island), mtu=own, backlog=backlog)
    for other, line in lines_of(experiment, island).items():
        if line.mtu < own:
            kernel.narrow_route(INTERFACE, address(other), int(line.mtu))
