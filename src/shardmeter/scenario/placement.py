"""Axes of the mesh that cross islands: cells of islands, in the order in which they take the steps of the axis."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from shardmeter.core.record import record
from shardmeter.scenario.parts import Findings, listed_names
from shardmeter.scenario.wan import unknown_island
from shardmeter.scenario.yaml_reader import Path
from shardmeter.specs.plan import AXES

Cells: TypeAlias = tuple[tuple[str, ...], ...]
PLACEMENT: Path = ("plan", "placement")
ALONE = ("dp_replicate", "pp")
"""Axes of which one island may have all steps: copies are cells of their own, and a pipeline then crosses nothing."""


@record
class Placed:
    """One axis that crosses islands."""

    axis: str
    cells: Cells
    """Names of islands, one a step of the axis."""

    @property
    def degree(self) -> int:
        """Of the whole axis."""
        return len(self.cells[0])

    def steps(self) -> dict[str, int]:
        """How many steps of the axis every listed island takes."""
        return dict(Counter(name for cell in self.cells for name in cell))


def resolve_placement(said: Mapping[str, Any], names: Mapping[str, Sequence[str]], found: Findings) -> Placed | None:
    """The axis that crosses islands, after noting what is wrong with it; None where none does. `names` tells which islands a
    name means."""
    asked: Mapping[str, Cells] = said.get("placement") or {}
    if len(asked) > 1:
        what = ", ".join(asked)
        found.refuse(PLACEMENT, f"{what}: several axes across islands are not modelled yet", "place one of them")
        return None
    for axis, given in asked.items():
        path, before = (*PLACEMENT, axis), len(found.violations)
        if not given:
            says, way_out = "auto: which islands form which pipelines is left open", "ask shardmeter plan"
            found.refuse(path, says, f"{way_out}, or name them, as in {{{axis}: [oregon, iowa]}}")
            return None
        for name in dict.fromkeys(name for cell in given for name in cell if name not in names):
            unknown_island(name, path, list(names), found)
        cells = tuple(tuple(one for name in cell for one in names.get(name, (name,))) for cell in given)
        _check_cells(cells, path, found)
        return Placed(axis=axis, cells=cells) if len(found.violations) == before else None
    return None


def filled(placed: Placed, gpus: Mapping[str, float], said: Mapping[str, Mapping[str, Any]]) -> Placed:
    """The same with islands that are listed once taking as many steps as fill them, where what their plans say of the other axes
    leaves them more than one each. `gpus` and `said` (the plan's fields) by island."""
    listed = placed.steps()
    steps = {name: times if times > 1 else _fill(placed.axis, gpus[name], said[name]) for name, times in listed.items()}
    if steps == listed:
        return placed
    rows = (tuple(dict.fromkeys(cell)) if all(listed[name] == 1 for name in cell) else cell for cell in placed.cells)
    cells = tuple(tuple(name for name in row for _ in range(steps[name] if listed[name] == 1 else 1)) for row in rows)
    return Placed(axis=placed.axis, cells=cells)


def _fill(axis: str, gpus: float, said: Mapping[str, Any]) -> int:
    """Steps of an axis that fill an island: one where another axis is what is left, or what is said does not fit."""
    others = [said.get(name) for name in AXES if name != axis]
    rest = axis != "dp_shard" and said.get("dp_shard") in (None, "auto")
    if rest or "auto" in others:
        return 1
    steps = gpus / math.prod(float(one) for one in others if one is not None)
    return int(steps) if steps >= 1.0 and steps == int(steps) else 1


def _check_cells(cells: Cells, path: Path, found: Findings) -> None:
    """Cells are of one length, share no island and, where the axis is no copy of the model, join several each."""
    lengths = sorted({len(cell) for cell in cells})
    if len(lengths) > 1:
        says = f"cells of {' and '.join(map(str, lengths))} steps"
        found.refuse(path, says, "list an island as often as it takes steps", "every cell has the whole axis")
        return
    owner: dict[str, int] = {}
    for at, cell in enumerate(cells):
        for name in dict.fromkeys(cell):
            if owner.setdefault(name, at) != at:
                found.refuse(path, f"{name} is in two cells", "an island belongs to one")
    lonely = [cell[0] for cell in cells if len(set(cell)) == 1]
    if lonely and path[-1] not in ALONE:
        says, axis = f"joins {listed_names(lonely)} with no other island", path[-1]
        found.refuse(path, says, f"list two or more in a cell, or say {axis} in the island's own plan")


def check_degree(placed: Placed, degree: Any, found: Findings) -> None:
    """The steps of the islands make the degree that is said."""
    if degree in (None, "auto") or degree == placed.degree:
        return
    says = f"{placed.axis} = {degree:g}, but the islands that are listed take {placed.degree} steps"
    way_out = f"leave {placed.axis} out, or list {degree:g}: an island that is listed twice takes two steps"
    rule = "the degree of an axis across islands counts those that are listed"
    found.refuse((*PLACEMENT, placed.axis), says, way_out, rule)
