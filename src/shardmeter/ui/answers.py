"""The answer of a view: the study's data, the page that `render` makes of it and its figures. Nothing is computed here."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from shardmeter.core.errors import BadScenario, UnknownName, Violation, shown
from shardmeter.core.record import record
from shardmeter.ui.state import Asked, State, opened

if TYPE_CHECKING:
    from shardmeter.render import Document as Page
    from shardmeter.render import Figure
    from shardmeter.scenario.parts import Rows
    from shardmeter.scenario.read import Document
    from shardmeter.specs import Scenario
    from shardmeter.study.trace import Drawn

MOST_STEPS = 4
"""Steps, or rounds, that a timeline runs."""


@record
class Answer:
    """What a view shows."""

    view: str
    page: Page
    figures: tuple[Figure, ...] = ()
    scenario: Mapping[str, Any]
    """The scenario as it was said, options and overrides in it."""
    more: Mapping[str, Any] | None = None
    """What a view has beside the form that all have."""

    def to_dict(self) -> dict[str, Any]:
        """The JSON of a view, without how long it took."""
        from shardmeter.render import yaml_text
        from shardmeter.render.described import described, figure
        from shardmeter.render.json_text import envelope

        return {
            "view": self.view,
            "data": envelope(self.page.data),
            "document": described(self.page),
            "figures": [figure(one) for one in self.figures],
            "scenario_yaml": yaml_text.text(self.scenario),
            **(self.more or {}),
        }


def answer(view: str, asked: Asked, catalog: Rows) -> Answer:
    """Answer one view. Raises UnknownName for what is no view, and what the study raises."""
    if view not in VIEWS:
        raise UnknownName("view", view, VIEWS)
    return VIEWS[view](asked, catalog)


def scenario_of(document: Document, catalog: Rows) -> Scenario:
    """The scenario of a document, what it leaves open found. Raises as `predict` does."""
    from shardmeter.scenario.choices import left_open
    from shardmeter.scenario.resolve import resolve
    from shardmeter.study.planning.automatic import settled

    made = resolve(document, catalog, left_open(document, planning=False))
    return made if made.choices is None else settled(made)


def numbers(state: State, catalog: Rows) -> dict[str, Any]:
    """The figures that a slider redraws: those of `predict`, without what would relieve it."""
    from shardmeter.render.json_text import plain
    from shardmeter.study.predict import predict

    document, catalog = opened(state, catalog)
    found = predict(scenario_of(document, catalog)).to_dict(advised=False)
    run, sync, memory = found["run"] or {}, found["sync"] or {}, found["memory"]
    keys = ("step_time_s", "tokens_per_s", "tokens_per_s_per_gpu", "mfu", "fits", "fits_probability", "gpus")
    made: dict[str, Any] = plain(
        {
            **{key: found[key] for key in keys},
            "peak_gib": memory["peak_gib"],
            "limit_gib": memory["limit_gib"],
            "memory": memory["terms"],
            **{
                key: run.get(key)
                for key in ("wall_clock_s", "gpu_hours", "cost_usd", "tokens", "loss", "deadline", "budget")
            },
            "bottleneck": {key: value for key, value in found["bottleneck"].items() if key not in ("advice", "relief")},
            "intervals": found["intervals"],
            "ledger": found["ledger"],
            "islands": len(found["islands"]),
            "round_s": sync.get("round_s"),
            "loss_factor": (sync.get("loss_effect") or {}).get("factor"),
            "loss_per": (sync.get("loss_effect") or {}).get("per"),
            "warnings": found["warnings"],
        }
    )
    return made


def _predict(asked: Asked, catalog: Rows) -> Answer:
    from shardmeter.render import prediction, prediction_figures
    from shardmeter.render.heading import heading
    from shardmeter.study.predict import predict

    scenario, said = _resolved(asked, catalog)
    found = predict(scenario).to_dict()
    return Answer(
        view="predict", page=prediction.document(found, heading(scenario)), figures=prediction_figures.figures(found), scenario=said
    )  # fmt: skip


def _memory(asked: Asked, catalog: Rows) -> Answer:
    from shardmeter.render import prediction, prediction_figures
    from shardmeter.render.heading import heading
    from shardmeter.study.predict import predict

    scenario, said = _resolved(asked, catalog)
    found = predict(scenario).to_dict()
    drawn = prediction_figures.memory(found)
    page = prediction.memory_document(found, heading(scenario))
    return Answer(view="memory", page=page, figures=() if drawn is None else (drawn,), scenario=said)


def _explain(asked: Asked, catalog: Rows) -> Answer:
    from shardmeter.render import explanation
    from shardmeter.render.heading import heading
    from shardmeter.study.explain import citations, explain
    from shardmeter.study.run_terms import run_terms

    scenario, said = _resolved(asked, catalog)
    found, term = explain(scenario), asked.word("term")
    data = found.prediction.to_dict()
    labels = found.labels(term) if term else ()
    page = explanation.document(
        data,
        found.of(labels) if labels else found.steps,
        heading(found.prediction.scenario),
        "" if labels else term,
        terms=[row for row in found.terms() if not term or row["term"] in labels],
        memory=[row for row in found.memory() if row["term"] in labels],
        learning=[name for name in found.learning() if not term or name in labels],
        run=run_terms(data, term) if term else {},
        sources=citations(),
    )
    return Answer(view="explain", page=page, scenario=said)


def _returns(asked: Asked, catalog: Rows) -> Answer:
    from shardmeter.render import returns as page
    from shardmeter.render.heading import heading
    from shardmeter.study.returns import returns

    document, rows, said = _opened(asked, catalog)
    scaling = asked.word("scaling")
    if scaling not in ("", "strong", "weak"):
        raise _wrong("scaling", scaling, "strong or weak")
    found = returns(document, rows, asked.word("axis", "gpus"), asked.words.get("over", ()), scaling)
    data = found.to_dict()
    return Answer(
        view="returns", page=page.document(data, heading(found.scenario)), figures=page.figures(data), scenario=said
    )


def _transitions(asked: Asked, catalog: Rows) -> Answer:
    from shardmeter.render import transitions as page
    from shardmeter.render.heading import heading
    from shardmeter.study.transitions import transitions

    document, rows, said = _opened(asked, catalog)
    x, y = asked.word("x") or None, asked.word("y") or None
    if y is not None and x is None:
        raise _wrong("x", "", "say x, or leave y out")
    found = transitions(document, rows, x, y)
    data = found.to_dict()
    return Answer(
        view="transitions", page=page.document(data, heading(found.scenario)), figures=page.figures(data), scenario=said
    )  # fmt: skip


def _tradeoffs(asked: Asked, catalog: Rows) -> Answer:
    from shardmeter.render import tradeoffs as page
    from shardmeter.render.heading import heading
    from shardmeter.study.tradeoffs import tradeoffs

    document, rows, said = _opened(asked, catalog)
    found = tradeoffs(document, rows, asked.words.get("over", ()))
    data = found.to_dict()
    return Answer(
        view="tradeoffs", page=page.document(data, heading(found.scenario)), figures=page.figures(data), scenario=said
    )


def _sensitivity(asked: Asked, catalog: Rows) -> Answer:
    from shardmeter.render import sensitivity as page
    from shardmeter.render.heading import heading
    from shardmeter.study.sensitivity import sensitivity

    scenario, said = _resolved(asked, catalog)
    found = sensitivity(
        scenario, asked.word("of", "tokens_per_s"), pairs=count(asked, "pairs", 0, 12), what_if=asked.words.get("what_if", ()),
        beside=asked.words.get("with", ()),
    )  # fmt: skip
    data = found.to_dict()
    return Answer(
        view="sensitivity", page=page.document(data, heading(scenario)), figures=page.figures(data), scenario=said
    )


def _doctor(asked: Asked, catalog: Rows) -> Answer:
    from shardmeter.render import doctor as page
    from shardmeter.render.heading import heading
    from shardmeter.study.doctor import doctor, measured

    given = measured(asked.words.get("measured", ()), "measured")
    scenario, said = _resolved(asked, catalog)
    found = doctor(scenario, given, None, ())
    data = found.to_dict()
    return Answer(
        view="doctor", page=page.document(data, heading(found.scenario)), figures=page.figures(data), scenario=said
    )


def _trace(asked: Asked, catalog: Rows) -> Answer:
    from shardmeter.render import gantt, tracing
    from shardmeter.render.heading import heading

    scenario, said = _resolved(asked, catalog)
    found = traced(asked, scenario)
    page = tracing.document(found.to_dict(), heading(found.scenario), {})
    return Answer(view="trace", page=page, scenario=said, more={"timeline": gantt.rows(found)})


def traced(asked: Asked, scenario: Scenario) -> Drawn:
    """The timeline that a question asks for: steps of one island, or rounds of several."""
    from shardmeter.study.rounds import one_island, trace_rounds
    from shardmeter.study.trace import trace

    if island := asked.word("island"):
        scenario = one_island(scenario, island)
    if len(scenario.fleet.islands) > 1:
        return trace_rounds(scenario, rounds=count(asked, "rounds", MOST_STEPS, MOST_STEPS))
    return trace(scenario, steps=count(asked, "steps", 1, MOST_STEPS))


VIEWS: Mapping[str, Callable[[Asked, Rows], Answer]] = {
    "predict": _predict,
    "memory": _memory,
    "explain": _explain,
    "returns": _returns,
    "transitions": _transitions,
    "tradeoffs": _tradeoffs,
    "sensitivity": _sensitivity,
    "doctor": _doctor,
    "trace": _trace,
}
"""The views by name."""


def _opened(asked: Asked, catalog: Rows) -> tuple[Document, Rows, dict[str, Any]]:
    """The document, the catalog, and the scenario as it was said."""
    document, rows = opened(asked.state, catalog)
    return document, rows, copy.deepcopy(document.data)


def _resolved(asked: Asked, catalog: Rows) -> tuple[Scenario, dict[str, Any]]:
    document, rows, said = _opened(asked, catalog)
    return scenario_of(document, rows), said


def count(asked: Asked, key: str, left_out: int, most: int) -> int:
    """A whole number among the words of a view. Raises BadScenario for what is none, and for more than `most`."""
    text = asked.word(key)
    if not text:
        return left_out
    if not (text.isascii() and text.isdigit() and len(text) < 6 and int(text) <= most):
        raise _wrong(key, text, f"a whole number of at most {most}")
    return int(text)


def _wrong(key: str, text: str, way_out: str) -> BadScenario:
    says = f"{shown(text)} is none" if text else "is not said"
    return BadScenario("1 problem", [Violation(field=key, says=says, way_out=way_out)])
