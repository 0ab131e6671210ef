"""Contention on a timeline: compute slows down by a share of the communication that ran beside it, once, when that is known."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict

from shardmeter.engine.timeline.build import Built
from shardmeter.engine.timeline.rank import Drain
from shardmeter.engine.timeline.simulate import Timeline, simulate

HIDING = frozenset({"gather", "scatter", "replicate", "update"})
"""Kinds of communication that may run beside compute."""


def run(built: Built) -> Timeline:
    """Run a program, measure what ran beside each unit's compute, slow the compute down and run it again.

    A window is a unit's compute and the wait after it, as in `hide.slowed`: compute p beside communication C lasts
    p + contention · C, and the wait shrinks by what that takes. Leaves out: what the slowing itself moves beside compute."""
    timeline = simulate(built.program)
    if built.contention <= 0.0:
        return timeline
    extra = slowing(built, timeline)
    if not extra:
        return timeline
    for task, seconds in extra.items():
        one = built.program.tasks[task]
        one.seconds += seconds
        if one.terms is not None and one.kind != "launch":
            one.terms = {**one.terms, "contention": seconds}
    return simulate(built.program)


def slowing(built: Built, timeline: Timeline) -> dict[int, float]:
    """Seconds to add to tasks: contention × the communication in the window of each unit."""
    beside = _beside(built, timeline)
    members: dict[tuple[int, int], list[int]] = defaultdict(list)
    for index, unit in enumerate(built.units):
        members[unit.rank, unit.turn].append(index)
    for drain in built.drains:
        if drain.moves:
            _backlog(built, timeline, drain, members[drain.rank, drain.turn], beside)
    extra: dict[int, float] = {}
    for unit, seconds in zip(built.units, beside, strict=True):
        if seconds > 0.0:
            extra.update(dict.fromkeys(unit.slows, built.contention * seconds))
    return extra


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
    late = sum(
        tasks[move].seconds
        for move in drain.moves
        if tasks[move].terms is not None and max(timeline.end[task] for task in tasks[move].after) >= last
    )
    stall = max(timeline.end[move] for move in drain.moves) - last - late
    total = sum(beside[i] for i in mine)
    if stall <= 0.0 or total <= 0.0:
        return
    if not drain.free:
        beside[mine[-1]] += stall
        return
    for i in mine:
        compute = sum(tasks[task].seconds for task in built.units[i].tasks)
        most = compute / max(1.0 - built.contention, 1e-9)
        beside[i] = min(beside[i] * (1.0 + stall / total), most)
