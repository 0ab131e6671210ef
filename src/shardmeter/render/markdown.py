"""A document as Markdown: for pages that scripts generate."""

from __future__ import annotations

import re
from collections.abc import Sequence

from shardmeter.render import cells, chart
from shardmeter.render.document import Document, Facts, Notes, Section, Table, Verbatim, told
from shardmeter.render.figure import Figure
from shardmeter.render.grid import grid

CHART_WIDTH = 96
"""Columns of a drawn figure."""


def plain(said: str) -> str:
    """A text as Markdown shows it: what a name writes as a tag, a link or a picture is none. Leaves out `*`, `_` and backticks, which only
    change how a text looks."""
    return _TAG.sub("&lt;", " ".join(said.splitlines())).replace("](", "]&#40;")


_TAG = re.compile(r"<(?=[a-zA-Z/!?])")


def fenced(lines: Sequence[str]) -> str:
    """Lines as they are, between fences that are longer than any inside."""
    inside = max((len(run) for line in lines for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, inside + 1)
    return "\n".join((f"{fence}text", *lines, fence))


def text(document: Document, *, level: int = 2) -> str:
    """The whole document; section titles are headings of `level`."""
    blocks = [plain(line) for line in (document.title, document.verdict) if line]
    blocks.extend(section_text(section, level=level) for section in filter(told, document.sections))
    return "\n\n".join(blocks) + "\n"


def section_text(section: Section, *, level: int = 2) -> str:
    """One section with its heading."""
    heading = f"{'#' * level} {plain(section.title)}" if section.title else ""
    if isinstance(section, Notes):
        body = "\n".join(f"* {plain(line)}" for line in section.lines)
    elif isinstance(section, Facts):
        lines = [
            f"* {plain(fact.label)}: {plain(cells.text(fact.value, fact.unit))}{f' ({plain(fact.note)})' if fact.note else ''}"
            for fact in section.facts
        ]
        body = "\n".join((*lines, *(["", *map(plain, section.caption)] if section.caption else [])))
    elif isinstance(section, Verbatim):
        body = fenced(section.lines)
    elif isinstance(section, Figure):
        body = fenced(chart.lines(section, CHART_WIDTH))
    else:
        body = table_text(section)
    return "\n\n".join(part for part in (heading, body) if part)


def table_text(table: Table) -> str:
    """A pipe table; bars are left out."""
    made = grid(table)
    lines = [
        _line(_cells(made.heads)),
        _line(["---:" if right else "---" for right in made.right]),
        *(_line(_cells(row)) for row in made.rows),
    ]
    return "\n".join(lines + (["", plain(table.caption)] if table.caption else []))


def _cells(row: Sequence[str]) -> list[str]:
    return [plain(cell).replace("|", "\\|") for cell in row]


def _line(cells_: Sequence[str]) -> str:
    return f"| {' | '.join(cells_)} |"
