"""A field in matplotlib's axes: numbers as shades with a bar of colours, names as regions that carry them."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardmeter.render import cells, ticks
from shardmeter.render.figure import Field, Figure, Line

REGIONS = ("#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7", "#999999")
"""Okabe and Ito's, grey for their black; further regions take the colours again, hatched."""
HATCHES = ("", "////", "....", "xxxx")
SHADES, SIDES = "cividis", "PuOr"
"""Numbers from dark blue to yellow; those around a centre from brown to purple. Both are told apart with every usual colour blindness."""
WRITTEN = 70
"""Cells up to which each carries its number."""
CRISP = 2500
"""Cells beyond which an SVG holds them as an image."""
TEXT = (0.3, 0.5, 0.7)
"""Shares of a cell's width at which its number begins, is and ends."""
LIFT = 0.28
"""Share of a cell by which numbers step aside from a line that runs through its middle."""


def draw(axes: Any, figure: Figure, field: Field) -> None:
    """The field, and what tells its colours."""
    x, y = (np.array(ticks.edges(at, log=scale.log)) for at, scale in ((field.x, figure.x), (field.y, figure.y)))
    values = np.ma.masked_invalid([[np.nan if value is None else value for value in row] for row in field.values])
    axes.set_facecolor("#FFFFFF")
    if np.any(np.ma.getmaskarray(values)):
        axes.patch.set(hatch="///", edgecolor="#CCCCCC")
    if field.scale.labels:
        _regions(axes, figure, field, values, (x, y))
    else:
        _shades(axes, figure, field, values, (x, y))


def _regions(axes: Any, figure: Figure, field: Field, values: Any, edges: tuple[Any, Any]) -> None:
    """A colour a name (a hatch too beyond eight), borders between them, and every name in the thickest part of its region."""
    from matplotlib.collections import LineCollection
    from matplotlib.colors import ListedColormap

    labels = field.scale.labels
    colours = [REGIONS[at % len(REGIONS)] for at in range(len(labels))]
    axes.pcolormesh(
        *edges, values, cmap=ListedColormap(colours), vmin=-0.5, vmax=len(labels) - 0.5, rasterized=values.size > CRISP
    )
    axes.add_collection(LineCollection(_borders(values, edges), colors="#222222", linewidths=0.9, zorder=3))
    for at, label in enumerate(labels):
        mask = np.ma.filled(values == at, False)
        if not np.any(mask):
            continue
        hatch = HATCHES[at // len(REGIONS) % len(HATCHES)]
        if hatch:
            axes.pcolor(*edges, np.ma.masked_where(~mask, values), hatch=hatch, alpha=0.0)
        axes.fill([], [], facecolor=colours[at], edgecolor="#222222", hatch=hatch, label=label)
        row, column = _thickest(mask)
        where = _middle(figure.x.log, edges[0][column : column + 2]), _middle(figure.y.log, edges[1][row : row + 2])
        box = {"boxstyle": "round,pad=0.2", "facecolor": "white", "edgecolor": "none", "alpha": 0.85}
        axes.text(*where, label, ha="center", va="center", fontsize=9, bbox=box, zorder=6, clip_on=True)


def _shades(axes: Any, figure: Figure, field: Field, values: Any, edges: tuple[Any, Any]) -> None:
    """Shades with their bar; numbers in the cells where these are few."""
    scale = field.scale
    norm = _norm(scale.log, scale.centre, values)
    filled = axes.pcolormesh(
        *edges, values, cmap=SHADES if scale.centre is None else SIDES, norm=norm, rasterized=values.size > CRISP
    )
    known = values.compressed()
    span = (float(np.min(known)), float(np.max(known))) if known.size else (1.0, 2.0)
    if scale.centre is not None:
        span = (min(span[0], scale.centre), max(span[1], scale.centre))
    told = ticks.axis(scale, (*span, *known.tolist()[:200]), ends=span if span[0] < span[1] else None)
    bar = axes.figure.colorbar(filled, ax=axes, label=told.title, pad=0.015)
    bar.ax.set_ylim(told.low, told.high)
    bar.set_ticks([tick for tick, _ in told.ticks], labels=[text for _, text in told.ticks])
    bar.ax.minorticks_off()
    if values.size <= WRITTEN:
        _numbers(axes, figure, field, values, edges, filled)


def _numbers(axes: Any, figure: Figure, field: Field, values: Any, edges: tuple[Any, Any], filled: Any) -> None:
    """Every cell's number, light on dark, above or below the lines that cross the cell."""
    for row, column in np.ndindex(values.shape):
        if np.ma.is_masked(values[row, column]):
            continue
        red, green, blue, _ = filled.cmap(filled.norm(values[row, column]))
        dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.55
        x = _middle(figure.x.log, edges[0][column : column + 2])
        share = _aside(
            [
                at
                for line in figure.contours
                for at in _passing(figure, line, edges[0][column : column + 2], edges[1][row : row + 2])
            ]
        )
        y = _between(figure.y.log, edges[1][row : row + 2], share)
        text = cells.coarse(float(values[row, column]), field.scale.unit).replace(" ×", "×")
        axes.text(x, y, text, ha="center", va="center", fontsize=9, color="white" if dark else "black", zorder=4)


def _passing(figure: Figure, line: Line, across: Any, upright: Any) -> list[float]:
    """At which shares of a cell's height a line passes behind the left, the middle and the right of a number in it."""
    known = [(x, y) for x, y in zip(line.x, line.y, strict=True) if y is not None]
    if not known:
        return []
    x, y = (
        _flat(scale.log, np.array(values))
        for scale, values in zip((figure.x, figure.y), zip(*known, strict=True), strict=True)
    )
    (left, right), (low, high) = _flat(figure.x.log, across), _flat(figure.y.log, upright)
    at = np.interp([left + share * (right - left) for share in TEXT], x, y, left=np.nan, right=np.nan)
    return [float(share) for share in (at - low) / (high - low) if -0.1 <= share <= 1.1]


def _aside(taken: list[float]) -> float:
    """The share of a cell's height, of three, that is farthest from the lines in it."""
    if not taken:
        return 0.5
    return max((0.5, 0.5 - LIFT, 0.5 + LIFT), key=lambda share: min(0.25, *(abs(share - line) for line in taken)))


def _norm(log: bool, centre: float | None, values: Any) -> Any:
    """From the least to the largest; around a centre equally far to both sides."""
    from matplotlib.colors import LogNorm, Normalize

    known = values.compressed()
    low, high = (float(np.min(known)), float(np.max(known))) if known.size else (1.0, 2.0)
    if centre is not None and log:
        most = max(high / centre, centre / low, 2.0)
        return LogNorm(centre / most, centre * most)
    if centre is not None:
        most = max(high - centre, centre - low) or 1.0
        return Normalize(centre - most, centre + most)
    return (LogNorm if log else Normalize)(low, high if high > low else low * 1.1 + 1e-9)


def _borders(values: Any, edges: tuple[Any, Any]) -> list[Any]:
    """Segments between cells of unlike names."""
    held, (x, y) = np.ma.filled(values, -1.0), edges
    upright = [
        ((x[at + 1], y[row]), (x[at + 1], y[row + 1]))
        for row, at in zip(*np.nonzero(np.diff(held, axis=1)), strict=True)
    ]
    level = [
        ((x[at], y[row + 1]), (x[at + 1], y[row + 1]))
        for row, at in zip(*np.nonzero(np.diff(held, axis=0)), strict=True)
    ]
    return upright + level


def _thickest(mask: Any) -> tuple[int, int]:
    """A cell that is farthest from the border of its region: regions are eroded until nothing is left; wide texts need wide rooms."""
    left = mask
    while True:
        padded = np.pad(left, ((1, 1), (2, 2)))
        less = (
            left
            & padded[:-2, 2:-2]
            & padded[2:, 2:-2]
            & padded[1:-1, 1:-3]
            & padded[1:-1, 3:-1]
            & padded[1:-1, :-4]
            & padded[1:-1, 4:]
        )
        if not np.any(less):
            break
        left = less
    rows, columns = np.nonzero(left)
    nearest = np.argmin((rows - rows.mean()) ** 2 + (columns - columns.mean()) ** 2)
    return int(rows[nearest]), int(columns[nearest])


def _middle(log: bool, ends: Any) -> float:
    return _between(log, ends, 0.5)


def _between(log: bool, ends: Any, share: float) -> float:
    low, high = ends
    return float(low * (high / low) ** share) if log else float(low + (high - low) * share)


def _flat(log: bool, values: Any) -> Any:
    """Values as they lie along an axis."""
    return np.log(values) if log else np.asarray(values)
