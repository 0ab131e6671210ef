"""Which islands of a fleet take part: all, those that are named, or what a planner is to choose among."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shardmeter.core.record import changed
from shardmeter.scenario.between import ALL, ANY, Use
from shardmeter.scenario.fleet import Entry
from shardmeter.scenario.parts import Findings
from shardmeter.scenario.wan import unknown_island
from shardmeter.scenario.yaml_reader import Path
from shardmeter.specs import Wan

USE: Path = ("fleet", "use")


def is_open(use: Use | None) -> bool:
    """Whether the islands are left to a planner: any of them, or so many."""
    return use is not None and (use == (ANY,) or isinstance(use[0], int))


def counts(use: Use | None, islands: int, found: Findings) -> tuple[int, ...]:
    """How many islands may take part, after noting counts that there are not."""
    if use is None or not is_open(use):
        return (islands,)
    if use == (ANY,):
        return tuple(range(1, islands + 1))
    beyond = [one for one in use if one > islands]
    if beyond:
        found.refuse(USE, f"{beyond[0]} islands are asked for, and there are {islands}", f"{islands} or fewer")
    return tuple(one for one in use if one <= islands)


def used(use: Use | None, entries: Sequence[Entry], found: Findings) -> tuple[Entry, ...]:
    """The entries with the islands that take part, after noting what no island is called. What is left open takes all."""
    if use is None or is_open(use) or use == (ALL,):
        return tuple(entries)
    known = {one.name: one.names for one in entries} | {name: (name,) for one in entries for name in one.names}
    for name in dict.fromkeys(name for name in use if name not in known):
        unknown_island(name, USE, list(known), found)
    wanted = {name for asked in use for name in known.get(asked, ())}
    kept = [changed(one, names=tuple(name for name in one.names if name in wanted)) for one in entries]
    return tuple(one for one in kept if one.names) or tuple(entries)


def among(wan: Wan, names: Sequence[str]) -> Wan:
    """The part of a network that joins some of its islands."""
    if wan.islands == tuple(names):
        return wan
    at = [wan.islands.index(name) for name in names]
    every = len(wan.islands)

    def part(value: object) -> object:
        numbers = np.asarray(value)
        return (
            value if numbers.ndim == 0 else numbers[np.ix_(at, at)] if numbers.shape == (every, every) else numbers[at]
        )

    pairs = ("bandwidth", "rtt", "loss", "window", "streams", "lanes", "egress", "up", "down",
             "flows", "uplink", "slowest", "buffer", "planes", "sends", "hold", "redundancy")  # fmt: skip
    return changed(
        wan, islands=tuple(names), transport=tuple(wan.transport[one] for one in at),
        balance=tuple(wan.balance[one] for one in at if wan.balance),
        **{kind: tuple(row for row in getattr(wan, kind) if row[0] in names and row[1] in names) for kind in ("basis", "prices")},
        **{name: part(getattr(wan, name)) for name in pairs},
    )  # fmt: skip
