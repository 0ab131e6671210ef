"""What can be drawn: a figure of lines, or of a field over two axes, with marks. Raw numbers in SI; who draws it decides how."""

from __future__ import annotations

import dataclasses
from typing import Any

from shardmeter.core.record import record


@record
class Scale:
    """One axis, or the colours of a field."""

    title: str
    unit: str = ""
    """As in `cells.text`: SI units are scaled, `%` takes a fraction, rates of lines are in `bit/s` where people speak of bits."""
    log: bool = False
    """Whether equal factors are equally far apart, in the colours of a field too."""
    centre: float | None = None
    """Of a field: the value on both sides of which its colours differ, such as 1 of a ratio; of bars: where they begin, else at 0."""
    labels: tuple[str, ...] = ()
    """Names of the places 0, 1, 2 … where the values are no numbers. Bars along a y axis with names lie; their intervals are of x."""


@record
class Line:
    """One line: as many x as y; y is None where there is no value."""

    label: str
    x: tuple[float, ...]
    y: tuple[float | None, ...]
    low: tuple[float | None, ...] = ()
    """Lower end of an interval around every y, and `high` the upper one; empty = none is known."""
    high: tuple[float | None, ...] = ()
    left: tuple[float, ...] = ()
    """Of points: the lower end of an interval of every x, and `right` the upper one; empty = none is known."""
    right: tuple[float, ...] = ()
    begin: tuple[float, ...] = ()
    """Of bars: where each begins; empty = all where their axis says."""
    style: str = "line"
    """line, dashed, points (measured ones), cloud (many small ones in the background), steps, bars."""


@record
class Field:
    """Values over a grid: `values[row][column]` at `y[row]`, `x[column]` of the figure's axes."""

    x: tuple[float, ...]
    y: tuple[float, ...]
    values: tuple[tuple[float | None, ...], ...]
    scale: Scale
    """What the values are; with `labels` they are places among those, else numbers."""


@record
class Mark:
    """Something to point at: a vertical line (x alone), a horizontal one (y alone), or a point."""

    says: str
    x: float | None = None
    y: float | None = None


@record
class Figure:
    """One picture. `slug` names it among the figures of an answer: small letters and hyphens."""

    slug: str
    title: str
    x: Scale
    y: Scale
    lines: tuple[Line, ...] = ()
    field: Field | None = None
    contours: tuple[Line, ...] = ()
    """Lines drawn over a field: where its values change."""
    marks: tuple[Mark, ...] = ()
    caption: tuple[str, ...] = ()
    """Sentences below it: what is held fixed, what the band is, what was found."""

    def to_dict(self) -> dict[str, Any]:
        """The entry of a JSON answer: the same description."""
        made = dataclasses.asdict(self)
        for line in (*made["lines"], *made["contours"]):
            if not line["begin"]:
                del line["begin"]
        return made
