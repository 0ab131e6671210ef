"""Numbers, sizes, durations and clocks as logs write them. What cannot be read is None: a log is never refused for one number."""

from __future__ import annotations

import functools
import math
import re
from datetime import UTC, datetime

from shardmeter.core.units import Bytes, Seconds

MIB, GIB, GB = 2.0**20, 2.0**30, 1e9
LONGEST_WORD = 48
HUMAN = {"": 1.0, "K": 1e3, "k": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12, "P": 1e15}
SIZES = {"B": 1.0, "KiB": 2.0**10, "MiB": MIB, "GiB": GIB, "TiB": 2.0**40, "KB": 1e3, "MB": 1e6, "GB": GB, "TB": 1e12}
CLOCK = re.compile(r"(\d{4}-\d\d-\d\d)[ T,](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?")
AMERICAN = re.compile(r"(\d\d)/(\d\d)/(\d{4}) (\d\d):(\d\d):(\d\d)")
"""Month, day, year."""
LARGEST = 1e18


def number(text: str | float | None) -> float | None:
    """`6,000` → 6000; NaN and infinities stay what they are; None for what is no number."""
    if text is None or isinstance(text, bool):
        return None
    if isinstance(text, int | float):
        return float(text) if abs(text) < LARGEST else math.inf
    try:
        return float(text.replace(",", "") if "," in text else text)
    except ValueError:
        return None


def positive(text: str | float | None) -> float | None:
    """A number above zero and below any misprint; else None."""
    value = number(text)
    return value if value is not None and 0 < value < LARGEST else None


def whole(text: str | float | None) -> int | None:
    """A count from 0; None for anything else."""
    value = number(text)
    return int(value) if value is not None and 0 <= value < 1e15 else None


def human(text: str | None) -> float | None:
    """`5.46K` → 5460."""
    if not text:
        return None
    suffix = text[-1:] if text[-1:].isalpha() else ""
    value = positive(text.removesuffix(suffix)) if suffix in HUMAN else None
    return None if value is None else value * HUMAN[suffix]


def size(text: str, unit: str) -> Bytes | None:
    """A number in a unit of `SIZES` as bytes."""
    value = positive(text)
    return None if value is None or unit not in SIZES else value * SIZES[unit]


def times(value: str | float | None, unit: float) -> float | None:
    """A positive number in a unit, in SI."""
    found = positive(value)
    return None if found is None else found * unit


def inverse(value: str | float | None) -> float | None:
    """Seconds of one at so many a second."""
    found = positive(value)
    return None if found is None else 1.0 / found


def word(text: str, key: str) -> str | None:
    """What stands behind a key, up to the next space, without the signs around it: `tps: 6,000  mfu` and `tps=6,000, mfu` → `6,000`."""
    start = text.find(key)
    if start < 0:
        return None
    start += len(key)
    found = text[start : start + LONGEST_WORD].lstrip("=: ").split(None, 1)
    return found[0].rstrip(",|]") if found else None


def clock(text: str) -> Seconds | None:
    """The first date and time of a line, in seconds; None where there is none. Dates are taken as of one zone."""
    if (found := CLOCK.search(text)) is not None:
        date, hour, minute, second, part = found.groups()
    elif (found := AMERICAN.search(text)) is not None:
        month, day, year, hour, minute, second = found.groups()
        date, part = f"{year}-{month}-{day}", None
    else:
        return None
    midnight = _midnight(date)
    return None if midnight is None else midnight + 3600 * int(hour) + 60 * int(minute) + float(f"{second}.{part or 0}")


@functools.lru_cache(maxsize=64)
def _midnight(date: str) -> Seconds | None:
    try:
        return datetime.fromisoformat(date).replace(tzinfo=UTC).timestamp()
    except (ValueError, OverflowError):
        return None


def duration(text: str) -> Seconds | None:
    """`1:02:03`, `18:12`, `2 days, 1:02:03` or `1d 02:03:04` → seconds."""
    found = re.fullmatch(r"\s*(?:(\d+) ?d(?:ays?)?,?\s*)?(?:(\d+):)?(\d+):(\d+(?:\.\d+)?)\s*", text)
    if found is None or any(part is not None and len(part) > 12 for part in found.groups()):
        return None
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return 86400.0 * days + 3600.0 * hours + 60.0 * minutes + seconds
