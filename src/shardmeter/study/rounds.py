"""`trace` of several islands: rounds task by task, beside the closed form that folds them."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardmeter.core.errors import BadScenario, ShardMeterError, UnknownName, nearest
from shardmeter.core.record import changed, record
from shardmeter.core.sums import plain_sum
from shardmeter.engine.fleet import Whole, evaluate_fleet
from shardmeter.engine.round import of_cell
from shardmeter.engine.timeline import account, islands
from shardmeter.engine.timeline.simulate import Timeline
from shardmeter.specs import Fleet, Scenario, Sync
from shardmeter.study.trace import MOST_TASKS

MOST_ROUNDS = 1000
INNER, UPDATE = "inner steps", "outer update"


@record
class TracedRounds:
    """Rounds of a fleet that meets: a row a cell and one for the network."""

    scenario: Scenario
    whole: Whole
    rounds: islands.Rounds

    @property
    def timeline(self) -> Timeline:
        """When every step and message began and ended."""
        return self.rounds.timeline

    @property
    def round_time(self) -> float:
        """Seconds of a round in the steady state."""
        return self.rounds.seconds

    @property
    def step_time(self) -> float:
        """Of one inner step, what a round adds to it included."""
        return self.round_time / self._steps

    @property
    def title(self) -> str:
        """What is drawn."""
        return self.scenario.name

    @property
    def ranks(self) -> tuple[int, ...]:
        """The cells in order, then the network."""
        return tuple(sorted({stream.rank for stream in self.timeline.program.streams}))

    @property
    def _steps(self) -> float:
        return 1.0 if self.whole.round is None else float(self.whole.round.steps)

    def name_of(self, rank: int) -> str:
        """The islands of a cell, or the network."""
        members = [part.island.name for part in self.whole.parts if part.cell == rank]
        return " + ".join(members) or islands.NETWORK

    def gaps(self, rank: int) -> list[account.Gap]:
        """Every wait of a cell."""
        return islands.gaps(self.timeline, rank)

    def to_dict(self) -> dict[str, Any]:
        """The summary: round times, where a round of the slowest cell goes, how busy each row was."""
        cell = self.whole.parts[self.whole.critical].cell
        seconds, closed = self.round_time, self._closed(cell)
        found = self._ledger(cell)
        streams = enumerate(self.timeline.program.streams)
        return {
            "round_time_s": seconds,
            "step_time_s": self.step_time,
            "closed_form_s": plain_sum(closed.values()),
            "error": plain_sum(closed.values()) / seconds - 1.0,
            "rounds": len(self.rounds.ends),
            "steps": self._steps,
            "tasks": len(self.timeline.program.tasks),
            "critical": self.name_of(cell),
            "terms": [
                {"term": term, "timeline_s": found.get(term, 0.0), "closed_form_s": closed.get(term, 0.0)}
                for term in dict.fromkeys((*closed, *found))
                if closed.get(term) or found.get(term)
            ],
            "streams": [
                {
                    "island": self.name_of(stream.rank),
                    "busy": self.timeline.busy(at) / self.timeline.makespan,
                    "seconds": self.timeline.busy(at) / len(self.rounds.ends),
                }
                for at, stream in streams
            ],
        }

    def _closed(self, cell: int) -> dict[str, float]:
        """Seconds of a round by what they are, in closed form."""
        folded, round_ = self.whole.folded, self.whole.round
        if folded is None or round_ is None:
            return {}
        terms = {INNER: float(np.asarray(folded.inner)[..., cell])}
        for one, shown in zip(round_.crossings, folded.exposed, strict=True):
            terms[one.label] = terms.get(one.label, 0.0) + float(shown)
        return {**terms, UPDATE: float(folded.update)}

    def _ledger(self, cell: int) -> dict[str, float]:
        """The same in the timeline: the mean of the rounds of its second half, from outer update to outer update."""
        program = self.timeline.program
        mine = [at for at, task in enumerate(program.tasks) if program.streams[task.stream].rank == cell]
        ends = [self.timeline.end[at] for at in mine if program.tasks[at].kind == islands.UPDATE]
        half = len(ends) // 2
        begin, end, count = ends[half - 1], ends[-1], len(ends) - half
        seconds: dict[str, float] = {}
        for at in mine:
            task = program.tasks[at]
            if begin <= self.timeline.begin[at] < end:
                term = INNER if task.kind == islands.STEP else UPDATE
                seconds[term] = seconds.get(term, 0.0) + task.seconds / count
        for gap in self.gaps(cell):
            inside = min(gap.end, end) - max(gap.begin, begin)
            if inside > 0.0:
                seconds[gap.term] = seconds.get(gap.term, 0.0) + inside / count
        return seconds


def trace_rounds(scenario: Scenario, *, rounds: int = 4) -> TracedRounds:
    """Run so many rounds of a fleet. Raises BadScenario for methods whose islands do not wait for each other, which have no round
    that all take, and for more tasks than can be run. Leaves out what `engine.timeline.islands.run` does."""
    if not 2 <= rounds <= MOST_ROUNDS:
        raise ShardMeterError(f"{rounds} rounds cannot be traced; 2 to {MOST_ROUNDS} can: the first is no steady one")
    whole = _whole(scenario)
    round_ = whole.round
    if round_ is None or round_.pace != "barrier":
        says = f"islands do not wait for each other by {scenario.plan.sync.method}, so that no round is drawn"
        raise BadScenario(f"{says}; --island {whole.parts[0].island.name} draws the inner step of one")
    together = whole.pace
    if together is None:  # pragma: no cover  (a fleet with a round has a pace)
        raise AssertionError
    paces = [of_cell(together, cell) for cell in range(1 + max(part.cell for part in whole.parts))]
    cuts = plain_sum(
        float(max(len(islands.pieces(pace, 0.0)) for pace in paces)) if one.behind else float(one.messages)
        for one in round_.crossings
    )
    tasks = rounds * (len(paces) * (float(round_.steps) + cuts) + cuts)
    if tasks > MOST_TASKS:
        says = f"about {tasks:,.0f} tasks are too many to trace (at most {MOST_TASKS:,})"
        raise BadScenario(f"{says}: fewer rounds, or a smaller sync_every, say the same")
    made = islands.run(round_, paces, [float(one.seconds) for one in whole.priced], rounds)
    return TracedRounds(scenario=scenario, whole=whole, rounds=made)


def _whole(scenario: Scenario) -> Whole:
    return evaluate_fleet(scenario.model, scenario.fleet, scenario.plan, scenario.run, scenario.stack, scenario.plans)


def one_island(scenario: Scenario, name: str) -> Scenario:
    """One island of a fleet with its own plan and its part of the batch. Raises UnknownName, and BadScenario for one whose step
    crosses islands."""
    names = [island.name for island in scenario.fleet.islands]
    if name not in names:
        raise UnknownName("island", name, nearest(name, names))
    part = _whole(scenario).parts[names.index(name)]
    if any(name in cell for axis, cells in scenario.plan.placement for cell in cells if axis != "dp_replicate"):
        raise BadScenario(f"the step of {name} crosses islands, which is not drawn: leave plan.placement out")
    alone = part.plan.sync if part.plan.probes is not None else Sync()
    plan = changed(part.plan, sync=alone, placement=())
    return changed(scenario, fleet=Fleet(islands=(part.island,)), plan=plan, plans=(), run=part.run)
