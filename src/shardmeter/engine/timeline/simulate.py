"""A list scheduler: tasks on streams, with dependencies, run to the end.

A stream runs one task at a time. In-order streams (a CUDA stream: what was issued first runs first) keep the order in which
their tasks were added; shared streams (a NIC that several ranks use) take whichever task is ready first.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

from shardmeter.core.record import record


@record
class Task:
    """One piece of work: how long, on which stream, after which tasks (their indices)."""

    label: str
    stream: int
    seconds: float
    after: tuple[int, ...] = ()
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
        self.tasks.append(Task(label=label, stream=stream, seconds=seconds, after=tuple(after), kind=kind))
        return len(self.tasks) - 1


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
    tasks, streams = program.tasks, program.streams
    waiting = [len(task.after) for task in tasks]
    followers: list[list[int]] = [[] for _ in tasks]
    queue: list[list[int]] = [[] for _ in streams]
    for index, task in enumerate(tasks):
        queue[task.stream].append(index)
        for earlier in task.after:
            followers[earlier].append(index)
    head = [0] * len(streams)
    ready: list[list[tuple[float, int]]] = [[] for _ in streams]
    busy = [False] * len(streams)
    ready_at = [0.0] * len(tasks)
    begin, end = [0.0] * len(tasks), [0.0] * len(tasks)
    events: list[tuple[float, int]] = []

    def start(stream: int, now: float) -> None:
        if busy[stream]:
            return
        if streams[stream].shared:
            if not ready[stream]:
                return
            index = heapq.heappop(ready[stream])[1]
        else:
            order = queue[stream]
            if head[stream] >= len(order) or waiting[order[head[stream]]] > 0:
                return
            index = order[head[stream]]
            head[stream] += 1
        busy[stream] = True
        begin[index] = now
        end[index] = now + tasks[index].seconds
        heapq.heappush(events, (end[index], index))

    for index, count in enumerate(waiting):
        if count == 0 and streams[tasks[index].stream].shared:
            heapq.heappush(ready[tasks[index].stream], (0.0, index))
    for stream in range(len(streams)):
        start(stream, 0.0)
    done = 0
    while events:
        now, index = heapq.heappop(events)
        done += 1
        stream = tasks[index].stream
        busy[stream] = False
        touched = [stream]
        for follower in followers[index]:
            waiting[follower] -= 1
            if waiting[follower] == 0:
                ready_at[follower] = now
                target = tasks[follower].stream
                if streams[target].shared:
                    heapq.heappush(ready[target], (now, follower))
                touched.append(target)
        for target in touched:
            start(target, now)
    if done < len(tasks):
        stuck = [tasks[i].label for i, count in enumerate(waiting) if count > 0][:5]
        raise ValueError(f"{len(tasks) - done} tasks never became ready, among them {stuck}")
    return Timeline(program=program, begin=tuple(begin), end=tuple(end))
