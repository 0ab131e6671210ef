"""`plan --scale-across`: what a fleet of several buildings should do, beside what production does and what each dimension gives alone."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from typing import Any

from shardmeter.core.record import record
from shardmeter.core.sums import plain_sum
from shardmeter.scenario.parts import Rows
from shardmeter.scenario.read import Document
from shardmeter.scenario.resolve import resolve
from shardmeter.specs import Scenario
from shardmeter.study import intervals as measured
from shardmeter.study.planning.search import Done, Progress, Stop
from shardmeter.study.scale_across.cases import case as document_of_case
from shardmeter.study.scale_across.cluster import Case, Cluster
from shardmeter.study.scale_across.degrees import chosen_anew, sizes
from shardmeter.study.scale_across.published import published
from shardmeter.study.scale_across.question import Question, own_of
from shardmeter.study.scale_across.search import Report

ASSUMED = (
    "production: replicas cross buildings; 16 flows hashed, go-back-N, NCCL's window of 2 × 4 MiB and 4 MiB a send",
    "production's schedule: interleaved 1F1B with the chunks and the micro-batch that suit it best, 1F1B where none is legal",
    "degrees: powers of two that are best for production where the scenario says none; the same in every comparison",
    "uplinks: the most loaded one weighs 0.3 (bulk all-reduces of many rings); a healthy line loses 1e-8 of its packets",
    "windows beyond NCCL's own are of registered memory and take none of the accelerator's",
    "gradients leave as they become whole: at the end of a step is never sooner, and is not tried",
    "oversubscription on the map is of a line between two buildings and of all that leaves one together",
    "a speed-up's interval: both plans in the same worlds (networks at the ends of their ranges, NCCL's channels 2 to 4, messages at 0.77 to 2.0 times)",
    "and where the plans differ the spread of measured ratios of good plans: such an interval reaches below 0 % more easily",
)


@record
class ScaleAcross:
    """The answer. `print` shows it as a page; `to_dict` is the JSON."""

    scenario: Scenario | None
    """Of the first case that has a plan that fits, in production's way; None where none has."""
    answer: Mapping[str, Any]
    stopped: bool = False

    def __repr__(self) -> str:
        """One line."""
        points = [point for case in self.answer["cases"] for point in case["points"]]
        most = max((float(point["speedup"]["joint"]["value"]) for point in points), default=1.0)
        return f"<ScaleAcross {', '.join(self.answer['question']['models'])}: {len(points)} points, up to {most - 1.0:.0%} over production>"

    def __str__(self) -> str:
        """The page that the command prints, without what was assumed."""
        import shardmeter

        return shardmeter.page(self)

    @property
    def fits(self) -> bool:
        """Whether any point has a plan that fits."""
        return any(case["feasible"] for case in self.answer["cases"])

    def to_dict(self) -> dict[str, Any]:
        """The `plan --scale-across` JSON: SI units as each key says, fractions, null for what is not known."""
        return {**self.answer, "stopped": self.stopped, "fits": self.fits}


def scale_across(
    document: Document, rows: Rows, question: Question, *, progress: Progress | None = None, stop: Stop | None = None
) -> ScaleAcross:
    """Search every case of a question. `stop` ends early: a case that is not searched to its end is left out if nothing is known of a
    point.

    Where nothing fits that is an answer. Raises BadScenario where no case can be resolved, UnknownName. Leaves out: other methods of
    synchronisation than every step."""
    begun = time.monotonic()
    found: list[Cluster] = []
    told: list[dict[str, Any]] = []
    total = question.cases * len(question.network)
    cases = _cases(document, rows, question, stop)
    for one in cases:
        if stop is not None and stop():
            break
        cluster = Cluster(one, rows, stop, _report(progress, begun, len(found), len(one.network), total))
        cluster.run()
        found.append(cluster)
        told.append(cluster.to_dict())
    scenario = next((one.scenario for one in found if one.scenario is not None), None)
    stopped = len(found) < question.cases or any(one.stopped for one in found)
    if scenario is None and not stopped and question.cases == 1:  # what is wrong with it, if it is not memory alone
        resolve(cases[0].document, rows)
    answer = _answer(told, question, scenario, time.monotonic() - begun)
    answer["assumptions"] += [
        f"plan.{name} is chosen anew: what is said of it is not asked"
        for name in chosen_anew(document.data.get("plan"))
    ]
    return ScaleAcross(scenario=scenario, answer=answer, stopped=stopped)


def _report(progress: Progress | None, begun: float, before: int, points: int, total: int) -> Report | None:
    """What tells how far the study is, from the share of a case that is done; `before` cases of so many points are."""
    if progress is None:
        return None

    def report(share: float) -> None:
        done = int((before + share) * points)
        progress(Done(rows=done, total=total, rate=done / max(time.monotonic() - begun, 1e-9)))

    return report


def _cases(document: Document, rows: Rows, question: Question, stop: Stop | None) -> list[Case]:
    """Every case, each of them read before the first is searched. Raises BadScenario with what is wrong with one, UnknownName."""
    own, found = own_of(document, rows), []
    for model, buildings, gpus in itertools.product(question.models, question.buildings, question.gpus):
        if stop is not None and stop():
            break
        made = document_of_case(document, own, model, buildings, gpus)
        sizes(made, rows)
        found.append(
            Case(
                document=made, model=str(model), buildings=buildings, gpus=gpus, network=question.network,
                own=question.own, said=question.said,
            )
        )  # fmt: skip
    return found


def _answer(
    cases: list[dict[str, Any]], question: Question, scenario: Scenario | None, seconds: float
) -> dict[str, Any]:
    return {
        "question": {
            "models": [str(one) for one in question.models], "buildings": list(question.buildings), "gpus": list(question.gpus),
            "oversubscription": [float(one) for one in question.oversubscription], "distance_km": [float(one) / 1e3 for one in question.distance],
        },
        "spread": measured.ratio(),
        "cases": cases,
        "published": published(cases),
        "space": {
            "evaluated": plain_sum(case["space"]["evaluated"] for case in cases), "feasible": plain_sum(case["space"]["feasible"] for case in cases),
            "seconds": seconds, "optimal": all(case["space"]["optimal"] for case in cases if case["feasible"]),
        },
        "says": [],
        "assumptions": [*(scenario.assumptions if scenario else ()), *ASSUMED],
        "warnings": list(scenario.warnings) if scenario else [],
    }  # fmt: skip
