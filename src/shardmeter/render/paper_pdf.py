"""A document of several pages as PDF, by reportlab. The same bytes every time."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from shardmeter.render import cells
from shardmeter.render.document import Facts, Notes, Section, Table, Verbatim
from shardmeter.render.figure import Figure
from shardmeter.render.grid import Grid, grid
from shardmeter.render.paper import Paper

_CODE = re.compile(r"`([^`]+)`")
DOTS = 220
"""Of a picture, an inch."""
DRAWN = 0.84
"""Share of the page's width that a picture takes."""
MARGIN, FOOT = 50.0, 28.0
"""Points at the sides of a page, and from its lower edge to its foot."""
BODY, CELL, CODE = 9.5, 7.4, 7.6
"""Sizes of letters, in points."""
PAD = 4.0
"""Points at both sides of a cell."""
INK, SOFT, LINE, TINT = "#1f2328", "#59636e", "#c8d0d8", "#f3f5f7"
VERDICT = {"yes": "#1a7f37", "maybe": "#8a5a00", "no": "#b42318"}
PLAIN, BOLD, MONO = "DejaVuSans", "DejaVuSans-Bold", "DejaVuSansMono"
"""Letters that have every sign of our pages; matplotlib brings them."""


def content(paper: Paper) -> bytes:
    """The file. Raises ImportError without reportlab or matplotlib."""
    from reportlab.lib.pagesizes import A4
    from reportlab.platypus import PageBreak, SimpleDocTemplate

    _letters()
    styles = _styles()
    width = A4[0] - 2 * MARGIN
    made = io.BytesIO()
    story: list[Any] = _head(paper, styles, width)
    for number, chapter in enumerate(paper.chapters, 1):
        story += [*([PageBreak()] if number == 2 else []), styles.heading(f"{number}. {chapter.title}", level=0)]
        story += [styles.text(one, styles.lead if chapter.shown else styles.body) for one in chapter.says]
        for section in chapter.shown:
            story += _section(section, styles, width)
    template: Any = SimpleDocTemplate(
        made, pagesize=A4, leftMargin=MARGIN, rightMargin=MARGIN, topMargin=MARGIN, bottomMargin=MARGIN, title=paper.title,
        author="ShardMeter", subject=paper.verdict, creator="", producer="", invariant=1, lang="en",
    )  # fmt: skip
    foot = _foot(paper.foot)
    template.build(story, onFirstPage=foot, onLaterPages=foot)
    return made.getvalue()


def _letters() -> None:
    """Make the three kinds of letters known."""
    import matplotlib as mpl
    from reportlab.pdfbase import pdfmetrics
    from reportlab.pdfbase.ttfonts import TTFont

    folder = Path(mpl.get_data_path()) / "fonts" / "ttf"
    for name in (PLAIN, BOLD, MONO):
        if name not in pdfmetrics.getRegisteredFontNames():
            pdfmetrics.registerFont(TTFont(name, str(folder / f"{name}.ttf")))


class _Styles:
    """Paragraphs of every kind; headings that the outline of the file lists."""

    def __init__(self) -> None:
        from reportlab.lib.styles import ParagraphStyle
        from reportlab.platypus import Paragraph

        self._paragraph: Callable[..., Any] = Paragraph

        def style(name: str, size: float, **more: Any) -> Any:
            look = {
                "fontName": PLAIN,
                "fontSize": size,
                "leading": 1.38 * size,
                "textColor": INK,
                "spaceAfter": 0.45 * size,
            }
            return ParagraphStyle(name, **{**look, **more})

        self.body = style("body", BODY)
        self.lead = style("lead", BODY, keepWithNext=1)
        self.title = style("title", 17.0, fontName=BOLD)
        self.soft = style("soft", 8.2, textColor=SOFT)
        self.heads = (
            style("chapter", 13.5, fontName=BOLD, spaceBefore=16, spaceAfter=6, keepWithNext=1),
            style("section", 9.8, fontName=BOLD, spaceBefore=9, spaceAfter=4, keepWithNext=1),
        )
        self.cell = style("cell", CELL, spaceAfter=0, splitLongWords=1)
        self.strong = style("strong", CELL, fontName=BOLD, spaceAfter=0)
        self.right = style("right", CELL, spaceAfter=0, alignment=2)
        self.strong_right = style("strong right", CELL, fontName=BOLD, spaceAfter=0, alignment=2)
        self.code = style("code", CODE, fontName=MONO, leading=1.3 * CODE)

    def text(self, text: str, style: Any = None) -> Any:
        return self._paragraph(marked(text), style or self.body)

    def heading(self, text: str, level: int = 1) -> Any:
        made = self._paragraph(marked(text), self.heads[level])
        return _listed(made, text) if level == 0 else made


def marked(text: str) -> str:
    """A text as reportlab reads it: what stands between backticks in letters of one width, and no line that ends before a %."""
    return _CODE.sub(rf'<font name="{MONO}">\1</font>', escape(text)).replace(" %", "\u00a0%")


def _listed(paragraph: Any, text: str) -> Any:
    """A paragraph that enters itself into the outline where it is drawn."""
    draw = paragraph.draw

    def drawn() -> None:
        canvas = paragraph.canv
        key = "chapter-" + text.partition(".")[0]
        canvas.bookmarkPage(key)
        canvas.addOutlineEntry(text, key, level=0)
        draw()

    paragraph.draw = drawn
    return paragraph


def _styles() -> _Styles:
    return _Styles()


def _head(paper: Paper, styles: _Styles, width: float) -> list[Any]:
    """Title, lines, verdict."""
    from reportlab.platypus import Spacer
    from reportlab.platypus import Table as Laid

    colour = VERDICT["no" if not paper.good else "yes" if paper.sure else "maybe"]
    verdict = Laid([[styles.text(paper.verdict)]], colWidths=[width])
    verdict.setStyle([
        ("BACKGROUND", (0, 0), (-1, -1), TINT), ("LINEBEFORE", (0, 0), (0, -1), 4, colour), ("LEFTPADDING", (0, 0), (-1, -1), 10),
    ])  # fmt: skip
    lines = [styles.text(line, styles.soft) for line in paper.lines]
    return [styles.text(paper.title, styles.title), *lines, Spacer(1, 4), verdict]


def _foot(text: str) -> Callable[[Any, Any], None]:
    """What stands below every page."""

    def draw(canvas: Any, template: Any) -> None:
        canvas.saveState()
        canvas.setFont(PLAIN, 7)
        canvas.setFillColor(SOFT)
        canvas.drawString(MARGIN, FOOT, text)
        canvas.drawRightString(template.pagesize[0] - MARGIN, FOOT, f"page {template.page}")
        canvas.restoreState()

    return draw


def _section(section: Section, styles: _Styles, width: float) -> list[Any]:
    """One section with its heading."""
    heading = [styles.heading(section.title)] if section.title and not isinstance(section, Figure) else []
    if isinstance(section, Notes):
        return [*heading, *(styles.text(f"• {line}") for line in section.lines)]
    if isinstance(section, Verbatim):
        return [*heading, *_code(section.lines, styles, width)]
    if isinstance(section, Facts):
        return [*heading, _facts(section, styles, width), *(styles.text(line, styles.soft) for line in section.caption)]
    if isinstance(section, Figure):
        return [_picture(section, width)]
    caption = [styles.text(section.caption, styles.soft)] if section.caption else []
    return [*heading, _table(section, styles, width), *caption]


def _code(lines: Sequence[str], styles: _Styles, width: float) -> list[Any]:
    """Lines as they are; those that are longer than the page go on in the next."""
    from reportlab.pdfbase.pdfmetrics import stringWidth
    from reportlab.platypus import XPreformatted

    letters = int(width / stringWidth("0", MONO, CODE))
    cut = [line[at : at + letters] for line in lines for at in range(0, max(len(line), 1), letters)]
    return [XPreformatted(escape("\n".join(cut)), styles.code)]


def _facts(facts: Facts, styles: _Styles, width: float) -> Any:
    from reportlab.platypus import Table as Laid

    rows = [
        [styles.text(one.label, styles.cell), styles.text(_fact(one.value, one.unit, one.note), styles.cell)]
        for one in facts.facts
    ]
    made = Laid(rows, colWidths=[0.2 * width, 0.8 * width], hAlign="LEFT")
    made.setStyle([("VALIGN", (0, 0), (-1, -1), "TOP"), ("TEXTCOLOR", (0, 0), (0, -1), SOFT), *_padding(1.5)])
    return made


def _fact(value: Any, unit: str, note: str) -> str:
    return f"{cells.text(value, unit)}{f'  ({note})' if note else ''}"


def _picture(figure: Figure, width: float) -> Any:
    from reportlab.lib.utils import ImageReader
    from reportlab.platypus import Image

    from shardmeter.render.plot import picture

    raw = picture(figure, "png", DOTS)
    across, up = ImageReader(io.BytesIO(raw)).getSize()
    width *= DRAWN
    return Image(io.BytesIO(raw), width=width, height=width * up / across, hAlign="LEFT")


def _table(table: Table, styles: _Styles, width: float) -> Any:
    from reportlab.platypus import LongTable

    made = grid(table)
    kinds = [(styles.strong, styles.cell), (styles.strong_right, styles.right)]
    heads = [styles.text(text, kinds[right][0]) for text, right in zip(made.heads, made.right, strict=True)]
    rows = [
        [
            styles.text(
                text.replace(" ", "\u00a0") if right else text,
                kinds[right][0 if made.totalled and at == len(made.rows) - 1 else 1],
            )
            for text, right in zip(row, made.right, strict=True)
        ]
        for at, row in enumerate(made.rows)
    ]
    laid = LongTable([heads, *rows], colWidths=_widths(made, width), repeatRows=1, hAlign="LEFT")
    total = [("LINEABOVE", (0, -1), (-1, -1), 0.8, INK)] if made.totalled else []
    laid.setStyle([
        ("VALIGN", (0, 0), (-1, -1), "TOP"), ("LINEBELOW", (0, 0), (-1, 0), 0.8, INK), ("LINEBELOW", (0, 1), (-1, -1), 0.3, LINE), *total,
        *_padding(PAD),
    ])  # fmt: skip
    return laid


def _padding(aside: float) -> list[Any]:
    whole = ((0, 0), (-1, -1))
    return [
        ("LEFTPADDING", *whole, aside),
        ("RIGHTPADDING", *whole, aside),
        ("TOPPADDING", *whole, 1.6),
        ("BOTTOMPADDING", *whole, 1.8),
    ]


def _widths(made: Grid, width: float) -> list[float]:
    """Points of every column: what its texts need or, where that is more than the page, no less than their longest words: columns that may wrap
    give way first, then all."""
    from reportlab.pdfbase.pdfmetrics import stringWidth

    columns = list(zip(made.heads, *made.rows, strict=True))
    beside = 2 * PAD + 1.0
    needs = [max(stringWidth(text, BOLD, CELL) for text in texts) + beside for texts in columns]
    if sum(needs) <= width:
        return needs
    pieces = [
        [*_whole(head, right=False), *(piece for text in texts for piece in _whole(text, right=right))]
        for head, texts, right in zip(made.heads, zip(*made.rows, strict=True), made.right, strict=True)
    ]
    words = [max(stringWidth(piece, BOLD, CELL) for piece in one) + beside for one in pieces]
    for least in (
        [min(word, need) if wide else need for word, need, wide in zip(words, needs, made.wide, strict=True)],
        [min(word, need) for word, need in zip(words, needs, strict=True)],
    ):
        room = width - sum(least)
        more = [need - one for need, one in zip(needs, least, strict=True)]
        if room >= 0.0 and sum(more) > 0.0:
            return [one + room * extra / sum(more) for one, extra in zip(least, more, strict=True)]
    return [one * width / sum(words) for one in words]


def _whole(text: str, *, right: bool) -> list[str]:
    """The parts of a cell that no line breaks: of numbers, which stand to the right, all of it."""
    return [text] if right else text.replace(" %", "\u00a0%").split(" ")
