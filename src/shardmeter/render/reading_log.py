"""The page of a log that was read: how long a step took, which reports that rests on, what was left out, what the head says."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Any

from shardmeter.interop.logs.values import positive
from shardmeter.render import cells
from shardmeter.render.document import Column, Document, Fact, Facts, Section, Table, remarks
from shardmeter.render.figure import Figure, Line, Mark, Scale

Answer = Mapping[str, Any]


def document(answer: Answer, title: str = "", *, short: bool = False) -> Document:
    """A log's account as a document."""
    data = {**answer, "figures": [figure.to_dict() for figure in figures(answer)]}
    return Document(
        title=title, verdict=verdict(answer), good=answer["step_time"] is not None,
        sections=(*sections(answer), _said(answer["said"]), remarks(answer, short=short)), data=data,
        flat=tuple(answer["pace"]), columns=("step", "seconds"),
    )  # fmt: skip


def sections(answer: Answer) -> tuple[Section, ...]:
    """How fast the run was, and which reports do not count: without what the head says."""
    return _figures(answer), _dropped(answer["dropped"])


def figures(answer: Answer) -> tuple[Figure, ...]:
    """The pace over the run."""
    pace = answer["pace"]
    if not pace:
        return ()
    usual = answer["step_time"]
    line = Line(
        label="used reports",
        x=tuple(one["step"] for one in pace),
        y=tuple(one["seconds"] for one in pace),
        style="points",
    )
    half = len(pace) // 2
    early, late = (median(one["seconds"] for one in part) for part in (pace[: half or None], pace[half:]))
    change = late / early - 1
    found = (
        "keeps its pace"
        if abs(change) < 0.02
        else f"becomes {100 * abs(change):.0f} % {'slower' if change > 0 else 'faster'}"
    )
    return (
        Figure(
            slug="pace", title=f"The run {found}: {cells.text(usual, 's')} a step", x=Scale(title="step"), y=Scale(title="time of a step", unit="s"),
            lines=(line,), marks=(Mark(says=f"median {cells.text(usual, 's')}", y=usual),),
            caption=(f"Reports that count, {answer['used']:,} of {answer['steps']:,}.",),
        ),
    )  # fmt: skip


def verdict(answer: Answer) -> str:
    """What was found, in a sentence."""
    age = f" ({answer['format_version']})" if answer["format_version"] else ""
    kind = f"{answer['format']}{age}"
    if answer["step_time"] is None:
        return f"A log of {kind}; the time of a step is not known."
    sure = "" if answer["error"] is None else f" ± {100 * answer['error']:.2g} %"
    return f"A log of {kind}: {cells.text(answer['step_time'], 's')} a step{sure}, by {answer['used']:,} of {answer['steps']:,} reports."


def _figures(answer: Answer) -> Facts:
    tokens, gpus, time = answer["tokens_per_step"], answer["gpus"], answer["step_time"]
    facts = []
    if time is not None:
        low, high = (cells.text(value, "s") for value in answer["spread"])
        facts.append(
            Fact(
                label="time of a step",
                value=time,
                unit="s",
                note=f"from {answer['rests_on']}; 5 % and 95 %: {low} and {high}",
            )
        )
        if tokens is not None:
            facts.append(Fact(label="tokens a second", value=tokens / time, unit="tokens/s"))
        if tokens is not None and gpus is not None:
            facts.append(Fact(label="of one accelerator", value=tokens / time / gpus, unit="tokens/s"))
    facts += [
        Fact(label=label, value=answer[key], unit=unit)
        for label, key, unit in (
            ("tokens of a step", "tokens_per_step", "tokens"), ("accelerators", "gpus", ""), ("peak allocated", "peak_allocated", "B"),
            ("peak reserved", "peak_reserved", "B"), ("goodput by the clocks", "goodput", "%"), ("first loss", "loss_first", ""), ("last loss", "loss_last", ""),
        )
        if answer[key] is not None
    ]  # fmt: skip
    if answer["restarts"]:
        facts.append(Fact(label="restarts", value=answer["restarts"]))
    return Facts(title="The run", facts=tuple(facts))


def _said(head: Mapping[str, str]) -> Facts:
    return Facts(title="What the head says", facts=tuple(_fact(key, text) for key, text in head.items()))


def _fact(key: str, text: str) -> Fact:
    """What the head says, sizes and counts as people read them."""
    value = positive(text)
    if value is None:
        return Fact(label=key, value=text)
    return Fact(label=key, value=value, unit="B" if key == "device_memory" else "")


def _dropped(rows: list[dict[str, Any]]) -> Table:
    columns = (
        Column(key="reason", title="left out", wide=True),
        Column(key="count", title="reports"),
        Column(key="first", title="first"),
    )
    return Table(title="Reports that do not count", columns=columns, rows=tuple(rows))
