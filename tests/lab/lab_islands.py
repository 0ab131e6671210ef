"""What the tests of networks and of launching have in common."""

from __future__ import annotations

from typing import Any

from shardmeter.core.record import changed
from shardmeter.lab.records import Experiment, Line, Shape, Site, Task

SHAPE = Shape(name="tiny", layers=1, hidden=8)


def experiment(islands: int = 2, **line: Any) -> Experiment:
    """So many islands, a, b, c …, of one worker each; a line of 100 Mbit/s and 5 ms where nothing else is said."""
    words: dict[str, Any] = {"bandwidth": 12.5e6, "rtt": 5e-3} | line
    sites = tuple(Site(name="abcdefgh"[k]) for k in range(islands))
    return Experiment(name="tried", method="ddp", sites=sites, line=Line(**words), model=SHAPE)


def tasks(of: Experiment, network: Any, folder: Any) -> list[Task]:
    """One an island."""
    return [
        Task(
            experiment=of, rank=k, world=len(of.sites), island=k, folder=str(folder), interface=network.interface,
            address=network.addresses[k], addresses=network.addresses,
        )
        for k in range(len(of.sites))
    ]  # fmt: skip


def mixed() -> Experiment:
    """Three islands; the line of b and c is another."""
    slow = Line(bandwidth=1.25e6, rtt=0.1, mtu=1500.0)
    return changed(experiment(3), lines=((("c", "b"), slow),))
