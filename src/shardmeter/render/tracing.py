"""The page of a trace: the closed form beside the timeline, seconds by term, how busy each stream was."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shardmeter.core.alike import kinds, span
from shardmeter.render.document import Column, Document, Fact, Facts, Row, Section, Table

MOST_STREAMS = 24
TERMS = (
    Column(key="term", title="term"),
    Column(key="timeline_s", title="timeline", unit="s"),
    Column(key="share", title="share", unit="%", drop=2),
    Column(key="share", title="", bar=True, drop=1),
    Column(key="closed_form_s", title="closed form", unit="s"),
)


def document(answer: Mapping[str, Any], title: str, written: Mapping[str, str]) -> Document:
    """A trace's summary as a document; `written` names the files by what they are."""
    if "rounds" in answer:
        sections: tuple[Section, ...] = (_rounds(answer, written), _round_terms(answer), _rows(answer))
    else:
        sections = (_steps(answer, written), _terms(answer), _streams(answer))
    return Document(
        title=title,
        sections=sections,
        data={**answer, "files": dict(written)},
        flat=tuple(answer["terms"]),
    )


def _steps(answer: Mapping[str, Any], written: Mapping[str, str]) -> Facts:
    return Facts(
        title="Step",
        facts=(
            Fact(label="timeline", value=answer["step_time_s"], unit="s", note=f"{answer['tasks']:,} tasks, {answer['steps']} steps"
                 if answer["steps"] > 1 else f"{answer['tasks']:,} tasks"),
            Fact(label="closed form", value=answer["closed_form_s"], unit="s"),
            Fact(label="closed form against timeline", value=answer["error"], unit="±%"),
            *(Fact(label=what, value=path) for what, path in written.items()),
        ),
    )  # fmt: skip


def _rounds(answer: Mapping[str, Any], written: Mapping[str, str]) -> Facts:
    steps = f"{answer['steps']:,g} inner step{'' if answer['steps'] == 1 else 's'}"
    return Facts(
        title="Round",
        facts=(
            Fact(label="timeline", value=answer["round_time_s"], unit="s", note=f"{steps}; {answer['tasks']:,} tasks, "
                 f"{answer['rounds']} rounds, the mean of the second half"),
            Fact(label="closed form", value=answer["closed_form_s"], unit="s"),
            Fact(label="closed form against timeline", value=answer["error"], unit="±%"),
            Fact(label="an inner step of it", value=answer["step_time_s"], unit="s"),
            *(Fact(label=what, value=path) for what, path in written.items()),
        ),
    )  # fmt: skip


def _round_terms(answer: Mapping[str, Any]) -> Table:
    rows: list[Row] = [{**term, "share": term["timeline_s"] / answer["round_time_s"]} for term in answer["terms"]]
    total = {"term": "round", "timeline_s": answer["round_time_s"], "closed_form_s": answer["closed_form_s"]}
    return Table(
        title=f"Where a round of {answer['critical']} goes", columns=TERMS, rows=tuple(rows), total=total
    )  # fmt: skip


def _rows(answer: Mapping[str, Any]) -> Table:
    groups = kinds(answer["streams"], lambda one: tuple(f"{one[key]:.6g}" for key in ("busy", "seconds")))
    rows: list[Row] = [{**group[0], "island": span([one["island"] for one in group])} for group in groups]
    left = len(rows) - MOST_STREAMS
    return Table(
        title="How busy",
        columns=(
            Column(key="island", title="island"),
            Column(key="busy", title="busy", unit="%"),
            Column(key="busy", title="", bar=True, drop=1),
            Column(key="seconds", title="a round", unit="s"),
        ),
        rows=tuple(rows[:MOST_STREAMS]),
        caption=f"{left} more in the JSON" if left > 0 else "",
    )


def _terms(answer: Mapping[str, Any]) -> Table:
    rows: list[Row] = [{**term, "share": term["timeline_s"] / answer["step_time_s"]} for term in answer["terms"]]
    return Table(
        title=f"Where a step of stage {answer['critical_rank']} goes",
        columns=TERMS,
        rows=tuple(rows),
        total={"term": "step", "timeline_s": answer["step_time_s"], "closed_form_s": answer["closed_form_s"]},
    )


def _streams(answer: Mapping[str, Any]) -> Table:
    streams = answer["streams"]
    left = len(streams) - MOST_STREAMS
    rows: list[Row] = [{**one, "stage": str(one["rank"])} for one in streams[:MOST_STREAMS]]
    return Table(
        title="How busy",
        columns=(
            Column(key="stage", title="stage"),
            Column(key="stream", title="stream"),
            Column(key="busy", title="busy", unit="%"),
            Column(key="busy", title="", bar=True, drop=1),
            Column(key="seconds", title="a step", unit="s"),
        ),
        rows=tuple(rows),
        caption=f"{left} more streams in the JSON" if left > 0 else "",
    )
