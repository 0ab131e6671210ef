"""What a timeline says of itself: how busy each stream was, and where one rank's time went, by the ledger's terms."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

from shardmeter.core.record import record
from shardmeter.engine.add import CAUSES
from shardmeter.engine.layer import EXCHANGE, HOST
from shardmeter.engine.timeline.rank import GATHER, REDUCE
from shardmeter.engine.timeline.simulate import Task, Timeline
from shardmeter.strategies.probes import LOSSES

BUBBLE, SENDS = "pipeline bubble", "stage sends"
WAITED = {
    "gather": GATHER, "update": GATHER, "scatter": REDUCE, "replicate": REDUCE, "send": SENDS, "tied": "tied matrix",
    "launch": "launch overhead", "software": "software", "exchange": EXCHANGE, "copies": REDUCE, "optimizer": "optimizer",
    "copy to host": HOST, "copy from host": HOST, "host update": HOST, "losses": LOSSES,
}  # fmt: skip
"""For each kind of task the term of whoever waits for it; a serial collective names its own."""

CHAINED = frozenset(
    {"software", "optimizer", "host update", "copy to host", "copy from host", "copies", "tied", "losses", "serial"}
)
"""Kinds that stand in a row: who waits for one has waited for what it waited for."""

COMPUTED = frozenset({"forward", "backward", "input_grad", "weight_grad", "recompute"})
"""Kinds of a layer's own compute."""


@record
class Gap:
    """Compute of a rank stands still, and for what."""

    rank: int
    begin: float
    end: float
    term: str


def busy(timeline: Timeline) -> dict[tuple[int, str], float]:
    """Seconds that each stream of each rank worked, by (rank, stream)."""
    seconds: dict[tuple[int, str], float] = {(stream.rank, stream.name): 0.0 for stream in timeline.program.streams}
    for task in timeline.program.tasks:
        stream = timeline.program.streams[task.stream]
        seconds[stream.rank, stream.name] += task.seconds
    return seconds


def gaps(timeline: Timeline, rank: int) -> list[Gap]:
    """Every wait of a rank's compute, in order of time: for the last thing that the next task waited for."""
    program = timeline.program
    mine = [i for i, t in enumerate(program.tasks) if program.streams[t.stream] == _compute(timeline, rank)]
    mine.sort(key=lambda i: (timeline.begin[i], timeline.end[i]))
    found: list[Gap] = []
    clock, pending = 0.0, list[int]()
    for index in mine:
        pending.append(index)
        if not program.tasks[index].seconds:
            continue
        begin = timeline.begin[index]
        if begin > clock:
            found += _split(timeline, rank, clock, begin, pending)
        clock, pending = max(clock, timeline.end[index]), []
    done = max(
        (i for i, t in enumerate(program.tasks) if t.kind == "software" and _rank(timeline, i) == rank), default=-1
    )
    if done >= 0 and timeline.end[done] > clock:
        found += _split(timeline, rank, clock, timeline.begin[done], [*pending, done])
        found.append(Gap(rank=rank, begin=max(timeline.begin[done], clock), end=timeline.end[done], term="software"))
        clock = timeline.end[done]
    if timeline.makespan > clock:  # others are still at work, on their own clocks
        found.append(Gap(rank=rank, begin=clock, end=timeline.makespan, term=BUBBLE))
    return found


def _rank(timeline: Timeline, task: int) -> int:
    return timeline.program.streams[timeline.program.tasks[task].stream].rank


def _compute(timeline: Timeline, rank: int) -> object:
    return next(s for s in timeline.program.streams if s.rank == rank and s.name == "compute")


def _split(timeline: Timeline, rank: int, begin: float, end: float, pending: list[int]) -> list[Gap]:
    """One wait, cut where one thing that was waited for ended and the next was still under way; a rank that waits for a send
    waits for the sender until it begins."""
    found: list[Gap] = []

    def until(moment: float, term: str) -> None:
        start = found[-1].end if found else begin
        stop = min(moment, end)
        if stop > start:
            found.append(Gap(rank=rank, begin=start, end=stop, term=term))

    for cause in _causes(timeline, pending):
        task = timeline.program.tasks[cause]
        term = _term(timeline, rank, task)
        if term == SENDS:
            until(timeline.begin[cause], BUBBLE)
        until(timeline.end[cause], term)
    until(end, BUBBLE)
    return found


def _causes(timeline: Timeline, pending: list[int]) -> list[int]:
    """The tasks that the pending ones waited for, in order of their end, seen through markers that take no time and through
    what stands in a row."""
    tasks = timeline.program.tasks
    seen, front, causes = set(pending), list(pending), list[int]()
    while front:
        for earlier in tasks[front.pop()].after:
            if earlier not in seen:
                seen.add(earlier)
                if tasks[earlier].seconds:
                    causes.append(earlier)
                if not tasks[earlier].seconds or tasks[earlier].kind in CHAINED:
                    front.append(earlier)
    return sorted(causes, key=lambda i: (timeline.end[i], tasks[i].kind == "launch"))


def _term(timeline: Timeline, rank: int, task: Task) -> str:
    if task.kind != "send" and timeline.program.streams[task.stream].rank != rank:
        return BUBBLE
    if task.kind == "serial":
        return next(iter(task.terms or {}), "tensor parallel")
    return WAITED.get(task.kind, BUBBLE)


def ledger(timeline: Timeline, rank: int, begin: float = 0.0, end: float = math.inf) -> dict[str, float]:
    """Seconds of one rank by term from `begin` to `end`, in the ledger's order; they sum to what lies between, left out to the
    makespan. A task counts where it begins."""
    seconds: dict[str, float] = defaultdict(float)
    compute = _compute(timeline, rank)
    for index, task in enumerate(timeline.program.tasks):
        if timeline.program.streams[task.stream] == compute and begin <= timeline.begin[index] < end:
            for term, each in (task.terms or {}).items():
                seconds[term] += each
    for gap in gaps(timeline, rank):
        seconds[gap.term] += max(min(gap.end, end) - max(gap.begin, begin), 0.0)
    return {term: seconds[term] for term in CAUSES if term in seconds}


def window(
    timeline: Timeline, steps: Sequence[Sequence[int]], rank: int, *, own_clock: bool
) -> tuple[float, float, int]:
    """(begin, end, steps between): what a rank's steps are measured by. `steps` holds the tasks that end each step, by rank.

    All of it or, where every device keeps its own clock, from the end of its first step to that of its last (of a single step:
    from its first task on, so that the way to a later stage does not count)."""
    if not own_clock:
        return 0.0, timeline.makespan, len(steps)
    end = timeline.end[steps[-1][rank]]
    if len(steps) > 1:
        return timeline.end[steps[0][rank]], end, len(steps) - 1
    compute, program = _compute(timeline, rank), timeline.program
    mine = [i for i, task in enumerate(program.tasks) if program.streams[task.stream] == compute and task.seconds]
    return min(timeline.begin[i] for i in mine), end, 1


def step_time(timeline: Timeline, steps: Sequence[Sequence[int]], *, own_clock: bool) -> float:
    """Seconds of a step: of the rank that takes longest."""
    found = [window(timeline, steps, rank, own_clock=own_clock) for rank in range(len(steps[0]))]
    return max((end - begin) / count for begin, end, count in found)


def busiest(timeline: Timeline) -> int:
    """The rank whose compute worked longest."""
    worked = {rank: seconds for (rank, name), seconds in busy(timeline).items() if name == "compute"}
    return max(worked, key=lambda rank: worked[rank])
