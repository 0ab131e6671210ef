"""Local SGD: `sync_every` steps alone, then the mean of all workers' parameters (McMahan 2016). AdamW's moments stay with each.

`bits` of the settings: 32 (default), 16, 8 or 4 a parameter. Islands of several workers: `inner`, see `cells`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardmeter.lab import outer, rounds
from shardmeter.lab.cells import Cell

if TYPE_CHECKING:
    from shardmeter.lab.worker import Worker

INNER = "steps of an island by itself; its workers still share them"


def run(worker: Worker) -> None:
    """Train all rounds, with those who are left. Raises Lost where this worker is left behind."""
    worker.build()
    worker.connect()
    cell = Cell(worker)
    parameters = cell.parameters
    bits = int(worker.settings.get("bits", 32))

    def exchange(at: int) -> None:
        values = outer.vector(parameters)
        size = cell.size(len(values), bits)
        mean = rounds.timed(worker, at, "parameters", size, lambda: cell.mean(values, bits))
        outer.spread(mean, parameters)

    shared = rounds.Shared([one.detach() for one in parameters], lambda: None)
    if not worker.task.alone:
        cell.evaluate()
    rounds.train(worker, exchange, (shared,))
    if not worker.task.alone:
        cell.evaluate()
