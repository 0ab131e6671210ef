"""Which values of an axis tell what is wrong with it: names one by one, of many numbers their ends."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

FEW = 64
"""Points of an axis that are all looked at."""
_NUMBER = re.compile(r"(\$?)([+-]?[0-9]{1,15}(?:\.[0-9]{1,15})?)([^0-9]{0,20})", re.ASCII)
"""A text of one number and a unit."""
_LARGEST = 1e300


def telling(points: Sequence[tuple[Any, ...]]) -> list[int]:
    """The places of the points to look at, ascending: all of a few; of many, one of every kind, and of every kind that is a
    number its least and its largest.

    A rule for one number has a least, a largest, and whether it must be whole: so what it refuses in between, it refuses at
    an end of that kind."""
    if len(points) <= FEW:
        return list(range(len(points)))
    ends: dict[Any, list[tuple[tuple[float, ...], int]]] = {}
    for place, point in enumerate(points):
        kinds, sizes = zip(*map(_kind, point), strict=True)
        ends.setdefault(kinds, []).append((sizes, place))
    found: set[int] = set()
    for some in ends.values():
        for column in range(len(some[0][0])):
            found |= {min(some, key=lambda one: one[0][column])[1], max(some, key=lambda one: one[0][column])[1]}
    return sorted(found)


def _kind(value: Any) -> tuple[Any, float]:
    """What a value is like, and its size among those: numbers of one unit, whole ones apart, are of one kind."""
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _LARGEST:
        return (float(value).is_integer(), ""), float(value)
    match = _NUMBER.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return repr(value), 0.0
    return (float(match[2]).is_integer(), match[1] + match[3]), float(match[2])
