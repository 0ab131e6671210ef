"""A document of several pages as Markdown, its figures as SVG files beside it."""

from __future__ import annotations

import re
from urllib.parse import quote

from shardmeter.render import markdown
from shardmeter.render.document import Section
from shardmeter.render.figure import Figure
from shardmeter.render.markdown import plain
from shardmeter.render.paper import Paper


def text(paper: Paper, stem: str) -> str:
    """The Markdown; the picture of a figure is `STEM-slug.svg`."""
    blocks = [f"# {plain(paper.title)}", *map(plain, paper.lines), f"**{plain(paper.verdict)}**"]
    for number, chapter in enumerate(paper.chapters, 1):
        blocks += [f"## {number}. {plain(chapter.title)}", *map(plain, chapter.says)]
        blocks += [_section(section, stem) for section in chapter.shown]
    return "\n\n".join([*blocks, f"*{plain(paper.foot)}*"]) + "\n"


def _section(section: Section, stem: str) -> str:
    if not isinstance(section, Figure):
        return markdown.section_text(section, level=3)
    title = plain(section.title).replace("[", "(").replace("]", ")")
    return "\n\n".join(
        [f"![{title}](<{_LINKED.sub(_escaped, stem)}-{section.slug}.svg>)", *map(plain, section.caption)]
    )


_LINKED = re.compile(r"[<>\\%\s]")
"""What a link between angle brackets cannot hold as it is, or would read as something else."""


def _escaped(found: re.Match[str]) -> str:
    return " " if found[0] == " " else quote(found[0])


def files(paper: Paper, name: str) -> dict[str, bytes]:
    """The files of a document that is to be `name` (with `.md`), by name, the pictures first. Raises ImportError without matplotlib."""
    from shardmeter.render.plot import picture

    stem = name.rpartition(".")[0]
    made = {f"{stem}-{figure.slug}.svg": picture(figure, "svg") for figure in paper.figures()}
    return {**made, name: text(paper, stem).encode()}
