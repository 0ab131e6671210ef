"""The global batch of a fleet: how many sequences every cell takes in an inner step."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from shardmeter.core.errors import BadScenario, Violation
from shardmeter.core.record import changed
from shardmeter.core.sums import plain_sum
from shardmeter.core.units import Count, Number
from shardmeter.engine import split
from shardmeter.engine.cells import Cell, cells_of, inner_steps, key_of, step_times
from shardmeter.engine.links import Array
from shardmeter.engine.placed import spread
from shardmeter.engine.rules import listed
from shardmeter.engine.wans import Networks, along
from shardmeter.schedules import traits
from shardmeter.specs import Fleet, Island, Model, Plan, Run, Stack
from shardmeter.sync import inner_of, parts_of

Batches: TypeAlias = Sequence[Sequence[float]]
"""Sequences, as (batch, cell)."""


class IndivisibleBatch(BadScenario):
    """No whole micro-batches of the islands make up the global batch; `near` can be split."""

    def __init__(self, batch: float, near: Sequence[float]) -> None:
        self.batch, self.near = batch, tuple(near)
        broken = Violation(
            field="run.global_batch",
            says=f"global_batch = {batch:g} is no sum of whole micro-batches of the islands",
            rule="every island takes whole micro-batches of all its data-parallel ranks",
            way_out=" or ".join(f"{one:g}" for one in self.near),
        )
        super().__init__("the global batch cannot be shared among the islands", [broken])


def shared(
    model: Model,
    fleet: Fleet,
    cells: Sequence[Cell],
    plans: Sequence[Plan],
    run: Run,
    stack: Stack,
    rule: str,
    networks: Networks,
) -> list[tuple[float, ...]]:
    """Each cell's part of the global batch on every network: so that the slowest is as fast as it can be, or
    equal parts. `plans` are those of the islands. Raises IndivisibleBatch."""
    units, batch = units_of(fleet.islands, cells, plans), float(run.global_batch)
    if rule == "equal" or equal_cells(fleet, cells, plans, networks):
        return [parted(batch, units, None, rule)] * len(networks)
    peaks = [plain_sum(peak(fleet.islands[at]) for at in cell.islands) for cell in cells]
    times = _times(model, fleet, cells, plans, asked(batch, units, peaks), run, stack, networks)
    known: dict[bytes, tuple[float, ...]] = {}
    for one in times:
        if one.tobytes() not in known:
            known[one.tobytes()] = parted(batch, units, (peaks, _told(one.tolist())), rule)
    return [known[one.tobytes()] for one in times]


def _told(times: Batches) -> Callable[[Batches], Batches]:
    """What tells seconds that are known of the batches asked."""
    return lambda _: times


def shared_by_part(
    model: Model,
    fleet: Fleet,
    cells: Sequence[Cell],
    plans: Sequence[Plan],
    run: Run,
    stack: Stack,
    networks: Networks,
) -> tuple[list[tuple[Run, ...]], list[int]]:
    """The runs of all cells with their parts of the global batch, for every way in which networks have it shared, and which of these
    each network has. Parts as of `shared`, with the whole batch for the cells of every block, each of which has to see every sequence.
    Raises IndivisibleBatch."""
    sync = plans[0].sync
    groups = parts_of(len(cells), inner_of(sync).blocks)
    order = [at for group in groups for at in group]
    parts = [
        shared(model, fleet, [cells[at] for at in group], plans, run, stack, sync.split, networks) for group in groups
    ]
    every = [tuple(part for some in one for part in some) for one in zip(*parts, strict=True)]
    ways = {one: at for at, one in enumerate(dict.fromkeys(every))}
    runs = [dict(zip(order, (changed(run, global_batch=part) for part in way), strict=True)) for way in ways]
    return [tuple(own[at] for at in range(len(cells))) for own in runs], [ways[one] for one in every]


def parted(
    batch: float,
    units: Sequence[split.Units],
    speeds: tuple[Sequence[float], Callable[[Batches], Sequence[Sequence[float]]]] | None,
    rule: str = "speed",
) -> tuple[float, ...]:
    """Sequences of every cell. `units` are those of the cells; `speeds` their peaks, and what tells the seconds of their steps at
    several batches, both as (batch, cell); None where all cells are alike, or each is to take an equal part (`rule` equal: or none).

    Raises IndivisibleBatch."""
    if speeds is None:
        shares = [split.Share(unit=one, least=least, start=0.0, each=1.0) for one, least in units]
        parts = split.equally(batch, shares) or (None if rule == "equal" else split.by_speed(batch, shares))
    else:
        parts = split.by_speed(batch, _shares(batch, units, *speeds))
    if parts is None:
        raise IndivisibleBatch(batch, split.nearest(batch, units, rule))
    return parts


def units_of(islands: Sequence[Island], cells: Sequence[Cell], plans: Sequence[Plan]) -> list[split.Units]:
    """What every cell takes of a batch at a time, and at least; with the whole of an axis that crosses its islands."""
    firsts = [(cell, plans[cell.islands[0]]) for cell in cells]
    return [
        _plain(unit(spread(plan, cell.axis, [islands[at] for at in cell.islands]) if cell.axis else plan))
        for cell, plan in firsts
    ]


def least(islands: Sequence[Island], plan: Plan, plans: Sequence[Plan]) -> float:
    """The global batch of one micro-batch for every data-parallel rank."""
    return plain_sum(unit for unit, _ in units_of(islands, cells_of(plan, islands), plans))


def _plain(units: tuple[Count, Count]) -> split.Units:
    return float(units[0]), float(units[1])


def unshared(islands: Sequence[Island], plan: Plan, plans: Sequence[Plan], batch: float) -> Violation | None:
    """Why a global batch cannot be shared among islands, with what each takes and the nearest batches that can; None where it can."""
    cells = cells_of(plan, islands)
    units = units_of(islands, cells, plans)
    close = split.nearest(batch, units, plan.sync.split)
    if batch in close:
        return None
    named: dict[split.Units, list[str]] = {}
    for one, cell in zip(units, cells, strict=True):
        named.setdefault(one, []).append(" + ".join(islands[at].name for at in cell.islands))
    takes = ", ".join(
        f"{_several(names)} {step:g}" + (f" (at least {least:g})" if least > step else "")
        for (step, least), names in named.items()
    )
    fewest = plain_sum(least for _, least in units)
    says = f"global_batch = {batch:g} is no sum of whole micro-batches of the islands, which take them by"
    if batch < fewest:
        says = f"global_batch = {batch:g} is less than one micro-batch for every island, {fewest:g} sequences: they take them by"
    equal = " in equal parts" if plan.sync.split == "equal" else ""
    return Violation(
        field="run.global_batch", says=f"{says} {takes}{equal}", way_out=listed(list(close)),
        rule="islands share the sequences of an inner step in whole micro-batches, dp·micro_batch at a time",
    )  # fmt: skip


def _several(names: Sequence[str]) -> str:
    return (
        names[0]
        if len(names) == 1
        else f"{', '.join(names)} each"
        if len(names) < MOST
        else f"{len(names)} like {names[0]}"
    )


MOST = 6
"""Islands that take as many sequences at a time, from which on they are not named one by one."""


def unit(plan: Plan) -> tuple[Count, Count]:
    """(sequences that a cell takes more at a time, the least that it takes)."""
    kind, each_pass, pp = traits(plan.schedule), plan.dp * plan.micro_batch, float(plan.pp)
    if pp == 1.0:
        return each_pass, each_pass
    step = pp if kind.groups else 2.0 if kind.even else 1.0
    return each_pass * step, each_pass * step * max(math.ceil(kind.rounds * pp / step), 1.0)


def equal_cells(fleet: Fleet, cells: Sequence[Cell], plans: Sequence[Plan], networks: Networks) -> bool:
    """Whether all cells take the same step for the same batch, on every network."""
    if len(cells) == 1:
        return True
    if any(cell.axis for cell in cells):
        return all(cell.axis for cell in cells) and len({key_of(fleet, cell, plans, networks) for cell in cells}) == 1
    rows = [
        (id(fleet.islands[at].accelerator), fleet.islands[at].tiers, fleet.islands[at].nodes, plans[at])
        for cell in cells
        for at in cell.islands
    ]
    return all(row == rows[0] for row in rows)


def _shares(
    batch: float,
    units: Sequence[tuple[float, float]],
    peaks: Sequence[float],
    step_times: Callable[[Batches], Sequence[Sequence[float]]],
) -> list[split.Share]:
    """What each cell makes of a batch: a step lasts so long, and so much longer a sequence, read off its step at a part of the
    batch in proportion to its peak and at half of that. Exact where steps are straight lines in the micro-batches."""
    batches, halves = asked(batch, units, peaks)
    times = step_times((batches, halves))
    found = []
    for at, (step, least) in enumerate(units):
        slope = (times[0][at] - times[1][at]) / (batches[at] - halves[at])
        found.append(split.Share(unit=step, least=least, start=times[0][at] - slope * batches[at], each=slope))
    return found


def asked(
    batch: float, units: Sequence[split.Units], peaks: Sequence[float]
) -> tuple[Sequence[float], Sequence[float]]:
    """The two batches of every cell at which its speed is read off."""
    batches = [_rounded(batch * own / plain_sum(peaks), *one) for own, one in zip(peaks, units, strict=True)]
    halves = [_rounded(part / 2.0, *one) for part, one in zip(batches, units, strict=True)]
    halves = [half if half < part else part + one[0] for half, part, one in zip(halves, batches, units, strict=True)]
    return batches, halves


def _times(
    model: Model,
    fleet: Fleet,
    cells: Sequence[Cell],
    plans: Sequence[Plan],
    batches: Batches,
    run: Run,
    stack: Stack,
    networks: Networks,
) -> Array:
    """Seconds of a step of every cell at several batches: (network, batch, cell)."""
    firsts = [cell.islands[0] for cell in cells]
    if all(not cell.axis for cell in cells):
        islands, own = [fleet.islands[at] for at in firsts], [plans[at] for at in firsts]
        rows: list[Number] = [np.array(row) for row in step_times(model, islands, own, batches, run, stack)]
    else:
        rows = []
        for some in batches:
            runs = [changed(run, global_batch=batch) for batch in some]
            steps = inner_steps(model, fleet, cells, plans, runs, stack, networks)
            rows.append(along([steps[at].step_time for at in firsts]))
    shape = len(networks), len(cells)
    return np.stack([np.broadcast_to(row, shape) for row in rows], axis=1)


def peak(island: Island) -> float:
    """FLOP/s of an island, to share a batch by before anything is known of its steps."""
    return float(island.gpus) * float(island.accelerator.peak_counted)


def _rounded(batch: float, step: float, least: float) -> float:
    return max(round(batch / step) * step, least)
