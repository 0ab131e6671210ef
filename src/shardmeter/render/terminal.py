"""A document on a terminal: rich tables, colours only where a person looks, never wider than the line."""

from __future__ import annotations

import io
import os
import sys
from typing import TextIO

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from shardmeter.core.record import changed
from shardmeter.render import cells, chart
from shardmeter.render.document import Column, Document, Facts, Notes, Row, Section, Table, Verbatim, numeric, told
from shardmeter.render.figure import Figure

PIPE_WIDTH = 110
"""Columns when the output is not a terminal: fixed, so that stored outputs do not depend on a window."""
BAR_WIDTH = 20
INDENT, GAP = 2, 2
WIDE_LEAST = 24
"""Columns that a wide column is left with at least."""
BESIDE = 44
"""Columns below which sentences are put below their table."""


def write(document: Document, stream: TextIO | None = None, *, width: int | None = None) -> None:
    """Print a document; `width` is that of the line where it is not the stream's own."""
    out = stream if stream is not None else sys.stdout
    console = console_for(out, width)
    plain = not (_speaks_unicode(out) or isinstance(out, io.StringIO))
    with console.capture() as capture:
        if document.title:
            _sentence(console, document.title, style="bold")
        if document.verdict:
            _sentence(console, document.verdict, style=_colour(document))
        for section in filter(told, document.sections):
            console.print()
            _section(console, section, plain=plain)
    out.write("\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n")


def text(document: Document, width: int = PIPE_WIDTH) -> str:
    """A document as plain text."""
    out = io.StringIO()
    write(document, out, width=width)
    return out.getvalue()


def _colour(document: Document) -> str:
    if not document.sure:
        return "yellow"
    return "green" if document.good else "red"


def console_for(out: TextIO, width: int | None = None) -> Console:
    """A console that respects NO_COLOR, and has a fixed width off the terminal."""
    on_terminal = out.isatty()
    if width is None:
        width = None if on_terminal or "COLUMNS" in os.environ else PIPE_WIDTH
    return Console(file=out, width=width, highlight=False, soft_wrap=False, force_terminal=on_terminal, emoji=False)


def _section(console: Console, section: Section, *, plain: bool) -> None:
    if section.title:
        console.print(Text(section.title, style="bold cyan"))
    if isinstance(section, Facts):
        _facts(console, section)
    elif isinstance(section, Notes):
        for line in section.lines:
            _sentence(console, line, indent=INDENT)
    elif isinstance(section, Verbatim):
        for line in section.lines:
            console.print(Text(line), soft_wrap=True)
    elif isinstance(section, Figure):
        for line in chart.lines(section, console.width - INDENT, plain=plain):
            _sentence(console, line, indent=INDENT)
    else:
        _table(console, section, plain=plain)


def _table(console: Console, table: Table, *, plain: bool) -> None:
    """A table, its sentences for which there is no room, its caption, and what was left out."""
    below = [column for column in table.columns if column.below and _crowded(console, table, column, plain=plain)]
    beside = changed(table, columns=tuple(column for column in table.columns if column not in below))
    columns = _columns(console, beside, plain=plain)
    console.print(Padding(_grid(console, beside, columns, plain=plain), (0, 0, 0, INDENT)))
    for column in below:
        _sentence(console, f"{column.title}:", style="dim", indent=INDENT)
        for line in _sentences(table, column):
            _sentence(console, line, indent=2 * INDENT)
    shown = {column.key for column in columns}
    hidden = [column.title for column in beside.columns if column.key not in shown and column.title and not column.bar]
    for line in (table.caption, f"left out for lack of room: {', '.join(hidden)}" if hidden else ""):
        if line:
            _sentence(console, line, style="dim", indent=INDENT)


def _crowded(console: Console, table: Table, column: Column, *, plain: bool) -> bool:
    """Whether the other columns leave a wide one too little to be read."""
    others = tuple(one for one in table.columns if one is not column)
    room = console.width - _needed(table, others, plain=plain) - GAP
    return room < BESIDE and max((len(_cell(row, column, plain=plain)) for row in table.rows), default=0) > room


def _sentences(table: Table, column: Column) -> list[str]:
    """The texts of a column, a line each: its row's label (the last one said, where a row has none), what is told, the text. A text that
    several rows share is said once."""
    first, label, found = table.columns[0], "", dict[str, list[str]]()
    for row in table.rows:
        label = _cell(row, first, plain=False) or label
        text = _cell(row, column, plain=False)
        if text and text != cells.MISSING:
            found.setdefault(text, []).append(label)
    return [f"{', '.join(dict.fromkeys(labels))}: {text}" for text, labels in found.items()]


def _facts(console: Console, section: Facts) -> None:
    grid = Grid.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    texts = any(isinstance(fact.value, str) for fact in section.facts)
    grid.add_column(justify="left" if texts else "right", no_wrap=not texts, overflow="fold")
    grid.add_column(style="dim")
    for fact in section.facts:
        grid.add_row(escape(fact.label), escape(cells.text(fact.value, fact.unit)), escape(fact.note))
    console.print(Padding(grid, (0, 0, 0, INDENT)))
    for line in section.caption:
        _sentence(console, line, style="dim", indent=INDENT)


def _sentence(console: Console, line: str, *, style: str = "", indent: int = 0) -> None:
    """One line of text: wrapped where a person reads it, whole where a program does."""
    if console.is_terminal:
        console.print(Padding(Text(line, style=style), (0, 0, 0, indent)))
    else:
        console.print(Text(" " * indent + line, style=style), soft_wrap=True)


def _columns(console: Console, table: Table, *, plain: bool) -> tuple[Column, ...]:
    """The columns that the line has room for, their heads in two lines where that helps; a pipe is given the room."""
    columns = table.columns
    if _needed(table, columns, plain=plain) > console.width:
        columns = tuple(_headed(table, column, plain=plain) for column in columns)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = max(console.width, _needed(table, columns, plain=plain))
    while _needed(table, columns, plain=plain) > console.width and any(column.drop for column in columns):
        first = min(column.drop for column in columns if column.drop)
        columns = tuple(column for column in columns if column.drop != first)
    return columns


def _grid(console: Console, table: Table, columns: tuple[Column, ...], *, plain: bool) -> Grid:
    """Labels and numbers keep their lines whole if the terminal has room for that; wide columns wrap."""
    grid = Grid(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="dim", show_edge=False)
    whole = _needed(table, columns, plain=plain) <= console.width
    for column in columns:
        grid.add_column(
            escape(column.title),
            justify="right" if numeric(table, column) else "left",
            no_wrap=(whole and not column.wide) or column.bar,
            overflow="fold",
        )
    room = console.width - _needed(table, tuple(column for column in columns if not column.wrap), plain=plain) - GAP
    for row in table.rows:
        grid.add_row(*(escape(_folded(_cell(row, column, plain=plain), column, room)) for column in columns))
    if table.total is not None:
        grid.add_section()
        grid.add_row(*(escape(_cell(table.total, column, plain=plain)) for column in columns), style="bold")
    return grid


def _needed(table: Table, columns: tuple[Column, ...], *, plain: bool) -> int:
    """Characters that the table needs when only wide columns wrap."""
    rows = [*table.rows, table.total] if table.total is not None else list(table.rows)
    width = INDENT
    for column in columns:
        texts = [*column.title.split("\n"), *(_cell(row, column, plain=plain) for row in rows)]
        longest = max(map(len, texts))
        words = [word for text in texts for word in text.split(" ")]
        least = max(_piece(text, column) for text in texts) if column.wrap else max(WIDE_LEAST, *map(len, words))
        width += GAP + (min(longest, least) if column.wide else longest)
    return width


def _headed(table: Table, column: Column, *, plain: bool) -> Column:
    """A column whose head is wider than all below it, with the head in the two lines that are least wide."""
    words = column.title.split(" ")
    halves = [(" ".join(words[:at]), " ".join(words[at:])) for at in range(1, len(words))]
    longest = max((len(_cell(row, column, plain=plain)) for row in table.rows), default=0)
    if not halves or len(column.title) <= longest:
        return column
    return changed(column, title="\n".join(min(halves, key=lambda two: max(map(len, two)))))


def _piece(text: str, column: Column) -> int:
    """Characters of the longest part of a text that no line may end in."""
    return max(map(len, _pieces(text, column)))


def _pieces(text: str, column: Column) -> list[str]:
    *first, last = text.split(column.wrap)
    return [*(f"{one}{column.wrap}" for one in first), last]


def _folded(text: str, column: Column, room: int) -> str:
    """A text in lines that end where its column may be wrapped, each as long as there is room."""
    if not column.wrap or len(text) <= room:
        return text
    lines = [""]
    for piece in _pieces(text, column):
        if lines[-1] and len(lines[-1]) + len(piece) > room:
            lines.append("")
        lines[-1] += piece
    return "\n".join(lines)


def _cell(row: Row, column: Column, *, plain: bool) -> str:
    value = row.get(column.key)
    if column.bar:
        return cells.bar(value if isinstance(value, int | float) else None, BAR_WIDTH, plain=plain)
    if value is None and column.key not in row:
        return ""
    return cells.text(value, column.unit)


def _speaks_unicode(out: TextIO) -> bool:
    try:
        "█▏–".encode(out.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
