"""Figures as one page of HTML: every picture, its numbers in a table, and its description for programs. The page asks nothing of the net."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Sequence

from shardmeter.render import cells, json_text
from shardmeter.render.figure import Field, Figure, Line, Scale

STYLE = """body{font:15px/1.45 system-ui,sans-serif;max-width:860px;margin:2em auto;padding:0 1em;color:#222;background:#fff}
figure{margin:0 0 2.5em}svg{max-width:100%;height:auto}details{margin:.6em 0}summary{cursor:pointer;color:#0072b2}
table{border-collapse:collapse;font-size:13px;display:block;overflow-x:auto}td,th{padding:.15em .8em;text-align:right;border-bottom:1px solid #ddd;
white-space:nowrap}th:first-child,td:first-child{text-align:left}"""
_IDS = re.compile(r'(\bid="|url\(#|href="#)')


def page(figures: Sequence[Figure]) -> bytes:
    """The page, in UTF-8. Raises ImportError without matplotlib."""
    from shardmeter.render.plot import picture

    parts = [_part(figure, picture(figure, "svg").decode()) for figure in figures]
    title = html.escape(figures[0].title)
    head = f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>\n<style>{STYLE}</style></head><body>\n'
    return (head + "\n".join(parts) + "\n</body></html>\n").encode()


def _part(figure: Figure, svg: str) -> str:
    """One figure: the picture, its numbers, the description."""
    # "<" is escaped, so that no text of the description can end the script
    data = json.dumps(json_text.plain(figure.to_dict()), ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")
    return (
        f'<figure id="{figure.slug}">\n{inline(figure, svg)}{numbers(figure)}\n'
        f'<script type="application/json" data-figure="{figure.slug}">{data}</script>\n</figure>'
    )


def inline(figure: Figure, svg: str) -> str:
    """A picture as an element of a page: with names of its own, and its title for who does not see it."""
    drawn = _IDS.sub(rf"\g<1>{figure.slug}-", svg[svg.index("<svg") :])
    label = html.escape(figure.title, quote=True)
    return drawn.replace("<svg", f'<svg role="img" aria-label="{label}"', 1)


def numbers(figure: Figure) -> str:
    """What a figure draws, in tables that open."""
    tables = "".join(_of_line(figure, line) for line in (*figure.lines, *figure.contours))
    if figure.field is not None:
        tables += _of_field(figure, figure.field)
    said = "".join(f"<li>{html.escape(_said(figure, at))}</li>" for at in range(len(figure.marks)))
    marks = f"<p>Marked:</p><ul>{said}</ul>" if said else ""
    return f"<details><summary>The numbers</summary>{marks}{tables}</details>"


def _said(figure: Figure, at: int) -> str:
    mark = figure.marks[at]
    places = [_text(value, scale) for value, scale in ((mark.x, figure.x), (mark.y, figure.y)) if value is not None]
    return f"{mark.says} ({', '.join(places)})"


def _of_line(figure: Figure, line: Line) -> str:
    """Its points, a row each, with their intervals."""
    lying = line.style == "bars" and bool(figure.y.labels)
    across = figure.x if lying else figure.y
    heads = [figure.x.title, figure.y.title, *(["from", "to"] if line.low and line.high else [])]
    heads += ["begins at"] if line.begin else []
    rows = []
    for at, (x, y) in enumerate(zip(line.x, line.y, strict=True)):
        ends = [_text(line.low[at], across), _text(line.high[at], across)] if line.low and line.high else []
        ends += [_text(line.begin[at], across)] if line.begin else []
        rows.append([_text(x, figure.x), _text(y, figure.y), *ends])
    return _table(line.label, heads, rows)


def _of_field(figure: Figure, field: Field) -> str:
    """Its grid, the largest y first, as in the picture."""
    heads = [f"{figure.y.title} \\ {figure.x.title}", *(_text(x, figure.x) for x in field.x)]
    rows = [
        [_text(y, figure.y), *(_text(value, field.scale) for value in row)]
        for y, row in reversed(list(zip(field.y, field.values, strict=True)))
    ]
    return _table(field.scale.title, heads, rows)


def _text(value: float | None, scale: Scale) -> str:
    if value is not None and scale.labels:
        return scale.labels[int(value)] if 0 <= int(value) < len(scale.labels) else cells.MISSING
    return cells.text(value, scale.unit)


def _table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{html.escape(text)}</th>" for text in heads)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(text)}</td>" for text in row) + "</tr>" for row in rows)
    return f"<p>{html.escape(title)}</p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
