"""A probe of the transport: times gloo's all-reduce of `sizes` bytes (a list in the settings), nothing else.

Of every size: one to warm up (round −1), as many as the experiment has rounds, and one after `pause` seconds (2 by default) in which
the line is idle, logged with `paused`. A round is one all-reduce; before each all meet, outside of its time and bytes.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from shardmeter.lab import groups

if TYPE_CHECKING:
    from shardmeter.lab.worker import Worker

INNER = "the inner step of any method: a probe has none"
SIZES = (2**20, 2**22)
"""Bytes, where nothing is said."""
WIDTH = 4
"""Bytes of a value."""


def run(worker: Worker) -> None:
    """All sizes, one after the other. Raises Lost as soon as a peer is gone."""
    if worker.task.alone:
        worker.build()
        worker.connect()
        worker.alone()
        return
    worker.connect()
    done = 0
    for size in worker.settings.get("sizes", SIZES):
        _once(worker, -1, int(size))
        for _ in range(worker.experiment.rounds):
            _once(worker, done, int(size))
            done += 1
        pause = float(worker.settings.get("pause", 2.0))
        if pause > 0.0:
            time.sleep(pause)
            _once(worker, done, int(size), paused=True)
            done += 1


def _once(worker: Worker, at: int, size: int, **more: bool) -> None:
    import torch
    import torch.distributed as dist

    values = torch.ones(max(1, size // WIDTH))
    worker.begin()
    start = time.monotonic()
    groups.attempt(lambda: dist.all_reduce(values))
    worker.synced(at, time.monotonic() - start, values.numel() * WIDTH, "all_reduce", **more)
    worker.through(at)
