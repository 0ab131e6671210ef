"""`report`: everything that a document about one scenario says. The answer of `predict` with what stands beside it: other plans and other
machines (`compared`), what it hangs on, how far such predictions were off (`validated`), where its numbers come from (`sources`).

Nothing in it knows the hour, and no search ends by the clock: the same scenario gives the same report."""

from __future__ import annotations

import copy
import datetime as dt
from collections.abc import Mapping
from typing import Any

from shardmeter.core.errors import BadScenario, ShardMeterError, Violation, shown
from shardmeter.core.record import changed, record
from shardmeter.scenario.choices import left_open
from shardmeter.scenario.parts import Rows
from shardmeter.scenario.read import Document
from shardmeter.scenario.resolve import resolve
from shardmeter.specs import Scenario
from shardmeter.study.explain import explain
from shardmeter.study.planning.automatic import searched
from shardmeter.study.planning.search import Progress
from shardmeter.study.report import compared, sources, validated
from shardmeter.study.report.lines import lines_of
from shardmeter.study.sensitivity import sensitivity

__all__ = ["ALTERNATIVES", "MOST_ALTERNATIVES", "Asked", "Report", "report"]

ALTERNATIVES, MOST_ALTERNATIVES = 4, len(compared.OTHERS)
"""Other machines that are looked at if nobody says how many, and all there are."""
LONGEST_TITLE = 200
MOVERS = ("run.cost_usd", "run.wall_clock_s", "tokens_per_s")
"""Figures of which it is told what they hang on: the first that is known."""
SHOWN = 12
"""Numbers that are kept of those that move a figure."""


@record
class Asked:
    """What is asked beside the scenario."""

    title: str = ""
    """Of the document; empty = one is made of the scenario."""
    date: str = ""
    """A day that the document shows, YYYY-MM-DD; empty = none, for nothing else in it knows the day."""
    search: bool | None = None
    """Whether the plan is placed among all others: None = where there are not too many, True = always, False = never."""
    alternatives: int = ALTERNATIVES
    """How many other machines to look at; 0 = none."""
    command: str = ""
    """What makes the same document of a file `scenario.yaml` with the scenario that the report holds, as it is typed in a shell; empty = the
    usual one."""
    typed: str = ""
    """What was typed; empty = nothing was."""


@record
class Report:
    """A scenario with all that a document says of it. `print` shows it as a page; `to_dict` is the JSON."""

    scenario: Scenario
    answer: Mapping[str, Any]

    def __repr__(self) -> str:
        """One line."""
        found = self.answer["prediction"]
        verdict = "fits" if found["fits"] else "does not fit"
        return f"<Report on {self.scenario.model.name}: {found['tokens_per_s']:,.0f} tokens/s, {verdict}>"

    def __str__(self) -> str:
        """The page that the command prints, without what was assumed."""
        import shardmeter

        return shardmeter.page(self)

    def to_dict(self) -> dict[str, Any]:
        """The `report` JSON: the `predict` JSON under `prediction`, and what stands beside it; null where it is not known, with why."""
        return dict(self.answer)


def report(
    document: Document,
    rows: Rows,
    asked: Asked | None = None,
    *,
    processes: int | None = 1,
    progress: Progress | None = None,
) -> Report:
    """Everything a document says of a scenario. Where it leaves its plan open, the best one is found first and is what is reported.

    Raises BadScenario with everything that is wrong with the scenario or with what is asked, UnknownName."""
    asked = asked or Asked()
    check(asked)
    given, plans, own, data = _settled(document, rows, asked, processes, progress)
    explanation = explain(own)
    found = explanation.prediction.to_dict()
    if plans is None:
        plans = compared.plans(document, rows, search=asked.search, progress=progress, processes=processes)
    other = compared.alternatives(document, rows, given, explanation.prediction, asked.alternatives)
    answer = {
        "title": asked.title or None,
        "date": asked.date or None,
        "command": asked.command or None,
        "typed": asked.typed or None,
        "scenario": dict(data),
        "machines": [
            {"name": one.name, "gpus": float(one.gpus), "accelerator": one.accelerator.name}
            for one in own.fleet.islands
        ],
        "lines": lines_of(own.fleet.wan, [one["sent_bytes"] for one in found["islands"]]) if found["sync"] else [],
        "prediction": found,
        "plans": plans,
        "alternatives": other,
        "sensitivity": _hangs_on(own, found),
        "validation": validated.validated(own),
        "practice": validated.practice_of(explanation.prediction),
        "sources": sources.rows_of(own),
        "formulas": sources.formulas_of(explanation.steps),
        "assumptions": found["assumptions"],
        "warnings": found["warnings"],
    }
    return Report(scenario=own, answer=answer)


def _settled(
    document: Document, rows: Rows, asked: Asked, processes: int | None, progress: Progress | None
) -> tuple[Scenario, dict[str, Any] | None, Scenario, Mapping[str, Any]]:
    """(the scenario as it is said, its plans where they had to be searched, the scenario with its plan, the same as its file has it)."""
    mine = copy.deepcopy(document)
    given = resolve(mine, rows, left_open(mine, planning=False))
    if given.choices is None:
        return given, None, given, document.data
    own, chosen, found = searched(given, top=compared.TOP, processes=processes, progress=progress)
    plans = compared.told(found) if asked.search is not False else compared.unsearched(compared.LEFT_OUT)
    return given, plans, own, chosen.document


def check(asked: Asked) -> None:
    """Raises BadScenario with everything that is wrong with what is asked."""
    wrong = []
    title: object = asked.title
    most: object = asked.alternatives
    search: object = asked.search
    if not isinstance(title, str) or len(title) > LONGEST_TITLE or not title.isprintable():
        out = f"one line of at most {LONGEST_TITLE} characters"
        wrong.append(Violation(field="title", says=f"{shown(title, 40)} is no title", way_out=out))
    if isinstance(most, bool) or not isinstance(most, int) or not 0 <= most <= MOST_ALTERNATIVES:
        out = f"a whole number from 0 to {MOST_ALTERNATIVES}"
        wrong.append(Violation(field="alternatives", says=f"{shown(most)} is no number of alternatives", way_out=out))
    if not isinstance(search, bool | None):
        wrong.append(
            Violation(
                field="search",
                says=f"{shown(search, 40)} is neither yes nor no",
                way_out="true, false or nothing",
            )
        )
    if asked.date != "" and not _is_day(asked.date):
        out = "the day as YYYY-MM-DD, such as 2027-01-31"
        wrong.append(Violation(field="date", says=f"{shown(asked.date, 40)} is no date", way_out=out))
    if wrong:
        raise BadScenario(f"report: {len(wrong)} problem{'s' if len(wrong) > 1 else ''}", wrong)


def _is_day(text: object) -> bool:
    if not isinstance(text, str) or len(text) != len("YYYY-MM-DD"):
        return False
    try:
        dt.date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _hangs_on(scenario: Scenario, found: Mapping[str, Any]) -> dict[str, Any]:
    """The `sensitivity` JSON of the first figure of MOVERS that is known, with its first numbers only; or `why` there is none."""
    run = found["run"] or {}
    known = [name for name in MOVERS if not name.startswith("run.") or run.get(name.partition(".")[2])]
    try:
        answer = sensitivity(changed(scenario, choices=None), known[0]).to_dict()
    except ShardMeterError as error:
        return {"why": str(error)}
    kept = {name: value for name, value in answer.items() if name not in ("silent", "stuck", "assumptions", "warnings")}
    return {**kept, "why": None, "levers": answer["levers"][:SHOWN], "moving": len(answer["levers"])}
