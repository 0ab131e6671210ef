"""A document as plain data for another program that lays it out: every value raw and as a text."""

from __future__ import annotations

from typing import Any

from shardmeter.render import cells
from shardmeter.render.document import (
    Column,
    Document,
    Facts,
    Notes,
    Row,
    Section,
    Table,
    Value,
    Verbatim,
    numeric,
    told,
)
from shardmeter.render.figure import Figure
from shardmeter.render.json_text import plain


def described(document: Document) -> dict[str, Any]:
    """Title, verdict and sections, those with nothing in them left out; `kind` of a section is facts, table, notes, verbatim or figure. A value
    is `{"raw": …, "text": …}`: SI numbers, and what a person reads, unit and all."""
    return {
        "title": document.title,
        "verdict": document.verdict,
        "good": document.good,
        "sure": document.sure,
        "sections": [_section(one) for one in document.sections if told(one)],
    }


def _section(section: Section) -> dict[str, Any]:
    if isinstance(section, Facts):
        facts = [
            {"label": one.label, "value": _value(one.value, one.unit), "unit": one.unit, "note": one.note}
            for one in section.facts
        ]
        return {"kind": "facts", "title": section.title, "facts": facts, "caption": list(section.caption)}
    if isinstance(section, Table):
        return _table(section)
    if isinstance(section, Notes | Verbatim):
        kind = "notes" if isinstance(section, Notes) else "verbatim"
        return {"kind": kind, "title": section.title, "lines": list(section.lines)}
    return {"kind": "figure", "title": section.title, "figure": figure(section)}


def figure(one: Figure) -> dict[str, Any]:
    """A figure as plain data: what is no number is null."""
    made: dict[str, Any] = plain(one.to_dict())
    return made


def _table(table: Table) -> dict[str, Any]:
    return {
        "kind": "table",
        "title": table.title,
        "columns": [
            {
                "key": one.key, "title": one.title, "unit": one.unit, "bar": one.bar, "wide": one.wide, "below": one.below,
                "drop": one.drop, "number": numeric(table, one),
            }
            for one in table.columns
        ],
        "rows": [_row(row, table.columns) for row in table.rows],
        "total": None if table.total is None else _row(table.total, table.columns),
        "caption": table.caption,
    }  # fmt: skip


def _row(row: Row, columns: tuple[Column, ...]) -> list[dict[str, Value]]:
    """The cells of a row in the order of the columns: of two columns with one key each has its own text."""
    return [_value(row.get(one.key), "" if one.bar else one.unit) for one in columns]


def _value(value: Value, unit: str) -> dict[str, Value]:
    return {"raw": plain(value), "text": cells.text(value, unit)}
