"""A table as texts: what Markdown, HTML and PDF write of it, cell by cell."""

from __future__ import annotations

from shardmeter.core.record import record
from shardmeter.render import cells
from shardmeter.render.document import Column, Row, Table, numeric


@record
class Grid:
    """Texts of the columns of a table that are no bars."""

    heads: tuple[str, ...]
    right: tuple[bool, ...]
    """Whether a column stands to the right."""
    wide: tuple[bool, ...]
    """Whether its texts may wrap."""
    rows: tuple[tuple[str, ...], ...]
    """The total among them, as the last."""
    totalled: bool
    """Whether the last row is a total."""


def grid(table: Table) -> Grid:
    """The texts of a table."""
    columns = [column for column in table.columns if not column.bar]
    rows = [*table.rows, *([table.total] if table.total is not None else [])]
    return Grid(
        heads=tuple(column.title for column in columns),
        right=tuple(numeric(table, column) for column in columns),
        wide=tuple(column.wide for column in columns),
        rows=tuple(tuple(_cell(row, column) for column in columns) for row in rows),
        totalled=table.total is not None,
    )


def _cell(row: Row, column: Column) -> str:
    return cells.text(row.get(column.key), column.unit) if column.key in row else ""
