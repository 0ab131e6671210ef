"""Workers of a method as processes over loopback, for tests."""

from __future__ import annotations

import multiprocessing
import time
from typing import Any

import pytest

from shardmeter.core.errors import BadScenario
from shardmeter.lab.log import Log, events
from shardmeter.lab.records import Experiment, Line, Shape, Site, Task

LINE = Line(bandwidth=1e9, rtt=1e-3)
SECONDS = 90.0


def expert() -> Any:
    return Shape(name="expert", layers=1, hidden=8, seq_len=16, kind="lstm")


def decoder() -> Any:
    return Shape(name="tiny", layers=2, hidden=32, heads=2, seq_len=32)


def tasks(
    folder: Any,
    method: Any,
    islands: Any = 2,
    workers: Any = 1,
    alone: Any = 0.0,
    patience: Any = 10.0,
    paces: Any = None,
    **said: Any,
) -> Any:
    paces = paces or (None,) * islands
    sites = tuple(Site(name="abcd"[at], workers=workers, pace=paces[at]) for at in range(islands))
    settings = tuple(said.pop("settings", {}).items())
    said = {"model": decoder(), "batch": 4, "rounds": 2, **said}
    experiment = Experiment(name=method, method=method, sites=sites, line=LINE, settings=settings, **said)
    world = islands * workers
    return [
        Task(
            experiment=experiment, rank=rank, world=world, island=rank // workers, folder=str(folder), interface="lo",
            address="127.0.0.1", addresses=("127.0.0.1",) * islands, alone=alone, patience=patience,
        )
        for rank in range(world)
    ]  # fmt: skip


def started(asked: Any) -> Any:
    from shardmeter.lab import worker

    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(["torch", "shardmeter.lab.worker", "shardmeter.lab.models"])
    processes = [server.Process(target=worker.main, args=(one,), daemon=True) for one in asked]
    for one in processes:
        one.start()
    return processes


def ended(processes: Any) -> Any:
    until = time.monotonic() + SECONDS
    for one in processes:
        one.join(max(0.0, until - time.monotonic()))
    late = [one for one in processes if one.exitcode is None]
    for one in late:
        one.kill()
        one.join()
    assert not late
    return [one.exitcode for one in processes]


def run(folder: Any, method: Any, **said: Any) -> Any:
    """The events of every rank."""
    asked = tasks(folder, method, **said)
    assert ended(started(asked)) == [0] * len(asked)
    return [events(folder, rank) for rank in range(len(asked))]


def killed(folder: Any, method: Any, victim: Any, after: Any, **said: Any) -> Any:
    """Exit codes, and the events of every rank, where one is killed when a round of it is through."""
    asked = tasks(folder, method, **said)
    processes = started(asked)
    until = time.monotonic() + SECONDS
    while not any(line["event"] == "round" and line["round"] >= after for line in events(folder, victim)):
        assert time.monotonic() < until
        time.sleep(0.01)
    processes[victim].kill()
    return ended(processes), [events(folder, rank) for rank in range(len(asked))]


def refused(folder: Any, method: Any, **said: Any) -> Any:
    """What a method says to what it cannot train."""
    from shardmeter.lab import methods, worker

    (task, *_) = tasks(folder, method, **said)
    with Log(folder, 0) as log, pytest.raises(BadScenario) as error:
        methods.method(method).run(worker.Worker(task, log))
    return str(error.value)
