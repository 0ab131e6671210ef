"""What is kept of a search, in bounded memory: counts by reason, the best plans of every simplicity, the Pareto front.

Two tallies add to one that does not depend on how the space was cut or in which order: equal values are told apart by the
number of the plan.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]
Numbers: TypeAlias = npt.NDArray[np.int64]

BAND = 1.01
"""Plans of one band, each this much slower than the band before, are ordered by simplicity."""
LEVELS = 32
"""Degrees of complexity that are told apart."""
OVER_LIMIT, OVER_MEMORY = 0, 1
"""What a plan misses: the deadline or the budget, or the memory."""
FEW = 64
"""Members of the front that every block is held against one by one before it is sorted."""


@dataclass(slots=True)
class Pool:
    """The `most` best plans of every level of complexity, by (value, number)."""

    most: int
    values: list[Floats] = field(default_factory=lambda: [np.empty(0) for _ in range(LEVELS)])
    numbers: list[Numbers] = field(default_factory=lambda: [np.empty(0, dtype=np.int64) for _ in range(LEVELS)])

    bar: float = np.inf
    """A value that plans are known not to have to beat: the search elsewhere has enough that are better."""

    def bound(self) -> float:
        """The value beyond which no plan can be among the `most` that are listed, whatever its level: those are ordered by bands
        first."""
        values = np.concatenate(self.values)
        if len(values) < self.most:
            return self.bar
        last = float(np.partition(values, self.most - 1)[self.most - 1])
        return min(self.bar, last * BAND if last > 0.0 else last / BAND)

    def bounds(self) -> Floats:
        """For every level the value beyond which no plan gets in."""
        most = self.bound()
        return np.array([min(one[-1], most) if len(one) == self.most else most for one in self.values])

    def add(self, level: int, values: Floats, numbers: Numbers) -> None:
        """Take in some plans of a level."""
        values, numbers = np.concatenate((self.values[level], values)), np.concatenate((self.numbers[level], numbers))
        if len(values) > self.most:
            last = np.partition(values, self.most - 1)[self.most - 1]
            kept = values <= last
            values, numbers = values[kept], numbers[kept]
        order = np.lexsort((numbers, values))[: self.most]
        self.values[level], self.numbers[level] = values[order], numbers[order]

    def merge(self, other: Pool) -> None:
        """Take in another pool."""
        for level in range(LEVELS):
            if len(other.values[level]):
                self.add(level, other.values[level], other.numbers[level])

    def rows(self) -> list[tuple[float, int, int]]:
        """(value, level, number) of all, unordered."""
        return [
            (float(value), level, int(number))
            for level in range(LEVELS)
            for value, number in zip(self.values[level], self.numbers[level], strict=True)
        ]


@dataclass(slots=True)
class Front:
    """Plans that no other one beats in every objective; of equal ones the simplest, then that of the lowest number."""

    points: Floats
    """(members, objectives), in ascending order of the first, then the second, …"""
    levels: Numbers
    numbers: Numbers

    @classmethod
    def empty(cls, objectives: int) -> Front:
        """A front without members."""
        none = np.empty(0, dtype=np.int64)
        return cls(points=np.empty((0, objectives)), levels=none, numbers=none)

    def copy(self) -> Front:
        """Another front with the same members."""
        return Front(points=self.points, levels=self.levels, numbers=self.numbers)

    def add(self, points: Floats, levels: Numbers, numbers: Numbers) -> None:
        """Take in some plans."""
        points, levels = np.concatenate((self.points, points)), np.concatenate((self.levels, levels))
        numbers = np.concatenate((self.numbers, numbers))
        order = np.lexsort((numbers, levels, *points.T[::-1]))
        points, levels, numbers = points[order], levels[order], numbers[order]
        kept = undominated(points)
        self.points, self.levels, self.numbers = points[kept], levels[kept], numbers[kept]

    def beaten(self, columns: list[Floats]) -> npt.NDArray[np.bool_]:
        """Where a plan is no better in anything than one of some members of the front, itself among them."""
        found = np.zeros(np.broadcast_shapes(*(column.shape for column in columns)), dtype=bool)
        step = max(1, len(self.points) // FEW)
        for member in self.points[::step]:
            inside = np.ones((), dtype=bool)
            for column, value in zip(columns, member, strict=True):
                inside = inside & (column >= value)
            found |= inside
        return found

    def merge(self, other: Front) -> None:
        """Take in another front."""
        self.add(other.points, other.levels, other.numbers)


def undominated(points: Floats) -> npt.NDArray[np.intp]:
    """Positions of the rows that no other row is at most equal to in every column; of equal rows the first. Rows are sorted."""
    if points.shape[1] <= 2:
        second = points[:, -1]
        least = np.concatenate(([np.inf], np.minimum.accumulate(second)[:-1]))
        return np.flatnonzero(second < least)
    kept: list[int] = []
    left = np.arange(len(points))
    while len(left):
        kept.append(int(left[0]))
        rest = left[1:]
        left = rest[np.any(points[rest] < points[left[0]], axis=1)]
    return np.array(kept, dtype=np.intp)


@dataclass(slots=True)
class Tally:
    """All that is kept."""

    pool: Pool
    front: Front
    evaluated: int = 0
    feasible: int = 0
    better: int = 0
    """Feasible plans that beat the one to compare with."""
    rejected: Counter[str] = field(default_factory=Counter)
    miss: tuple[int, float, int] | None = None
    """(kind, how many times what there is, number) of the plan that misses least, as long as none is feasible: `OVER_LIMIT` before
    `OVER_MEMORY`."""

    def missed(self, kind: int, ratio: float, number: int) -> None:
        """Note a plan that is not feasible."""
        if self.miss is None or (kind, ratio, number) < self.miss:
            self.miss = kind, ratio, number

    def merge(self, other: Tally) -> None:
        """Take in what another search found in another part of the space."""
        self.evaluated += other.evaluated
        self.feasible += other.feasible
        self.better += other.better
        self.rejected.update(other.rejected)
        self.pool.merge(other.pool)
        self.front.merge(other.front)
        if other.miss is not None:
            self.missed(*other.miss)
