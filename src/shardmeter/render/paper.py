"""A document of several pages: chapters of what `document` has. Who writes it (`paper_html`, `paper_markdown`, `paper_pdf`) decides how."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from shardmeter.core.record import record
from shardmeter.render.document import Document, Notes, Section, told
from shardmeter.render.figure import Figure


@record
class Chapter:
    """A heading, sentences under it, and sections."""

    title: str
    says: tuple[str, ...] = ()
    """A paragraph each."""
    sections: tuple[Section, ...] = ()

    @property
    def shown(self) -> tuple[Section, ...]:
        """The sections that have anything in them."""
        return tuple(section for section in self.sections if told(section))


@record
class Paper:
    """A whole document; the first chapter is its summary."""

    title: str
    lines: tuple[str, ...] = ()
    """What stands below the title."""
    verdict: str
    good: bool = True
    sure: bool = True
    chapters: tuple[Chapter, ...]
    foot: str = ""
    """What made it."""
    data: Mapping[str, Any]

    def figures(self) -> Iterator[Figure]:
        """All figures, in order."""
        for chapter in self.chapters:
            yield from (section for section in chapter.shown if isinstance(section, Figure))


def page(paper: Paper, *, short: bool = False) -> Document:
    """The same as one page; `short` is its summary."""
    sections: list[Section] = []
    for number, chapter in enumerate(paper.chapters[: 1 if short else None], 1):
        heading = chapter.title if short else f"{number}. {chapter.title}"
        sections += [Notes(title=heading, lines=chapter.says), *chapter.shown]
    return Document(
        title=paper.title, verdict=paper.verdict, good=paper.good, sure=paper.sure, sections=tuple(sections), data=paper.data
    )  # fmt: skip
