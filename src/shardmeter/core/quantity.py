"""Text with units in and out: `quantity("400 Gbps", "bandwidth")` → 5e10 B/s; `show(5e10, "B/s")` → "50 GB/s".

Small b is bit, capital B is byte; GB = 10⁹ B, GiB = 2³⁰ B; k M B T are decimal. What can be read in two ways (`400G`,
`GBPS`, `80 gb`) is refused with both readings, and so is a bare number where a unit is needed: never a guess.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable

from shardmeter.core.errors import BadQuantity, kind_of, shown

BOUNDS: dict[str, tuple[float, float]] = {
    "bandwidth": (1e3, 1e18),
    "size": (1.0, 1e18),
    "time": (1e-12, 1e10),
    "count": (0.0, 1e15),
    "flops_rate": (1e6, 1e24),
    "power": (1e-3, 1e12),
    "price": (1e-12, 1e6),
    "egress": (1e-18, 1e-3),
    "money": (1e-6, 1e15),
    "storage": (1e-20, 1e-12),
    "electricity": (1e-11, 1e-4),
    "carbon": (1e-11, 1e-5),
    "fraction": (1e-9, 1.0),
    "ratio": (1e-3, 1e3),
    "length": (1e-3, 1e8),
}
"""Least (above zero) and largest sensible size of each dimension, in SI units: what lies outside is a misprint. Counts end
well below 2⁵³, up to where a float holds every whole number."""
_LONGEST = 100
_NUMBER = re.compile(r"\s*([+-]?(?:\d+(?:_\d+)*(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,4})?)\s*(.*?)\s*", re.DOTALL)
_COMMAS = re.compile(r"[+-]?\d{1,3}(?:,\d{3})+(?![\d,])")

_DECIMAL = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50}
_PREFIX = _DECIMAL | _BINARY
_SIZE = {f"{p}B": x for p, x in _PREFIX.items()} | {f"{p}bit": x / 8 for p, x in _PREFIX.items()}
_BANDWIDTH = {f"{p}{b}": x for p, x in _PREFIX.items() for b in ("B/s", "Bps")} | {
    f"{p}{b}": x / 8 for p, x in _PREFIX.items() for b in ("b/s", "bps", "bit/s")
}
_HOUR = {"h": 3600.0, "hr": 3600.0, "hour": 3600.0, "hours": 3600.0}
_DAY = {"d": 86400.0, "day": 86400.0, "days": 86400.0}
_TIME = _HOUR | _DAY | {
    "ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0, "second": 1.0, "seconds": 1.0,
    "min": 60.0, "minute": 60.0, "minutes": 60.0, "week": 604800.0, "weeks": 604800.0,
}  # fmt: skip
_FLOPS = {f"{p}{f}": x for p, x in _DECIMAL.items() if p != "K" for f in ("FLOP/s", "FLOPs/s", "FLOPS", "FLOPs/sec")}
_SUFFIX = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
_UNITS: dict[str, dict[str, float]] = {
    "bandwidth": _BANDWIDTH,
    "size": _SIZE,
    "time": _TIME,
    "flops_rate": _FLOPS,
    "power": {"W": 1.0, "kW": 1e3, "MW": 1e6},
    "count": _SUFFIX,
    "ratio": {"": 1.0},
    "fraction": {"": 1.0, "%": 0.01},
    "money": _SUFFIX,
    "length": {"m": 1.0, "km": 1e3},
    "carbon": {"g/kWh": 1e-3 / 3.6e6, "kg/MWh": 1e-3 / 3.6e6, "kg/kWh": 1.0 / 3.6e6, "t/MWh": 1.0 / 3.6e6},
}
MONTH = 730.0 * 3600.0
"""Seconds of a month as clouds bill one: 730 h."""
_KWH = {"kWh": 3.6e6, "MWh": 3.6e9}
_WORDS = {
    "token": "tokens", "tokens": "tokens", "step": "steps", "steps": "steps",
    "sequence": "sequences", "sequences": "sequences",
}  # fmt: skip
EXAMPLES = {
    "bandwidth": "400 Gbps or 50 GB/s",
    "size": "80 GiB or 2 GB",
    "time": "40 ms, 2 h or 30 d",
    "count": "8, 4M or 1.5T",
    "flops_rate": "989 TFLOP/s",
    "power": "700 W",
    "price": "$2.10/gpu/h or $98.32/node/h",
    "egress": "$0.02/GB",
    "money": "$2M",
    "storage": "$0.023/GB/month",
    "electricity": "$0.08/kWh",
    "carbon": "380 g/kWh",
    "fraction": "0.9",
    "ratio": "1.25",
    "length": "300 m or 80 km",
}
"""How a quantity of each dimension is written: the dimensions that `quantity` knows."""
_BARE = ("count", "fraction", "ratio")
_DOUBTFUL = {
    "size": {"Gb": "bits or bytes", "Mb": "bits or bytes", "Tb": "bits or bytes", "kb": "bits or bytes"},
    "time": {
        "m": "5 min or 5 months", "month": "30 d or a calendar month", "months": "30 d or a calendar month",
        "y": "365 d or 365.25 d", "year": "365 d or 365.25 d", "years": "365 d or 365.25 d",
    },
    "flops_rate": {
        f"{p}FLOPs": f"{p}FLOP/s (a rate) or {p}FLOP (an amount)" for p in ("", "k", "M", "G", "T", "P", "E")
    },
    "price": {},
}  # fmt: skip


def quantity(text: object, dimension: str, words: tuple[str, ...] = ()) -> float:
    """Read `text` as a quantity of `dimension` (a key of `EXAMPLES`) in SI: B/s, B, s, 1, FLOP/s, W, USD/s, USD/B, USD,
    USD/(B*s), USD/J, kg/J, m.

    Numbers are taken bare only for count, ratio and fraction. A price comes without its basis (see `price`). `words` may
    follow a count (`8192 tokens`). Raises BadQuantity for what cannot be read, what can be read in two ways, and what lies
    outside of `BOUNDS`, NaN and infinite included; 0 stays 0.
    """
    if dimension not in EXAMPLES:
        raise ValueError(f"unknown dimension {dimension!r}; known: {', '.join(EXAMPLES)}")
    if dimension == "price":
        return price(text)[0]
    if dimension in ("egress", "storage", "electricity"):
        return _dollars_per(text, dimension)
    if dimension == "count":
        number, word = counted(text)
        if word and word not in words:
            wanted = f"{words[0]} or a plain number" if words else "a plain number"
            raise BadQuantity(f"{_quoted(text)} counts {word}, where {wanted} belongs")
        return number
    number, unit = _split(text, dimension)
    if dimension == "money":
        return _checked(number * _scale(_dollars(text, unit, "money"), text, "money"), text, "money")
    return _checked(number * _scale(unit, text, dimension), text, dimension)


def counted(text: object) -> tuple[float, str]:
    """Read a count with the word that may follow it: `8M tokens` → (8e6, "tokens"); without one the word is "".

    Words: tokens, steps, sequences. Raises BadQuantity.
    """
    number, unit = _split(text, "count")
    suffix, _, word = unit.rpartition(" ") if " " in unit else ("", "", unit)
    if word in _WORDS:
        return _checked(number * _scale(suffix.strip(), text, "count"), text, "count"), _WORDS[word]
    return _checked(number * _scale(unit, text, "count"), text, "count"), ""


def price(text: object) -> tuple[float, str]:
    """Read `$2.10/gpu/h` or `$98.32/node/h` as (USD/s, "gpu" or "node"). Raises BadQuantity."""
    number, unit = _split(text, "price")
    parts = [part.strip() for part in _dollars(text, unit, "price").replace("-", "/").split("/")]
    if len(parts) == 2 and parts[0] == "" and parts[1] in _HOUR | _DAY:
        shown = _quoted(text)
        raise BadQuantity(f"{shown} could be per GPU or per node: write ${number:g}/gpu/h or ${number:g}/node/h")
    if len(parts) != 3 or parts[0] or parts[1].lower() not in ("gpu", "node") or parts[2] not in _HOUR | _DAY:
        raise BadQuantity(f"{_quoted(text)} is no price; write it like {EXAMPLES['price']}")
    return _checked(number / (_HOUR | _DAY)[parts[2]], text, "price"), parts[1].lower()


def _dollars_per(text: object, dimension: str) -> float:
    """A price of bytes sent ($/GB), of bytes kept ($/GB/month) or of electricity ($/kWh) in SI."""
    number, unit = _split(text, dimension)
    before, *of = (part.strip() for part in _dollars(text, unit, dimension).replace("-", "/").split("/"))
    months = of[1:] in (["month"], ["mo"]) if dimension == "storage" else not of[1:]
    if before or not of or not months or (dimension == "electricity" and of[0] not in _KWH):
        raise BadQuantity(f"{_quoted(text)} is no {_name(dimension)}; write it like {EXAMPLES[dimension]}")
    size = _KWH[of[0]] if dimension == "electricity" else _scale(of[0], text, "size")
    return _checked(number / (size * (MONTH if dimension == "storage" else 1.0)), text, dimension)


def _split(text: object, dimension: str) -> tuple[float, str]:
    """The number and the unit text of a quantity; money keeps a leading `$` in front of the unit."""
    if isinstance(text, bool) or text is None:
        raise BadQuantity(f"{_quoted(text)} is no {_name(dimension)}; write it like {EXAMPLES[dimension]}")
    if not isinstance(text, str):
        return _bare(text, dimension), ""
    if len(text) > _LONGEST:
        raise BadQuantity(f"a text of {len(text)} characters is no {_name(dimension)}; e.g. {EXAMPLES[dimension]}")
    body, dollar = text.strip(), ""
    if body.startswith("$"):
        body, dollar = body[1:], "$"
    comma = _COMMAS.match(body.strip())
    if comma and dollar:
        body = body.strip().replace(",", "", comma.group().count(","))
    elif "," in body:
        plain = body.replace(",", "")
        raise BadQuantity(
            f"{_quoted(text)} could mean {plain} or {body.replace(',', '.', 1)}: write it without a comma"
        )
    match = _NUMBER.fullmatch(body)
    if match is None or not body.isprintable() or not match.group(1).isascii():
        hint = "must be finite" if body.lower().lstrip("+-")[:3] in ("nan", "inf") else "has no number in front"
        raise BadQuantity(f"{_quoted(text)} {hint}; a {_name(dimension)} is written like {EXAMPLES[dimension]}")
    return float(match.group(1).replace("_", "")), dollar + match.group(2)


def _bare(number: object, dimension: str) -> float:
    """A Python or NumPy number, where one may stand without a unit."""
    try:
        value = float(number)  # type: ignore[arg-type]
    except OverflowError:
        value = math.inf
    except (TypeError, ValueError):
        raise BadQuantity(f"{kind_of(number)} is no {_name(dimension)}; write it like {EXAMPLES[dimension]}") from None
    if dimension not in _BARE:
        raise BadQuantity(f"{_quoted(number)} has no unit; a {_name(dimension)} is written like {EXAMPLES[dimension]}")
    return value


def _scale(unit: str, text: object, dimension: str) -> float:
    """The SI size of a unit, or the refusal: no unit, two readings, or a unit of something else."""
    units = _UNITS[dimension]
    if unit in units:
        return units[unit]
    shown, wanted = _quoted(text), f"a {_name(dimension)} is written like {EXAMPLES[dimension]}"
    if not unit:
        raise BadQuantity(f"{shown} has no unit; {wanted}")
    if unit in _DOUBTFUL.get(dimension, {}):
        raise BadQuantity(f"{shown} can be read in two ways: {_DOUBTFUL[dimension][unit]}; {wanted}")
    readings = _readings(unit, dimension)
    if len(readings) > 1:
        raise BadQuantity(f"{shown} can be read in two ways: {' or '.join(readings)}; write the one you mean")
    if readings:
        raise BadQuantity(f"{shown}: did you mean {readings[0]!r}? {wanted}")
    raise BadQuantity(f"{shown}: {unit!r} is no unit here; {wanted}")


def _readings(unit: str, dimension: str) -> tuple[str, ...]:
    """The units that a careless spelling could mean, one spelling of each size."""
    stretched = unit
    if dimension in ("bandwidth", "size") and unit.upper() in ("K", "M", "G", "T", "P"):
        stretched = unit + "b"
    if dimension == "flops_rate" and unit.upper() in ("K", "M", "G", "T", "P"):
        stretched = unit + "FLOP"
    plain = stretched.lower().replace("ps", "").replace("/s", "").replace("bit", "b")
    found: dict[float, str] = {}
    for candidate, size in _UNITS[dimension].items():
        same = candidate.lower() == stretched.lower()
        loose = candidate.lower().replace("ps", "").replace("/s", "").replace("bit", "b") == plain
        if candidate and (same or (dimension in ("bandwidth", "size", "flops_rate") and loose)):
            found.setdefault(size, candidate)
    return tuple(found.values())


def _dollars(text: object, unit: str, dimension: str) -> str:
    """The unit text without its currency, which must be US dollars."""
    if unit.startswith("$"):
        return unit[1:].strip()
    head, slash, tail = unit.partition("/")
    if head.strip().endswith("USD"):
        return (head.strip()[:-3] + slash + tail).strip()
    raise BadQuantity(f"{_quoted(text)} has no $; a {_name(dimension)} is written like {EXAMPLES[dimension]}")


def _checked(value: float, text: object, dimension: str) -> float:
    least, most = BOUNDS[dimension]
    if value < 0:
        raise BadQuantity(f"{_quoted(text)} is negative; a {_name(dimension)} cannot be")
    if dimension == "fraction" and value > most:
        raise BadQuantity(f"{_quoted(text)} is no fraction: it lies between 0 and 1 (write 0.05 or 5%)")
    unit = _SI.get(dimension, "1")
    if not math.isfinite(value) or value > most:
        limit = show(most, unit) if unit != "1" else f"{most:g}"
        raise BadQuantity(f"{_quoted(text)} is too large or not finite for a {_name(dimension)} (at most {limit})")
    if 0 < value < least:
        limit = show(least, unit) if unit != "1" else f"{least:g}"
        raise BadQuantity(f"{_quoted(text)} is too small for a {_name(dimension)} (at least {limit})")
    return value


_SI = {
    "bandwidth": "B/s", "size": "B", "time": "s", "flops_rate": "FLOP/s", "power": "W", "price": "USD/s", "egress": "USD/B",
    "money": "USD", "storage": "USD/(B*s)", "electricity": "USD/(W*s)", "carbon": "kg/(W*s)",
}  # fmt: skip


def _quoted(text: object) -> str:
    return shown(text)


def _name(dimension: str) -> str:
    return {
        "flops_rate": "rate of FLOPs", "egress": "price of traffic", "money": "sum of money", "size": "size in bytes",
        "storage": "price of storage", "electricity": "price of electricity", "carbon": "carbon intensity of a grid",
    }.get(dimension, dimension)  # fmt: skip


_LADDERS: dict[str, tuple[tuple[float, str], ...]] = {
    "s": ((172800.0, "d"), (7200.0, "h"), (120.0, "min"), (1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")),
    "B": ((2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B")),
    "B/s": ((1e12, "TB/s"), (1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"), (1.0, "B/s")),
    "bit/s": ((1e12, "Tbit/s"), (1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s"), (1.0, "bit/s")),
    "FLOP": ((1e18, "EFLOP"), (1e15, "PFLOP"), (1e12, "TFLOP"), (1e9, "GFLOP"), (1e6, "MFLOP"), (1.0, "FLOP")),
    "FLOP/s": ((1e15, "PFLOP/s"), (1e12, "TFLOP/s"), (1e9, "GFLOP/s"), (1e6, "MFLOP/s"), (1.0, "FLOP/s")),
    "W": ((1e6, "MW"), (1e3, "kW"), (1.0, "W")),
    "W*s": ((3.6e9, "MWh"), (3.6e6, "kWh"), (1.0, "J")),
}
_RATES = {
    "USD/B": ("$", 1e9, "/GB"), "USD/(B*s)": ("$", 1e9 * MONTH, "/GB/month"), "USD/(W*s)": ("$", 3.6e6, "/kWh"),
    "kg/(W*s)": ("", 3.6e9, " g/kWh"),
}  # fmt: skip
"""Units of one kind: what stands before the number, what it is multiplied by, what stands behind it."""
_COUNTS = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e4, "k"))


def show(value: float | None, unit: str, *, padded: bool = False) -> str:
    """A number of SI `unit` as people read it: three significant digits (`padded`: zeros at the end too, as in a column of
    seconds) and always its unit.

    `unit` is a symbol of `core.units` (s, B, B/s, FLOP, FLOP/s, W, W*s, USD, USD/s, USD/B, kg/(W*s), …, 1), "bit/s", "%" for a
    fraction, or a word for a count ("tokens"). None and what is not finite read "n/a".
    """
    if value is None or not math.isfinite(value):
        return "n/a"
    if value < 0:
        return "-" + show(-value, unit, padded=padded)
    value = float(value)
    if unit == "USD":
        return _show_money(value)
    if unit == "USD/s":
        return f"${value * 3600:,.2f}/h"
    if unit in _RATES:
        before, size, after = _RATES[unit]
        return f"{before}{_digits(value * size)}{after}"
    if unit == "%":
        return f"{_digits(value * 100)}%"
    if unit in _LADDERS:
        return _show_ladder(value, unit, _padded if padded else _digits)
    word = "" if unit in ("", "1") else f" {unit}"
    for size, suffix in _COUNTS:
        if _rounded(value) >= size:
            return f"{_digits(value / (1e3 if suffix == 'k' else size))}{suffix}{word}"
    return (f"{value:.0f}" if value == round(value) else _digits(value)) + word


def _show_ladder(value: float, unit: str, digits: Callable[[float], str]) -> str:
    ladder = _LADDERS[unit]
    sizes = {"d": 86400.0, "h": 3600.0, "min": 60.0}
    for threshold, name in ladder:
        size = sizes.get(name, threshold) if unit == "s" else threshold
        if _rounded(value / size) >= threshold / size:
            return f"{digits(value / size)} {name}"
    if value == 0.0:
        return f"0 {unit.replace('W*s', 'J')}"
    size, name = ladder[-1]
    return f"{digits(value / size)} {name}"


def unit_for(value: float, unit: str) -> tuple[float, str]:
    """The size and the name of the one unit in which an axis up to `value` reads best: 3e6 s → (86400.0, "d"), 2e10 B/s → (1e9, "GB/s"),
    5e6 USD → (1e6, "$M"), 0.4 % → (0.01, "%"). Counts and words from a million on are in millions: 3e6 tokens/s → (1e6, "M tokens/s")."""
    value = abs(value) if math.isfinite(value) else 0.0
    if unit in ("%", "±%"):
        return 0.01, "%"
    if unit == "USD/s":
        return 1.0 / 3600.0, "$/h"
    if unit in _RATES:
        before, size, after = _RATES[unit]
        return 1.0 / size, f"{before}{after}".strip()
    if unit in _LADDERS:
        sizes = {"d": 86400.0, "h": 3600.0, "min": 60.0}
        found = next((one for one in _LADDERS[unit] if value >= one[0]), _LADDERS[unit][-1] if value else (1.0, unit))
        return (sizes.get(found[1], found[0]) if unit == "s" else found[0]), found[1]
    size, suffix = next(((size, suffix) for size, suffix in _COUNTS[:-1] if value >= size), (1.0, ""))
    if unit == "USD":
        return size, f"${suffix}"
    words = {"M": "millions", "B": "billions", "T": "trillions", "": ""}
    return size, words[suffix] if unit in ("", "1") else f"{suffix} {unit}".strip()


def _show_money(value: float) -> str:
    for size, suffix in _COUNTS[:-1]:
        if _rounded(value) >= size:
            return f"${_digits(value / size)}{suffix}"
    if value >= 99.995:
        return f"${value:,.0f}"
    return f"${value:.2f}" if value >= 0.995 or value == 0.0 else f"${_digits(value)}"


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")


def _padded(value: float) -> str:
    """Three significant digits with the zeros at their end: 2.00, 14.0, 410."""
    rounded = _rounded(value)
    return f"{rounded:#.3g}".rstrip(".") if 1e-3 <= rounded < 1e3 else _digits(value)


def _digits(value: float) -> str:
    """Three significant digits, without an exponent unless the number is extreme."""
    rounded = _rounded(value)
    if rounded != 0.0 and not 1e-9 <= rounded < 1e16:
        return f"{rounded:g}"
    return f"{rounded:.12f}".rstrip("0").rstrip(".")
