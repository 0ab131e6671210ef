"""A timeline as an SVG Gantt chart: a row per rank and stream, colours by kind, waits hatched, an axis with units."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from html import escape
from typing import Any

from shardmeter.core.errors import cut
from shardmeter.core.record import record
from shardmeter.engine.timeline import account
from shardmeter.engine.timeline.islands import MESSAGE, STEP, UPDATE
from shardmeter.engine.timeline.simulate import Timeline
from shardmeter.study.trace import Drawn

COLOURS: dict[str, tuple[str, str]] = {
    "forward": ("forward", "#0072B2"),
    "backward": ("backward", "#009E73"),
    "input_grad": ("input gradient", "#009E73"),
    "weight_grad": ("weight gradient", "#8FD3BD"),
    "recompute": ("recompute", "#CC79A7"),
    "serial": ("serial collective", "#F0E442"),
    "gather": ("parameter gather", "#E69F00"),
    "update": ("gather of updates", "#E69F00"),
    "scatter": ("gradient reduction", "#D55E00"),
    "replicate": ("sum over replicas", "#8C3D00"),
    "tied": ("tied matrix", "#8C3D00"),
    "copies": ("sum over both copies", "#5C1F00"),
    "exchange": ("expert all-to-all", "#B8A200"),
    "copy to host": ("copy to the host", "#4B6FAE"),
    "copy from host": ("copy from the host", "#86B6E0"),
    "host update": ("optimizer on the host", "#333333"),
    "send": ("stage send", "#56B4E9"),
    STEP: ("inner step", "#0072B2"),
    UPDATE: ("outer update", "#000000"),
    MESSAGE: ("message between islands", "#D55E00"),
    "launch": ("host's launches", "#7A7A7A"),
    "optimizer": ("optimizer", "#000000"),
    "software": ("software", "#5A4A78"),
    "wait": ("wait", "url(#wait)"),
}
"""Kind → name in the legend and fill: the palette of Okabe and Ito, told apart by colour-blind people too."""
WIDTH, LEFT, RIGHT, TOP = 800, 118, 14, 46
ROW = {
    "compute": 22,
    "scale-up": 10,
    "fabric": 10,
    "host": 8,
    "to host": 9,
    "from host": 9,
    "host update": 9,
    "send forward": 8,
    "send backward": 8,
}
GAP, BETWEEN, AXIS, LINE = 2, 9, 34, 16
SHORTEST = 0.35
"""Pixels below which neighbours of one kind are drawn as one."""
THINNEST = 0.7
"""Pixels that anything is drawn with at least."""
MOST_RANKS = 16
LONGEST = 16
"""Characters of a row's name."""
NUMBERED = frozenset({*account.COMPUTED, STEP})
"""Kinds of tasks whose label ends with a number: that of the micro-batch, or of the step."""


@record
class Bar:
    """One rectangle of a row, in seconds."""

    kind: str
    begin: float
    end: float
    text: str = ""


def svg(traced: Drawn, title: str, ranks: Collection[int] | None = None) -> str:
    """The chart of the given ranks (left out: the first 16), all steps on one time axis."""
    timeline = traced.timeline
    shown = [rank for rank in traced.ranks if ranks is None or rank in ranks][: None if ranks else MOST_RANKS]
    span = max(timeline.makespan, 1e-12)
    scale = (WIDTH - LEFT - RIGHT) / span
    body, kinds, y = list[str](), dict[str, None](), TOP
    for rank in shown:
        for index, stream in enumerate(timeline.program.streams):
            bars = _bars(traced, index, span / (WIDTH - LEFT - RIGHT) * SHORTEST) if stream.rank == rank else []
            if not bars:
                continue
            height = ROW.get(stream.name, 10)
            name = traced.name_of(rank) if stream.name == "compute" else stream.name
            body += _row(cut(name, LONGEST), y, height, stream.name == "compute")
            body += [_rectangle(bar, y, height, scale) for bar in bars]
            if stream.name == "compute":
                body += _numbers(timeline, index, y, height, scale)
            kinds |= dict.fromkeys(bar.kind for bar in bars)
            y += height + GAP
        y += BETWEEN
    body += _axis(span, y, scale)
    legend, bottom = _legend([kind for kind in COLOURS if kind in kinds], y + AXIS)
    return "\n".join([*_head(title, bottom), *body, *legend, "</svg>"]) + "\n"


def rows(traced: Drawn, ranks: Collection[int] | None = None) -> dict[str, Any]:
    """The same chart as plain data, for who draws it otherwise: `span_s`; `rows` of `rank`, `name`, `stream` and `bars` (`kind`, `text`,
    `begin_s`, `end_s`; what is too short to see is one with its neighbour); `kinds` by name with `label` and `colour`; `left_out` ranks."""
    program, span = traced.timeline.program, max(traced.timeline.makespan, 1e-12)
    shown = [rank for rank in traced.ranks if ranks is None or rank in ranks][: None if ranks else MOST_RANKS]
    made, kinds = list[dict[str, Any]](), dict[str, None]()
    for rank in shown:
        for index, stream in enumerate(program.streams):
            bars = _bars(traced, index, span / (WIDTH - LEFT - RIGHT) * SHORTEST) if stream.rank == rank else []
            kinds |= dict.fromkeys(bar.kind for bar in bars)
            if bars:
                made.append(
                    {
                        "rank": rank, "name": traced.name_of(rank), "stream": stream.name,
                        "bars": [{"kind": one.kind, "text": one.text, "begin_s": one.begin, "end_s": one.end} for one in bars],
                    }
                )  # fmt: skip
    named = {kind: {"label": label, "colour": colour} for kind, (label, colour) in COLOURS.items() if kind in kinds}
    return {"span_s": span, "rows": made, "kinds": named, "left_out": len(traced.ranks) - len(shown)}


def _bars(traced: Drawn, index: int, least: float) -> list[Bar]:
    """The bars of one stream: tasks in order of time, neighbours of one kind and turn as one, and what is too short to see
    with its neighbour."""
    timeline, program = traced.timeline, traced.timeline.program
    stream = program.streams[index]
    found = [
        Bar(kind=task.kind, begin=timeline.begin[i], end=timeline.end[i], text=_number(task.label, task.kind))
        for i, task in enumerate(program.tasks)
        if task.stream == index and task.seconds
    ]
    if stream.name == "compute":
        found += [Bar(kind="wait", begin=gap.begin, end=gap.end) for gap in traced.gaps(stream.rank)]
    found.sort(key=lambda bar: (bar.begin, -bar.end))
    merged: list[Bar] = []
    for bar in found:
        last = merged[-1] if merged else None
        close = last is not None and bar.begin - last.end < least
        alike = last is not None and (last.text == bar.text or bar.end - bar.begin < least)
        if last is not None and close and last.kind == bar.kind and alike:
            merged[-1] = Bar(kind=last.kind, begin=last.begin, end=max(bar.end, last.end), text=last.text)
        elif last is None or not close or bar.end - bar.begin >= least or bar.kind != "wait":
            merged.append(bar)
    return merged


def _number(label: str, kind: str) -> str:
    """The micro-batch of a compute task: what its label ends with."""
    return label.rpartition(" · ")[2] if kind in NUMBERED and " · " in label else ""


def _row(name: str, y: float, height: int, strong: bool) -> list[str]:
    size, weight = (12, "600") if strong else (9.5, "400")
    style = f'text-anchor="end" font-size="{size}" font-weight="{weight}"'
    middle = y + height / 2 + size * 0.35
    return [
        f'<text x="{LEFT - 8}" y="{middle:.1f}" {style}>{escape(name)}</text>',
        f'<rect x="{LEFT}" y="{y:.1f}" width="{WIDTH - LEFT - RIGHT}" height="{height}" fill="#F4F4F4"/>',
    ]


def _rectangle(bar: Bar, y: float, height: int, scale: float) -> str:
    x, width = LEFT + bar.begin * scale, max((bar.end - bar.begin) * scale, THINNEST)
    name, fill = COLOURS.get(bar.kind, (bar.kind, "#BBBBBB"))
    which = f" {bar.text}" if bar.kind == STEP else f" of micro-batch {bar.text}" if bar.text else ""
    says = f"{name}{which}, {_time(bar.end - bar.begin)}"
    paler = ' fill-opacity="0.72"' if bar.kind == STEP and bar.text.isdigit() and int(bar.text) % 2 else ""
    return (
        f'<rect x="{x:.2f}" y="{y:.1f}" width="{width:.2f}" height="{height}" fill="{fill}"{paler}>'
        f"<title>{escape(says)}</title></rect>"
    )


def _shared(spans: Iterable[tuple[float, float, str]]) -> list[tuple[float, float, str]]:
    """Spans in order of time; of two that overlap by more than half of the shorter one, one with both texts."""
    joined: list[tuple[float, float, str]] = []
    for begin, end, text in sorted(spans):
        before, until, other = joined[-1] if joined else (0.0, -1.0, "")
        if min(end, until) - begin > 0.5 * min(end - begin, until - before):
            joined[-1] = (before, max(end, until), "+".join(filter(None, (other, text))))
        else:
            joined.append((begin, end, text))
    return joined


def _numbers(timeline: Timeline, index: int, y: float, height: int, scale: float) -> list[str]:
    """The micro-batch in the middle of every turn that is wide enough, on a halo so that it reads on stripes too; turns that run
    layer by layer in one another's pauses share one, as in `6+0`."""
    spans: dict[int, tuple[float, float, str]] = {}
    for i, task in enumerate(timeline.program.tasks):
        if task.stream == index and task.seconds and task.turn >= 0:
            begin, end, text = spans.get(
                task.turn, (timeline.begin[i], timeline.end[i], _number(task.label, task.kind))
            )
            spans[task.turn] = (min(begin, timeline.begin[i]), max(end, timeline.end[i]), text)
    found = []
    for begin, end, text in _shared(spans.values()):
        if text and (end - begin) * scale > 6.5 * len(text) + 3.0:
            where = f'x="{LEFT + (begin + end) / 2 * scale:.1f}" y="{y + height / 2 + 3.8:.1f}" text-anchor="middle"'
            plain = f'{where} font-size="10.5" font-weight="600" pointer-events="none"'
            found.append(
                f'<text {plain} fill="none" stroke="#111111" stroke-opacity="0.7" stroke-width="2.4">{text}</text>'
            )
            found.append(f'<text {plain} fill="#FFFFFF">{text}</text>')
    return found


UNITS = (
    (1 / 86400, "d", 2 * 86400.0), (1 / 3600, "h", 2 * 3600.0), (1 / 60, "min", 600.0), (1.0, "s", 1.0),
    (1e3, "ms", 1e-3), (1e6, "µs", 0.0),
)  # fmt: skip
"""Units of the axis: how many a second has, and the shortest span in seconds that is told in them."""


def _axis(span: float, y: float, scale: float) -> Iterator[str]:
    """A line with about eight round times."""
    factor, unit = next((f, u) for f, u, least in UNITS if span >= least)
    step = _round(span * factor / 8) / factor
    yield f'<line x1="{LEFT}" y1="{y}" x2="{WIDTH - RIGHT}" y2="{y}" stroke="#333333"/>'
    for tick in range(math.floor(span / step * (1 + 1e-9)) + 1):
        x = LEFT + tick * step * scale
        label = f"{tick * step * factor:.6g}" + (f" {unit}" if tick == 0 else "")
        yield f'<line x1="{x:.1f}" y1="{TOP - 4}" x2="{x:.1f}" y2="{y + 4}" stroke="#333333" stroke-opacity="0.18"/>'
        yield f'<text x="{x:.1f}" y="{y + 17}" text-anchor="middle" font-size="11">{label}</text>'


def _round(value: float) -> float:
    """The next of 1, 2, 5 × a power of ten."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(m * power for m in (1.0, 2.0, 5.0, 10.0) if m * power >= value * (1 - 1e-9))


def _legend(kinds: Sequence[str], y: float) -> tuple[list[str], float]:
    """Names of the colours in use, in as many lines as they need; the y below them."""
    found, names, x = list[str](), set[str](), float(LEFT)
    for kind in kinds:
        name, fill = COLOURS[kind]
        if name in names:
            continue
        names.add(name)
        width = 22.0 + 6.2 * len(name)
        if x + width > WIDTH - RIGHT:
            x, y = float(LEFT), y + LINE
        found.append(
            f'<rect x="{x:.0f}" y="{y - 9:.0f}" width="11" height="10" fill="{fill}" stroke="#555555" stroke-width="0.5"/>'
        )
        found.append(f'<text x="{x + 15:.0f}" y="{y:.0f}" font-size="11">{escape(name)}</text>')
        x += width + 8.0
    return found, y + LINE


def _head(title: str, height: float) -> list[str]:
    lines = _wrapped(title, 104)
    size = f'viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}" height="{height:.0f}"'
    style = 'font-family="Helvetica, Arial, sans-serif" fill="#111111" role="img"'
    stripes = '<rect width="6" height="6" fill="#FFFFFF"/><rect width="1.6" height="6" fill="#9A9A9A"/>'
    turned = 'width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"'
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>',
        f"<title>{escape(title)}</title>",
        f'<defs><pattern id="wait" {turned}>{stripes}</pattern></defs>',
        f'<rect width="{WIDTH}" height="{height:.0f}" fill="#FFFFFF"/>',
        *(f'<text x="12" y="{18 + 15 * i}" font-size="12.5">{escape(line)}</text>' for i, line in enumerate(lines)),
    ]


def _wrapped(text: str, most: int) -> list[str]:
    """At most two lines, broken between the parts of a heading."""
    if len(text) <= most:
        return [text]
    at = text.rfind(" · ", 0, most)
    at = at if at > 0 else most
    rest = text[at:].removeprefix(" · ")
    return [text[:at], rest if len(rest) <= most else rest[: most - 1] + "…"]


def _time(seconds: float) -> str:
    factor, unit = next((f, u) for f, u in ((1.0, "s"), (1e3, "ms"), (1e6, "µs")) if seconds * f >= 1.0 or u == "µs")
    return f"{seconds * factor:.3g} {unit}"
