"""One value as text: three or four significant digits, and its unit always shown."""

from __future__ import annotations

import math

from shardmeter.core.quantity import show
from shardmeter.render.document import Value

SCALED = frozenset(
    {"s", "B", "B/s", "bit/s", "FLOP", "FLOP/s", "W", "W*s", "tokens"}
    | {"USD", "USD/s", "USD/B", "USD/(B*s)", "USD/(W*s)", "kg/(W*s)"}
)
"""Units that `core.quantity.show` scales by itself; any other unit is written after the number as it is."""
COUNTED = frozenset({"sequences", "steps", "bits", "nodes", "islands"})
"""Words that lose their s with one."""
MISSING = "–"
EIGHTHS = " ▏▎▍▌▋▊▉"
ROUND_DOLLARS = 99.995
"""Dollars from which on they are whole, so that an end of an interval has its three digits before its unit."""
SHORTEST = 1e-6
"""Seconds below which a time is no news; formulas (`exact`) are shown whole, and without zeros at the end."""


def text(value: Value, unit: str = "", *, exact: bool = False) -> str:
    """A value for people. `%` takes a fraction; an SI unit is scaled (`311 ms`); any other unit follows the number."""
    if value is None:
        return MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    if not math.isfinite(value):
        return MISSING
    if unit == "%":
        return f"{100 * value:.1f} %"
    if unit == "±%":
        return "0.0 %" if abs(value) < 5e-4 else f"{100 * value:+.1f} %"
    if unit == "GiB":
        return f"{value:,.2f} GiB"
    if unit == "s" and 0 < value < SHORTEST and not exact:
        return "< 1 us"
    if unit in SCALED:
        return show(value, unit, padded=unit == "s" and not exact)
    return f"{number(value)} {unit.removesuffix('s') if value == 1.0 and unit in COUNTED else unit}".rstrip()


def signed(value: Value, unit: str = "") -> str:
    """A difference: the same with its sign, plus too; none of what is shown as nothing."""
    if not isinstance(value, int | float):
        return text(value, unit)
    size = text(abs(value), unit)
    return size if size == text(0.0, unit) else f"{'+' if value > 0 else '-'}{size}"


def coarse(value: float, unit: str = "") -> str:
    """A value that is known roughly, such as an end of an interval: three significant digits in its unit, rounded once (`22.3 d`,
    `406,000 tokens/s`). What `text` itself writes with as few digits is left to it."""
    kept = unit in ("%", "±%", "GiB") or (unit in SCALED and not (unit == "USD" and abs(value) >= ROUND_DOLLARS))
    return text(value if kept else float(f"{value:.3g}"), unit)


def between(low: float, high: float, unit: str = "") -> str:
    """Both ends of an interval: `22.2 to 28.5 d`; a unit that both have is said once."""
    (first, _, one), (last, _, other) = (coarse(end, unit).partition(" ") for end in (low, high))
    return f"{first if one == other else f'{first} {one}'} to {last} {other}".rstrip()


def number(value: float) -> str:
    """A bare number: whole ones and large ones with thousands apart, others with four significant digits."""
    if value == 0:
        return "0"
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{value:,.0f}"
    if 1e-3 <= abs(value) < 1e3:
        return f"{value:.4g}"
    if 1e3 <= abs(value) < 1e15:
        return f"{value:,.0f}"
    return f"{value:.3e}"


def bar(share: float | None, width: int, *, plain: bool = False) -> str:
    """A fraction of `width` as a bar; more than the whole ends in an arrow, less than it resolves is nothing.

    `plain` keeps to ASCII."""
    if share is None or not math.isfinite(share) or share <= 0:
        return ""
    if share > 1:
        return ("#" if plain else "█") * (width - 1) + (">" if plain else "▶")
    if plain:
        return "#" * round(share * width)
    whole, rest = divmod(round(share * width * 8), 8)
    return ("█" * whole + EIGHTHS[rest]).rstrip()
