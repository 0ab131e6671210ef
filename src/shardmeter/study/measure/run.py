"""Times tasks on a device, in rounds: every task once a round, so that what else a machine does falls on all alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from shardmeter.core.record import record
from shardmeter.study.measure.record import Task, Timing

LEAST_ROUNDS, MOST_ROUNDS = 5, 200
"""Rounds of a measurement, whatever its budget."""


class Device(Protocol):
    """What tasks run on."""

    name: str
    kind: str
    software: str
    threads: int
    clock: str
    memory: float
    processors: float
    dtypes: tuple[str, ...]

    def ready(self, task: Task) -> Callable[[], float] | None:
        """What runs a task once, waits for it, and gives its seconds; None where the device or the software has no such kernel."""


@record
class Gone:
    """How far a measurement is: rounds of so many at a rate a second, for a line of progress."""

    rows: int
    total: int
    rate: float


def timings(
    device: Device, asked: Sequence[Task], budget: float, report: Callable[[Gone], None] = lambda _: None
) -> tuple[Timing, ...]:
    """Time tasks for `budget` seconds together; at least five rounds, the first of which warms up and is thrown away."""
    ready = [(task, run) for task in asked if (run := device.ready(task)) is not None]
    taken: list[list[float]] = [[] for _ in ready]
    start = time.monotonic()
    for round_ in range(MOST_ROUNDS + 1):
        for at, (_, run) in enumerate(ready):
            seconds = run()
            if round_:
                taken[at].append(seconds)
        gone = time.monotonic() - start
        if round_ >= LEAST_ROUNDS and gone >= budget:
            break
        total = max(LEAST_ROUNDS, min(MOST_ROUNDS, round(budget / (gone / (round_ + 1))))) * len(ready)
        done = min(round_ + 1, total) * len(ready)
        report(Gone(rows=min(done, total), total=total, rate=done / max(gone, 1e-9)))
    return tuple(timing(task, seconds) for (task, _), seconds in zip(ready, taken, strict=True))


def timing(task: Task, seconds: Sequence[float]) -> Timing:
    """Single runs as a median and a spread."""
    low, middle, high = (float(one) for one in np.quantile(seconds, (0.05, 0.5, 0.95)))
    return Timing(task=task, seconds=middle, low=low, high=high, runs=len(seconds))
