"""A figure in letters: for a terminal and for Markdown, at most 16 rows of them high, plain ASCII where nothing else can be shown."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from shardmeter.render import cells, ticks
from shardmeter.render.figure import Field, Figure, Line, Scale
from shardmeter.render.ticks import Axis

ROWS, NARROWEST, WIDEST = 15, 24, 100
"""Rows of a chart, and the least and the most of its columns."""
LETTERS = "abcdefghijklmnopqrstuvwxyz"
NAMES = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
SHADES, PLAIN_SHADES = "░▒▓█", ".:+#"
BAND, PLAIN_BAND = "░", "."
OVER = {"cloud": 0, "points": 2}
"""Styles that lie under the others and over them."""
Grid = list[list[str]]


def lines(figure: Figure, width: int, *, plain: bool = False) -> list[str]:
    """The chart below its title: rows, the axis, what the letters mean, the sentences of the caption."""
    if figure.field is None and figure.lines and all(line.style == "bars" for line in figure.lines):
        return [*_bars(figure, width, plain=plain), *figure.caption]
    x, y = ticks.of_figure(figure, most=(max(2, min(width // 14, 8)), 5))
    names = [text if len(text) <= width // 3 else text[: width // 3 - 1] + "~" for _, text in y.ticks]
    gutter = max((len(name) for name in names), default=0)
    columns = max(NARROWEST, min(WIDEST, width - gutter - 2))
    grid = [[" "] * columns for _ in range(ROWS)]
    legend = (
        _field(grid, figure.field, x, y, plain=plain)
        if figure.field is not None
        else _lines(grid, figure, x, y, plain=plain)
    )
    legend += _marks(grid, figure, x, y, plain=plain)
    texts = {_row(y, tick): name for (tick, _), name in zip(y.ticks, names, strict=True)}
    upright, corner, level = ("|", "+", "-") if plain else ("│", "└", "─")
    drawn = [f"{texts.get(row, ''):>{gutter}} {upright}{''.join(grid[row]).rstrip()}" for row in range(ROWS)]
    below = [f"{'':>{gutter}} {corner}{level * columns}", " " * (gutter + 2) + _below(x, columns)]
    titles = f"{y.title or 'up'} against {x.title}"
    return [titles, *drawn, *(line.rstrip() for line in below), *legend, *figure.caption]


def _row(y: Axis, value: float) -> int | None:
    share = y.place(value)
    return round((1.0 - share) * (ROWS - 1)) if 0.0 <= share <= 1.0 else None


def _column(x: Axis, value: float, columns: int) -> int | None:
    share = x.place(value)
    return round(share * (columns - 1)) if 0.0 <= share <= 1.0 else None


def _below(x: Axis, columns: int) -> str:
    """The texts of the x axis' ticks, as many as do not touch."""
    line = ""
    for tick, text in x.ticks:
        at = _column(x, tick, columns)
        if at is None:
            continue
        start = min(max(at - len(text) // 2, 0), columns - len(text))
        if start >= len(line) + (2 if line else 0):
            line = line.ljust(start) + text
    return line


def _lines(grid: Grid, figure: Figure, x: Axis, y: Axis, *, plain: bool) -> list[str]:
    """Bands first, then lines, the first one on top; a letter each where there are several."""
    for line in figure.lines:
        if line.low and line.high and line.style not in ("points", "bars"):
            _band(grid, line, x, y, PLAIN_BAND if plain else BAND)
    one = "*" if plain else "•"
    letters = [one] if len(figure.lines) == 1 else [LETTERS[at % 26] for at in range(len(figure.lines))]
    order = sorted(range(len(letters)), key=lambda at: (OVER.get(figure.lines[at].style, 1), -at))
    for letter, line in ((letters[at], figure.lines[at]) for at in order):
        for row, column in _spots(line, x, y, len(grid[0])):
            grid[row][column] = letter
    return [f"{letter} {line.label}" for letter, line in zip(letters, figure.lines, strict=True) if line.label]


def _spots(line: Line, x: Axis, y: Axis, columns: int) -> list[tuple[int, int]]:
    """The places that a line passes: its points alone, or a place a column between them."""
    known = [(x.place(a), y.place(b)) for a, b in zip(line.x, line.y, strict=True) if b is not None]
    places = list(known)
    if line.style not in ("points", "cloud"):
        for (a, b), (c, d) in itertools.pairwise(known):
            for step in range(1, max(1, math.ceil(abs(c - a) * columns))):
                share = step / math.ceil(abs(c - a) * columns)
                places.append((a + share * (c - a), b if line.style == "steps" else b + share * (d - b)))
    inside = [(a, b) for a, b in places if 0.0 <= a <= 1.0 and 0.0 <= b <= 1.0]
    return [(round((1.0 - b) * (ROWS - 1)), round(a * (columns - 1))) for a, b in inside]


def _band(grid: Grid, line: Line, x: Axis, y: Axis, shade: str) -> None:
    """The interval of every column, between those of the points around it."""
    columns = len(grid[0])
    known = [
        (x.place(a), y.place(low), y.place(high))
        for a, low, high in zip(line.x, line.low, line.high, strict=True) if low is not None and high is not None
    ]  # fmt: skip
    for (a, low, high), (c, next_low, next_high) in itertools.pairwise(known):
        for column in range(math.ceil(a * (columns - 1)), math.floor(c * (columns - 1)) + 1):
            share = (column / (columns - 1) - a) / (c - a) if c > a else 0.0
            top, bottom = high + share * (next_high - high), low + share * (next_low - low)
            for row in range(ROWS):
                if 0 <= column < columns and bottom <= 1.0 - row / (ROWS - 1) <= top:
                    grid[row][column] = shade


def _field(grid: Grid, field: Field, x: Axis, y: Axis, *, plain: bool) -> list[str]:
    """The value nearest to every place: a letter a name, or darker the larger it is."""
    columns, shades = len(grid[0]), PLAIN_SHADES if plain else SHADES
    known = [value for row in field.values for value in row if value is not None]
    colours = (
        ticks.axis(field.scale, known, ends=(min(known), max(known)) if len(set(known)) > 1 else None)
        if known
        else None
    )
    across = [_nearest([x.place(value) for value in field.x], column / (columns - 1)) for column in range(columns)]
    for row in range(ROWS):
        held = field.values[_nearest([y.place(value) for value in field.y], 1.0 - row / (ROWS - 1))]
        for column in range(columns):
            value = held[across[column]]
            if value is None or colours is None:
                continue
            if field.scale.labels:
                grid[row][column] = NAMES[int(value) % 26]
            else:
                grid[row][column] = shades[min(int(max(colours.place(value), 0.0) * len(shades)), len(shades) - 1)]
    if field.scale.labels:
        return [f"{NAMES[at % 26]} {label}" for at, label in enumerate(field.scale.labels) if at in known]
    if colours is None:
        return []
    low, high = (_text(end, field.scale) for end in (min(known), max(known)))
    return [f"{shades} {field.scale.title}: {low} to {high}"]


def _marks(grid: Grid, figure: Figure, x: Axis, y: Axis, *, plain: bool) -> list[str]:
    """Marks as digits, their lines where nothing else is drawn, and below what each says."""
    said, columns = [], len(grid[0])
    for number, mark in enumerate(figure.marks, 1):
        column = None if mark.x is None else _column(x, mark.x, columns)
        row = None if mark.y is None else _row(y, mark.y)
        if mark.y is None and column is not None:
            for each in grid:
                each[column] = each[column] if each[column] != " " else ":" if plain else "┊"
            row = 0
        elif mark.x is None and row is not None:
            grid[row] = [cell if cell != " " else "-" if plain else "╌" for cell in grid[row]]
            column = columns - 1
        if row is not None and column is not None:
            while column < columns - 1 and grid[row][column].isdigit():
                column += 1
            grid[row][column] = str(number % 10)
        said.append(f"{number} {mark.says}")
    return said


def _bars(figure: Figure, width: int, *, plain: bool) -> list[str]:
    """A line a bar: name, bar from nothing, its length."""
    bars: dict[float, list[tuple[float | None, str]]] = {}
    lying = bool(figure.y.labels)
    along, across = (figure.y, figure.x) if lying else (figure.x, figure.y)
    for line in figure.lines:
        begin = line.begin or (0.0,) * len(line.x)
        for place, value, start in zip(line.y if lying else line.x, line.x if lying else line.y, begin, strict=True):
            if place is not None:
                bars.setdefault(place, []).append((None if value is None else value - start, line.label))
    most = max((abs(value) for group in bars.values() for value, _ in group if value is not None), default=0.0) or 1.0
    names = {place: along.labels[int(place)] if along.labels else _text(place, along) for place in bars}
    gutter = min(max(map(len, names.values()), default=0), width // 2)
    room = max(10, min(40, width - gutter - 24))
    drawn = [f"{across.title}{f' against {along.title}' if along.title else ''}"]
    for place in sorted(bars):
        for value, label in bars[place]:
            bar = cells.bar(None if value is None else abs(value) / most, room, plain=plain)
            text = f"{cells.text(value, across.unit)} {label if len(figure.lines) > 1 else ''}".rstrip()
            drawn.append(f"{names[place][:gutter]:<{gutter}} {f'{bar} ' if bar else ''}{text}")
    return [*drawn, *(mark.says for mark in figure.marks)]


def _nearest(places: Sequence[float], at: float) -> int:
    return min(range(len(places)), key=lambda index: abs(places[index] - at))


def _text(value: float, scale: Scale) -> str:
    return cells.text(value, scale.unit)
