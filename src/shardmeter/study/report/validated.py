"""How far predictions of this kind were off: the measured runs of the scenario's stack, those of all stacks, and those that are most like it."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from shardmeter.core.record import record
from shardmeter.core.sums import plain_sum
from shardmeter.families import parameters
from shardmeter.scenario.catalog import load_catalog
from shardmeter.specs import Island, Plan, Run, Scenario
from shardmeter.study import intervals, islands, trust
from shardmeter.study.course import beside
from shardmeter.study.predict import Prediction
from shardmeter.study.validate import score, shipped
from shardmeter.study.validate.metrics import STEP_TIME, Score, over_sources
from shardmeter.study.validate.predictions import predict
from shardmeter.study.validate.regimes import NORMAL
from shardmeter.study.validate.resolve import MappedRow, map_rows

NEAREST = 5
"""Measured runs that are shown beside the scenario."""
OF_ISLANDS = ("iteration_time", "all_reduce_time", "dp_sync_all_reduce_time", "wan_bandwidth")
"""Quantities of measured runs across islands that an answer over islands rests on."""
OTHER_DEVICE, OTHER_STACK, OTHER_FAMILY, OTHER_SHARDING, MIXTURE = 2.0, 2.0, 4.0, 0.5, 2.0
"""What counts as far as so many factors of two in a size: another accelerator, stack, family or sharding; experts or none."""


@functools.cache
def _mapped() -> tuple[MappedRow, ...]:
    return map_rows(shipped.measured().rows, load_catalog())


def validated(scenario: Scenario) -> dict[str, Any]:
    """The `validation` block: `stack` (metrics of its rows, null where it was fitted on none), `everything` (error of step times with their
    whole source left out, mean over sources), `islands` (by quantity, of several islands), `nearest` (rows, the nearest first), `unseen`
    (what the scenario has and no measured run had).

    A row's `loso` error is that of a fit that had not seen its source. Leaves out: whole runs, which `practice_of` has."""
    rows, name = _mapped(), trust.footing(scenario.stack).stack
    own = [row for row in rows if name and row.stack == name and not row.stand_in and row.scenario is not None]
    near = nearest(scenario, rows)
    compared = score.compare([*own, *(row for _, row in near)], predict)
    scores = score.scores_of
    each = [
        (row, scores(row, compared.predicted[at])) for at, row in enumerate(compared.rows) if at in compared.predicted
    ]
    of_stack = [one for row, some in each[: len(own)] if not row.identity for one in some]
    beside_it = {row.id: next(one for one in some if one.quantity == STEP_TIME) for row, some in each[len(own) :]}
    return {
        "stack": _of_stack(scenario.stack.name, of_stack),
        "everything": over_sources(_left_out(rows)),
        "islands": _across() if len(scenario.fleet.islands) > 1 else None,
        "nearest": [_told(row, beside_it[row.id], far) for far, row in near if row.id in beside_it],
        "unseen": list(trust.unseen(scenario)),
        "level": intervals.LEVEL,
    }


def _of_stack(name: str, scores: Sequence[Score]) -> dict[str, Any] | None:
    """The group of a stack as `validate` has it."""
    if not scores:
        return None
    group = score.metrics(scores)["by_group"][f"stack:{name}"]
    sources = {source: block["step_time"] for source, block in group["by_source"].items()}
    return {"name": name, "step_time": group["step_time"], "memory": group["memory"], "by_source": sources}


def _left_out(rows: Sequence[MappedRow]) -> list[Score]:
    """Every row's step time beside what a fit without its source predicted."""
    known = shipped.left_out()
    return [
        Score(id=row.id, source=row.source_key, quantity=STEP_TIME, measured=row.step_time, predicted=left, loso=left)
        for row in rows
        if row.step_time is not None and row.regime == NORMAL and (left := known.get((row.id, STEP_TIME))) is not None
    ]


def _across() -> dict[str, dict[str, Any]]:
    """By quantity: rows across islands and the size of their errors, as the last fit left them."""
    found = {}
    for quantity in OF_ISLANDS:
        logs = [log for _, log in shipped.geo_residuals().get(quantity, ())]
        if logs:
            sizes = np.abs(np.expm1(-np.array(logs)))
            found[quantity] = {
                "n": len(logs), "mape": float(sizes.mean()), "median_ape": float(np.median(sizes)),
                "p90_ape": float(np.quantile(sizes, 0.9)),
            }  # fmt: skip
    return found


@record
class _Seen:
    """What a run is told apart by."""

    island: Island
    plan: Plan
    run: Run


def nearest(scenario: Scenario, rows: Sequence[MappedRow], most: int = NEAREST) -> list[tuple[float, MappedRow]]:
    """(distance, row) of the measured runs that are most like a scenario's largest island, the nearest first.

    The distance counts factors of two, added up: of the parameters, the accelerators, the tokens of a sequence, the tokens that an
    accelerator has a step, tp and pp; and what counts as another kind as so many of them (`OTHER_DEVICE` and its neighbours)."""
    plans = scenario.plans or (scenario.plan,) * len(scenario.fleet.islands)
    at = max(range(len(plans)), key=lambda place: float(scenario.fleet.islands[place].gpus))
    run = scenario.run
    own = _Seen(island=scenario.fleet.islands[at], plan=plans[at], run=run)
    found = []
    for row in rows:
        if row.scenario is None or row.step_time is None or row.regime != NORMAL or row.identity:
            continue
        found.append((_distance(scenario, own, row.scenario), row.id, row))
    found.sort(key=lambda one: one[:2])
    return [(far, row) for far, _, row in found[:most]]


def _distance(scenario: Scenario, own: _Seen, other: Scenario) -> float:
    theirs = _Seen(island=other.fleet.islands[0], plan=other.plan, run=other.run)
    sizes = [
        (float(parameters(scenario.model)), float(parameters(other.model))),
        (float(own.island.gpus), float(theirs.island.gpus)),
        (float(own.run.seq_len), float(theirs.run.seq_len)),
        (_load(scenario, own), _load(other, theirs)),
        (float(own.plan.tp), float(theirs.plan.tp)),
        (float(own.plan.pp), float(theirs.plan.pp)),
    ]
    far = math.fsum(abs(math.log2(one / another)) for one, another in sizes)
    kinds = (
        (OTHER_DEVICE, own.island.accelerator.name.partition(";")[0], theirs.island.accelerator.name.partition(";")[0]),
        (OTHER_STACK, scenario.stack.name, other.stack.name),
        (OTHER_FAMILY, scenario.model.family, other.model.family),
        (OTHER_SHARDING, own.plan.sharding, theirs.plan.sharding),
        (MIXTURE, bool(scenario.model.experts), bool(other.model.experts)),
    )
    return far + plain_sum(weight for weight, one, another in kinds if one != another)


def _load(scenario: Scenario, seen: _Seen) -> float:
    """Tokens an accelerator has in a step."""
    return float(seen.run.global_batch * seen.run.seq_len) / float(scenario.fleet.gpus)


def _told(row: MappedRow, one: Score, far: float) -> dict[str, Any]:
    """A measured run beside its prediction."""
    scenario = row.scenario
    if scenario is None:  # pragma: no cover  (asked of rows that are predicted)
        raise AssertionError
    island, plan = scenario.fleet.islands[0], scenario.plan
    return {
        "id": row.id, "source": row.source_key, "citation": shipped.sources().get(row.source_key), "distance": far,
        "model": scenario.model.name, "accelerator": island.accelerator.name, "gpus": float(island.gpus), "stack": row.stack,
        "plan": {"sharding": plan.sharding, "tp": float(plan.tp), "pp": float(plan.pp), "cp": float(plan.cp),
                 "micro_batch": float(plan.micro_batch), "recompute": plan.recompute},
        "seq_len": float(scenario.run.seq_len), "global_batch": float(scenario.run.global_batch), "measured_s": one.measured,
        "predicted_s": one.predicted, "error": one.error, "low_s": one.low, "high_s": one.high,
        "loso_error": None if one.loso is None else one.loso / one.measured - 1.0,
    }  # fmt: skip


def practice_of(prediction: Prediction) -> dict[str, Any] | None:
    """What whole runs of this class took beside their steps: a factor on the wall clock with the ends of its 90 % interval; null where the
    scenario says what interrupts it, which is then counted term by term, and where no run has a length."""
    run = prediction.scenario.run
    if run.tokens is None and run.steps is None and run.target_loss is None and not run.phases:
        return None
    seen = beside.beside(prediction.whole, prediction.scenario.model.family)
    if seen is None or islands.nobody_waits(prediction.whole):
        return None
    return {"runs": seen.kind, "factor": float(seen.factor), "low": float(seen.low), "high": float(seen.high)}
