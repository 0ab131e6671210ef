"""A document as Markdown: for pages that scripts generate."""

from __future__ import annotations

from shardmeter.render import cells, chart
from shardmeter.render.document import Column, Document, Facts, Notes, Row, Section, Table, Verbatim, numeric, told
from shardmeter.render.figure import Figure

CHART_WIDTH = 96
"""Columns of a drawn figure."""


def text(document: Document, *, level: int = 2) -> str:
    """The whole document; section titles are headings of `level`."""
    blocks = [line for line in (document.title, document.verdict) if line]
    blocks.extend(section_text(section, level=level) for section in filter(told, document.sections))
    return "\n\n".join(blocks) + "\n"


def section_text(section: Section, *, level: int = 2) -> str:
    """One section with its heading."""
    heading = f"{'#' * level} {section.title}" if section.title else ""
    if isinstance(section, Notes):
        body = "\n".join(f"* {line}" for line in section.lines)
    elif isinstance(section, Facts):
        body = "\n".join(f"* {fact.label}: {cells.text(fact.value, fact.unit)}" for fact in section.facts)
    elif isinstance(section, Verbatim):
        body = "\n".join(("```text", *section.lines, "```"))
    elif isinstance(section, Figure):
        body = "\n".join(("```text", *chart.lines(section, CHART_WIDTH), "```"))
    else:
        body = table_text(section)
    return "\n\n".join(part for part in (heading, body) if part)


def table_text(table: Table) -> str:
    """A pipe table; bars are left out."""
    columns = [column for column in table.columns if not column.bar]
    rows = [*table.rows, *([table.total] if table.total is not None else [])]
    lines = [
        _line([column.title for column in columns]),
        _line(["---:" if numeric(table, column) else "---" for column in columns]),
        *(_line([_cell(row, column) for column in columns]) for row in rows),
    ]
    return "\n".join(lines + (["", table.caption] if table.caption else []))


def _line(cells_: list[str]) -> str:
    return f"| {' | '.join(cells_)} |"


def _cell(row: Row, column: Column) -> str:
    return cells.text(row.get(column.key), column.unit).replace("|", "\\|") if column.key in row else ""
