"""A list scheduler: tasks on streams, with dependencies, run to the end.

A stream runs one task at a time. In-order streams (a CUDA stream: what was issued first runs first) keep the order in which
their tasks were added; shared streams (a NIC that several ranks use) take whichever task is ready first. An urgent task (a
collective that compute waits for) interrupts the other task of its stream, which goes on afterwards.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from shardmeter.core.record import record
from shardmeter.core.sums import plain_sum


@dataclass(slots=True)
class Task:
    """One piece of work: how long, on which stream, after which tasks (their indices)."""

    label: str
    stream: int
    seconds: float
    after: list[int]
    kind: str = ""
    """What colours it: forward, input_grad, weight_grad, gather, scatter, send, …"""
    terms: Mapping[str, float] | None = None
    """Seconds by ledger term that the task is made of."""
    urgent: bool = False
    turn: int = -1
    """Which turn of its rank the task belongs to, where it belongs to one."""


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

    def add(
        self,
        label: str,
        stream: int,
        seconds: float,
        after: Sequence[int] = (),
        kind: str = "",
        *,
        terms: Mapping[str, float] | None = None,
        urgent: bool = False,
        turn: int = -1,
    ) -> int:
        """A new task, issued after every task added before it on the same stream."""
        self.tasks.append(Task(label, stream, seconds, list(after), kind, terms, urgent, turn))
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
        return plain_sum(t.seconds for t in self.program.tasks if t.stream == stream)


def simulate(program: Program) -> Timeline:
    """Run a program. Every task begins when its stream is free, its turn has come and all it waits for has ended.

    Raises ValueError if tasks wait for each other in a circle (a schedule that deadlocks), naming the first few.
    O(tasks · log tasks)."""
    run = _Run(program)
    done = run.to_the_end()
    if done < len(program.tasks):
        stuck = [task.label for task, count in zip(program.tasks, run.waiting, strict=True) if count > 0][:5]
        raise ValueError(f"{len(program.tasks) - done} tasks never became ready, among them {stuck}")
    return Timeline(program=program, begin=tuple(run.begin), end=tuple(run.end))


class _Run:
    """The state of a run: what every task still waits for, and the queues of the streams."""

    def __init__(self, program: Program) -> None:
        tasks, streams = program.tasks, program.streams
        self.tasks = tasks
        self.waiting = [len(task.after) for task in tasks]
        self.followers: list[list[int] | None] = [None] * len(tasks)
        self.by_readiness = [stream.shared for stream in streams]
        self.queue: list[list[int]] = [[] for _ in streams]
        """In-order tasks, the next one last."""
        self.ready: list[list[tuple[float, int]]] = [[] for _ in streams]
        self.urgent: list[list[tuple[float, int]]] = [[] for _ in streams]
        self.running = [-1] * len(streams)
        self.paused: list[tuple[int, float] | None] = [None] * len(streams)
        self.begin, self.end = [0.0] * len(tasks), [math.inf] * len(tasks)
        self.events: list[tuple[float, int]] = []
        followers = self.followers
        for index, task in enumerate(tasks):
            if not (task.urgent or self.by_readiness[task.stream]):
                self.queue[task.stream].append(index)
            elif not task.after:
                heap = self.urgent if task.urgent else self.ready
                heap[task.stream].append((0.0, index))
            for earlier in task.after:
                later = followers[earlier]
                if later is None:
                    followers[earlier] = [index]
                else:
                    later.append(index)
        for order in self.queue:
            order.reverse()

    def to_the_end(self) -> int:
        """Run all that becomes ready; how many tasks ended."""
        events, end, tasks = self.events, self.end, self.tasks
        waiting, followers, running = self.waiting, self.followers, self.running
        pop, start, done = heapq.heappop, self._start, 0
        for stream in range(len(running)):
            start(stream, 0.0)
        while events:
            now, index = pop(events)
            stream = tasks[index].stream
            if running[stream] != index or end[index] != now:  # it was interrupted: its end has moved
                continue
            done += 1
            running[stream] = -1
            start(stream, now)
            for follower in followers[index] or ():
                waiting[follower] -= 1
                if not waiting[follower]:
                    task = tasks[follower]
                    target = task.stream
                    if task.urgent:
                        heapq.heappush(self.urgent[target], (now, follower))
                        self._interrupt(target, now)
                    elif self.by_readiness[target]:
                        heapq.heappush(self.ready[target], (now, follower))
                    if running[target] < 0:
                        start(target, now)
        return done

    def _interrupt(self, stream: int, now: float) -> None:
        """Let the task of a stream stop for an urgent one."""
        index = self.running[stream]
        if index >= 0 and not self.tasks[index].urgent:
            self.paused[stream] = (index, self.end[index] - now)
            self.end[index] = math.inf
            self.running[stream] = -1

    def _start(self, stream: int, now: float) -> None:
        """Let a free stream take its next task, if one is ready: an urgent one, the interrupted one, or whose turn it is."""
        if self.urgent[stream]:
            index = heapq.heappop(self.urgent[stream])[1]
        elif self.paused[stream] is not None:
            index, left = self.paused[stream]  # type: ignore[misc]
            self.paused[stream] = None
            self.running[stream] = index
            self.end[index] = now + left
            heapq.heappush(self.events, (now + left, index))
            return
        elif self.by_readiness[stream]:
            if not self.ready[stream]:
                return
            index = heapq.heappop(self.ready[stream])[1]
        else:
            order = self.queue[stream]
            if not order or self.waiting[order[-1]]:
                return
            index = order.pop()
        self.running[stream] = index
        self.begin[index] = now
        self.end[index] = ended = now + self.tasks[index].seconds
        heapq.heappush(self.events, (ended, index))
