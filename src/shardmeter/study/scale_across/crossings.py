"""Where on the map one placement takes over from another."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

ALONG = (("distance_km", "oversubscription"), ("oversubscription", "distance_km"))


def crossings(points: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Between neighbours of the map with unlike winners, the place at which both would take as long: straight lines between logarithms of
    the steps of either placement, over the logarithm of the axis.

    Leaves out: placements that win between two points only."""
    mapped = [one for one in points if one["distance_km"] > 0.0]
    return [found for axis, other in ALONG for found in _along(mapped, axis, other)]


def _along(points: Sequence[Mapping[str, Any]], axis: str, other: str) -> Iterator[dict[str, Any]]:
    for fixed in sorted({one[other] for one in points}):
        line = sorted((one for one in points if one[other] == fixed), key=lambda one: one[axis])
        for one, following in itertools.pairwise(line):
            if one["winner"] != following["winner"] and one[axis] < following[axis]:
                at = _place(one, following, axis)
                yield {"along": axis, other: fixed, "at": at, "from": one["winner"], "to": following["winner"]}


def _place(one: Mapping[str, Any], following: Mapping[str, Any], axis: str) -> float:
    """Where the two winners are as fast."""
    first, last = one["winner"], following["winner"]
    here, there = ({name: point["placements"][name] for name in (first, last)} for point in (one, following))
    if any(value is None for value in (*here.values(), *there.values())):
        return math.sqrt(one[axis] * following[axis])
    ahead, behind = math.log(here[last] / here[first]), math.log(there[first] / there[last])
    part = 0.5 if ahead + behind <= 0.0 else ahead / (ahead + behind)
    return float(math.exp(math.log(one[axis]) * (1.0 - part) + math.log(following[axis]) * part))
