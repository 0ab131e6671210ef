"""`trace`: the step of a scenario run task by task, beside the closed form that answers everything else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from shardmeter.core.errors import BadScenario, ShardMeterError
from shardmeter.core.record import changed, record
from shardmeter.core.sums import plain_sum
from shardmeter.engine.add import CAUSES
from shardmeter.engine.evaluate import evaluate
from shardmeter.engine.timeline import account
from shardmeter.engine.timeline.build import build, case_of, stragglers
from shardmeter.engine.timeline.overlap import run
from shardmeter.engine.timeline.simulate import Timeline
from shardmeter.schedules import traits
from shardmeter.specs.scenario import Scenario

MOST_TASKS = 2_000_000
"""Tasks of one run: more take minutes, and files that no viewer opens."""
MOST_STEPS = 1000


class Drawn(Protocol):
    """A timeline with what its pictures say of it."""

    @property
    def scenario(self) -> Scenario:
        """What is drawn."""

    @property
    def timeline(self) -> Timeline:
        """When every task began and ended."""

    @property
    def step_time(self) -> float:
        """Seconds of a step."""

    def to_dict(self) -> dict[str, Any]:
        """The summary."""

    @property
    def title(self) -> str:
        """What the streams belong to."""

    @property
    def ranks(self) -> tuple[int, ...]:
        """The rows, in order."""

    def name_of(self, rank: int) -> str:
        """What a row is called."""

    def gaps(self, rank: int) -> list[account.Gap]:
        """Every wait of a row's compute."""


@record
class Traced:
    """A timeline of one island, and the closed form's ledger of the same step."""

    scenario: Scenario
    timeline: Timeline
    steps: int
    marks: tuple[tuple[int, ...], ...]
    """The tasks that ended each step, by rank."""
    closed: dict[str, float]

    @property
    def own_clock(self) -> bool:
        """Whether every device begins its next step when its own is done."""
        plan = self.scenario.plan
        return plan.pp > 1 and traits(plan.schedule).own_clock

    @property
    def step_time(self) -> float:
        """Seconds of a step in the timeline: the mean of those that were run or, with own clocks, the longest of a device."""
        return account.step_time(self.timeline, self.marks, own_clock=self.own_clock)

    def name_of(self, rank: int) -> str:
        """What a row of the picture is called."""
        return f"stage {rank}"

    def gaps(self, rank: int) -> list[account.Gap]:
        """Every wait of a rank's compute."""
        return account.gaps(self.timeline, rank)

    @property
    def title(self) -> str:
        """Whose step it is."""
        return self.scenario.fleet.islands[0].name

    @property
    def ranks(self) -> tuple[int, ...]:
        """One representative rank a stage."""
        return tuple(sorted({stream.rank for stream in self.timeline.program.streams}))

    def to_dict(self) -> dict[str, Any]:
        """The summary: step times, busy shares, seconds by term of the busiest rank (with own clocks: of the slowest)."""
        critical, windows = account.busiest(self.timeline), [self._window(rank) for rank in self.ranks]
        if self.own_clock:
            critical = max(self.ranks, key=lambda rank: (windows[rank][1] - windows[rank][0]) / windows[rank][2])
        begin, end, count = windows[critical]
        found = account.ledger(self.timeline, critical, begin, end)
        closed = plain_sum(self.closed.values())
        worked = account.busy(self.timeline)
        return {
            "step_time_s": self.step_time,
            "closed_form_s": closed,
            "error": closed / self.step_time - 1.0,
            "steps": self.steps,
            "tasks": len(self.timeline.program.tasks),
            "critical_rank": critical,
            "terms": [
                {"term": term, "timeline_s": found.get(term, 0.0) / count, "closed_form_s": self.closed.get(term, 0.0)}
                for term in CAUSES
                if found.get(term) or self.closed.get(term)
            ],
            "streams": [
                {"rank": rank, "stream": name, "busy": seconds / self.timeline.makespan, "seconds": seconds / self.steps}
                for (rank, name), seconds in sorted(worked.items())
                if seconds
            ],
        }  # fmt: skip

    def _window(self, rank: int) -> tuple[float, float, int]:
        return account.window(self.timeline, self.marks, rank, own_clock=self.own_clock)


def trace(scenario: Scenario, *, steps: int = 1, straggle: float | None = None, seed: int = 0) -> Traced:
    """Run `steps` steps of a scenario's first island. `straggle`, the stack's jitter where it is None, is the standard deviation
    of a rank's compute: every stage goes at the pace of its slowest rank, drawn from `seed`. The closed form beside it has the
    mean of such draws in its term *stragglers*.

    Raises BadScenario for more tasks than can be run. Leaves out what `engine.timeline.build` does."""
    if not 1 <= steps <= MOST_STEPS:
        raise ShardMeterError(f"{steps} steps cannot be traced; 1 to {MOST_STEPS} can")
    island, plan = scenario.fleet.islands[0], scenario.plan
    if scenario.run.reference is not None:
        says = f"run.reference ({scenario.run.reference.name}): not drawn yet"
        raise BadScenario(f"{says}; leave it out, and trace draws the step of the trained model alone")
    if scenario.stack.batch_overlap and bool(np.any(np.greater(scenario.model.experts, 0.0))):
        raise BadScenario(
            "stack.batch_overlap: merged turns are not drawn yet; stack.batch_overlap=false draws them apart"
        )
    jitter = float(scenario.stack.jitter) if straggle is None else straggle
    asked = (scenario.model, island, plan, scenario.run, changed(scenario.stack, jitter=jitter))
    case = case_of(*asked)
    layers = float(scenario.model.layers) + 2.0 * plan.pp
    tasks = 2.0 * steps * float(case.work.micro_batches) * layers * 4.0
    if tasks > MOST_TASKS:
        says = f"about {tasks:,.0f} tasks are too many to trace (at most {MOST_TASKS:,})"
        raise BadScenario(f"{says}: fewer steps, or a smaller global batch, say the same")
    pace: Sequence[float] = stragglers(seed, plan.pp, jitter, float(plan.gpus) / plan.pp) if jitter else ()
    built = build(case, steps=steps, pace=pace)
    timeline = run(built)
    closed = {term.label: float(term.seconds) for term in evaluate(*asked).terms}
    return Traced(
        scenario=scenario, timeline=timeline, steps=steps,
        marks=built.steps, closed=closed,
    )  # fmt: skip
