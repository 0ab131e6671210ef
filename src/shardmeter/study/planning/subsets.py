"""Which islands take part: islands that change nothing by changing places are counted, not told apart."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from shardmeter.core.record import record
from shardmeter.core.sums import plain_sum
from shardmeter.specs import Island, Run, Scenario
from shardmeter.specs.wan import PAIRS, SITES, Wan

MOST = 512
"""Teams up to which every one is tried; of more, those that are met by leaving out one class after the other, or taking one in."""


@record
class Named:
    """Teams that a caller names, where a set of islands is not all that is open: an island may be there in several sizes."""

    teams: tuple[tuple[int, ...], ...]
    of: Callable[[tuple[int, ...]], tuple[Run, Wan | None]]
    """The run (what it keeps, and where) and the network of a team."""


def classes(scenario: Scenario, kind: Callable[[int], int], places: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Those of some islands that may change places: of one kind, at one price, with equal links to all others."""
    islands, wan = scenario.fleet.islands, scenario.fleet.wan
    found: list[list[int]] = []
    for at in places:
        for members in found:
            one, other = islands[members[0]], islands[at]
            if kind(members[0]) == kind(at) and _paid(one) == _paid(other) and _swap(wan, members[0], at):
                members.append(at)
                break
        else:
            found.append([at])
    return tuple(map(tuple, found))


def _paid(island: Island) -> tuple[object, ...]:
    """What of an island's price, power and interruptions costs, energy and hours depend on."""
    return island.price, island.tariff.electricity, island.power.pue, island.preemption


def _swap(wan: Wan | None, one: int, other: int) -> bool:
    """Whether the network is the same with two islands in each other's places."""
    if wan is None:
        return True
    order = np.arange(len(wan.islands))
    order[[one, other]] = order[[other, one]]
    if not wan.sends_alike(one, other):
        return False
    for name in (*PAIRS, "egress", *SITES):
        numbers = np.asarray(getattr(wan, name), dtype=float)
        moved = numbers if numbers.ndim == 0 else numbers[np.ix_(*[order] * numbers.ndim)]
        if not np.array_equal(numbers, moved, equal_nan=True):
            return False
    return True


def every(groups: Sequence[Sequence[int]], counts: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """All teams of so many islands, the first islands of every class, the largest teams first."""
    wanted = set(counts)
    for sizes in sorted(itertools.product(*(range(len(one) + 1) for one in groups)), key=lambda one: -plain_sum(one)):
        if plain_sum(sizes) in wanted:
            yield team_of(groups, sizes)


def team_of(groups: Sequence[Sequence[int]], sizes: Sequence[int]) -> tuple[int, ...]:
    """The first islands of every class, in the order of the fleet."""
    return tuple(sorted(at for members, size in zip(groups, sizes, strict=True) for at in members[:size]))


def number(groups: Sequence[Sequence[int]]) -> int:
    """Teams that there are, the empty one among them."""
    return math.prod(len(one) + 1 for one in groups)


def ends(groups: Sequence[Sequence[int]], counts: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """The largest team, from whose classes islands are left out evenly, and the smallest ones of one class as far as it goes."""
    sizes = [len(members) for members in groups]
    while plain_sum(sizes) > max(counts):
        sizes[sizes.index(max(sizes))] -= 1
    yield team_of(groups, sizes)
    for place, members in enumerate(groups):
        fewest = min(len(members), *counts)
        least = [fewest * (place == at) for at in range(len(groups))]
        for at, others in enumerate(groups):
            least[at] += min(len(others) - least[at], min(counts) - plain_sum(least))
        yield team_of(groups, least)


def neighbours(
    groups: Sequence[Sequence[int]], team: Sequence[int], counts: Sequence[int]
) -> Iterator[tuple[int, ...]]:
    """Teams with one island less or more, of the sizes that are asked for."""
    inside = set(team)
    sizes = [sum(1 for at in members if at in inside) for members in groups]
    for place, members in enumerate(groups):
        for step in (-1, 1):
            changed = [size + step * (place == at) for at, size in enumerate(sizes)]
            if 0 <= changed[place] <= len(members) and plain_sum(changed) in set(counts):
                yield team_of(groups, changed)
