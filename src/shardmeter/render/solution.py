"""The page of an inverse question: the answer, the values around it, what binds, and how to predict with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shardmeter.render.document import Column, Document, Fact, Facts, Notes, Row, Section, Table, remarks
from shardmeter.render.prediction import SURE, options
from shardmeter.study.inverse import counted

Answer = Mapping[str, Any]
HEADS = {
    "micro-batch": "Largest micro-batch that fits",
    "seq": "Longest sequence that fits",
    "gpus": "Fewest GPUs on which it fits",
}
NONE = {"micro-batch": "No micro-batch fits", "seq": "No sequence fits", "gpus": "No number of GPUs fits"}
COLUMNS = {"micro-batch": "micro-batch", "seq": "sequence", "gpus": "GPUs"}


def document(answer: Answer, title: str = "", *, command: str = "", short: bool = False) -> Document:
    """A `solve` JSON as a document; `command` predicts with the answer. `short` leaves out what was assumed."""
    sections: list[Section] = [
        _answers(answer),
        _neighbours(answer),
        Notes(title="What binds", lines=(answer["binding"]["says"],)),
    ]
    ways = answer["at"]["way_out"]
    if ways:
        lines = tuple(f"{one['change']}: {options(one['set'])}" for one in ways[:1])
        sections.append(
            Notes(
                title=f"What would make {answer['at']['value']:,.0f} fit (one of several that predict lists)",
                lines=lines,
            )
        )
    if answer["set"] and answer["answer"] is not None:
        sections.append(Notes(title="To predict with it", lines=(command or options(answer["set"]),)))
    sections.append(remarks(answer, short=short))
    chance = answer["fits_probability"]
    return Document(
        title=title,
        verdict=_verdict(answer),
        good=answer["answer"] is not None,
        sure=chance is None or not 1.0 - SURE <= chance <= SURE,
        sections=tuple(sections),
        data={**answer, "command": command},
        flat=tuple(
            {"question": answer["question"], "answer": one["value"] == answer["answer"], **one}
            for one in answer["neighbours"]
        ),
    )


def _verdict(answer: Answer) -> str:
    memory, value = answer["at"]["memory"], answer["at"]["value"]
    sizes = f"{memory['peak_gib']:.1f} of {memory['limit_gib']:.1f} GiB"
    if answer["answer"] is None:
        return f"{NONE[answer['question']]}: even {counted(value, answer['unit'])} {'needs' if value == 1 else 'need'} {sizes}."
    chance = answer["fits_probability"]
    likely = "" if chance is None else f", a chance of {_percent(chance)} to fit"
    return f"{HEADS[answer['question']]}: {value:,.0f} ({sizes} on the fullest GPU{likely})."


def _percent(chance: float) -> str:
    return "above 99 %" if chance >= 0.995 else "below 1 %" if chance < 0.01 else f"{100 * chance:.0f} %"


def _answers(answer: Answer) -> Facts:
    unit = answer["unit"]

    def said(value: float | None) -> str:
        return "none" if value is None else counted(value, unit)

    facts = [
        Fact(label=f"with a chance of {100 * one['probability']:.0f} %", value=said(one["answer"]))
        for one in answer["answer_by_probability"]
    ]
    fastest = answer["fastest"]
    if fastest:
        pace = f"{fastest['step_time_s']:.3g} s a step, {fastest['tokens_per_s']:,.0f} tokens/s"
        facts.append(Fact(label="the fastest that fits", value=said(fastest["value"]), note=pace))
    if answer["rounded"]:
        facts.append(Fact(label="a round number below", value=said(answer["rounded"])))
    return Facts(title="How sure", facts=tuple(facts), caption=(f"Legal: {answer['legal']['says']}",))


def _neighbours(answer: Answer) -> Table:
    rows: list[Row] = [
        {**one, "value": f"{one['value']:,.0f}", "says": _mark(answer, one)} for one in answer["neighbours"]
    ]
    columns = (
        Column(key="value", title=COLUMNS[answer["question"]]),
        Column(key="memory_peak_gib", title="peak", unit="GiB"),
        Column(key="share_of_limit", title="of the limit", unit="%"),
        Column(key="share_of_limit", title="", bar=True, drop=1),
        Column(key="fits_probability", title="chance to fit", unit="%"),
        Column(key="step_time_s", title="step", unit="s"),
        Column(key="tokens_per_s", title="tokens/s", drop=3),
        Column(key="tokens_per_s_per_gpu", title="per GPU", drop=2),
        Column(key="says", title=""),
    )
    return Table(title="Around the answer", columns=columns, rows=tuple(rows))


def _mark(answer: Answer, one: Answer) -> str:
    marks = ["the answer"] if one["value"] == answer["answer"] else []
    marks += ["fastest"] if answer["fastest"] and one["value"] == answer["fastest"]["value"] else []
    marks += [] if one["fits"] else ["does not fit"]
    return ", ".join(marks)
