"""Islands that differ in numbers of their links and their price, as one island with arrays.

Each of these numbers reaches fields of its own, and no choice is made by it: so what it does alone, read from a scenario
with only that number changed, is what it does beside any other. The rest of a fleet (names, sizes) is read point by point.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import is_dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from shardmeter.core.record import changed, field_names
from shardmeter.specs import Island

Places: TypeAlias = npt.NDArray[np.int64]
_APART = re.compile(r"fleet\.islands\.[^.]+\.(price|fabric\.(bandwidth|share|latency|latency_base|latency_step))")


def stands_apart(field: str) -> bool:
    """Whether a field is such a number."""
    return _APART.fullmatch(field) is not None


class NotApart(Exception):
    """What differs is no number, or two axes reach the same one."""


def together(base: Island, axes: Sequence[tuple[Sequence[Island], Places]]) -> Island | None:
    """`base` with, for each axis, the islands that its values make alone, by the place of every row on it.

    None where they differ in more than numbers: such islands are read one by one."""
    try:
        made: Island = _merged(base, axes)
    except NotApart:
        return None
    return made


def _merged(base: Any, axes: Sequence[tuple[Sequence[Any], Places]]) -> Any:
    """A record, a tuple of records, or a number, with what the axes make of it."""
    moved = [(values, at) for values, at in axes if any(one is not base and one != base for one in values)]
    if not moved:
        return base
    if all(type(one) is type(base) for values, _ in moved for one in values):
        if is_dataclass(base):
            names = field_names(type(base))  # type: ignore[arg-type]
            return changed(base, **{name: _merged(getattr(base, name), _field(moved, name)) for name in names})
        if isinstance(base, tuple) and all(len(one) == len(base) for values, _ in moved for one in values):
            items = [[([one[i] for one in values], at) for values, at in moved] for i in range(len(base))]
            return tuple(_merged(one, inner) for one, inner in zip(base, items, strict=True))
        if isinstance(base, float) and len(moved) == 1:
            values, at = moved[0]
            return np.array(values)[at]
    raise NotApart


def _field(axes: Sequence[tuple[Sequence[Any], Places]], name: str) -> list[tuple[list[Any], Places]]:
    return [([getattr(one, name) for one in values], at) for values, at in axes]
