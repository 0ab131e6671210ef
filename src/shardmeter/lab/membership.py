"""Who goes on when somebody is gone: the largest set of workers that all reach each other.

Workers tell each other through files that they are there and whom they reach; whom they reach they find out over the line, by TCP
connections to a port that every worker listens on. The files stand for a rendezvous service that all can reach.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import socket
import threading
import time
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from shardmeter.core.units import Seconds
from shardmeter.lab.records import Task

KNOCK = 3.0
"""Seconds in which a worker that can be reached answers."""
PAUSE = 0.02


class Listener:
    """A port of this worker that answers whoever connects with the worker's rank, from a thread of its own."""

    def __init__(self, task: Task) -> None:
        self._socket = socket.create_server((task.address, 0))
        port = self._socket.getsockname()[1]
        _write(Path(task.folder) / f"port-{task.rank}.json", {"address": task.address, "port": port})
        self._rank = task.rank
        threading.Thread(target=self._answer, daemon=True).start()

    def _answer(self) -> None:
        while True:
            try:
                caller, _ = self._socket.accept()
            except OSError:  # closed
                return
            with contextlib.suppress(OSError), caller:  # who does not wait for an answer gets none
                caller.sendall(f"{self._rank}\n".encode())

    def close(self) -> None:
        """Nobody reaches this worker any more."""
        self._socket.close()


def knock(folder: Path, rank: int, patience: float = KNOCK) -> str:
    """there, gone (the process does not listen any more), or silent (nothing comes back within `patience` seconds)."""
    told = _read(folder / f"port-{rank}.json")
    if told is None:
        return "gone"
    try:
        with socket.create_connection((told["address"], told["port"]), patience) as line:
            line.settimeout(patience)
            return "there" if line.recv(16).split() == [str(rank).encode()] else "gone"
    except ConnectionError:
        return "gone"
    except OSError:
        return "silent"


def largest(reach: Mapping[int, Collection[int]]) -> tuple[int, ...]:
    """The largest set of ranks of which each reaches every other; of equal ones that with the lowest rank (then the next lowest)."""
    ranks = sorted(reach)
    for size in range(len(ranks), 0, -1):
        for one in itertools.combinations(ranks, size):
            if all(b in reach[a] and a in reach[b] for a, b in itertools.combinations(one, 2)):
                return one
    return ()


def survivors(task: Task, members: Iterable[int], generation: int, wait: Seconds) -> tuple[int, ...]:
    """Who goes on, of the members of the group before; the same answer for all that ask. Whoever neither comes within `wait` seconds
    nor is known to be gone is left behind. This rank may not be among them."""
    folder, old = Path(task.folder), set(members)
    _write(folder / f"alive-{generation}-{task.rank}.json", {"rank": task.rank})
    roll = _settled(folder / f"roll-{generation}.json", sorted(_present(task, old, generation, wait)))
    if task.rank not in roll:
        return tuple(roll)
    with ThreadPoolExecutor(max(1, len(roll))) as pool:
        others = [one for one in roll if one != task.rank]
        answers = dict(zip(others, pool.map(lambda one: knock(folder, one), others), strict=True))
    _write(folder / f"reach-{generation}-{task.rank}.json", [one for one, says in answers.items() if says == "there"])
    found = _reaches(folder, roll, generation)
    return tuple(_settled(folder / f"members-{generation}.json", list(largest(found))))


def called(task: Task, generation: int) -> bool:
    """Whether somebody has begun to ask who goes on after the group of `generation` − 1."""
    return next(Path(task.folder).glob(f"alive-{generation}-*.json"), None) is not None


def _present(task: Task, old: set[int], generation: int, wait: Seconds) -> set[int]:
    """Those that have come, once all others are gone or the wait is over."""
    folder, until = Path(task.folder), time.monotonic() + wait
    here: set[int] = set()
    while True:
        here = {one for one in old if (folder / f"alive-{generation}-{one}.json").exists()}
        if (folder / f"roll-{generation}.json").exists() or here == old or time.monotonic() > until:
            return here
        if all(knock(folder, one) == "gone" for one in old - here):
            return {one for one in old if (folder / f"alive-{generation}-{one}.json").exists()}
        time.sleep(10.0 * PAUSE)


def _reaches(folder: Path, roll: Iterable[int], generation: int) -> dict[int, Collection[int]]:
    """Whom each of the roll reaches; one that does not say so in time reaches nobody."""
    until = time.monotonic() + 2.0 * KNOCK
    while True:
        said = {one: _read(folder / f"reach-{generation}-{one}.json") for one in roll}
        if all(one is not None for one in said.values()) or time.monotonic() > until:
            return {rank: one or () for rank, one in said.items()}
        time.sleep(PAUSE)


def _settled(path: Path, proposal: list[int]) -> list[int]:
    """What the first to propose something has proposed."""
    mine = path.with_suffix(f".{threading.get_native_id()}")
    mine.write_text(json.dumps(proposal), encoding="utf-8")
    with contextlib.suppress(FileExistsError):
        os.link(mine, path)
    mine.unlink()
    settled: list[int] = json.loads(path.read_text(encoding="utf-8"))
    return settled


def _write(path: Path, value: object) -> None:
    whole = path.with_suffix(".part")
    whole.write_text(json.dumps(value), encoding="utf-8")
    whole.replace(path)


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
