"""The page of an import: what of a file was understood, assumed, ignored; the scenario, and what it lacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shardmeter.render import reading_log, yaml_text
from shardmeter.render.document import Column, Document, Notes, Row, Section, Table, Verbatim, remarks
from shardmeter.render.figure import Figure

Answer = Mapping[str, Any]
LINE = 100
"""Letters of a line of the scenario that is shown."""
LISTS = ("understood", "ignored", "unknown")


def document(answer: Answer, title: str = "", *, short: bool = False) -> Document:
    """An `import` JSON as a document; `short` leaves out what the scenario assumes."""
    log = answer["log"]
    sections: list[Section] = [
        *(reading_log.sections(log) if log else ()),
        _settings("Understood", answer["understood"]),
        Notes(title="Assumed: what the file leaves to its trainer", lines=tuple(answer["assumed"])),
        _settings("Ignored", answer["ignored"], "why"),
        _settings("Unknown: the trainer itself has no such setting", answer["unknown"], ""),
        Verbatim(title="The scenario", lines=_lines(answer["scenario"])),
        Notes(title="Missing", lines=tuple(answer["missing"])),
    ]
    if not short:
        more = [one for one in answer["assumptions"] if one not in answer["assumed"]]
        sections.append(Notes(title="Assumed of the scenario", lines=tuple(more)))
    else:
        sections.append(remarks(answer, short=True))
    return Document(
        title=title or _title(answer),
        verdict=reading_log.verdict(log) if log else _verdict(answer),
        good=log["step_time"] is not None if log else answer["complete"],
        sections=tuple(sections),
        data={**answer, "figures": [figure.to_dict() for figure in figures(answer)]},
        flat=tuple(_flat(answer)),
        columns=("became", "key", "value", "means"),
    )


def figures(answer: Answer) -> tuple[Figure, ...]:
    """What can be drawn of it: the pace of a log."""
    return reading_log.figures(answer["log"]) if answer["log"] else ()


def _lines(scenario: Answer) -> tuple[str, ...]:
    return tuple(yaml_text.text(scenario, LINE).splitlines()) if scenario else ()


def _title(answer: Answer) -> str:
    version = f" {answer['format_version']}" if answer["format_version"] else ""
    return f"{answer['source']}, read as {answer['format']}{version}"


def _verdict(answer: Answer) -> str:
    counts = ", ".join(f"{len(answer[name])} {name}" for name in LISTS)
    lacks = "" if answer["complete"] else "; no whole scenario yet: see what is missing"
    return f"settings: {counts}{lacks}"


def _settings(title: str, said: Sequence[Answer], means: str = "means") -> Table:
    return Table(
        title=title,
        columns=(
            Column(key="key", title="setting"),
            Column(key="value", title="value", wide=True),
            Column(key="means", title=means, wide=True),
        ),
        rows=tuple({"key": one["key"], "value": one["value"], "means": one["means"]} for one in said),
    )


def _flat(answer: Answer) -> list[Row]:
    return [{"became": name, **one} for name in LISTS for one in answer[name]]
