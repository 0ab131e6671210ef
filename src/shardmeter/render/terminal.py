"""A document on a terminal: rich tables, colours only where a person looks, never wider than the line."""

from __future__ import annotations

import os
import sys
from typing import TextIO

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from shardmeter.render import cells
from shardmeter.render.document import Column, Document, Facts, Notes, Row, Section, Table

PIPE_WIDTH = 110
"""Columns when the output is not a terminal: fixed, so that stored outputs do not depend on a window."""
BAR_WIDTH = 20


def write(document: Document, stream: TextIO | None = None) -> None:
    """Print a document."""
    out = stream if stream is not None else sys.stdout
    console = console_for(out)
    plain = not _speaks_unicode(out)
    with console.capture() as capture:
        if document.title:
            console.print(Text(document.title, style="bold"))
        if document.verdict:
            console.print(Text(document.verdict, style="green" if document.good else "red"))
        for section in document.sections:
            console.print()
            _section(console, section, plain=plain)
    out.write("\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n")


def console_for(out: TextIO) -> Console:
    """A console that respects NO_COLOR, and has a fixed width off the terminal."""
    on_terminal = out.isatty()
    width = None if on_terminal or "COLUMNS" in os.environ else PIPE_WIDTH
    return Console(file=out, width=width, highlight=False, soft_wrap=False, force_terminal=on_terminal, emoji=False)


def _section(console: Console, section: Section, *, plain: bool) -> None:
    console.print(Text(section.title, style="bold cyan"))
    if isinstance(section, Facts):
        grid = Grid.grid(padding=(0, 2))
        grid.add_column(no_wrap=True)
        grid.add_column(justify="right", no_wrap=True)
        grid.add_column(style="dim")
        for fact in section.facts:
            grid.add_row(escape(fact.label), escape(cells.text(fact.value, fact.unit)), escape(fact.note))
        console.print(Padding(grid, (0, 0, 0, 2)))
    elif isinstance(section, Notes):
        for line in section.lines:
            console.print(Padding(Text(line), (0, 0, 0, 2)))
    else:
        console.print(Padding(_grid(section, plain=plain), (0, 0, 0, 2)))
        if section.caption:
            console.print(Padding(Text(section.caption, style="dim"), (0, 0, 0, 2)))


def _grid(table: Table, *, plain: bool) -> Grid:
    grid = Grid(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim", show_edge=False)
    for column in table.columns:
        numeric = bool(column.unit) and not column.bar
        if not numeric and not column.bar:
            numeric = _all_numbers(table, column)
        grid.add_column(
            escape(column.title),
            justify="right" if numeric else "left",
            no_wrap=not column.wide,
            overflow="fold",
        )
    for row in table.rows:
        grid.add_row(*(_cell(row, column, plain=plain) for column in table.columns))
    if table.total is not None:
        grid.add_section()
        grid.add_row(*(_cell(table.total, column, plain=plain) for column in table.columns), style="bold")
    return grid


def _all_numbers(table: Table, column: Column) -> bool:
    values = [row.get(column.key) for row in table.rows]
    present = [value for value in values if value is not None]
    return bool(present) and all(isinstance(value, int | float) for value in present)


def _cell(row: Row, column: Column, *, plain: bool) -> str:
    value = row.get(column.key)
    if column.bar:
        return cells.bar(value if isinstance(value, int | float) else None, BAR_WIDTH, plain=plain)
    if value is None and column.key not in row:
        return ""
    return escape(cells.text(value, column.unit))


def _speaks_unicode(out: TextIO) -> bool:
    try:
        "█▏–".encode(out.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
