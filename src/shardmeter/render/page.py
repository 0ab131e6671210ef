"""How an answer prints itself: `print` shows the page of the command, without what was assumed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardmeter.render import difference, doctor, inference, planning, planning_fleet, prediction, solution, terminal
from shardmeter.render.heading import heading

if TYPE_CHECKING:
    from shardmeter.render.document import Document
    from shardmeter.study.diff import Difference
    from shardmeter.study.doctor import Diagnosis
    from shardmeter.study.infer import Inference
    from shardmeter.study.planning.fleet_plans import FleetPlans
    from shardmeter.study.planning.plans import Plans
    from shardmeter.study.predict import Prediction
    from shardmeter.study.solve import Solution


def page(answer: Prediction | Plans | FleetPlans | Solution | Inference | Difference | Diagnosis) -> str:
    """A prediction, plans, a served model, a comparison, a diagnosis or the answer to an inverse question as plain text, short: no assumptions, warnings at the end."""
    return terminal.text(_document(answer)).rstrip("\n")


def _document(answer: Prediction | Plans | FleetPlans | Solution | Inference | Difference | Diagnosis) -> Document:
    from shardmeter.study.diff import Difference
    from shardmeter.study.doctor import Diagnosis
    from shardmeter.study.infer import Inference
    from shardmeter.study.planning.fleet_plans import FleetPlans
    from shardmeter.study.planning.plans import Plans
    from shardmeter.study.solve import Solution

    if isinstance(answer, Difference):
        titles = (heading(answer.a.scenario), heading(answer.b.scenario))
        return difference.document(answer.to_dict(), titles, short=True)
    if isinstance(answer, Diagnosis):
        return doctor.document(answer.to_dict(), heading(answer.scenario), short=True)
    if isinstance(answer, Inference):
        return inference.document(answer.to_dict(), inference.title(answer.scenario, answer.asked.how), short=True)
    if isinstance(answer, FleetPlans):
        return planning_fleet.document(answer.to_dict(), planning_fleet.title(answer.scenario), short=True)
    if isinstance(answer, Plans):
        return planning.document(answer.to_dict(), planning.title(answer.scenario), short=True)
    if isinstance(answer, Solution):
        return solution.document(answer.to_dict(), heading(answer.prediction.scenario), short=True)
    return prediction.document(answer.to_dict(), heading(answer.scenario), short=True)
