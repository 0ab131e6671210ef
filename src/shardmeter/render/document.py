"""What can be shown: a document of sections. Values are raw (SI numbers, texts); every number carries its unit."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from shardmeter.core.record import record
from shardmeter.render.figure import Figure

_NUMBER = re.compile(r"(?:[-+]?\$?\d\S*(?: \S+)?)?$")
"""A number, and one word for its unit; or nothing."""
Value: TypeAlias = float | int | str | bool | None
Row: TypeAlias = Mapping[str, Value]


@record
class Column:
    """One column of a table. `unit` as in `cells.text`; `bar` draws a fraction as a bar instead of printing it."""

    key: str
    title: str
    unit: str = ""
    bar: bool = False
    wide: bool = False
    """Whether its texts may wrap when the line is too short; names and labels never do."""
    wrap: str = ""
    """Of a wide column without spaces: the character after which a line may end."""
    below: bool = False
    """Of a wide column of sentences: whether they stand below the table, each with its row's label, where the line leaves them little room."""
    drop: int = 0
    """0 = always shown; else left out when the line is too short, 1 before 2 before 3."""


def filled(columns: Iterable[Column], rows: Sequence[Row]) -> tuple[Column, ...]:
    """Columns that have something in them."""
    return tuple(one for one in columns if any(row.get(one.key) not in (None, "") for row in rows))


@record
class Fact:
    """One labelled value."""

    label: str
    value: Value
    unit: str = ""
    note: str = ""


@record
class Facts:
    """Labelled values, one a line."""

    title: str
    facts: tuple[Fact, ...]
    caption: tuple[str, ...] = ()


@record
class Table:
    """Rows under columns; `total` is printed below a rule."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    total: Row | None = None
    caption: str = ""


@record
class Notes:
    """Sentences, one a line."""

    title: str
    lines: tuple[str, ...]


@record
class Verbatim:
    """A text that stands as it is, from the first column: a file to copy."""

    title: str
    lines: tuple[str, ...]


Section: TypeAlias = Facts | Table | Notes | Verbatim | Figure


def told(section: Section) -> bool:
    """Whether a section has anything in it: a heading over nothing is not shown."""
    if isinstance(section, Figure):
        return True
    return bool(
        section.rows
        if isinstance(section, Table)
        else section.lines
        if isinstance(section, Notes | Verbatim)
        else section.facts
    )


@record
class Document:
    """A whole answer. `good` and `sure` colour the verdict; `data` is the JSON; `flat` is what CSV writes, `columns` its names
    where there may be no row."""

    title: str
    verdict: str = ""
    good: bool = True
    sure: bool = True
    sections: tuple[Section, ...] = ()
    data: Mapping[str, Any]
    flat: tuple[Row, ...] = ()
    columns: tuple[str, ...] = ()


def numeric(table: Table, column: Column) -> bool:
    """Whether a column reads as numbers and stands to the right."""
    if column.bar:
        return False
    values = [row.get(column.key) for row in table.rows]
    return bool(column.unit) or (any(values) and all(value is None or _reads_as_number(value) for value in values))


def _reads_as_number(value: Value) -> bool:
    return isinstance(value, int | float) or (isinstance(value, str) and _NUMBER.match(value) is not None)


def remarks(answer: Mapping[str, Any], *, short: bool) -> Notes:
    """What a page ends with: of a short one its warnings, else what was assumed."""
    return Notes(title="Warnings" if short else "Assumed", lines=tuple(answer["warnings" if short else "assumptions"]))
