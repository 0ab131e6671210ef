"""The page of an export: the files, how they are started, what they do not say, and how they differ from an original."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shardmeter.render.document import Column, Document, Fact, Facts, Notes, Row, Section, Table, Verbatim, remarks

Answer = Mapping[str, Any]


def document(answer: Answer, title: str = "", *, written: tuple[str, ...] = (), short: bool = False) -> Document:
    """An `export` JSON as a document; files that are `written` are named, others shown. `short` leaves out what was assumed."""
    sections: list[Section] = []
    if not written:
        sections += [
            Verbatim(title=f"── {one['name']}", lines=tuple(one["text"].splitlines())) for one in answer["files"]
        ]
    sections += [
        _started(answer, written),
        _departures(answer),
        Notes(title="Not said in these files", lines=tuple(answer["unsaid"])),
        Notes(title="To fill in, and to know", lines=tuple(answer["notes"])),
        remarks(answer, short=short),
    ]
    return Document(
        title=title,
        verdict=_verdict(answer),
        good=answer["expressible"],
        sections=tuple(sections),
        data=answer,
        flat=tuple(_flat(answer)),
        columns=("key", "value", "means", "original"),
    )


def refusal(to: str, version: str, reasons: tuple[str, ...]) -> Document:
    """The page where a format cannot say a scenario: every reason. Its JSON has the keys of an export."""
    answer = {
        "format": to, "format_version": version, "launcher": None, "expressible": False, "reasons": list(reasons), "files": [],
        "launch": None, "settings": [], "unsaid": [], "notes": [], "against": None, "departures": [],
    }  # fmt: skip
    return Document(
        title="",
        verdict=f"no: {to} cannot run this plan",
        good=False,
        sections=(Notes(title="Why", lines=reasons),),
        data=answer,
        columns=("key", "value", "means", "original"),
    )


def _verdict(answer: Answer) -> str:
    by = f", started by {answer['launcher']}" if answer["launcher"] else ""
    version = f" {answer['format_version']}" if answer["format_version"] else ""
    count = len(answer["files"])
    return (
        f"{answer['format']}{version}{by}: {count} file{'' if count == 1 else 's'}, {len(answer['settings'])} settings"
    )


def _started(answer: Answer, written: tuple[str, ...]) -> Facts:
    facts = [Fact(label="file", value=name) for name in written]
    if answer["launch"]:
        facts.append(Fact(label="start", value=answer["launch"]))
    return Facts(title="To run it", facts=tuple(facts))


def _departures(answer: Answer) -> Table | Notes:
    """What the original says otherwise, or that it says the same."""
    if not answer["against"]:
        return Notes(title="", lines=())
    if not answer["departures"]:
        return Notes(title=f"Beside {answer['against']}", lines=("Every setting is the same.",))
    return Table(
        title=f"Beside {answer['against']}",
        columns=(
            Column(key="key", title="setting"),
            Column(key="original", title="there", wide=True),
            Column(key="ours", title="here", wide=True),
        ),
        rows=tuple(
            {**one, "original": _or_none(one["original"]), "ours": _or_none(one["ours"])}
            for one in answer["departures"]
        ),
    )


def _or_none(value: str | None) -> str:
    return "not said" if value is None else value


def _flat(answer: Answer) -> list[Row]:
    originals = {one["key"]: one for one in answer["departures"]}
    rows: list[Row] = [{**one, "original": originals.get(one["key"], {}).get("original")} for one in answer["settings"]]
    ours = {one["key"] for one in answer["settings"]}
    rows += [
        {"key": key, "value": None, "means": "", "original": one["original"]}
        for key, one in originals.items()
        if key not in ours
    ]
    return rows
