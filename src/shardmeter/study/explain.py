"""`explain`: the same prediction with a trace open. There is no second implementation to drift from the first."""

from __future__ import annotations

import csv
import functools
from dataclasses import replace
from typing import Any

from shardmeter import data
from shardmeter.core.formula import Step, trace, under
from shardmeter.core.record import changed, record
from shardmeter.core.units import GIB
from shardmeter.engine.cells import cells_of, together
from shardmeter.engine.evaluate import evaluate, priced
from shardmeter.engine.fleet import CROSSING, GRADIENTS, LOSS, UPDATE, joined
from shardmeter.engine.reference import LABEL as REFERENCE
from shardmeter.engine.reference import reference_pieces
from shardmeter.engine.step import slowest_pieces
from shardmeter.engine.wans import Networks
from shardmeter.specs import Island, Plan, Run, Scenario
from shardmeter.study import zero_order
from shardmeter.study.islands import critical
from shardmeter.study.predict import Prediction, predict

SHARED: dict[str, tuple[str, ...]] = {
    "matrix products": ("matmul_rate", "depth_fill"),
    "recompute": ("matmul_rate", "depth_fill"),
}
"""Formulas that are called once for several terms, and so under none."""
ONCE = frozenset(
    {"tied matrix", "stage sends", "pipeline bubble", "losses of the probes", "optimizer", "stragglers", "software"}
)
"""Terms that a step has once, however many micro-batches it takes."""
VARIANCE = "gradient variance"
"""Of a step without a backward: no term of the ledger either."""
OF_ROUND = frozenset({CROSSING, GRADIENTS, UPDATE})
"""Terms that a round over islands has once, and a step its part of."""
ONCE_WHOLE = frozenset({"parameter gather", "gradient reduction", "contention"})
"""The same where gradients are kept whole (ddp, zero1, zero2)."""
EVERY_PASS = frozenset({"gradient reduction"})
"""What zero2 does after every micro-batch all the same."""


@record
class Explanation:
    """A prediction and every formula call behind it, in order."""

    prediction: Prediction
    steps: tuple[Step, ...]

    def terms(self) -> list[dict[str, Any]]:
        """The ledger with seconds × count = total: what one micro-batch takes, and how many of them a step has. Of several islands
        the step of the one that sets the pace, and of what a round has once, its part: a round, and one by its steps."""
        whole = self.prediction.whole
        part = critical(whole)
        plan, run = part.plan, part.run
        passes = float(run.global_batch) / float(plan.dp * plan.micro_batch)
        once = ONCE if plan.sharding in ("fsdp", "zero3") else ONCE | ONCE_WHOLE
        once = once - EVERY_PASS if plan.sharding == "zero2" else once
        found = []
        for term in self.prediction.estimate.terms:
            count = 1.0 if term.label in once else passes
            if whole.round is not None and term.label in OF_ROUND:
                count = 1.0 / float(whole.round.steps)
            seconds, hidden = float(term.seconds), float(term.hidden)
            found.append(
                {
                    "term": term.label,
                    "each_s": seconds / count,
                    "count": count,
                    "seconds": seconds,
                    "hidden_seconds": hidden,
                    "calls": len(self._calls(term.label)),
                }
            )
        return found

    def memory(self) -> list[dict[str, Any]]:
        """The memory terms of the fullest GPU."""
        terms = self.prediction.estimate.memory
        return [{"term": t.label, "gib": float(t.size) / GIB, "exactness": t.exactness} for t in terms]

    def learning(self) -> tuple[str, ...]:
        """What is said of how the method learns, beside its time and memory."""
        probes = self.prediction.scenario.plan.probes is not None
        return (*((LOSS,) if probes or self.prediction.whole.effect else ()), *((VARIANCE,) if probes else ()))

    def labels(self, wanted: str) -> tuple[str, ...]:
        """Ledger and memory terms, and what `learning` names, whose name holds a text; one that is the text wins alone."""
        estimate = self.prediction.estimate
        names = [*(t.label for t in estimate.terms), *(t.label for t in estimate.memory), *self.learning()]
        same = tuple(name for name in names if name.lower() == wanted.lower())
        return same or tuple(name for name in names if wanted.lower() in name.lower())

    def of(self, labels: tuple[str, ...]) -> tuple[Step, ...]:
        """The calls that belong to these terms, in order."""
        kept = {id(step) for label in labels for step in self._calls(label)}
        return tuple(step for step in self.steps if id(step) in kept)

    def _calls(self, label: str) -> list[Step]:
        shared = SHARED.get(label, ())
        return [step for step in self.steps if step.term == label or (not step.term and step.formula in shared)]


def explain(scenario: Scenario) -> Explanation:
    """Predict and record. Raises what `predict` raises."""
    found = _of_fleet(scenario) if len(scenario.fleet.islands) > 1 else _of_island(scenario)
    if scenario.plan.probes is None:
        return found
    with trace() as steps, under(VARIANCE):
        zero_order.variance(scenario.model, scenario.plan)
    return changed(found, steps=(*found.steps, *steps))


def _of_island(scenario: Scenario) -> Explanation:
    with trace() as steps:
        prediction = predict(scenario)
    part = critical(prediction.whole)
    return Explanation(prediction=prediction, steps=_counted(steps, scenario, part.island, part.plan, part.run))


def _of_fleet(scenario: Scenario) -> Explanation:
    """Several islands: the calls of the step that sets the pace (of every island of its cell, where an axis joins them), and of the
    round. How the batch is shared is left out."""
    prediction = predict(scenario)
    whole, part = prediction.whole, critical(prediction.whole)
    fleet, model, stack = scenario.fleet, scenario.model, scenario.stack
    cell = cells_of(scenario.plan, fleet.islands)[part.cell]
    inner = [changed(one, estimate=e) for one, e in zip(whole.parts, whole.inner, strict=True)]
    with trace() as steps:
        if cell.axis:
            networks = Networks(fleet.islands, fleet.wan)
            together(model, fleet, cell, [one.plan for one in whole.parts], part.run, stack, networks)
        else:
            evaluate(model, part.island, part.plan, part.run, stack, meets=True)
        joined(model, inner, fleet.wan, scenario.plan)
    counted = tuple(steps) if cell.axis else _counted(steps, scenario, part.island, part.plan, part.run)
    return Explanation(prediction=prediction, steps=counted)


def _counted(steps: list[Step], scenario: Scenario, island: Island, plan: Plan, run: Run) -> tuple[Step, ...]:
    """The calls, each of one piece of the model with how many of these the slowest device has."""
    stack = scenario.stack
    work, _, pieces, stages = priced(scenario.model, island, plan, run, stack)
    own, beside = slowest_pieces(work, stages, pieces, plan, stack), reference_pieces(run, plan, stack)
    counts = [(beside if step.term == REFERENCE else own).get(step.block) for step in steps]
    return tuple(replace(step, pieces=count) for step, count in zip(steps, counts, strict=True))


@functools.cache
def citations() -> dict[str, dict[str, str]]:
    """What each key in `@formula(cite=…)` stands for."""
    with data.open_text("citations.csv") as file:
        return {row.pop("key"): row for row in csv.DictReader(file)}
