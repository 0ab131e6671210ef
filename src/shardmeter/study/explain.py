"""`explain`: the same prediction with a trace open. There is no second implementation to drift from the first."""

from __future__ import annotations

from shardmeter.core.formula import Step, trace
from shardmeter.core.record import record
from shardmeter.specs.scenario import Scenario
from shardmeter.study.predict import Prediction, predict


@record
class Explanation:
    """A prediction and every formula call behind it, in order."""

    prediction: Prediction
    steps: tuple[Step, ...]


def explain(scenario: Scenario) -> Explanation:
    """Predict and record. Raises what `predict` raises."""
    with trace() as steps:
        prediction = predict(scenario)
    return Explanation(prediction=prediction, steps=tuple(steps))
