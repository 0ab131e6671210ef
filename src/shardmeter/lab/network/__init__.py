"""Emulated wide-area lines between islands on one machine.

Islands are network namespaces that nobody can leave behind (`namespaces`); what lies between them is the kernel's netem where it has
it (`netem`), else a forwarder of our own (`tun`, `forwarder`), else nothing (`loopback`). `capabilities` says what works here.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from shardmeter.core.errors import Unavailable, UnknownName
from shardmeter.lab.network import hosts
from shardmeter.lab.network.capabilities import missing, netem_missing
from shardmeter.lab.network.contract import Network, Punctuality
from shardmeter.lab.network.leftovers import leftovers
from shardmeter.lab.network.loopback import open_loopback
from shardmeter.lab.network.netem import open_netem
from shardmeter.lab.network.tun import open_tun
from shardmeter.lab.records import Experiment

__all__ = ["KINDS", "Network", "Punctuality", "leftovers", "missing", "open_network"]

KINDS = ("auto", "netem", "tun", "loopback")


def open_network(
    experiment: Experiment, *, kind: str = "auto", congestion: str = ""
) -> AbstractContextManager[Network]:
    """The islands of an experiment and their lines, until the context ends; nothing outside their namespaces is touched.

    `kind`: netem, tun, loopback, or auto: netem where the kernel has it, else tun, never loopback, which emulates nothing.
    `congestion`: TCP's congestion control in the islands; empty = as the machine has it.
    Raises Unavailable where that kind does not work here (`missing` says why), BadScenario for lines that cannot be, UnknownName for
    another kind."""
    if kind not in KINDS:
        raise UnknownName("kind of network", kind, KINDS)
    if kind == "loopback":
        return open_loopback(experiment)
    hosts.refuse_what_cannot_be(experiment)
    reasons = missing(kind)
    if reasons:
        raise Unavailable(f"lines cannot be emulated here: {'; '.join(reasons)}")
    netem = kind == "netem" or (kind == "auto" and not netem_missing())
    return open_netem(experiment, congestion) if netem else open_tun(experiment, congestion)
