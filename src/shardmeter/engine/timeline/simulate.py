"""A list scheduler: tasks on streams, with dependencies, run to the end.

A stream runs one task at a time. In-order streams (a CUDA stream: what was issued first runs first) keep the order in which
their tasks were added; shared streams (a NIC that several ranks use) take whichever task is ready first.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

from shardmeter.core.record import record


@dataclass(slots=True)
class Task:
    """One piece of work: how long, on which stream, after which tasks (their indices)."""

    label: str
    stream: int
    seconds: float
    after: list[int]
    kind: str = ""
    """What colours it: forward, input_grad, weight_grad, gather, scatter, send, …"""


@record
class Stream:
    """A queue with a name, of a rank; `shared` takes tasks by readiness instead of by issue."""

    name: str
    rank: int
    shared: bool = False


@dataclass(slots=True)
class Program:
    """A task graph under construction: `stream` and `add` return the indices that later tasks refer to."""

    streams: list[Stream] = field(default_factory=list)
    tasks: list[Task] = field(default_factory=list)

    def stream(self, name: str, rank: int, *, shared: bool = False) -> int:
        """A new stream."""
        self.streams.append(Stream(name=name, rank=rank, shared=shared))
        return len(self.streams) - 1

    def add(self, label: str, stream: int, seconds: float, after: Sequence[int] = (), kind: str = "") -> int:
        """A new task, issued after every task added before it on the same stream."""
        self.tasks.append(Task(label, stream, seconds, list(after), kind))
        return len(self.tasks) - 1

    def wait(self, task: int, earlier: int) -> None:
        """Let a task wait for another, whichever was added first."""
        self.tasks[task].after.append(earlier)


@record
class Timeline:
    """When every task of a program began and ended."""

    program: Program
    begin: tuple[float, ...]
    end: tuple[float, ...]

    @property
    def makespan(self) -> float:
        """End of the last task."""
        return max(self.end, default=0.0)

    def busy(self, stream: int) -> float:
        """Seconds a stream worked."""
        return sum(t.seconds for t in self.program.tasks if t.stream == stream)


def simulate(program: Program) -> Timeline:
    """Run a program. Every task begins when its stream is free, its turn has come and all it waits for has ended.

    Raises ValueError if tasks wait for each other in a circle (a schedule that deadlocks), naming the first few.
    O(tasks · log tasks)."""
    run = _Run(program)
    for stream in range(len(program.streams)):
        run.start(stream, 0.0)
    done = 0
    while run.events:
        now, index = heapq.heappop(run.events)
        done += 1
        for stream in run.finish(index, now):
            run.start(stream, now)
    if done < len(program.tasks):
        stuck = [task.label for task, count in zip(program.tasks, run.waiting, strict=True) if count > 0][:5]
        raise ValueError(f"{len(program.tasks) - done} tasks never became ready, among them {stuck}")
    return Timeline(program=program, begin=tuple(run.begin), end=tuple(run.end))


class _Run:
    """The state of a run: what every task still waits for, and the queues of the streams."""

    def __init__(self, program: Program) -> None:
        tasks, streams = program.tasks, program.streams
        self.tasks, self.streams = tasks, streams
        self.waiting = [len(task.after) for task in tasks]
        self.followers: list[list[int]] = [[] for _ in tasks]
        self.queue: list[list[int]] = [[] for _ in streams]
        self.head = [0] * len(streams)
        self.ready: list[list[tuple[float, int]]] = [[] for _ in streams]
        self.busy = [False] * len(streams)
        self.begin, self.end = [0.0] * len(tasks), [0.0] * len(tasks)
        self.events: list[tuple[float, int]] = []
        for index, task in enumerate(tasks):
            self.queue[task.stream].append(index)
            for earlier in task.after:
                self.followers[earlier].append(index)
            if not task.after and streams[task.stream].shared:
                self.ready[task.stream].append((0.0, index))

    def start(self, stream: int, now: float) -> None:
        """Let a free stream take its next task, if that is ready."""
        if self.busy[stream]:
            return
        index = self._next(stream)
        if index is None:
            return
        self.busy[stream] = True
        self.begin[index] = now
        self.end[index] = now + self.tasks[index].seconds
        heapq.heappush(self.events, (self.end[index], index))

    def _next(self, stream: int) -> int | None:
        if self.streams[stream].shared:
            return heapq.heappop(self.ready[stream])[1] if self.ready[stream] else None
        order, head = self.queue[stream], self.head[stream]
        if head >= len(order) or self.waiting[order[head]] > 0:
            return None
        self.head[stream] += 1
        return order[head]

    def finish(self, index: int, now: float) -> list[int]:
        """Mark a task as done; the streams that may now start something."""
        stream = self.tasks[index].stream
        self.busy[stream] = False
        touched = [stream]
        for follower in self.followers[index]:
            self.waiting[follower] -= 1
            if self.waiting[follower] == 0:
                target = self.tasks[follower].stream
                if self.streams[target].shared:
                    heapq.heappush(self.ready[target], (now, follower))
                touched.append(target)
        return touched
