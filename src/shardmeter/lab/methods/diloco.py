"""DiLoCo: `sync_every` AdamW steps alone, then a Nesterov step on the mean of what all workers moved (Douillard 2023).

The outer gradient is one vector, all-reduced in `bits` of the settings (32 by default, 16, 8 or 4); `outer_rate` 0.7 and
`outer_momentum` 0.9. Islands of several workers: `inner`, see `cells`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardmeter.lab import rounds
from shardmeter.lab.cells import Cell

if TYPE_CHECKING:
    from shardmeter.lab.worker import Worker

INNER = "steps of an island by itself; its workers still share them"


def run(worker: Worker) -> None:
    """Train all rounds, with those who are left. Raises Lost where this worker is left behind."""
    worker.build()
    worker.connect()
    cell = Cell(worker)
    state = cell.outer()
    bits = int(worker.settings.get("bits", 32))

    def exchange(at: int) -> None:
        gradient = state.gradient()
        size = cell.size(len(gradient), bits)
        mean = rounds.timed(worker, at, "outer gradient", size, lambda: cell.mean(gradient, bits))
        state.step(mean)
        state.adopt()

    if not worker.task.alone:
        cell.evaluate()
    rounds.train(worker, exchange, (rounds.Shared((state.copy, state.velocity), state.adopt),))
    if not worker.task.alone:
        cell.evaluate()
