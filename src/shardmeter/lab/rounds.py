"""Rounds of several steps and an exchange between them, that go on when a worker is gone.

What all members hold alike between exchanges (`Shared`) has versions. An exchange changes it only once all its collectives are
through; where one fails, those that reach each other make a new group and compare versions. All at the same: they exchange again, with
the work of the round. Some further than others (the collective was through for them): all take what those hold and begin the round again.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from shardmeter.lab import groups, membership
from shardmeter.lab.groups import Lost

if TYPE_CHECKING:
    from shardmeter.lab.worker import Worker

TRIES = 5
"""Groups that are tried for one exchange, each of those that the one before left."""


class Shared:
    """Tensors that are the same on all members whenever their versions are; `adopt` is called where they were taken from others, or a
    round begins again from them."""

    def __init__(self, tensors: Sequence[Any], adopt: Callable[[], None]) -> None:
        self.tensors, self.adopt, self.version = tuple(tensors), adopt, 0


def train(worker: Worker, exchange: Callable[[int], None], shared: Sequence[Shared]) -> None:
    """Rounds of `sync_every` steps, each followed by `exchange(round)`, until all are through. Raises Lost where this worker is left
    behind."""
    if worker.task.alone:
        worker.alone()
        return
    worker.begin()
    at = -1
    while at < worker.experiment.rounds:
        for _ in range(int(worker.settings["sync_every"])):
            worker.step()
        again = False
        while not again:
            says = failed(worker, functools.partial(exchange, at))
            if not says:
                break
            at, again = recovered(worker, says, at, shared)
        if not again:
            for one in shared:
                one.version += 1
            worker.through(at)
            at += 1


def failed(worker: Worker, exchange: Callable[[], None]) -> str:
    """Exchange; what is said where a peer is gone, or others say so. Nothing of the failed call is kept alive."""
    if membership.called(worker.task, worker.generation + 1):
        return "others have lost a peer"
    try:
        exchange()
    except Lost as lost:
        return str(lost)
    return ""


def recovered(worker: Worker, says: str, at: int, shared: Sequence[Shared]) -> tuple[int, bool]:
    """(round to go on with, whether it begins again) in the group of those who are left. Raises Lost."""
    for _ in range(TRIES):
        worker.regroup(says, at)
        try:
            return _agreed(worker, at, shared)
        except Lost as lost:
            says = str(lost)
    raise Lost(f"no group holds ({TRIES} tried): {says}")


def _agreed(worker: Worker, at: int, shared: Sequence[Shared]) -> tuple[int, bool]:
    import torch
    import torch.distributed as dist

    mine = torch.tensor([at, *(one.version for one in shared)])
    all_of = torch.empty((worker.size, len(mine)), dtype=mine.dtype)
    groups.attempt(lambda: groups.gather(all_of, mine))
    newest = all_of.max(dim=0).values
    behind = [bool((all_of[:, 1 + place] < newest[1 + place]).any()) for place in range(len(shared))]
    for place, one in enumerate(shared):
        if behind[place]:
            source = int(all_of[:, 1 + place].argmax())
            for tensor in one.tensors:
                groups.attempt(functools.partial(dist.broadcast, tensor, source))
            one.version = int(newest[1 + place])
            one.adopt()
    if any(behind):
        worker.log.event(
            "note", says="some were further than others: all go on from what those hold, and begin the round again"
        )
    return int(newest[0]), any(behind)


def timed(worker: Worker, at: int, what: str, size: float, work: Callable[[], Any]) -> Any:
    """What `work`, a blocking exchange, gives; its seconds logged. Raises Lost."""
    start = time.monotonic()
    found = groups.attempt(work)
    worker.synced(at, time.monotonic() - start, size, what)
    return found
