"""Open meshes cut to what is worth computing: boxes of values without the dead ones, small enough for the processor's cache."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TypeAlias

import numpy as np

from shardmeter.study.planning.space import Mask, Picked


def whole(shape: tuple[int, ...]) -> Picked:
    """All positions of every axis."""
    return tuple(np.arange(length) for length in shape)


def size(picked: Picked) -> int:
    """Points of a box."""
    return math.prod(map(len, picked))


def cut(picked: Picked, most: float) -> Iterator[Picked]:
    """The box in pieces of at most `most` points, halved along its longest axis."""
    if size(picked) <= most:
        yield picked
        return
    axis = max(range(len(picked)), key=lambda one: len(picked[one]))
    middle = len(picked[axis]) // 2
    for half in (picked[axis][:middle], picked[axis][middle:]):
        yield from cut((*picked[:axis], half, *picked[axis + 1 :]), most)


def alive(mask: Mask, worth: int) -> Iterator[Picked]:
    """Boxes that hold every true point of a mask, at its own positions, and few others.

    Values with nothing alive are dropped from every axis; a box is halved where that drops at least `worth` dead points, which
    is what one more evaluation costs."""
    wide = [axis for axis, length in enumerate(mask.shape) if length > 1]
    flat = mask.reshape([mask.shape[axis] for axis in wide])
    if not flat.any():
        return
    for box in _trimmed(flat, whole(flat.shape), worth):
        picked = [np.zeros(1, dtype=np.intp)] * mask.ndim
        for axis, positions in zip(wide, box, strict=True):
            picked[axis] = positions
        yield tuple(picked)


def _trimmed(mask: Mask, place: Picked, worth: int) -> Iterator[Picked]:
    dead = mask.size - int(np.count_nonzero(mask))
    if dead == 0:
        yield place
        return
    shadows = {tuple(range(mask.ndim)): mask}
    kept = [np.flatnonzero(_shadow(shadows, (axis,))) for axis in range(mask.ndim)]
    if any(len(positions) < length for positions, length in zip(kept, mask.shape, strict=True)):
        dead -= mask.size - size(tuple(kept))
        mask = mask[np.ix_(*kept)]
        place = tuple(positions[some] for positions, some in zip(place, kept, strict=True))
        shadows = {tuple(range(mask.ndim)): mask}
    if dead < worth:
        yield place
        return
    left, axis = _halved(shadows, mask.shape)
    if mask.size - left < worth:
        yield place
        return
    middle = mask.shape[axis] // 2
    for part in (slice(None, middle), slice(middle, None)):
        index = (*(slice(None) for _ in range(axis)), part)
        yield from _trimmed(mask[index], (*place[:axis], place[axis][part], *place[axis + 1 :]), worth)


Shadows: TypeAlias = dict[tuple[int, ...], Mask]
"""A mask and what was found of it: for some of its axes, where anything is alive along all others."""


def _shadow(shadows: Shadows, kept: tuple[int, ...]) -> Mask:
    """Where anything is alive along the axes that are not `kept`: the first of them go first, each shadow from a larger one."""
    if kept not in shadows:
        dropped = max(set(next(iter(shadows))) - set(kept))  # the first one has all axes
        parent = tuple(sorted((*kept, dropped)))
        shadows[kept] = np.asarray(_shadow(shadows, parent).any(axis=parent.index(dropped)))
    return shadows[kept]


def _halved(shadows: Shadows, shape: tuple[int, ...]) -> tuple[int, int]:
    """Points of the two trimmed halves together, and the axis, of the cut in the middle that leaves the fewest."""
    best = (math.prod(shape), 0)
    for axis, length in enumerate(shape):
        if length > 1:
            left = 0
            for part in (slice(None, length // 2), slice(length // 2, None)):
                points = int(np.count_nonzero(_shadow(shadows, (axis,))[part]))
                for other in range(len(shape)):
                    if other != axis:
                        both = _shadow(shadows, (min(axis, other), max(axis, other)))
                        half = both[part] if axis < other else both[:, part]
                        points *= int(np.count_nonzero(half.any(axis=0 if axis < other else 1)))
                left += points
            best = min(best, (left, axis))
    return best
