"""Cells: what takes an inner step by itself. An island, or several that one placed axis of the mesh joins.

Islands that are equal but for name, price and region are evaluated once; those that differ in numbers only are evaluated as one
batch, with the islands as the last axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shardmeter.core.record import changed, record, stacked, structure
from shardmeter.engine.evaluate import evaluate
from shardmeter.engine.placed import placed
from shardmeter.specs import Estimate, Fleet, Island, Model, Plan, Run, Stack

PER_ISLAND = ("tokens", "samples", "model_flops", "hardware_flops", "peak_flops")
"""Figures of a cell that its islands share by their accelerators."""


@record
class Cell:
    """Islands that take a step together: their places in the fleet, in the order of the axis that joins them."""

    islands: tuple[int, ...]
    axis: str = ""
    """The mesh axis that crosses them; empty for one island."""


def cells_of(plan: Plan, islands: Sequence[Island]) -> tuple[Cell, ...]:
    """The cells of a fleet: those of the placed axis, and every island that is in none by itself. `dp_replicate` joins no cell: its
    copies meet when gradients do, as islands that are cells of their own. Raises KeyError for an island that is not there."""
    place = {island.name: at for at, island in enumerate(islands)}
    found = [
        Cell(islands=tuple(dict.fromkeys(place[name] for name in names)), axis=axis)
        for axis, cells in plan.placement
        if axis != "dp_replicate"
        for names in cells
    ]
    taken = {at for cell in found for at in cell.islands}
    found += [Cell(islands=(at,)) for at in range(len(islands)) if at not in taken]
    return tuple(sorted(found, key=lambda cell: cell.islands))


def inner_steps(
    model: Model, fleet: Fleet, cells: Sequence[Cell], plans: Sequence[Plan], runs: Sequence[Run], stack: Stack
) -> tuple[Estimate, ...]:
    """The inner step of every island, in the order of the fleet; `runs` are those of the cells. Of a cell of several islands each
    has the cell's step, its own memory, and its part of tokens and FLOPs."""
    found: dict[int, Estimate] = {}
    single = [(cell.islands[0], run) for cell, run in zip(cells, runs, strict=True) if not cell.axis]
    own = each(
        model,
        [fleet.islands[at] for at, _ in single],
        [plans[at] for at, _ in single],
        [run for _, run in single],
        stack,
    )
    found |= {at: one for (at, _), one in zip(single, own, strict=True)}
    for cell, run in zip(cells, runs, strict=True):
        if cell.axis:
            members = [fleet.islands[at] for at in cell.islands]
            one = placed(model, members, cell, [plans[at] for at in cell.islands], fleet.wan, run, stack)
            found |= dict(zip(cell.islands, _parts(one, members), strict=True))
    return tuple(found[at] for at in range(len(fleet.islands)))


def _parts(one: Sequence[Estimate], members: Sequence[Island]) -> list[Estimate]:
    """Each island's part of a cell's step: FLOPs and tokens by its accelerators."""
    whole = sum(float(island.gpus) for island in members)
    made = []
    for estimate, island in zip(one, members, strict=True):
        share = float(island.gpus) / whole
        own: dict[str, Any] = {name: share * getattr(estimate, name) for name in PER_ISLAND if name != "peak_flops"}
        peak = island.accelerator.peak
        own |= {"gpus": island.gpus, "peak_flops": island.gpus * peak.get("bf16", peak.get("fp16", np.nan))}
        made.append(changed(estimate, **own))
    return made


def each(
    model: Model, islands: Sequence[Island], plans: Sequence[Plan], runs: Sequence[Run], stack: Stack
) -> tuple[Estimate, ...]:
    """The inner step of every island, each distinct one evaluated once, those of one structure together."""
    bare = [changed(one, name="", price=None, price_basis="", region="") for one in islands]
    distinct: dict[Any, int] = {}
    place = [distinct.setdefault(_key(*one), len(distinct)) for one in zip(bare, plans, runs, strict=True)]
    firsts = [place.index(number) for number in range(len(distinct))]
    groups: dict[Any, list[int]] = {}
    for number, at in enumerate(firsts):
        groups.setdefault(tuple(structure(one) for one in (bare[at], plans[at], runs[at])), []).append(number)
    found: dict[int, Estimate] = {}
    for members in groups.values():
        ats = [firsts[number] for number in members]
        if len(ats) == 1:
            found[members[0]] = evaluate(model, bare[ats[0]], plans[ats[0]], runs[ats[0]], stack)
            continue
        island, plan = stacked([bare[at] for at in ats]), stacked([plans[at] for at in ats])
        batch = evaluate(model, island, plan, stacked([runs[at] for at in ats]), stack)
        found |= {number: taken(batch, at) for at, number in enumerate(members)}
    return tuple(found[number] for number in place)


def _key(island: Island, plan: Plan, run: Run) -> Any:
    """Equal for equal islands (an accelerator is the one object that its row made, or is not shared)."""
    reference = id(run.reference) if run.reference is not None else 0
    return (
        id(island.accelerator), island.nodes, island.gpus_per_node, island.tiers, plan, run.seq_len, run.global_batch,
        run.document_len, reference,
    )  # fmt: skip


def taken(batch: Estimate, at: int) -> Estimate:
    """One of a batch of estimates."""
    found: Estimate = _taken(batch, at)
    return found


def _taken(value: Any, at: int) -> Any:
    if isinstance(value, np.ndarray):
        return float(value[..., at]) if value.ndim == 1 else value[..., at]
    if isinstance(value, tuple):
        return tuple(_taken(one, at) for one in value)
    if hasattr(value, "__slots__"):
        return changed(value, **{name: _taken(getattr(value, name), at) for name in value.__slots__})
    return value
