"""`explain`: the same prediction with a trace open. There is no second implementation to drift from the first."""

from __future__ import annotations

from shardmeter.core.formula import Step, trace
from shardmeter.core.record import record
from shardmeter.specs.scenario import Scenario
from shardmeter.study.predict import Prediction, answered, with_way_out


@record
class Explanation:
    """A prediction and every formula call behind it, in order."""

    prediction: Prediction
    steps: tuple[Step, ...]


def explain(scenario: Scenario) -> Explanation:
    """Predict and record. Raises what `predict` raises."""
    with trace() as steps:
        prediction = answered(scenario)
    return Explanation(prediction=with_way_out(prediction), steps=tuple(steps))
