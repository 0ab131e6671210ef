"""What one worker process does: finds its peers, trains a small model by a method, writes down what happens and when.

`main(task)` is what a process is started for: it ends the process, with 0 when all rounds are through, 3 when a peer is gone and the
method cannot go on without it, 1 for a fault. A method of `methods/` does with its `Worker` in this order: `build`, `connect`, its own
preparations, then `every_step` or `rounds.train`.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

from shardmeter.core.errors import ShardMeterError
from shardmeter.core.units import Nats, Seconds
from shardmeter.lab import groups, membership
from shardmeter.lab.groups import Lost
from shardmeter.lab.log import Log, peak_memory, sent
from shardmeter.lab.methods import method
from shardmeter.lab.records import Task
from shardmeter.lab.text import Text

DONE, FAULT, STOPPED = 0, 1, 3
"""Exit codes: through; something is wrong; a peer is gone and it ends for that."""
WARM = 3
"""Steps of a synchronous method before those that count: PyTorch lays out its buckets anew after the first."""
LEAST = 5
"""Steps of a run alone."""
HELD_OUT = 32
"""Windows of held-out text by which a loss is told."""


def main(task: Task) -> NoReturn:
    """Do the task and end the process. Threads of gloo may still wait for a peer that is gone, so that nothing else is tidied up."""
    code = work(task)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def work(task: Task) -> int:
    """Do the task; its exit code. The log ends with done or stopped, whatever happens."""
    with Log(task.folder, task.rank) as log:
        try:
            worker = Worker(task, log)
            method(task.experiment.method).run(worker)
        except Lost as lost:
            log.event("stopped", says=groups.named(str(lost), task))
            return STOPPED
        except Exception as error:  # noqa: BLE001 - whatever it is, the log says it, and stderr where
            traceback.print_exc()
            log.event("stopped", says=f"{type(error).__name__}: {str(error).strip()[:300]}")
            return FAULT
        log.event("done", peak_memory=peak_memory(), loss=worker.loss, steps=worker.steps)
    return DONE


class Worker:
    """A worker's own: its task, log, text, model, optimizer, group, and how far it is."""

    def __init__(self, task: Task, log: Log) -> None:
        """Raises BadData where there is no text."""
        import torch

        from shardmeter.lab.pace import Pace

        torch.set_num_threads(1)
        self.task, self.log, self.experiment = task, log, task.experiment
        self.rank, self.island = task.rank, task.island
        self.site, self.shape = self.experiment.sites[task.island], self.experiment.model
        self.settings = self.experiment.said
        self.pace = Pace(self.site.pace)
        self.text = Text(self.shape.seq_len, task.seed, task.text)
        self.first = sum(site.workers for site in self.experiment.sites[: task.island])
        """Rank of its island's first worker."""
        if self.rank < self.first or self.rank >= self.first + self.site.workers:
            raise ShardMeterError(f"rank {self.rank} is not of island {self.site.name}: {self.first} … are")
        island = tuple(range(self.first, self.first + self.site.workers))
        self.members = island if task.alone else tuple(range(task.world))
        """Ranks of the group, in order."""
        self.generation, self.steps, self.loss = 0, 0, None  # type: int, int, Nats | None
        self.longest = 0.0
        """Seconds of the longest round so far."""
        self.model: Any = None
        self.stepping: Any = None
        """What an inner step calls: the model, or what wraps it."""
        self.optimizer: Any = None
        self._listener: membership.Listener | None = None
        self._since, self._sent = time.monotonic(), None  # type: float, float | None

    # ---- beginning -------------------------------------------------------------------------------------------------------------

    def build(self, **part: Any) -> Any:
        """The model, or the part that `models.build` is told, with its optimizer."""
        from shardmeter.lab.models import build, optimizer_of

        self.model = self.stepping = build(self.shape, self.task.seed, self.pace, **part)
        self.optimizer = optimizer_of(self.model, self.experiment.learning_rate)
        return self.model

    def connect(self) -> None:
        """Open the group of all workers (alone: of its island's), and a port by which others find out that this one lives. Raises
        Lost."""
        if not self.task.alone:
            self._listener = membership.Listener(self.task)
        groups.connect(self.task, self.members)
        self.ready()

    def ready(self) -> None:
        """Say that it can begin; `connect` does."""
        self.log.event("ready", rank=self.rank, island=self.island)

    @property
    def place(self) -> int:
        """Among the members, from 0."""
        return self.members.index(self.rank)

    @property
    def size(self) -> int:
        """How many members there are."""
        return len(self.members)

    # ---- training --------------------------------------------------------------------------------------------------------------

    def batch(self, micro_batch: int) -> tuple[Any, Any]:
        """(tokens, targets) of this worker's micro-batch of the step that is next: all members read windows of their own."""
        count = self.experiment.batch
        first = (self.rank * self.experiment.micro_batches + micro_batch) * count
        return self.text.windows(self.steps, first, count)

    def inner_step(self) -> Nats:
        """Forward and backward of the micro-batches, an optimizer step; the mean training loss."""
        count, total = self.experiment.micro_batches, 0.0
        for micro_batch in range(count):
            loss = self.stepping(*self.batch(micro_batch))
            (loss / count if count > 1 else loss).backward()
            total += loss.item() / count
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return total

    def step(self, step: Callable[[], Nats | None] | None = None) -> None:
        """One inner step (by default `inner_step`), timed and logged. Raises Lost."""
        self.pace.restart()
        start, busy = time.monotonic(), time.process_time()
        loss = groups.attempt(step or self.inner_step)
        seconds, busy = time.monotonic() - start, time.process_time() - busy
        self.log.event("step", step=self.steps, seconds=seconds, loss=loss, busy=busy)
        self.steps += 1

    def alone(self, step: Callable[[], Nats | None] | None = None) -> None:
        """Steps for as long as the task says, at least five."""
        until = time.monotonic() + self.task.alone
        while self.steps < LEAST or time.monotonic() < until:
            self.step(step)

    # ---- rounds ----------------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """All members meet; rounds are counted from here. Raises Lost."""
        import torch.distributed as dist

        if self.size > 1 and dist.is_initialized():
            groups.attempt(dist.barrier)
        self._since, self._sent = time.monotonic(), self._counter()

    def synced(self, at: int, seconds: Seconds, size: float, what: str, **more: Any) -> None:
        """Log a blocking exchange, or what was waited for one; `size` bytes is what this rank held of it."""
        self.log.event("sync", round=at, seconds=seconds, bytes=size, what=what, **more)

    def through(self, at: int) -> None:
        """Log that a round is through."""
        counted, now = self._counter(), time.monotonic()
        crossed = None if counted is None or self._sent is None else counted - self._sent
        self.log.event("round", round=at, seconds=now - self._since, sent_bytes=crossed)
        self.longest = max(self.longest, now - self._since)
        self._since, self._sent = now, counted

    def _counter(self) -> float | None:
        counted = sent(self.task.interface) if self.rank == self.first else None
        return None if counted is None else float(counted)

    def regroup(self, says: str, at: int) -> None:
        """After a peer was lost: find out who goes on, and open their group. Raises Lost where this worker is not among them, or its
        island has more workers, which hold one replica together."""
        if any(site.workers > 1 for site in self.experiment.sites):
            raise Lost(says)
        old = self.members
        for _ in range(len(old)):
            groups.disconnect()
            self.generation += 1
            wait = self.task.patience + 1.5 * self.longest
            self.members = membership.survivors(self.task, self.members, self.generation, wait)
            if self.rank not in self.members:
                others = ", ".join(map(str, self.members))
                raise Lost(f"{says}; of {len(old)} ranks {others} go on, which this one does not all reach")
            try:
                groups.connect(self.task, self.members, self.generation)
            except Lost as again:
                says = str(again)
                continue
            gone = ", ".join(str(one) for one in old if one not in self.members)
            self.log.event(
                "lost",
                round=at,
                says=groups.named(f"without {gone}: {says}" if gone else says, self.task),
                members=list(self.members),
            )
            return
        raise Lost(f"no group holds: {says}")

    # ---- loss ------------------------------------------------------------------------------------------------------------------

    def evaluate(self, model: Any = None, what: str = "held-out") -> None:
        """Loss of the model on held-out text, by the first member; unpaced, and logged."""
        if self.place == 0:
            self.told(held_out(model or self.model, self), what)

    def evaluate_together(self) -> None:
        """The same of a model of which each worker has a shard: all take part, the first tells. Raises Lost."""
        loss = groups.attempt(lambda: held_out(self.model, self))
        if self.place == 0:
            self.told(loss)

    def told(self, loss: Nats, what: str = "held-out") -> None:
        """Log a loss."""
        if what == "held-out":
            self.loss = loss
        self.log.event("eval", step=self.steps, loss=loss, what=what)


def held_out(model: Any, worker: Worker) -> Nats:
    """Mean loss on the windows held out, in nats a byte, unpaced."""
    import torch

    worker.pace.off = True
    try:
        with torch.no_grad():
            return float(model(*worker.text.held_out(HELD_OUT)).item())
    finally:
        worker.pace.off = False


def every_step(worker: Worker, step: Callable[[], Nats | None] | None = None) -> None:
    """The rounds of a synchronous method, one step each; alone, its steps. Raises Lost."""
    if worker.task.alone:
        worker.alone(step)
        return
    worker.begin()
    for at in range(-1, worker.experiment.rounds * int(worker.settings.get("steps", 10))):
        for _ in range(WARM if at < 0 else 1):
            worker.step(step)
        worker.through(at)
