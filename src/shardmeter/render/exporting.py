"""The page of an export: the files, how they are started, what they do not say, and how they differ from an original."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shardmeter.render.document import Column, Document, Fact, Facts, Notes, Row, Section, Table, Verbatim, remarks

Answer = Mapping[str, Any]
MOST_NAMED = 40
"""Settings without a figure that are named."""


def document(answer: Answer, title: str = "", *, written: tuple[str, ...] = (), short: bool = False) -> Document:
    """An `export` JSON as a document; files that are `written` are named, others shown. `short` leaves out what was assumed."""
    sections: list[Section] = []
    if not written:
        sections += [
            Verbatim(title=f"── {one['name']}", lines=tuple(one["text"].splitlines())) for one in answer["files"]
        ]
    sections += [
        _started(answer, written),
        *_departures(answer),
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
    alone = answer["launcher"] is None and (answer["launch"] or "").startswith("torchrun ")
    caption = (
        f"the options of nodes and accelerators: --to torchrun --trainer {answer['format']}, or slurm, skypilot, dstack"
    )
    return Facts(title="To run it", facts=tuple(facts), caption=(caption,) if alone else ())


def _departures(answer: Answer) -> list[Table | Notes]:
    """How the original differs: what both say otherwise, what one of them says alone, and what no figure depends on; or that nothing does."""
    name, rows = answer["against"], answer["departures"]
    if not name:
        return []
    if not rows:
        return [Notes(title=f"Beside {name}", lines=("Every setting is the same.",))]
    setting = Column(key="key", title="setting")
    there, here = Column(key="original", title="there", wide=True), Column(key="ours", title="here", wide=True)
    means = {one["key"]: one["means"] for one in answer["settings"]}
    counted = [{**one, "means": means.get(one["key"], "")} for one in rows if one["counts"]]
    both, ours, theirs = (
        tuple(one for one in counted if (one["original"] is None, one["ours"] is None) == lacks)
        for lacks in ((False, False), (True, False), (False, True))
    )
    idle = [one["key"] for one in rows if not one["counts"]]
    most = f"{', '.join(idle[:MOST_NAMED])}{f' and {len(idle) - MOST_NAMED} more' if len(idle) > MOST_NAMED else ''}"
    return [
        Table(title=f"Said otherwise in {name}", columns=(setting, there, here), rows=both),
        Table(
            title=f"Not said in {name}, which leaves it to the trainer's default",
            columns=(setting, here, Column(key="means", title="says", wide=True)),
            rows=ours,
        ),
        Table(title=f"Said in {name} alone", columns=(setting, there), rows=theirs),
        Notes(
            title="Different too, and no figure here depends on it: keep what you have", lines=(most,) if idle else ()
        ),
    ]


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
