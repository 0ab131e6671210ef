"""Local SGD: `sync_every` steps alone, then the mean of all workers' parameters (McMahan 2016). AdamW's moments stay with each.

`bits` of the settings: 32 (default), 16, 8 or 4 a parameter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardmeter.lab import averaging, outer, rounds

if TYPE_CHECKING:
    from shardmeter.lab.worker import Worker

INNER = "steps of one worker by itself"


def run(worker: Worker) -> None:
    """Train all rounds, with those who are left. Raises Lost where this worker is left behind."""
    parameters = list(worker.build().parameters())
    worker.connect()
    bits = int(worker.settings.get("bits", 32))

    def exchange(at: int) -> None:
        values = outer.vector(parameters)
        size = averaging.size(len(values), bits, worker.size)
        mean = rounds.timed(worker, at, "parameters", size, lambda: averaging.mean(values, bits, worker.size))
        outer.spread(mean, parameters)

    shared = rounds.Shared([one.detach() for one in parameters], lambda: None)
    if not worker.task.alone:
        worker.evaluate()
    rounds.train(worker, exchange, (shared,))
    if not worker.task.alone:
        worker.evaluate()
