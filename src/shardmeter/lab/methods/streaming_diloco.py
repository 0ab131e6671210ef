"""Streaming DiLoCo: whole layers in `num_fragments` fragments, each with an outer step every `sync_every` inner steps, fragments
`sync_every`/`num_fragments` steps apart (Douillard 2025).

A fragment's outer gradient leaves when a step ends, by a thread of its own, while the next `fragment_sync_delay` steps compute; then
it is waited for, stepped on and mixed in: `fragment_update_alpha` is the weight that the worker's own parameters keep. `bits` 32, 16, 8
or 4 (default) of a value: see `averaging`. The embedding is of the first fragment, the head of the last; fragments are runs of layers.
The last fragment of a round leaves when the round ends and arrives in the next. The loss told is of the first worker's own model.
"""

from __future__ import annotations

import functools
import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from shardmeter.core.errors import BadScenario, Violation
from shardmeter.lab import averaging, groups, outer, rounds, shapes

if TYPE_CHECKING:
    from shardmeter.lab.worker import Worker

INNER = "steps of one worker by itself"


class Stream:
    """Fragments, and those of them that are under way."""

    def __init__(self, worker: Worker) -> None:
        """Raises BadScenario where the steps or layers do not go into fragments."""
        settings = worker.settings
        self.worker, self.every = worker, int(settings["sync_every"])
        count = int(settings.get("num_fragments", min(8, worker.shape.layers)))
        self.delay, self.alpha = (
            int(settings.get("fragment_sync_delay", 1)),
            float(settings.get("fragment_update_alpha", 0.5)),
        )
        self.bits = int(settings.get("bits", 4))
        _check(worker, count, self.every, self.delay)
        self.fragments = [outer.of(worker, one) for one in _fragments(worker.build(), count)]
        self.shared = [rounds.Shared((one.copy, one.velocity), one.adopt) for one in self.fragments]
        self._under_way: deque[tuple[int, int, Future[Any]]] = deque()
        self._line = ThreadPoolExecutor(1)
        self._steps = 0

    def after_step(self, in_round: int, at: int) -> None:
        """Apply what is due after a step, the `in_round`-th of its round (from 1); send what is due to leave. Raises Lost."""
        self._steps += 1
        while self._under_way and self._under_way[0][0] <= self._steps:
            self.apply(at)
        count = len(self.fragments)
        for place in range(count):
            if in_round == round((place + 1) * self.every / count):
                gradient = self.fragments[place].gradient()
                self._under_way.append((self._steps + self.delay, place, self._line.submit(self._mean, gradient)))
        while self._under_way and self._under_way[0][0] <= self._steps:  # no delay: it is waited for
            self.apply(at)

    def apply(self, at: int) -> None:
        """Wait for the fragment that left first; step on it and mix it in. Raises Lost."""
        _, place, arrival = self._under_way.popleft()
        start = time.monotonic()
        mean, took = arrival.result()
        waited = time.monotonic() - start
        size = averaging.size(len(mean), self.bits, self.worker.size)
        self.worker.synced(at, waited, size, f"fragment {place}", took=took)
        self.fragments[place].step(mean)
        self.fragments[place].adopt(self.alpha)
        self.shared[place].version += 1

    def drain(self, at: int) -> None:
        """Apply all that is under way. Raises Lost."""
        while self._under_way:
            self.apply(at)

    def drop(self) -> None:
        """Forget all that is under way, once no collective of it is left: what it would have told is still in the parameters."""
        while self._under_way:
            self._under_way.popleft()[2].exception()

    def _mean(self, gradient: Any) -> tuple[Any, float]:
        start = time.monotonic()
        mean = groups.attempt(lambda: averaging.mean(gradient, self.bits, self.worker.size))
        return mean, time.monotonic() - start


def run(worker: Worker) -> None:
    """Train all rounds, with those who are left. Raises Lost where this worker is left behind."""
    stream = Stream(worker)
    worker.connect()
    if worker.task.alone:
        worker.alone()
        return
    worker.evaluate()
    worker.begin()
    at = -1
    while at < worker.experiment.rounds:
        says = _round(worker, stream, at)
        if says:
            stream.drop()
            at, _ = rounds.recovered(worker, says, at, stream.shared)
        else:
            worker.through(at)
            at += 1
    if says := rounds.failed(worker, lambda: stream.drain(at)):
        worker.log.event("note", says=f"the last fragments did not arrive: {says}")
    worker.evaluate()


def _round(worker: Worker, stream: Stream, at: int) -> str:
    """One round; what is said of a peer that is gone."""
    for in_round in range(1, stream.every + 1):
        worker.step()
        if says := rounds.failed(worker, functools.partial(stream.after_step, in_round, at)):
            return says
    return ""


def _fragments(model: Any, count: int) -> list[list[Any]]:
    """Parameters of each fragment."""
    found = [
        [one for at in run for one in model.layers[at].parameters()] for run in shapes.dealt(len(model.layers), count)
    ]
    found[0] = [*model.embedding.parameters(), *found[0]]
    found[-1] = [*found[-1], *model.head.parameters()]
    return found


def _check(worker: Worker, count: int, every: int, delay: int) -> None:
    found = []
    if not 1 <= count <= min(worker.shape.layers, every):
        says = f"{count} fragments of {worker.shape.layers} layers in rounds of {every} steps"
        found.append(
            Violation(field="num_fragments", says=says, rule="a fragment is whole layers and has a step of its own")
        )
    if not 0 <= delay <= every:
        found.append(
            Violation(field="fragment_sync_delay", says=f"{delay} steps in rounds of {every}", rule="at most a round")
        )
    if found:
        raise BadScenario("no such fragments", found)
