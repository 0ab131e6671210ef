"""DiLoCo: `sync_every` AdamW steps alone, then a Nesterov step on the mean of what all workers moved (Douillard 2023).

The outer gradient is one vector, all-reduced in `bits` of the settings (32 by default, 16, 8 or 4); `outer_rate` 0.7 and
`outer_momentum` 0.9.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardmeter.lab import averaging, outer, rounds

if TYPE_CHECKING:
    from shardmeter.lab.worker import Worker

INNER = "steps of one worker by itself"


def run(worker: Worker) -> None:
    """Train all rounds, with those who are left. Raises Lost where this worker is left behind."""
    state = outer.of(worker, worker.build().parameters())
    worker.connect()
    bits = int(worker.settings.get("bits", 32))

    def exchange(at: int) -> None:
        gradient = state.gradient()
        size = averaging.size(len(gradient), bits, worker.size)
        mean = rounds.timed(worker, at, "outer gradient", size, lambda: averaging.mean(gradient, bits, worker.size))
        state.step(mean)
        state.adopt()

    if not worker.task.alone:
        worker.evaluate()
    rounds.train(worker, exchange, (rounds.Shared((state.copy, state.velocity), state.adopt),))
    if not worker.task.alone:
        worker.evaluate()
