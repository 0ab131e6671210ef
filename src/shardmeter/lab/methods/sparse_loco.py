"""SparseLoCo: DiLoCo whose outer gradient crosses as its largest values only, `top_k` of every chunk of 4,096 in `bits` each, with
error feedback: what was not sent is kept, decayed by 0.95, and added to the next (Sarfi 2025).

All messages go to all (all-gather); the outer step is plain, rate 1 (`outer_rate`, `outer_momentum` of the settings). `top_k` is 64 of
4,096 and `bits` 2 where nothing is said.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shardmeter.lab import groups, outer, rounds, sparse

if TYPE_CHECKING:
    from shardmeter.lab.worker import Worker

INNER = "steps of one worker by itself"
DECAY = 0.95


class Largest:
    """The outer state of a worker, and its error feedback."""

    def __init__(self, worker: Worker) -> None:
        import torch

        settings = worker.settings
        rate, momentum = float(settings.get("outer_rate", 1.0)), float(settings.get("outer_momentum", 0.0))
        self.outer = outer.Outer(worker.build().parameters(), rate, momentum)
        self.keep, self.bits = sparse.kept(float(settings.get("top_k", 64 / 4096))), int(settings.get("bits", 2))
        self.left = torch.zeros_like(self.outer.copy)

    def exchange(self, worker: Worker, at: int) -> None:
        """Send the largest, step on the mean of all, keep the rest."""
        whole = DECAY * self.left + self.outer.gradient()
        own = sparse.message(whole, self.keep, self.bits)
        gathered = rounds.timed(worker, at, "largest outer gradients", own.numel(), lambda: _gathered(worker, own))
        vectors = [sparse.dense(one, len(whole), self.keep, self.bits) for one in gathered]
        self.left = whole - vectors[worker.place]
        self.outer.step(sum(vectors) / worker.size)
        self.outer.adopt()


def run(worker: Worker) -> None:
    """Train all rounds, with those who are left. Raises Lost where this worker is left behind."""
    state = Largest(worker)
    worker.connect()
    if not worker.task.alone:
        worker.evaluate()
    shared = rounds.Shared((state.outer.copy, state.outer.velocity), state.outer.adopt)
    rounds.train(worker, lambda at: state.exchange(worker, at), (shared,))
    if not worker.task.alone:
        worker.evaluate()


def _gathered(worker: Worker, own: Any) -> Any:
    import torch

    everybody = torch.empty((worker.size, *own.shape), dtype=own.dtype)
    groups.gather(everybody, own.contiguous())
    return everybody
