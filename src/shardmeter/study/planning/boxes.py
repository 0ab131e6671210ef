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


def cut(picked: Picked, most: int) -> Iterator[Picked]:
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
    if mask.ndim == 0 or not mask.any():
        if mask.ndim == 0 and mask:
            yield ()
        return
    yield from _trimmed(mask, whole(mask.shape), worth)


def _trimmed(mask: Mask, place: Picked, worth: int) -> Iterator[Picked]:
    kept = _live(mask)
    if any(len(positions) < length for positions, length in zip(kept, mask.shape, strict=True)):
        mask = mask[np.ix_(*kept)]
        place = tuple(positions[some] for positions, some in zip(place, kept, strict=True))
    if mask.size - int(np.count_nonzero(mask)) < worth:
        yield place
        return
    left, right, axis = _halves(mask)
    if mask.size - left - right < worth:
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


def _halves(mask: Mask) -> tuple[int, int, int]:
    """Points of the two trimmed halves, and the axis, of the cut in the middle that leaves the fewest."""
    best = (mask.size, 0, int(np.argmax(mask.shape)))
    for axis, length in enumerate(mask.shape):
        if length > 1:
            before = (*(slice(None) for _ in range(axis)),)
            sizes = [
                size(_live(mask[(*before, part)])) for part in (slice(None, length // 2), slice(length // 2, None))
            ]
            best = min(best, (sizes[0], sizes[1], axis), key=lambda one: one[0] + one[1])
    return best
