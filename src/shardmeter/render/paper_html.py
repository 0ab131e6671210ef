"""A document of several pages as one file of HTML: pictures inside, light and dark, for a screen and for paper. It asks nothing of the net
and runs no script."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

from shardmeter.core.record import changed
from shardmeter.render import cells
from shardmeter.render.document import Facts, Notes, Section, Table, Verbatim
from shardmeter.render.figure import Figure
from shardmeter.render.grid import grid
from shardmeter.render.paper import Chapter, Paper

_CODE = re.compile(r"`([^`]+)`")
_JOINED = re.compile(r"[,.](?=[a-z]{2})")
"""Where a long word may end: after a comma, and between the parts of a name."""
MOST = 11
"""Columns that a page has room for."""
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
STYLE = """
:root{--ink:#1f2328;--soft:#59636e;--line:#d1d9e0;--paper:#fff;--tint:#f6f8fa;--yes:#1a7f37;--no:#b42318;--maybe:#8a5a00;--link:#0a58a6}
@media (prefers-color-scheme:dark){:root{--ink:#e6edf3;--soft:#9aa4af;--line:#3a424b;--paper:#0f1318;--tint:#181e25;--yes:#57c878;--no:#ff8a80;
--maybe:#e3b341;--link:#7ab7ff}}
*{box-sizing:border-box}
body{font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;color:var(--ink);background:var(--paper);margin:0 auto;
max-width:60rem;padding:2rem 1.25rem 4rem}
h1{font-size:1.75rem;line-height:1.25;margin:0 0 .5rem}h2{font-size:1.3rem;margin:2.75rem 0 .75rem;padding-top:.75rem;border-top:1px solid var(--line)}
h3{font-size:1rem;margin:1.5rem 0 .5rem}p{margin:.6rem 0;overflow-wrap:anywhere}a{color:var(--link)}
.lines{color:var(--soft);margin:.15rem 0}.verdict{font-weight:600;padding:.7rem 1rem;border-left:.3rem solid var(--yes);background:var(--tint)}
.no{border-color:var(--no)}.maybe{border-color:var(--maybe)}nav ol{columns:2;column-gap:2rem;padding-left:1.4rem;margin:.5rem 0;font-size:.92rem}
.scroll{overflow-x:auto}table{border-collapse:collapse;font-size:.86rem;min-width:50%}th,td{padding:.3rem .5rem;border-bottom:1px solid var(--line);
text-align:left;vertical-align:top}.wide{min-width:9rem;overflow-wrap:break-word}.right{text-align:right;white-space:nowrap;
font-variant-numeric:tabular-nums}thead th{border-bottom:2px solid var(--line);white-space:normal;vertical-align:bottom}tr.total td{font-weight:600;border-top:2px solid var(--line)}
.caption{color:var(--soft);font-size:.86rem}dl{display:grid;grid-template-columns:max-content 1fr;gap:.25rem 1.25rem;margin:.5rem 0}dt{color:var(--soft)}
dd{margin:0;overflow-wrap:anywhere}dd span{color:var(--soft);font-size:.9em;margin-left:.5em}code{font:.92em ui-monospace,"DejaVu Sans Mono",monospace}pre{background:var(--tint);border:1px solid var(--line);
padding:.8rem 1rem;overflow-x:auto;font:.84rem/1.5 ui-monospace,"DejaVu Sans Mono",monospace}figure{margin:1.25rem 0}figure svg{max-width:100%;
height:auto;background:#fff;border:1px solid var(--line);border-radius:.4rem}summary{cursor:pointer;color:var(--link);font-size:.86rem}
footer{margin-top:3rem;border-top:1px solid var(--line);color:var(--soft);font-size:.86rem}
@media (max-width:40rem){nav ol{columns:1}dl{grid-template-columns:1fr}dd{margin-bottom:.5rem}}
@media print{@page{size:A4;margin:17mm 15mm}:root{--ink:#000;--soft:#444;--line:#bbb;--paper:#fff;--tint:#f4f4f4;--yes:#1a7f37;--no:#b42318;
--maybe:#8a5a00;--link:#000}body{max-width:none;padding:0;font-size:9.6pt}nav,details{display:none}h2,h3{break-after:avoid}
figure,tr,dl,pre{break-inside:avoid}thead{display:table-header-group}table{font-size:7.6pt}th,td,.right{white-space:normal;padding:.2rem .4rem}
.scroll{overflow:visible}pre{white-space:pre-wrap}#chapter-2{break-before:page}}
"""


def text(paper: Paper) -> str:
    """The page. Raises ImportError without matplotlib."""
    mark = "no" if not paper.good else "" if paper.sure else "maybe"
    lines = "".join(f'<p class="lines">{html.escape(line)}</p>' for line in paper.lines)
    listed = "".join(
        f'<li><a href="#chapter-{number}">{html.escape(chapter.title)}</a></li>'
        for number, chapter in enumerate(paper.chapters, 1)
    )
    chapters = "\n".join(_chapter(chapter, number) for number, chapter in enumerate(paper.chapters, 1))
    title = html.escape(paper.title)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<meta name="viewport" content="width=device-width,initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n<meta name="color-scheme" content="light dark">\n<title>{title}</title>\n'
        f"<style>{STYLE}</style>\n</head>\n<body>\n<header><h1>{title}</h1>{lines}\n"
        f'<p class="verdict {mark}">{marked(paper.verdict)}</p>\n<nav aria-label="Chapters"><ol>{listed}</ol></nav></header>\n'
        f"<main>\n{chapters}\n</main>\n<footer><p>{html.escape(paper.foot)}</p></footer>\n</body>\n</html>\n"
    )


def marked(text: str) -> str:
    """A text as HTML: what stands between backticks in letters of one width, lines that may end after a comma and inside of a name with dots, and none before a %."""
    made = _CODE.sub(r"<code>\1</code>", html.escape(text)).replace(" %", "&nbsp;%")
    return _JOINED.sub(r"\g<0><wbr>", made)


def _chapter(chapter: Chapter, number: int) -> str:
    head = f'<section id="chapter-{number}">\n<h2>{number}. {html.escape(chapter.title)}</h2>'
    says = "\n".join(f"<p>{marked(one)}</p>" for one in chapter.says)
    return "\n".join([head, says, *map(section, chapter.shown), "</section>"])


def section(one: Section) -> str:
    """One section with its heading."""
    heading = f"<h3>{html.escape(one.title)}</h3>" if one.title and not isinstance(one, Figure) else ""
    if isinstance(one, Notes):
        return heading + "<ul>" + "".join(f"<li>{marked(line)}</li>" for line in one.lines) + "</ul>"
    if isinstance(one, Verbatim):
        return heading + f"<pre>{html.escape(chr(10).join(one.lines))}</pre>"
    if isinstance(one, Facts):
        return heading + _facts(one)
    if isinstance(one, Figure):
        return _figure(one)
    return heading + _table(one)


def _facts(facts: Facts) -> str:
    each = "".join(
        f"<dt>{html.escape(fact.label)}</dt><dd>{marked(cells.text(fact.value, fact.unit))}"
        f"{f'<span>{marked(fact.note)}</span>' if fact.note else ''}</dd>"
        for fact in facts.facts
    )
    return f"<dl>{each}</dl>" + "".join(f'<p class="caption">{marked(line)}</p>' for line in facts.caption)


def _roomy(table: Table) -> Table:
    """A table of no more columns than its page has room for: those that may go go first, as in a terminal, and the caption names them."""
    columns = tuple(column for column in table.columns if not column.bar)
    while len(columns) > MOST and any(column.drop for column in columns):
        first = min(column.drop for column in columns if column.drop)
        columns = tuple(column for column in columns if column.drop != first)
    gone = [one.title for one in table.columns if one not in columns and one.title and not one.bar]
    said = f"left out for lack of room: {', '.join(gone)}" if gone else ""
    return changed(table, columns=columns, caption="; ".join(filter(None, (table.caption, said))))


def _table(table: Table) -> str:
    table = _roomy(table)
    made = grid(table)
    classes = [
        " ".join(filter(None, ("right" if right else "", "wide" if wide else ""))) for right, wide in zip(made.right, made.wide, strict=True)
    ]  # fmt: skip
    head = "".join(
        f'<th scope="col" class="{one}">{html.escape(text_)}</th>'
        for one, text_ in zip(classes, made.heads, strict=True)
    )
    body = "".join(
        _row(row, classes, total=made.totalled and at == len(made.rows) - 1) for at, row in enumerate(made.rows)
    )
    caption = f'<p class="caption">{marked(table.caption)}</p>' if table.caption else ""
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{caption}'


def _row(row: Sequence[str], classes: Sequence[str], *, total: bool) -> str:
    held = "".join(f'<td class="{one}">{marked(text_)}</td>' for one, text_ in zip(classes, row, strict=True))
    return f"<tr{' class=total' if total else ''}>{held}</tr>"


def _figure(figure: Figure) -> str:
    """The picture, and its numbers in tables that open. Its caption stands in the picture."""
    from shardmeter.render import plot_html
    from shardmeter.render.plot import picture

    drawn = plot_html.inline(figure, picture(figure, "svg").decode())
    return f'<figure id="{figure.slug}">\n{drawn}\n{plot_html.numbers(figure)}</figure>'
