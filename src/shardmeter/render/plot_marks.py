"""Marks of a figure in matplotlib's axes: thin lines and points whose texts overlap neither each other nor, if there is room, the data."""

from __future__ import annotations

import textwrap
from typing import Any

import numpy as np

from shardmeter.core.sums import plain_sum
from shardmeter.render.figure import Figure, Mark
from shardmeter.render.ticks import Axis

LETTERS = 30
"""Of a line of a mark's text."""
GAP = 6.0
"""Pixels between a mark and its text."""
COLOUR = "#333333"
SPOTS = 160
"""Pixels of a line that a text should not cover are taken at so many places."""


def draw(axes: Any, figure: Figure, x: Axis, y: Axis) -> None:
    """All marks. The axes must have been laid out: places are found in pixels."""
    taken: list[Any] = []
    busy = _busy(axes, figure, x, y)
    for mark in sorted(figure.marks, key=lambda one: (one.x is None or one.y is None, one.x or 0.0)):
        _pointer(axes, mark)
        text = axes.text(
            0.0, 0.0, "\n".join(textwrap.wrap(mark.says, LETTERS)), fontsize=8.5, color="#111111", zorder=8, transform=axes.transAxes,
            bbox={"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none", "alpha": 0.8},
        )  # fmt: skip
        text.set_in_layout(False)
        size = text.get_window_extent()
        where = _place(mark, axes, (size.width, size.height), taken, busy)
        text.set_position(axes.transAxes.inverted().transform(where))
        box = (where[0] - 2.0, where[1] - 2.0, where[0] + size.width + 2.0, where[1] + size.height + 2.0)
        taken.append(box)
        if mark.x is not None and mark.y is not None:
            _leader(axes, mark, box)


def _pointer(axes: Any, mark: Mark) -> None:
    look = {"color": COLOUR, "linewidth": 1.0, "linestyle": (0, (4.0, 3.0)), "zorder": 3.5}
    if mark.x is not None and mark.y is not None:
        axes.plot(
            [mark.x],
            [mark.y],
            linestyle="",
            marker="o",
            markersize=9.0,
            markerfacecolor="none",
            markeredgecolor="#000000",
            markeredgewidth=1.6,
            zorder=7,
        )
    elif mark.x is not None:
        axes.axvline(mark.x, **look)
    elif mark.y is not None:
        axes.axhline(mark.y, **look)


def _leader(axes: Any, mark: Mark, box: tuple[float, ...]) -> None:
    """A thin line from a point to its text where that had to go far."""
    at = axes.transData.transform((mark.x, mark.y))
    end = np.clip(at, box[:2], box[2:])
    if np.hypot(*(end - at)) > 3.0 * GAP:
        ends = axes.transAxes.inverted().transform([at, end])
        axes.plot(ends[:, 0], ends[:, 1], color=COLOUR, linewidth=0.8, zorder=6, transform=axes.transAxes)


def _place(mark: Mark, axes: Any, size: tuple[float, float], taken: list[Any], busy: Any) -> tuple[float, float]:
    """The lower left corner, in pixels, of the text at the place that covers least: other texts weigh most, then what leaves the
    axes, then data."""
    frame = axes.get_window_extent()
    best, least = (frame.x0, frame.y0), float("inf")
    for order, wanted in enumerate(_places(mark, axes, size, frame)):
        left = min(max(wanted[0], frame.x0 + GAP), frame.x1 - size[0] - 2.0)
        low = min(max(wanted[1], frame.y0 + 2.0), frame.y1 - size[1] - 2.0)
        box = (left, low, left + size[0], low + size[1])
        cost = 1e4 * plain_sum(_common(box, other) for other in taken) + 0.4 * order
        inside = (
            (busy[:, 0] > box[0] - 4)
            & (busy[:, 0] < box[2] + 4)
            & (busy[:, 1] > box[1] - 4)
            & (busy[:, 1] < box[3] + 4)
        )
        cost += 10.0 * float(np.count_nonzero(inside))
        if cost < least:
            best, least = (left, low), cost
    return best


def _places(mark: Mark, axes: Any, size: tuple[float, float], frame: Any) -> list[tuple[float, float]]:
    """Candidates, the best first: beside a vertical line at several heights, over a horizontal one, around a point."""
    wide, high = size
    if mark.x is not None and mark.y is not None:
        x, y = axes.transData.transform((mark.x, mark.y))
        far = (GAP + 3.0, 4.0 * GAP, 8.0 * GAP, 14.0 * GAP)
        return [
            place for gap in far for place in (
                (x + gap, y + gap / 2), (x - gap - wide, y + gap / 2), (x + gap, y - gap / 2 - high), (x - gap - wide, y - gap / 2 - high),
                (x - wide / 2, y + gap), (x - wide / 2, y - gap - high),
            )
        ]  # fmt: skip
    shares = [0.0, 0.12, 0.24, 0.36, 0.48, 0.6, 0.72, 0.84, 1.0]
    if mark.x is not None:
        x = float(axes.transData.transform((mark.x, axes.get_ylim()[0]))[0])
        heights = [frame.y1 - high - GAP - share * (frame.height - high - 2.0 * GAP) for share in shares]
        return [(left, low) for low in heights for left in (x + GAP, x - GAP - wide)]
    y = float(axes.transData.transform((axes.get_xlim()[0], mark.y))[1])
    lefts = [frame.x1 - wide - GAP - share * (frame.width - wide - 2.0 * GAP) for share in shares]
    return [(left, low) for left in lefts for low in (y + GAP / 2, y - GAP / 2 - high)]


def _common(one: Any, other: Any) -> float:
    """Square pixels that two boxes share."""
    wide, high = min(one[2], other[2]) - max(one[0], other[0]), min(one[3], other[3]) - max(one[1], other[1])
    return float(max(wide, 0.0) * max(high, 0.0))


def _busy(axes: Any, figure: Figure, x: Axis, y: Axis) -> Any:
    """Pixels at which data lie: points, places along the lines, and the lines and points that are marked."""
    spots: list[Any] = [np.empty((0, 2))]
    for line in (*figure.lines, *figure.contours):
        pairs = np.array([(a, b) for a, b in zip(line.x, line.y, strict=True) if b is not None], dtype=float)
        if len(pairs) == 0:
            continue
        if line.style == "steps":
            pairs = _corners(pairs)
        at = axes.transData.transform(pairs)
        if line.style not in ("points", "cloud", "bars") and len(at) > 1:
            along = np.linspace(0.0, len(at) - 1.0, SPOTS)
            at = np.column_stack([np.interp(along, range(len(at)), at[:, axis]) for axis in (0, 1)])
        spots.append(at[np.all(np.isfinite(at), axis=1)])
    frame = axes.get_window_extent()
    for mark in figure.marks:
        place = axes.transData.transform(
            (mark.x if mark.x is not None else x.low, mark.y if mark.y is not None else y.low)
        )
        if mark.x is not None and mark.y is not None:
            spots.append(np.array([place] * 5))
        elif mark.x is not None:
            spots.append(np.column_stack([np.full(40, place[0]), np.linspace(frame.y0, frame.y1, 40)]))
        else:
            spots.append(np.column_stack([np.linspace(frame.x0, frame.x1, 60), np.full(60, place[1])]))
    return np.concatenate(spots)


def _corners(pairs: Any) -> Any:
    """The points of steps with the corners between them."""
    corners = np.column_stack([pairs[1:, 0], pairs[:-1, 1]])
    return np.concatenate([np.stack([pairs[:-1], corners], axis=1).reshape(-1, 2), pairs[-1:]])
