"""The document about one scenario, chapter by chapter: what a person sends to whoever decides. Its figures are those of `predict`, `plan`,
`sensitivity` and `validate`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shardmeter import __version__
from shardmeter.data import DATA_DATE
from shardmeter.render import (
    islands,
    learning,
    paper,
    planning,
    planning_fleet,
    prediction,
    report_evidence,
    report_figures,
    report_lines,
    report_risks,
    report_words,
    yaml_text,
)
from shardmeter.render.document import Column, Document, Fact, Facts, Notes, Row, Section, Table, Verbatim, filled
from shardmeter.render.paper import Chapter, Paper

Answer = Mapping[str, Any]
AGAIN = "shardmeter report scenario.yaml -o report.html"


def document(answer: Answer, heading: str = "", *, short: bool = False) -> Document:
    """A `report` JSON as one page; `short` is its summary. `heading` names the scenario in a line."""
    return paper.page(written(answer, heading), short=short)


def written(answer: Answer, heading: str = "") -> Paper:
    """A `report` JSON as a document of chapters."""
    found = answer["prediction"]
    date = (f"{answer['date']}",) if answer["date"] else ()
    chapters = (
        _summary(answer),
        _compared(answer, heading),
        _step(found),
        _memory(found),
        _run(answer),
        _limits(found),
        report_risks.chapter(answer),
        report_evidence.assumptions(answer),
        report_evidence.validated(answer),
        report_evidence.formulas(answer),
        _again(answer),
    )
    return Paper(
        title=answer["title"] or f"Training {found['model']['name']} on {report_words.fleet(answer['machines'])}",
        lines=(*date, heading),
        verdict=" ".join((prediction.verdict(found), *report_words.short(found))),
        good=prediction.is_yes(found),
        sure=not prediction.borderline(found) and report_words.kept_surely(found),
        chapters=tuple(one for one in chapters if one.says or one.shown),
        foot=f"ShardMeter {__version__}, data of {DATA_DATE}. A prediction, not a measurement.",
        data=answer,
    )


def _summary(answer: Answer) -> Chapter:
    """One page: the question, the answer, how sure, what else counts."""
    found = answer["prediction"]
    run = found["run"] or {}
    risk = report_risks.first(answer)
    facts = [
        Fact(label="done in", value=run.get("wall_clock_s"), unit="s", note=prediction.interval_text(found, "wall_clock_s", "s")),
        Fact(label="costs", value=run.get("cost_usd"), unit="USD", note=prediction.interval_text(found, "cost_usd", "USD")),
        Fact(label="fits", value=_fits(found), note=_peak(found)),
        Fact(label="trains at", value=found["tokens_per_s"], unit="tokens/s", note=prediction.interval_text(found, "tokens_per_s", "tokens/s")),
        Fact(label="energy", value=run.get("energy_kwh"), unit="kWh"),
        Fact(label="held back by", value=report_words.held_back(found) or None),
    ]  # fmt: skip
    says = (
        f"The question: {report_words.question(answer)}",
        f"The answer: {prediction.verdict(found)} {' '.join(report_words.answers(answer))}",
        f"How sure: {_sure(answer)}",
        f"Beside others: {report_words.better(answer)}",
        *((f"What could make it wrong first of all: {risk}",) if risk else ()),
    )
    table = Facts(title="In figures", facts=tuple(fact for fact in facts if fact.value is not None))
    return Chapter(title="Summary", says=says, sections=(table, *report_lines.sections(answer)))


def _fits(found: Answer) -> str:
    if prediction.borderline(found):
        return "borderline"
    return "yes" if found["fits"] else "no"


def _peak(found: Answer) -> str:
    memory, chance = found["memory"], found["fits_probability"]
    sure = "" if chance is None else f", a chance of {report_words.percent(chance)}"
    return f"{memory['peak_gib']:.1f} of {memory['limit_gib']:.1f} GiB on the fullest GPU{sure}"


def _sure(answer: Answer) -> str:
    level = answer["prediction"]["intervals"]
    basis = (
        f"Intervals hold {100 * level['level']:.0f} % of single future runs ({level['basis']})."
        if level.get("basis")
        else ""
    )
    return " ".join(filter(None, (report_words.sureness(answer), basis)))


def _compared(answer: Answer, heading: str) -> Chapter:
    """The plan, other plans of its machines, the same one on other machines."""
    plans = answer["plans"]
    page = planning_fleet if plans.get("islands") else planning
    listed: tuple[Section, ...] = () if plans["why"] else page.sections(plans)
    says = (f"This report is about {heading}.", report_words.better(answer))
    figures = report_figures.front(answer)
    return Chapter(
        title="The plan, and what it was compared with", says=says, sections=(*figures, *_others(answer["alternatives"]), *listed)
    )  # fmt: skip


def _others(block: Answer) -> tuple[Section, ...]:
    """The same plan on other machines."""
    if not block["others"]:
        return ()
    own: Row = {"says": "as it is", **_row(block["own"])}
    rows: list[Row] = [own, *({"says": one["says"], **_row(one)} for one in block["others"] if not one["why"])]
    columns = (
        Column(key="says", title="machines", wide=True),
        Column(key="gpus", title="GPUs"),
        Column(key="step_time_s", title="step", unit="s"),
        Column(key="tokens_per_s", title="tokens/s"),
        Column(key="mfu", title="MFU", unit="%", drop=1),
        Column(key="memory_peak_gib", title="peak", unit="GiB", drop=2),
        Column(key="wall_clock_s", title="takes", unit="s"),
        Column(key="cost_usd", title="costs", unit="USD"),
        Column(key="fits", title="fits"),
    )
    kept = filled(columns, rows)
    table = Table(
        title="This plan on other machines", columns=kept, rows=tuple(rows),
        caption="The global batch and the tokens stay. A faster network is taken at the price of the present one: what it costs no row says.",
    )  # fmt: skip
    illegal = tuple(f"{one['says']}: {one['why']}" for one in block["others"] if one["why"])
    return (table, Notes(title="Not possible as it is planned", lines=illegal))


def _row(one: Answer) -> Row:
    keys = ("gpus", "step_time_s", "tokens_per_s", "mfu", "memory_peak_gib", "wall_clock_s", "cost_usd")
    return {**{key: one[key] for key in keys}, "fits": "yes" if one["fits"] else "no"}


def _step(found: Answer) -> Chapter:
    sections: tuple[Section, ...] = (
        *report_figures.waterfall(found),
        prediction.speed_facts(found),
        *prediction.probe_facts(found),
        *islands.sections(found, prediction.interval_text(found, "round_s", "s")),
        prediction.ledger_table(found),
    )
    says = "What takes time and is not hidden behind something else adds up to the step; what is hidden stands beside it and costs nothing."
    return Chapter(title="Where a step goes", says=(says,), sections=sections)


def _memory(found: Answer) -> Chapter:
    sections: tuple[Section, ...] = (*report_figures.memory(found), prediction.memory_table(found))
    return Chapter(title="Memory", says=(prediction.verdict(found),), sections=sections)


def _run(answer: Answer) -> Chapter:
    """Days, dollars, energy, failures, what is learned."""
    found = answer["prediction"]
    if not found["run"]:
        why = "No length of the run was said (tokens, steps or a target loss): its days, dollars and energy are not known."
        return Chapter(title="The whole run", says=(why,))
    practice = report_words.practice(answer, classed=True)
    facts = prediction.run_facts(found, classed=not practice)
    sections: list[Section] = [] if facts is None else [facts]
    sections += [*learning.sections(found), *prediction.made_of(found["run"])]
    counted = "What interrupts it, as the scenario says it, is counted below."
    return Chapter(title="The whole run", says=(practice or counted,), sections=tuple(sections))


def _limits(found: Answer) -> Chapter:
    """What holds it back, and what would relieve it or make it fit."""
    sections = [one for one in prediction.bottleneck_sections(found) if one is not None]
    if not found["fits"]:
        sections = [prediction.ways_out(found["way_out"] or (), alone=not found["sync"]), *sections]
    says = "Every change below was evaluated by itself, all else as it is."
    return Chapter(title="What limits it, and what would relieve it", says=(says,), sections=tuple(sections))


def _again(answer: Answer) -> Chapter:
    says = (
        "The scenario below is all that was asked. Saved as scenario.yaml it gives the same figures again with the command under it, and the "
        "same bytes with the same versions."
    )
    lines = tuple(yaml_text.text(answer["scenario"], width=100).rstrip("\n").split("\n"))
    sections = (
        Verbatim(title="scenario.yaml", lines=lines),
        Verbatim(title="The command", lines=(answer["command"] or AGAIN,)),
        Verbatim(title="What was typed", lines=(answer["typed"],) if answer["typed"] else ()),
    )
    return Chapter(title="The scenario, and how to make this document again", says=(says,), sections=sections)
