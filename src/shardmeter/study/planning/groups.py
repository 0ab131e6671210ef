"""Which islands form which cells, and in which order: every choice once, those that differ only in names counted as one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from shardmeter.specs import Scenario
from shardmeter.specs.wan import PAIRS, SITES
from shardmeter.study.planning.pipelines import Choice


def classes(scenario: Scenario) -> tuple[int, ...]:
    """Of every island a number, alike for those that can change places: equal machines, and equal links to all others."""
    fleet = scenario.fleet
    found: list[int] = []
    for at, island in enumerate(fleet.islands):
        own = id(island.accelerator), island.nodes, island.gpus_per_node, island.tiers, island.outside
        for other in sorted(set(found)):
            twin = fleet.islands[other]
            if own == (id(twin.accelerator), twin.nodes, twin.gpus_per_node, twin.tiers, twin.outside) and _twins(
                scenario, at, other
            ):
                found.append(other)
                break
        else:
            found.append(at)
    return tuple(found)


def _twins(scenario: Scenario, one: int, other: int) -> bool:
    """Whether the network is the same with two islands in each other's place."""
    wan = scenario.fleet.wan
    if wan is None:
        return True
    count = len(wan.islands)
    places = np.arange(count)
    places[[one, other]] = other, one
    apart = ~np.eye(count, dtype=bool)
    for name in PAIRS:
        table = np.broadcast_to(np.asarray(getattr(wan, name), dtype=float), (count, count))
        if not np.array_equal(table[np.ix_(places, places)][apart], table[apart]):
            return False
    sites = (np.broadcast_to(np.asarray(getattr(wan, name), dtype=float), (count,)) for name in SITES)
    return all(np.array_equal(row[places], row) for row in sites) and wan.sends_alike(one, other)


def partitions(steps: Sequence[int], pp: int, alike: Sequence[int]) -> Iterator[Choice]:
    """Every way to make cells of islands of which those with several islands have `pp` stages, at least one of them; the islands of a cell
    ascend. Of ways that differ by islands that are `alike`, the first."""
    seen = set()
    for cells in _cells(tuple(range(len(steps))), steps, pp):
        key = tuple(sorted(tuple(sorted(alike[at] for at in cell)) for cell in cells))
        if key not in seen and any(len(cell) > 1 for cell in cells):
            seen.add(key)
            yield cells


def _cells(left: tuple[int, ...], steps: Sequence[int], pp: int) -> Iterator[Choice]:
    if not left:
        yield ()
        return
    first, rest = left[0], left[1:]
    for members in (*_filling(rest, steps, pp - steps[first]), ()):
        for others in _cells(tuple(at for at in rest if at not in members), steps, pp):
            yield ((first, *members), *others)


def _filling(rest: tuple[int, ...], steps: Sequence[int], wanted: int) -> Iterator[tuple[int, ...]]:
    """Islands whose stages come to what is wanted, at least one."""
    for place, at in enumerate(rest):
        if steps[at] == wanted:
            yield (at,)
        elif steps[at] < wanted:
            for more in _filling(rest[place + 1 :], steps, wanted - steps[at]):
                yield (at, *more)


def orders(cell: tuple[int, ...], alike: Sequence[int]) -> list[tuple[int, ...]]:
    """Every order of the islands of a cell; those that are alike stay in theirs."""
    if len(cell) < 2:
        return [cell]
    found, used = [], set()
    for place, at in enumerate(cell):
        if alike[at] not in used:
            used.add(alike[at])
            found += [(at, *rest) for rest in orders((*cell[:place], *cell[place + 1 :]), alike)]
    return found
