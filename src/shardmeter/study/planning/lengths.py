"""How many tokens a run over islands takes: as said or, of a loss to reach, by what each way of synchronisation costs."""

from __future__ import annotations

import numpy as np

from shardmeter.core.record import record
from shardmeter.core.units import Count, Number
from shardmeter.engine.fleet import Whole
from shardmeter.families import matrices, parameters
from shardmeter.specs import Replica, Run, Scenario
from shardmeter.study.course import loss
from shardmeter.study.course.totals import of_step
from shardmeter.study.planning.syncs import Way
from shardmeter.sync import effect, round_of


@record
class Length:
    """Tokens of a run, for every point of a way."""

    tokens: Count
    """As said, or one."""
    target: Number | None = None
    questions: tuple[loss.Question | None, ...] = ()
    """Of a loss to reach, for every point; None where it is not known what the method costs."""
    shape: tuple[int, ...] = ()

    def of(self, batch: Number) -> Number:
        """Tokens with steps of so many; NaN where no data reaches the loss, or nobody knows."""
        if self.target is None:
            return self.tokens
        each = np.broadcast_to(np.asarray(batch, dtype=float), self.shape).reshape(-1)
        found = [
            np.nan if asked is None else float(loss.tokens_for(asked, self.target, one))
            for asked, one in zip(self.questions, each, strict=True)
        ]
        return np.array(found).reshape(self.shape)


def amount(run: Run, batch: float) -> float:
    """Tokens of the run, or one. Steps count as tokens of the whole batch, so that methods that lose some are held to the same."""
    if run.tokens is not None:
        return float(run.tokens)
    return 1.0 if run.steps is None else float(run.steps) * batch * float(run.seq_len)


def length_of(scenario: Scenario, cells: int, batch: float, way: Way) -> Length:
    """Of a run over so many cells that are kept together in one way, with `batch` sequences a step."""
    run = scenario.run
    if run.target_loss is None:
        return Length(tokens=amount(run, batch))
    return Length(
        tokens=1.0, target=run.target_loss, shape=way.shape,
        questions=tuple(_question(scenario, cells, way, point) for point in range(way.size)),
    )  # fmt: skip


def least(scenario: Scenario, batch: float) -> float:
    """Tokens that no way falls below: of a loss to reach those of the smallest batches, with nothing that a method costs."""
    run = scenario.run
    if run.target_loss is None:
        return amount(run, batch)
    asked = loss.question(scenario, _alone(scenario))
    found = np.nan if asked is None else float(loss.tokens_for(asked, run.target_loss, 0.0))
    return 0.0 if np.isnan(found) else found


def _alone(scenario: Scenario) -> Whole:
    """One island: what a law asks of a fleet in which nothing is synchronised."""
    return of_step(scenario.fleet.islands[0], scenario.plan, scenario.run, 1.0, 1.0)


def _question(scenario: Scenario, cells: int, way: Way, point: int) -> loss.Question | None:
    """What is asked of the loss at one point of a way."""
    one = _alone(scenario)
    if cells == 1:
        return loss.question(scenario, one)
    told, sync = replica(scenario, cells), way.at(point)
    whole = Whole(parts=one.parts, estimate=one.estimate, round=round_of(told, sync), effect=effect(told, sync))
    return loss.question(scenario, whole)


def replica(scenario: Scenario, cells: int) -> Replica:
    """What a method is told of a model that is trained whole."""
    model = scenario.model
    return Replica(
        parameters=parameters(model), gradient_bytes=4.0, layers=float(model.layers), cells=float(cells),
        matrices=matrices(model),
    )  # fmt: skip
