"""The emulated networks of the decentralised-pipeline experiments: which node is where, and what joins two of them.

Rates were limited on the egress of every node, for each kind of link apart: a node's link does not share with other nodes'. In one
data centre nothing was limited, and the GPUs of an instance share its adapter.
"""

from __future__ import annotations

import csv
import functools
import re
from collections.abc import Sequence
from importlib import resources

import numpy as np
from numpy.typing import NDArray

from shardmeter.core.record import record
from shardmeter.study.validate.rows import NotModelled

Array = NDArray[np.float64]
Ranks = NDArray[np.int64]
BOX = 100e9
"""Bits per second between two GPUs of an instance (NVLink or PCIe, as the experimenters' own matrices have it)."""


@record
class Network:
    """What joins each pair of nodes (a node is one GPU), and which nodes share an adapter."""

    delay: Array
    """(nodes, nodes) seconds one way."""
    rate: Array
    """(nodes, nodes) bits per second of the link, before GPUs of an instance share it."""
    instance: NDArray[np.int64]
    """(nodes,) which instance a node is in."""
    scheduled: NDArray[np.int64]
    """(nodes,) the rank that the experimenters' scheduler gave to a node: mostly its place in the list."""

    def apart(self, one: NDArray[np.int64], other: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether two nodes are in different instances."""
        different: NDArray[np.bool_] = self.instance[one] != self.instance[other]
        return different

    def hops(self, one: Ranks, other: Ranks, at_once: float = 1.0, load: Array | None = None) -> tuple[Array, Array]:
        """(bits per second, seconds of delay) of transfers from node to node. An adapter is shared by those that leave its
        instance, or reach it, and is met by so many of the others `at_once`; transfers of unlike `load` share it so that all
        end when it has moved them all."""
        apart = self.apart(one, other)
        size = int(self.instance.max()) + 1
        each = np.ones(len(one)) if load is None else load
        leaving = np.bincount(self.instance[one][apart], weights=each[apart], minlength=size)
        coming = np.bincount(self.instance[other][apart], weights=each[apart], minlength=size)
        flows = np.maximum(leaving[self.instance[one]], coming[self.instance[other]]) / each
        rate = np.where(apart, self.rate[one, other] / (1.0 + at_once * np.maximum(flows - 1.0, 0.0)), BOX)
        return rate, np.where(apart, self.delay[one, other], 0.0)


@functools.cache
def _rows() -> tuple[dict[str, str], ...]:
    text = resources.files("shardmeter").joinpath("data/geo/dtfm_links.csv").read_text(encoding="utf-8")
    return tuple(csv.DictReader(text.splitlines()))


def network(note: str, adapter: dict[str, float]) -> Network:
    """The network that a row's note names (`case3_…: 2 sites x 32, …`, `case5_2…`, `worldwide …`). `adapter` is what an adapter of
    one rate gives where it is not what it is `sold` as, in Gbit/s.

    The delay inside a place is that of the scripts that emulated it (the scheduler's own table has another in case 4).
    Raises NotModelled for a note that names none of our networks."""
    found = re.match(r"(case) *([0-9](?:[_-]2\b)?)", note.lower())
    case = found[1] + found[2].replace("-", "_") if found else "case5" if "worldwide" in note.lower() else ""
    rows = [row for row in _rows() if row["case"] == case and row["from"] == row["to"]]
    if not rows:
        raise NotModelled("the note names none of the networks that we have")
    nodes = [(row["from"], int(gpus)) for row in rows for gpus in row["gpus"].split()]
    gpus = [count for _, count in nodes]
    names = list(dict.fromkeys(row["from"] for row in rows))
    pairs = np.array([[_pair(case, one, other) for other in names] for one in names])
    delay, rate = pairs[..., 0], pairs[..., 1]
    rate[rate == adapter.get("sold", 0.0)] = adapter.get("gives", 0.0)
    at = np.repeat([names.index(place) for place, _ in nodes], gpus)
    ranks = [int(row["ranks"]) for row in rows if row["ranks"]]
    return Network(
        delay=delay[np.ix_(at, at)] * 1e-3, rate=rate[np.ix_(at, at)] * 1e9, instance=np.repeat(np.arange(len(nodes)), gpus),
        scheduled=np.array(ranks or np.arange(len(at))),
    )  # fmt: skip


def uniform(rate: float, delay: float, nodes: int) -> Network:
    """So many single-GPU nodes, all joined alike: bits per second and seconds one way."""
    square, each = (nodes, nodes), np.arange(nodes)
    return Network(delay=np.full(square, delay), rate=np.full(square, rate), instance=each, scheduled=each)


def _pair(case: str, one: str, other: str) -> tuple[float, float]:
    for row in _rows():
        if row["case"] in (case, "cities") and {row["from"], row["to"]} == {one, other}:
            return float(row["delay_ms"]), float(row["gbps"])
    raise NotModelled(f"no link between {one} and {other}")


def shuffled(seed: int, nodes: int) -> Sequence[int]:
    """The experimenters' random assignment: the rank of every node. Rank 0 stays on the first node; the generator is NumPy's
    old one, shuffled once (scheduler/generate_assignment.py)."""
    rest = np.arange(1, nodes)
    np.random.RandomState(seed).shuffle(rest)
    return [0, *rest.tolist()]
