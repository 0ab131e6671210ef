"""Rounds of several cells, task by task: the oracle that `engine.round` is held to where all cells wait for each other.

A compute stream per cell, and one stream for the network between those that meet: all cells, or each group by which a round's
messages pass. A message starts when every cell of it has released it and the ones before are through for all of them; a step waits
for the messages of its cell that are due at its beginning.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from shardmeter.core.record import record
from shardmeter.engine.round import Pace, alone
from shardmeter.engine.timeline.account import Gap
from shardmeter.engine.timeline.simulate import Program, Timeline, simulate
from shardmeter.specs.round import Crossing, Round

Group: TypeAlias = tuple[int, ...]
"""Cells among which a message passes."""
NETWORK = "network"
STEP, MESSAGE, UPDATE, WAIT = "inner step", "message", "outer update", "wait"
"""Kinds of tasks, and what a cell does that has none."""


@record
class Rounds:
    """A timeline of rounds, and when each of them was over."""

    timeline: Timeline
    ends: tuple[float, ...]

    @property
    def seconds(self) -> float:
        """Of one round in the steady state: the mean of the second half."""
        half = len(self.ends) // 2
        return (self.ends[-1] - self.ends[half - 1]) / (len(self.ends) - half)


def run(round_: Round, paces: Sequence[Pace], across: Sequence[float | Sequence[float]], rounds: int) -> Rounds:
    """So many rounds of cells that meet (pace barrier), plain numbers. `across` as for `engine.round.fold`; where a message passes in
    groups, also the seconds of every cell, of which a group takes its longest.

    Leaves out: the transfer of two crossings at once."""
    steps = round(float(round_.steps))
    made = _Made(round_, paces, across)
    marks = [made.step(at) for at in range(steps * rounds)]
    timeline = simulate(made.program)
    last = [marks[(number + 1) * steps - 1] for number in range(rounds)]
    return Rounds(timeline=timeline, ends=tuple(max(timeline.end[task] for task in tasks) for tasks in last))


def gaps(timeline: Timeline, cell: int) -> list[Gap]:
    """Every wait of a cell, in order of time: for a message while the network has one, else for slower cells."""
    program = timeline.program
    stream = next(at for at, one in enumerate(program.streams) if one.rank == cell)
    spans = [
        sorted(_spans(timeline, stream)),
        sorted(span for at in _heard(program, stream) for span in _spans(timeline, at)),
    ]
    found: list[Gap] = []
    clock, first = 0.0, 0
    for begin, end, _ in [*spans[0], (timeline.makespan, timeline.makespan, "")]:
        while clock < begin:
            while first < len(spans[1]) and spans[1][first][1] <= clock:
                first += 1
            sent = spans[1][first] if first < len(spans[1]) else (begin, begin, "")
            until, term = (min(sent[0], begin), WAIT) if sent[0] > clock else (min(sent[1], begin), sent[2])
            found.append(Gap(rank=cell, begin=clock, end=until, term=term))
            clock = until
        clock = max(clock, end)
    return found


def _heard(program: Program, stream: int) -> set[int]:
    """The network's streams that carry messages of a cell's."""
    return {
        task.stream
        for task in program.tasks
        if task.kind == MESSAGE and any(program.tasks[earlier].stream == stream for earlier in task.after)
    }


def _spans(timeline: Timeline, stream: int) -> Iterator[tuple[float, float, str]]:
    """(begin, end, label) of every task of a stream that takes time."""
    for task, begin, end in zip(timeline.program.tasks, timeline.begin, timeline.end, strict=True):
        if task.stream == stream and end > begin:
            yield begin, end, task.label


class _Made:
    """The program under construction."""

    def __init__(self, round_: Round, paces: Sequence[Pace], across: Sequence[float | Sequence[float]]) -> None:
        self.round, self.paces, self.across = round_, paces, across
        self.steps = round(float(round_.steps))
        self.program = Program()
        self.streams = [self.program.stream("compute", cell) for cell in range(len(paces))]
        everyone = tuple(range(len(paces)))
        meeting = dict.fromkeys(group for one in round_.crossings for group in one.groups or (everyone,))
        self.networks = {group: self.program.stream(NETWORK, len(paces)) for group in meeting}
        self.before: dict[int, int] = {}
        """Of every cell the message before."""
        self.due: dict[int, list[tuple[Group, int]]] = {}
        """Messages and whose they are, by the step that waits for them."""
        behind = [float(np.max(s)) for one, s in zip(round_.crossings, across, strict=True) if one.behind]
        self.pieces = [pieces(pace, max(behind, default=0.0)) for pace in paces]

    def step(self, at: int) -> list[int]:
        """An inner step of every cell, and the messages released in it; returns what ends it: the cells' outer updates where it
        closes a round."""
        outs = [
            (crossing, seconds)
            for crossing, seconds in zip(self.round.crossings, self.across, strict=True)
            for _ in range(self._released(crossing, at))
        ]
        waits = self.due.pop(at, [])
        parts = [
            self._cell(cell, [crossing for crossing, _ in outs], self._of(cell, waits), at)
            for cell in range(len(self.paces))
        ]
        for crossing, seconds in outs:
            for group in crossing.groups or (tuple(range(len(self.paces))),):
                self._message(
                    crossing, float(np.max(np.broadcast_to(seconds, len(self.paces))[list(group)])), group, parts, at
                )
        ends = [tasks[1.0] for tasks in parts]
        if (at + 1) % self.steps == 0:
            held = self.due.pop(at + 1, [])
            ends = [
                self.program.add("outer update", stream, float(pace.update), [*self._of(cell, held), end], UPDATE)
                for cell, (stream, pace, end) in enumerate(zip(self.streams, self.paces, ends, strict=True))
            ]
            self.due[at + 1] = held
        return ends

    def _of(self, cell: int, messages: Sequence[tuple[Group, int]]) -> list[int]:
        """Those of some messages that are a cell's."""
        return [task for group, task in messages if cell in group]

    def _released(self, crossing: Crossing, at: int) -> int:
        """Messages of a crossing that step `at` releases: they are spread evenly, the last at the end of the round."""
        often = round(float(crossing.messages))
        inside = at % self.steps
        return (inside + 1) * often // self.steps - inside * often // self.steps

    def _cell(self, cell: int, outs: Sequence[Crossing], waits: list[int], at: int) -> dict[float, int]:
        """The tasks of one step of a cell, cut where messages are released: share of the step done → task."""
        pace = self.paces[cell]
        length = float(pace.step)
        cuts = {1.0}
        for crossing in outs:
            if crossing.behind == "backward":
                cuts |= {moment for moment, _ in self.pieces[cell]}
            else:
                cuts.add(1.0 - float(crossing.lead))
        found: dict[float, int] = {}
        for begin, end in pairwise((0.0, *sorted(cut for cut in cuts if cut > 0.0))):
            after = waits if begin == 0.0 else []
            found[end] = self.program.add(
                f"{STEP} · {at}", self.streams[cell], (end - begin) * length, after, STEP, turn=at
            )
        return found

    def _message(
        self, crossing: Crossing, seconds: float, group: Group, parts: Sequence[dict[float, int]], at: int
    ) -> None:
        """One message among some cells, layer by layer where it follows a backward, and the step that waits for it."""
        if crossing.behind == "backward":
            whole, start = 0.0, min(max(float(self.paces[cell].start) for cell in group), seconds)
            for _, share in self.pieces[group[0]]:
                whole += share
                after = [parts[cell][when_whole(self.pieces[cell], whole)] for cell in group]
                last = self._passed(crossing, share * (seconds - start), group, after, at)
            self.due.setdefault(at + 1, []).append((group, self._passed(crossing, start, group, [last], at)))
            return
        after = [parts[cell][1.0 - float(crossing.lead)] for cell in group]
        task = self._passed(crossing, seconds, group, after, at)
        self.due.setdefault(at + 1 + round(float(crossing.window)), []).append((group, task))

    def _passed(self, crossing: Crossing, seconds: float, group: Group, after: Sequence[int], at: int) -> int:
        """A message on the wire, behind the one before of each of its cells."""
        before = dict.fromkeys(self.before[cell] for cell in group if cell in self.before)
        task = self.program.add(crossing.label, self.networks[group], seconds, [*after, *before], MESSAGE, turn=at)
        self.before |= dict.fromkeys(group, task)
        return task


def pieces(pace: Pace, seconds: float) -> list[tuple[float, float]]:
    """(share of the step at which a piece of a cell's gradients is whole, share of the gradients that it is), in order,
    on the line that shows most of so many `seconds`. What of the cell's own reduction is late comes after the backward,
    and only the last piece waits for it, at the end of the step."""
    line = max(pace.leaving, key=lambda one: float(alone(seconds, one, min(float(pace.start), seconds))))
    found: list[tuple[float, float]] = []
    for train in line:
        count = round(float(train.pieces))
        for piece in range(1, count + 1):
            before = float(pace.late + train.left + train.due + train.window * (1.0 - piece / count))
            found.append((max(1.0 - before / float(pace.step), ROUNDING), float(train.share) / count))
    found.sort()
    return [*found[:-1], (1.0, found[-1][1])]


def when_whole(row: Sequence[tuple[float, float]], share: float) -> float:
    """The moment at which so large a share of a cell's gradients is whole."""
    total = 0.0
    for moment, own in row:
        total += own
        if total >= share - ROUNDING:
            return moment
    return 1.0


ROUNDING = 1e-12
