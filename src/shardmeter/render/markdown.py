"""A document as Markdown: for pages that scripts generate."""

from __future__ import annotations

from collections.abc import Sequence

from shardmeter.render import cells, chart
from shardmeter.render.document import Document, Facts, Notes, Section, Table, Verbatim, told
from shardmeter.render.figure import Figure
from shardmeter.render.grid import grid

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
        lines = [
            f"* {fact.label}: {cells.text(fact.value, fact.unit)}{f' ({fact.note})' if fact.note else ''}"
            for fact in section.facts
        ]
        body = "\n".join((*lines, *(["", *section.caption] if section.caption else [])))
    elif isinstance(section, Verbatim):
        body = "\n".join(("```text", *section.lines, "```"))
    elif isinstance(section, Figure):
        body = "\n".join(("```text", *chart.lines(section, CHART_WIDTH), "```"))
    else:
        body = table_text(section)
    return "\n\n".join(part for part in (heading, body) if part)


def table_text(table: Table) -> str:
    """A pipe table; bars are left out."""
    made = grid(table)
    lines = [
        _line(made.heads),
        _line(["---:" if right else "---" for right in made.right]),
        *(_line([cell.replace("|", "\\|") for cell in row]) for row in made.rows),
    ]
    return "\n".join(lines + (["", table.caption] if table.caption else []))


def _line(cells_: Sequence[str]) -> str:
    return f"| {' | '.join(cells_)} |"
