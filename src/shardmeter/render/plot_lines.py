"""The lines of a figure in matplotlib's axes: told apart by colour and, in grey, by their markers and dashes."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardmeter.render import ticks
from shardmeter.render.figure import Figure, Line

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D31")
"""Okabe and Ito's: told apart with every usual kind of colour blindness; brown for their yellow, which no line shows on white."""
MARKERS = "os^DvPX*"
HATCHES = ("", "///", "...", "xx", "\\\\\\", "++", "oo", "**")
MARKED = 24
"""Points of a line up to which each is marked."""
RULER = 2
"""Points of a dashed line that is drawn to compare with: neither of them was found, so that none is marked."""
GROUP = 0.8
"""Share of the room between two places that bars take."""


def draw(axes: Any, figure: Figure) -> None:
    """All lines, with a band or whiskers where an interval is known, and the contours over a field."""
    bars = [line for line in figure.lines if line.style == "bars"]
    for at, line in enumerate(figure.lines):
        if line.style == "bars":
            lying = ticks.lying(figure, line)
            start = (figure.x if lying else figure.y).centre or 0.0
            _bars(axes, line, bars.index(line), len(bars), lying=lying, start=start)
        else:
            _line(axes, line, at)
    for at, line in enumerate(figure.contours):
        _contour(axes, line, at)


def _line(axes: Any, line: Line, at: int) -> None:
    x, y = _numbers(line.x), _numbers(line.y)
    colour, marker = COLOURS[at % len(COLOURS)], MARKERS[at % len(MARKERS)]
    low, high = (_numbers(line.low), _numbers(line.high)) if line.low and line.high else (None, None)
    if line.style == "cloud":
        axes.plot(x, y, linestyle="", marker="o", markersize=3.0, color="#A8A8A8", label=line.label, zorder=2)
        return
    if line.style == "points":
        aside = _around(x, _numbers(line.left), _numbers(line.right)) if line.left and line.right else None
        if low is not None or aside is not None:
            upright = None if low is None else _around(y, low, high)
            axes.errorbar(
                x, y, yerr=upright, xerr=aside, fmt="none", ecolor=colour, elinewidth=1.2, capsize=3, zorder=4.5
            )
        axes.plot(
            x,
            y,
            linestyle="",
            marker=marker,
            markersize=6.5,
            color=colour,
            markeredgecolor="white",
            label=line.label,
            zorder=5,
        )
        return
    ruler = line.style == "dashed" and len(x) == RULER
    step = "post" if line.style == "steps" else None
    if low is not None:
        axes.fill_between(x, low, high, step=step, color=colour, alpha=0.18, linewidth=0.0, zorder=1)
    axes.plot(
        x, y, "--" if line.style == "dashed" else "-", drawstyle="steps-post" if step else "default", color=colour, linewidth=1.9,
        marker=marker if len(x) <= MARKED and not ruler else "", markersize=4.5, label=line.label, zorder=4,
    )  # fmt: skip


def _bars(axes: Any, line: Line, at: int, of: int, *, lying: bool, start: float) -> None:
    """Bars of one line beside those of the others, from `start` on; their whiskers along them."""
    places, sizes = (_numbers(line.y), _numbers(line.x)) if lying else (_numbers(line.x), _numbers(line.y))
    apart = float(np.min(np.diff(np.unique(places)))) if len(np.unique(places)) > 1 else 1.0
    thick = GROUP * apart / of
    middle = places + (at - (of - 1) / 2.0) * thick
    look = {
        "color": COLOURS[at % len(COLOURS)],
        "hatch": HATCHES[at % len(HATCHES)],
        "edgecolor": "white",
        "label": line.label,
        "zorder": 3,
    }
    starts = _numbers(line.begin) if line.begin else start
    whisker = _around(sizes, _numbers(line.low), _numbers(line.high)) if line.low and line.high else None
    how = {"ecolor": "#222222", "capsize": 3, "error_kw": {"elinewidth": 1.1, "zorder": 4}}
    if lying:
        axes.barh(middle, sizes - starts, thick, starts, xerr=whisker, **look, **how)
    else:
        axes.bar(middle, sizes - starts, thick, starts, yerr=whisker, **look, **how)


def _contour(axes: Any, line: Line, at: int) -> None:
    """A dark line with a light rim, to be seen on every colour."""
    from matplotlib.patheffects import withStroke

    rim = [withStroke(linewidth=3.6, foreground="white")]
    style = "--" if line.style == "dashed" else (0, (1.0, 1.0)) if at % 3 == 2 else "-"
    axes.plot(
        _numbers(line.x),
        _numbers(line.y),
        linestyle=style,
        color="#000000",
        linewidth=1.8,
        path_effects=rim,
        label=line.label or None,
        zorder=5,
    )


def _numbers(values: tuple[float | None, ...]) -> Any:
    return np.array([np.nan if value is None else value for value in values], dtype=float)


def _around(middle: Any, low: Any, high: Any) -> Any:
    """Whiskers below and above."""
    return np.nan_to_num(np.maximum(np.array([middle - low, high - middle]), 0.0))
