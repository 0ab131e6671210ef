"""Networks side by side as records of arrays: those that share their words are one `Wan` whose numbers begin with the axis (networks,)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shardmeter.core.record import changed
from shardmeter.engine import uplinks
from shardmeter.engine.links import TABLES, Links
from shardmeter.specs.wan import PAIRS, SITES, Wan

AXES = dict.fromkeys((*PAIRS, "egress"), 2) | dict.fromkeys((*SITES, "uplinks", "incast", "adapter"), 1)
"""Numbers of a network, and how many axes of islands each may have."""
UNSAID = {"buffer": np.inf, "planes": 1.0, "sends": np.inf, "hold": 0.0, "mtu": 0.0}
"""Numbers that are not read where they say nothing."""
FINITE = ("up", "down", "uplink", "uplinks")
"""Numbers of sites of which it matters whether they are known."""


def groups(wans: Sequence[Wan]) -> list[tuple[list[int], Wan]]:
    """The places of networks that are read alike, and these as one."""
    found: dict[Any, list[int]] = {}
    for at, wan in enumerate(wans):
        found.setdefault(_words(wan), []).append(at)
    return [(places, _abreast([wans[at] for at in places])) for places in found.values()]


def merged(some: Sequence[tuple[Sequence[int], Links]]) -> Links:
    """The links of networks in their own order, from those of groups with their places."""
    count, first = sum(len(places) for places, _ in some), some[0][1]
    made: dict[str, Any] = {}
    for name in (*TABLES, "uplinks"):
        own = getattr(first, name)
        ends = 1 if name in ("up", "down", "adapter", "buffer", "uplinks") else 2
        made[name] = np.empty((count, *own.shape[own.ndim - ends :]), dtype=own.dtype)
        for places, links in some:
            made[name][list(places)] = getattr(links, name)
    return changed(first, balance=(), **made)


def _words(wan: Wan) -> tuple[Any, ...]:
    """Equal for networks of which the same formulas are asked."""
    said = tuple(uplinks.is_left(getattr(wan, name), value) for name, value in UNSAID.items())
    known = tuple(np.isfinite(getattr(wan, name)).tobytes() for name in FINITE)
    return wan.islands, wan.transport, wan.balance, wan.backend, wan.assumed, said, known


def _abreast(wans: Sequence[Wan]) -> Wan:
    """Networks that are read alike as one; what they have in common stays as it is."""
    made = {name: _numbers([getattr(wan, name) for wan in wans], ends) for name, ends in AXES.items()}
    return changed(wans[0], **{name: value for name, value in made.items() if value is not None})


def _numbers(values: Sequence[Any], ends: int) -> Any:
    """(networks, …) with so many axes of islands; None where all are the same."""
    head = values[0]
    if all(value is head for value in values):
        return None
    if all(isinstance(value, float) for value in values):
        return None if all(value == head for value in values) else np.reshape(values, (-1, *(1,) * ends))
    shape = np.broadcast_shapes(*(np.shape(value) for value in values))
    rows = np.stack([np.broadcast_to(np.asarray(value, dtype=float), shape) for value in values])
    return rows.reshape(-1, *(1,) * (ends - len(shape)), *shape)
