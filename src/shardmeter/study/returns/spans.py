"""Regimes of diminishing returns: pieces of the axis by the exponent of the rate, and by what rules the efficiency that is lost."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from shardmeter.core.record import record
from shardmeter.core.sums import plain_sum

BETTER, LINEAR, DIMINISHING, STEEP, FLAT, NEGATIVE = (
    "better than linear",
    "linear",
    "diminishing",
    "steeply diminishing",
    "flat",
    "negative",
)
LEAST = ((1.05, BETTER), (0.9, LINEAR), (0.5, DIMINISHING), (0.1, STEEP), (-0.05, FLAT), (-math.inf, NEGATIVE))
"""The least exponent d ln rate / d ln x of every word: doubling x gives over 2.07 times the rate, over 1.87 times, over 1.41 times, over
1.07 times, about as much, less. 0.5 is the knee's HALF."""


@record
class At:
    """A point through which the curve passes: x, tokens a second, and seconds a token by regime."""

    x: float
    rate: float
    seconds: Mapping[str, float]


def word(exponent: float) -> str:
    """The regime of returns of an exponent."""
    return next(name for least, name in LEAST if exponent >= least)


def exponent(a: At, b: At) -> float:
    """Slope between two points on log-log paper."""
    return math.log(b.rate / a.rate) / math.log(b.x / a.x)


def lost(a: At, b: At) -> dict[str, float]:
    """What each regime adds to x-seconds a token (GPU-seconds, along GPUs) from a to b; negative where it takes less.

    A rate in proportion to x leaves the sum as it is, so the sum of these is all the efficiency that is lost."""
    names = dict.fromkeys([*a.seconds, *b.seconds])
    return {name: b.x * b.seconds.get(name, 0.0) - a.x * a.seconds.get(name, 0.0) for name in names}


def ruling(found: Mapping[str, float]) -> tuple[str | None, float | None]:
    """The regime that loses most, and its share of all that is lost; None where nothing is."""
    whole = plain_sum(value for value in found.values() if value > 0.0)
    if whole <= 0.0:
        return None, None
    name = max(found, key=lambda one: found[one])
    return name, found[name] / whole


def spans(points: Sequence[At]) -> list[dict[str, Any]]:
    """Spans of the axis, ascending: neighbours of one word and one ruling regime are one span (linear ones whatever
    rules what little they lose)."""
    made: list[list[int]] = []
    keys: list[tuple[str, str | None]] = []
    for at, (a, b) in enumerate(itertools.pairwise(points)):
        returns = word(exponent(a, b))
        key = returns, None if returns in (BETTER, LINEAR) else ruling(lost(a, b))[0]
        if keys and keys[-1] == key:
            made[-1][1] = at + 1
        else:
            made.append([at, at + 1])
            keys.append(key)
    return [_span(points, *one) for one in made]


def _span(points: Sequence[At], first: int, last: int) -> dict[str, Any]:
    a, b, start = points[first], points[last], points[0]
    name, share = ruling(lost(a, b))
    slope = exponent(a, b)
    return {
        "from": a.x,
        "to": b.x,
        "exponent": slope,
        "returns": word(slope),
        "rules": name,
        "rules_share": share,
        "efficiency_from": (a.rate / a.x) / (start.rate / start.x),
        "efficiency_to": (b.rate / b.x) / (start.rate / start.x),
    }
