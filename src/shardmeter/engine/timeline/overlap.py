"""Contention on a timeline: compute slows down by a share of the communication that ran beside it, once, when that is known."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence

from shardmeter.core.sums import plain_sum
from shardmeter.engine.timeline.build import Built
from shardmeter.engine.timeline.rank import Drain
from shardmeter.engine.timeline.simulate import Timeline, simulate

ROUNDS = 2
"""How often what runs beside slowed compute is measured again."""
HIDING = frozenset({"gather", "scatter", "replicate", "update", "exchange"})
"""Kinds of communication that may run beside compute."""


def run(built: Built) -> Timeline:
    """Run a program, measure what ran beside each unit's compute, slow the compute down and run it again.

    A window is a unit's compute and the wait after it, as in `hide.slowed`: compute p beside communication C lasts
    p + contention · C, and the wait shrinks by what that takes. Where compute waits for nothing before the end of its turn
    (whole gradients), what runs beside it is measured once more while it is slow. Leaves out: what the slowing of one rank
    moves beside the compute of another."""
    timeline = simulate(built.program)
    if built.contention <= 0.0:
        return timeline
    beside = _beside(built, timeline)
    members: dict[tuple[int, int], list[int]] = defaultdict(list)
    for index, unit in enumerate(built.units):
        members[unit.rank, unit.turn].append(index)
    drains = [drain for drain in built.drains if drain.moves]
    for drain in drains:
        _backlog(built, timeline, drain, members[drain.rank, drain.turn], beside)
    free = [i for drain in drains if drain.free for i in members[drain.rank, drain.turn]]
    if not any(beside):
        return timeline
    plain = {task: _seconds(built, task) for unit in built.units for task in unit.slows}
    timeline = _again(built, plain, beside)
    for _ in range(ROUNDS if free else 0):
        measured = _beside(built, timeline)
        for i in free:
            beside[i] = min(measured[i], _most(built, plain, i))
        timeline = _again(built, plain, beside)
    return timeline


def _seconds(built: Built, task: int) -> float:
    return built.program.tasks[task].seconds


def _again(built: Built, plain: Mapping[int, float], beside: Sequence[float]) -> Timeline:
    """The program with every unit as slow as what runs beside it makes it. `plain`: seconds without contention."""
    for unit, seconds in zip(built.units, beside, strict=True):
        lost = built.contention * seconds
        for index in unit.slows:
            task = built.program.tasks[index]
            task.seconds = plain[index] + lost
            if task.terms is not None and task.kind != "launch" and (lost or "contention" in task.terms):
                others = {term: each for term, each in task.terms.items() if term != "contention"}
                own = max(
                    plain[index] - plain_sum(others.values()), 0.0
                )  # what the layer's own collectives take from it
                task.terms = {**others, "contention": own + lost}
    return simulate(built.program)


def _most(built: Built, plain: Mapping[int, float], index: int) -> float:
    """The most that can run beside a unit: as long as its compute (or the host's pace) lasts while it is slowed all the time."""
    unit, tasks = built.units[index], built.program.tasks
    compute = plain_sum(plain.get(task, tasks[task].seconds) for task in unit.tasks)
    host = max(plain.get(task, tasks[task].seconds) for task in unit.slows)
    return max(compute, host) / max(1.0 - built.contention, 1e-9)


def _beside(built: Built, timeline: Timeline) -> list[float]:
    """Seconds of communication in the window of every unit: from its begin to the begin of the next one in its turn."""
    tasks = built.program.tasks
    beside = [0.0] * len(built.units)
    by_rank: dict[int, list[int]] = defaultdict(list)
    for index, unit in enumerate(built.units):
        by_rank[unit.rank].append(index)
    moves: dict[int, list[int]] = defaultdict(list)
    for index, task in enumerate(tasks):
        if task.kind in HIDING and task.terms is not None:
            moves[built.program.streams[task.stream].rank].append(index)
    for rank, members in by_rank.items():
        order = sorted(members, key=lambda i: timeline.begin[built.units[i].tasks[0]])
        opens = [timeline.begin[built.units[i].tasks[0]] for i in order]
        closes = [_close(built, timeline, order, at, opens) for at in range(len(order))]
        for move in moves[rank]:
            begin, end = timeline.begin[move], timeline.end[move]
            share = tasks[move].seconds / (end - begin) if end > begin else 0.0
            at = max(bisect_right(opens, begin) - 1, 0)
            while at < len(order) and opens[at] < end:
                inside = min(end, closes[at]) - max(begin, opens[at])
                if inside > 0.0:
                    beside[order[at]] += inside * share
                at += 1
    return beside


def _close(built: Built, timeline: Timeline, order: list[int], at: int, opens: list[float]) -> float:
    unit = built.units[order[at]]
    if at + 1 < len(order) and built.units[order[at + 1]].turn == unit.turn:
        return opens[at + 1]
    return max(timeline.end[task] for task in unit.ends)


def _backlog(built: Built, timeline: Timeline, drain: Drain, mine: list[int], beside: list[float]) -> None:
    """Reductions that lag behind compute are waited for at the end of their turn. The wait beyond those that could not have
    begun before is a stall: of the last unit, or of all (as shared out what ran beside them) where nothing else waits."""
    tasks = built.program.tasks
    last = max(timeline.end[task] for task in built.units[mine[-1]].ends)
    late = plain_sum(
        tasks[move].seconds
        for move in drain.moves
        if tasks[move].terms is not None and max(timeline.end[task] for task in tasks[move].after) >= last
    )
    stall = max(timeline.end[move] for move in drain.moves) - last - late
    total = plain_sum(beside[i] for i in mine)
    if stall <= 0.0 or total <= 0.0:
        return
    if not drain.free:
        beside[mine[-1]] += stall
        return
    for i in mine:
        beside[i] = min(beside[i] * (1.0 + stall / total), _most(built, {}, i))
