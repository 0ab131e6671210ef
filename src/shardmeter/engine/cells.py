"""Cells: what takes an inner step by itself. An island, or several that one placed axis of the mesh joins.

Islands that are equal but for name, price and region are evaluated once; those that differ in numbers only are evaluated as one
batch, with the islands as the last axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from shardmeter.core.record import changed, record, stacked, structure
from shardmeter.core.sums import plain_sum
from shardmeter.core.units import Count, Number
from shardmeter.engine.evaluate import Priced, evaluate, step_time
from shardmeter.engine.piped import Lines, piped
from shardmeter.engine.placed import placed
from shardmeter.engine.wans import Networks
from shardmeter.specs import Estimate, Fleet, Island, Model, Plan, Run, Stack, bare
from shardmeter.strategies.pipeline import side_by_side

Stacks: TypeAlias = Stack | Sequence[Stack]
"""One software for all islands, or that of each."""
PER_ISLAND = ("tokens", "samples", "model_flops", "hardware_flops", "peak_flops")
"""Figures of a cell that its islands share by their accelerators."""


@record
class Cell:
    """Islands that take a step together: their places in the fleet, in the order of the axis that joins them."""

    islands: tuple[int, ...]
    axis: str = ""
    """The mesh axis that crosses them; empty for one island."""
    steps: tuple[int, ...] = ()
    """The island of every step of that axis."""


def cells_of(plan: Plan, islands: Sequence[Island]) -> tuple[Cell, ...]:
    """The cells of a fleet: those of the placed axis, and every island that is in none by itself. `dp_replicate` joins no cell: its
    copies meet when gradients do, as islands that are cells of their own. Raises KeyError for an island that is not there."""
    place = {island.name: at for at, island in enumerate(islands)}
    found = [
        Cell(
            islands=tuple(dict.fromkeys(place[name] for name in names)), axis=axis, steps=tuple(place[n] for n in names)
        )
        for axis, cells in plan.placement
        if axis != "dp_replicate"
        for names in cells
    ]
    taken = {at for cell in found for at in cell.islands}
    found += [Cell(islands=(at,)) for at in range(len(islands)) if at not in taken]
    return tuple(sorted(found, key=lambda cell: cell.islands))


def inner_steps(
    model: Model,
    fleet: Fleet,
    cells: Sequence[Cell],
    plans: Sequence[Plan],
    runs: Sequence[Run],
    stack: Stack,
    networks: Networks,
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
    known: dict[tuple[Any, ...], list[Estimate]] = {}
    prices: dict[tuple[Any, ...], Priced] = {}
    for cell, run in zip(cells, runs, strict=True):
        if cell.axis:
            key = (*key_of(fleet, cell, plans, networks), float(run.global_batch))
            if key not in known:
                known[key] = together(model, fleet, cell, plans, run, stack, networks, prices)
            found |= dict(zip(cell.islands, known[key], strict=True))
    return tuple(found[at] for at in range(len(fleet.islands)))


def key_of(fleet: Fleet, cell: Cell, plans: Sequence[Plan], networks: Networks) -> tuple[Any, ...]:
    """Equal for cells of several islands that take the same step for the same batch: equal islands and plans, in the same order, with
    equal links."""
    members = tuple(_key(fleet.islands[at], plans[at]) for at in cell.islands)
    steps = tuple(cell.islands.index(at) for at in cell.steps)
    sending, turns = _sending(fleet, cell), _turns(plans[cell.islands[0]])
    seen = [networks.among(sending, cell.islands, count) for count in (1.0, turns)]
    return cell.axis, members, steps, *seen


def _sending(fleet: Fleet, cell: Cell) -> list[Count]:
    """Accelerators of every island that send at once: of a pipeline, those of one stage."""
    steps = {at: max(cell.steps.count(at), 1) if cell.axis == "pp" else 1 for at in range(len(fleet.islands))}
    return [island.gpus / steps[at] for at, island in enumerate(fleet.islands)]


def _turns(plan: Plan) -> Count:
    """Pipelines that send over a line one after the other; 1 where all send at once."""
    return side_by_side(plan) if plan.stagger else 1.0


def together(
    model: Model,
    fleet: Fleet,
    cell: Cell,
    plans: Sequence[Plan],
    run: Run,
    stack: Stack,
    networks: Networks,
    prices: dict[tuple[Any, ...], Priced] | None = None,
) -> list[Estimate]:
    """The inner step of a cell of several islands, once per island of it in the order of the axis. `prices` as `known` of
    `piped`. Raises ValueError without a network."""
    members, sending = [fleet.islands[at] for at in cell.islands], _sending(fleet, cell)
    if cell.axis == "pp":
        of = dict(zip(cell.islands, members, strict=True))
        own = {at: plans[at] for at in cell.islands}
        turns = _turns(own[cell.islands[0]])
        lines = Lines(together=networks.links(sending), in_turn=networks.links(sending, turns))
        one = piped(model, of, own, cell, lines, run, stack, prices)
    else:
        tour = networks.tour(sending, cell.islands)
        one = placed(model, members, cell, [plans[at] for at in cell.islands], tour, run, stack)
    return _parts(one, members)


def _parts(one: Sequence[Estimate], members: Sequence[Island]) -> list[Estimate]:
    """Each island's part of a cell's step: FLOPs and tokens by its accelerators."""
    whole = plain_sum(float(island.gpus) for island in members)
    made = []
    for estimate, island in zip(one, members, strict=True):
        share = float(island.gpus) / whole
        own: dict[str, Any] = {name: share * getattr(estimate, name) for name in PER_ISLAND if name != "peak_flops"}
        own |= {"gpus": island.gpus, "peak_flops": island.gpus * island.accelerator.peak_counted}
        made.append(changed(estimate, **own))
    return made


def each(
    model: Model, islands: Sequence[Island], plans: Sequence[Plan], runs: Sequence[Run], stack: Stacks
) -> tuple[Estimate, ...]:
    """The inner step of every island, each distinct one evaluated once, those of one structure together. `runs` differ in their
    batches alone."""
    keys = [
        (*_key(island, plan), run.seq_len, run.global_batch)
        for island, plan, run in zip(islands, plans, runs, strict=True)
    ]
    place, batches = _batches(islands, plans, keys, stack)
    found: dict[int, Estimate] = {}
    for numbers, ats, island, plan, own in batches:
        sizes = [float(runs[at].global_batch) for at in ats]
        run = changed(runs[ats[0]], global_batch=np.array(sizes) if len(ats) > 1 else sizes[0])
        batch = evaluate(model, island, plan, run, own, meets=True)
        found |= {n: taken(batch, at) for at, n in enumerate(numbers)} if len(ats) > 1 else {numbers[0]: batch}
    return tuple(found[number] for number in place)


def step_times(
    model: Model,
    islands: Sequence[Island],
    plans: Sequence[Plan],
    batches: Sequence[Sequence[float]],
    run: Run,
    stack: Stacks,
) -> tuple[tuple[float, ...], ...]:
    """Seconds of an inner step of every island at several batches: `batches` and the answer are (batch, island)."""
    columns = list(zip(*batches, strict=True))
    keys = [(*_key(island, plan), column) for island, plan, column in zip(islands, plans, columns, strict=True)]
    place, groups = _batches(islands, plans, keys, stack)
    found: dict[int, Number] = {}
    for numbers, ats, island, plan, own in groups:
        sizes = np.array([columns[at] for at in ats]).T
        times = step_time(model, island, plan, changed(run, global_batch=sizes), own)
        found |= {number: np.broadcast_to(times, sizes.shape)[:, at] for at, number in enumerate(numbers)}
    return tuple(tuple(float(np.asarray(found[number])[row]) for number in place) for row in range(len(batches)))


def _batches(
    islands: Sequence[Island], plans: Sequence[Plan], keys: Sequence[Any], stack: Stacks
) -> tuple[list[int], list[tuple[list[int], list[int], Island, Plan, Stack]]]:
    """Which distinct island every island is, and those of one structure as one: (numbers of the distinct ones, a place in the fleet
    for each, island, plan, stack), the last three with arrays where there are several."""
    stacks = [stack] * len(keys) if isinstance(stack, Stack) else stack
    shape = {at: structure(one) for at, one in {id(one): one for one in stacks}.items()}
    distinct: dict[Any, int] = {}
    place = [distinct.setdefault((key, id(one)), len(distinct)) for key, one in zip(keys, stacks, strict=True)]
    firsts = [place.index(number) for number in range(len(distinct))]
    stripped = {at: bare(islands[at]) for at in firsts}
    groups: dict[Any, list[int]] = {}
    for number, at in enumerate(firsts):
        alike = structure(stripped[at]), structure(plans[at]), shape[id(stacks[at])]
        groups.setdefault(alike, []).append(number)
    made = []
    for numbers in groups.values():
        ats = [firsts[number] for number in numbers]
        island, plan, own = (_one([some[at] for at in ats]) for some in (stripped, plans, stacks))
        made.append((numbers, ats, island, plan, own))
    return place, made


def _one(records: Sequence[Any]) -> Any:
    """Records of one structure as one."""
    return stacked(records) if len(records) > 1 else records[0]


def _key(island: Island, plan: Plan) -> tuple[Any, ...]:
    """Equal for equal islands (an accelerator is the one object that its row made, or is not shared)."""
    return id(island.accelerator), island.nodes, island.gpus_per_node, island.tiers, plan


def taken(batch: Estimate, at: int) -> Estimate:
    """One of a batch of estimates."""
    found: Estimate = _taken(batch, at)
    return found


def _taken(value: Any, at: int) -> Any:
    if isinstance(value, np.ndarray) and value.ndim:
        return float(value[..., at]) if value.ndim == 1 else value[..., at]
    if isinstance(value, tuple):
        return tuple(_taken(one, at) for one in value)
    if hasattr(value, "__slots__"):
        return changed(value, **{name: _taken(getattr(value, name), at) for name in value.__slots__})
    return value
