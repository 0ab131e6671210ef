"""Where an axis has ticks and what they say: round numbers of one unit, or each with its own on an axis over many sizes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from shardmeter.core.quantity import unit_for
from shardmeter.core.record import record
from shardmeter.render import cells
from shardmeter.render.figure import Figure, Line, Scale

Values: TypeAlias = Iterable[float | None]
OWN_UNITS = 500.0
"""Largest over smallest value of a logarithmic axis beyond which every tick carries its own unit."""
SIZED = frozenset({"s", "B", "B/s", "bit/s", "FLOP", "FLOP/s", "W", "W*s"})
"""Units with prefixes."""
THOUSANDS = frozenset({"B/s", "bit/s", "FLOP", "FLOP/s", "W"})
"""Those whose prefixes are thousands apart: a logarithmic axis is told in that of its middle."""
STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
TIMES = {
    1e-9: "1 ns", 1e-8: "10 ns", 1e-7: "100 ns", 1e-6: "1 us", 1e-5: "10 us", 1e-4: "100 us", 1e-3: "1 ms", 0.01: "10 ms", 0.1: "100 ms",
    1.0: "1 s", 10.0: "10 s", 60.0: "1 min", 600.0: "10 min", 3600.0: "1 h", 36e3: "10 h", 864e2: "1 d", 864e3: "10 d", 864e4: "100 d",
    864e5: "1,000 d",
}  # fmt: skip
"""Round times, and what they are called."""
NEAR = 0.3
"""Share of the largest value up to which the least one has the axis begin at nothing."""
FEW = 9
"""Values of an axis up to which each gets a tick of its own when they are not evenly spread."""


@record
class Axis:
    """An axis as it is drawn: its ends, its ticks (value, text) and its title with the unit."""

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    title: str
    log: bool

    def place(self, value: float) -> float:
        """Where a value lies between the ends, 0 to 1; outside of them less or more."""
        if self.log:
            if value <= 0.0:
                return -1.0
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


def axis(scale: Scale, values: Values, *, most: int = 8, ends: tuple[float, float] | None = None) -> Axis:
    """The axis of a scale over values: at most about `most` ticks; its `ends` where they are given, else with some air around."""
    known = sorted(
        {value for value in values if value is not None and math.isfinite(value) and (value > 0 or not scale.log)}
    )
    known = known or [1.0, 2.0]
    low, high = ends if ends is not None else _ends(scale, known)
    if scale.labels:
        return Axis(low=low, high=high, ticks=tuple(enumerate(scale.labels)), title=scale.title, log=False)
    inside = [value for value in known if low <= value <= high]
    own = (
        scale.log
        and known[-1] / known[0] > OWN_UNITS
        and (scale.unit in SIZED or (high >= 1e6 and scale.unit in cells.SCALED))
    )
    few = (2 if ends is None else 1) < len(inside) <= min(FEW, most) and not (own and scale.unit == "s")
    if few and (scale.log or ends is not None) and _apart(inside, log=scale.log):
        ticks = inside
    else:
        ticks = (_powers if scale.log else _even)(scale.unit, low, high, most)
    if own:
        return Axis(
            low=low,
            high=high,
            ticks=tuple((tick, _own(tick, scale.unit)) for tick in ticks),
            title=scale.title,
            log=scale.log,
        )
    largest = math.sqrt(low * high) if scale.log and scale.unit in THOUSANDS else max(abs(low), abs(high))
    size, name = (1.0, scale.unit) if scale.log and scale.unit in ("", "×") else unit_for(largest, scale.unit)
    title = f"{scale.title} ({name})" if name else scale.title
    return Axis(
        low=low, high=high, ticks=tuple((tick, _plain(tick / size)) for tick in ticks), title=title, log=scale.log
    )


def of_figure(figure: Figure, *, most: tuple[int, int] = (8, 8)) -> tuple[Axis, Axis]:
    """The x and the y axis of a figure, over all that it shows; `most` ticks of each."""
    both: tuple[list[float | None], list[float | None]] = ([], [])
    for line in figure.lines:
        along, across = (1, 0) if lying(figure, line) else (0, 1)
        both[along].extend(line.y if along else line.x)
        both[across].extend((*(line.x if along else line.y), *line.low, *line.high))
        both[0].extend((*line.left, *line.right))
        if line.style == "bars" and not (figure.x if along else figure.y).log:
            both[across].append(0.0)
    for mark in figure.marks:
        both[0].append(mark.x)
        both[1].append(mark.y)
    if figure.field is not None:
        shown = figure.field
        ends = ((edges(shown.x, log=figure.x.log)), (edges(shown.y, log=figure.y.log)))
        x = axis(figure.x, shown.x, most=most[0], ends=(ends[0][0], ends[0][-1]))
        return x, axis(figure.y, shown.y, most=most[1], ends=(ends[1][0], ends[1][-1]))
    return axis(figure.x, both[0], most=most[0]), axis(figure.y, both[1], most=most[1])


def lying(figure: Figure, line: Line) -> bool:
    """Whether a line is of bars that lie: names stand along the y axis."""
    return line.style == "bars" and bool(figure.y.labels)


def edges(centres: Sequence[float], *, log: bool) -> list[float]:
    """Edges of the cells around centres, one more than those; one cell is a factor e (or 1) wide to each side."""
    at = [math.log(value) if log else float(value) for value in centres]
    middle = [(one + other) / 2.0 for one, other in itertools.pairwise(at)]
    first, last = (2.0 * at[0] - middle[0], 2.0 * at[-1] - middle[-1]) if middle else (at[0] - 1.0, at[0] + 1.0)
    return [math.exp(value) if log else value for value in (first, *middle, last)]


def _own(value: float, unit: str) -> str:
    """A tick's number with its unit."""
    return TIMES.get(value, cells.text(value, unit)) if unit == "s" else cells.text(value, unit)


def _plain(value: float) -> str:
    """A tick's number: as short as it is exact to four digits, from a thousand on to six, thousands apart."""
    rounded = float(f"{value:.{4 if abs(value) < 1e3 else 6}g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 1e4 or rounded == int(rounded) else f"{rounded:,.6g}"


def _ends(scale: Scale, known: Sequence[float]) -> tuple[float, float]:
    """The least and the largest with some air; from nothing on where that is not far."""
    low, high = known[0], known[-1]
    if scale.labels:
        return -0.6, len(scale.labels) - 0.4
    if scale.log:
        air = max((high / low) ** 0.05, 1.05)
        return low / air, high * air
    room = (high - low) or abs(high) or 1.0
    return (0.0 if 0.0 <= low <= NEAR * high else low - 0.06 * room), (
        0.0 if high <= 0.0 < -low else high + 0.08 * room
    )


def _apart(values: Sequence[float], *, log: bool) -> bool:
    """Whether ticks at all of them leave their texts room."""
    at = [math.log(value) if log else value for value in values]
    return all(more - less > 0.07 * (at[-1] - at[0]) for less, more in itertools.pairwise(at))


def _even(unit: str, low: float, high: float, most: int) -> list[float]:
    """Multiples of the smallest round step, in the unit of the axis, that needs no more ticks."""
    size = unit_for(max(abs(low), abs(high)), unit)[0]
    least = (high - low) / size / most
    power = 10.0 ** math.floor(math.log10(least))
    step = next(step * power for step in STEPS if step * power >= least * (1.0 - 1e-9)) * size
    first = math.ceil(low / step - 1e-9)
    return [number * step for number in range(first, math.floor(high / step + 1e-9) + 1)]


def _powers(unit: str, low: float, high: float, most: int) -> list[float]:
    """Round numbers on a logarithmic axis: powers of ten (of two for bytes), with 2 and 5 or 3 between where there is room."""
    if unit == "s" and high / low > OWN_UNITS:
        return _thinned([time for time in TIMES if low <= time <= high], most)
    if unit == "B":
        exponents = range(math.ceil(math.log2(low)), math.floor(math.log2(high)) + 1)
        return _thinned([2.0**exponent for exponent in exponents], most)
    size = unit_for(high, unit)[0]
    decades = range(math.floor(math.log10(low / size)), math.ceil(math.log10(high / size)) + 1)
    for between in ((1, 2, 3, 4, 5, 6, 7, 8, 9), (1, 2, 5), (1, 3), (1,)):
        made = [digit * 10.0**decade * size for decade in decades for digit in between]
        inside = [tick for tick in made if low <= tick <= high]
        if len(inside) <= most:
            return inside if len(inside) > 1 else _even(unit, low, high, most)
    return _thinned(inside, most)


def _thinned(ticks: list[float], most: int) -> list[float]:
    return ticks[:: max(1, math.ceil(len(ticks) / most))]
