"""Open meshes cut to what is worth computing: boxes of values without the dead ones, small enough for the processor's cache."""

from __future__ import annotations

import math
from collections.abc import Iterator

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
    kept = _live(mask) if dead else whole(mask.shape)
    if any(len(positions) < length for positions, length in zip(kept, mask.shape, strict=True)):
        dead -= mask.size - size(kept)
        mask = mask[np.ix_(*kept)]
        place = tuple(positions[some] for positions, some in zip(place, kept, strict=True))
    if dead < worth:
        yield place
        return
    left, axis = _halved(mask)
    if mask.size - left < worth:
        yield place
        return
    middle = mask.shape[axis] // 2
    for part in (slice(None, middle), slice(middle, None)):
        index = (*(slice(None) for _ in range(axis)), part)
        yield from _trimmed(mask[index], (*place[:axis], place[axis][part], *place[axis + 1 :]), worth)


def _live(mask: Mask) -> Picked:
    """The positions of every axis at which something is alive."""
    axes = range(mask.ndim)
    return tuple(np.flatnonzero(mask.any(axis=tuple(other for other in axes if other != axis))) for axis in axes)


def _halved(mask: Mask) -> tuple[int, int]:
    """Points of the two trimmed halves together, and the axis, of the cut in the middle that leaves the fewest."""
    best = (mask.size, 0)
    for axis, length in enumerate(mask.shape):
        if length > 1:
            before = (*(slice(None) for _ in range(axis)),)
            halves = (mask[(*before, part)] for part in (slice(None, length // 2), slice(length // 2, None)))
            best = min(best, (sum(size(_live(half)) for half in halves), axis))
    return best
