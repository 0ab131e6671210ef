"""The global batch of a fleet: how many sequences every cell takes in an inner step."""

from __future__ import annotations

import math
from collections.abc import Sequence

from shardmeter.core.errors import BadScenario, Violation
from shardmeter.core.record import changed
from shardmeter.engine import split
from shardmeter.engine.cells import Cell, inner_steps, step_times
from shardmeter.engine.placed import spread
from shardmeter.schedules import traits
from shardmeter.specs import Fleet, Island, Model, Plan, Run, Stack


class IndivisibleBatch(BadScenario):
    """No whole micro-batches of the islands make up the global batch; `near` can be split."""

    def __init__(self, batch: float, near: Sequence[float], units: Sequence[float]) -> None:
        self.batch, self.near, self.units = batch, tuple(near), tuple(units)
        each = ", ".join(f"{one:g}" for one in dict.fromkeys(units))
        broken = Violation(
            field="run.global_batch",
            says=f"global_batch = {batch:g} is not made of whole passes of the islands, which take {each} sequences each",
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
    rule: str = "speed",
) -> tuple[Run, ...]:
    """The run of every cell, with its part of the global batch: so that the slowest is as fast as it can be, or equal parts.
    `plans` are those of the islands. Raises IndivisibleBatch."""
    batch = float(run.global_batch)
    units = [unit(_whole(fleet, cell, plans)) for cell in cells]
    if rule == "equal" or _alike(fleet, cells, plans):
        shares = [split.Share(unit=one, least=least, start=0.0, each=1.0) for one, least in units]
        parts = split.equally(batch, shares) or (split.by_speed(batch, shares) if rule != "equal" else None)
    else:
        shares = _shares(model, fleet, cells, plans, run, stack, units)
        parts = split.by_speed(batch, shares)
    if parts is None:
        near = split.nearest(batch, shares, split.equally if rule == "equal" else split.by_speed)
        raise IndivisibleBatch(batch, near, [one for one, _ in units])
    return tuple(changed(run, global_batch=part) for part in parts)


def unit(plan: Plan) -> tuple[float, float]:
    """(sequences that a cell takes more at a time, the least that it takes)."""
    kind, each_pass, pp = traits(plan.schedule), float(plan.dp * plan.micro_batch), float(plan.pp)
    if pp == 1.0:
        return each_pass, each_pass
    step = pp if kind.groups else 2.0 if kind.even else 1.0
    return each_pass * step, each_pass * step * max(math.ceil(kind.rounds * pp / step), 1.0)


def _whole(fleet: Fleet, cell: Cell, plans: Sequence[Plan]) -> Plan:
    """The plan of a cell, with the whole of the axis that joins its islands."""
    own = plans[cell.islands[0]]
    if not cell.axis:
        return own
    if cell.axis == "pp":
        return changed(own, pp=len(cell.steps))
    return spread(own, cell.axis, [fleet.islands[at] for at in cell.islands])


def _alike(fleet: Fleet, cells: Sequence[Cell], plans: Sequence[Plan]) -> bool:
    """Whether all cells take the same step for the same batch."""
    rows = [
        tuple(
            (id(fleet.islands[at].accelerator), fleet.islands[at].tiers, fleet.islands[at].nodes, plans[at])
            for at in cell.islands
        )
        for cell in cells
    ]
    return all(row == rows[0] for row in rows) and not any(cell.axis for cell in cells)


def _shares(
    model: Model, fleet: Fleet, cells: Sequence[Cell], plans: Sequence[Plan], run: Run, stack: Stack,
    units: Sequence[tuple[float, float]],
) -> list[split.Share]:  # fmt: skip
    """What each cell makes of a batch: a step lasts so long, and so much longer a sequence, read off its step at a part of the
    batch in proportion to its peak and at half of that. Exact where steps are straight lines in the micro-batches."""
    peaks = [sum(_peak(fleet.islands[at]) for at in cell.islands) for cell in cells]
    batches = [
        _rounded(float(run.global_batch) * peak / sum(peaks), *one) for peak, one in zip(peaks, units, strict=True)
    ]
    halves = [_rounded(batch / 2.0, *one) for batch, one in zip(batches, units, strict=True)]
    halves = [half if half < batch else batch + one[0] for half, batch, one in zip(halves, batches, units, strict=True)]
    times = _times(model, fleet, cells, plans, (batches, halves), run, stack)
    found = []
    for at, (step, least) in enumerate(units):
        slope = (times[0][at] - times[1][at]) / (batches[at] - halves[at])
        found.append(split.Share(unit=step, least=least, start=times[0][at] - slope * batches[at], each=slope))
    return found


def _times(
    model: Model, fleet: Fleet, cells: Sequence[Cell], plans: Sequence[Plan], batches: Sequence[Sequence[float]], run: Run,
    stack: Stack,
) -> list[tuple[float, ...]]:  # fmt: skip
    """Seconds of a step of every cell at several batches: (batch, cell)."""
    if all(not cell.axis for cell in cells):
        firsts = [cell.islands[0] for cell in cells]
        return list(
            step_times(model, [fleet.islands[at] for at in firsts], [plans[at] for at in firsts], batches, run, stack)
        )
    found = []
    for some in batches:
        steps = inner_steps(model, fleet, cells, plans, [changed(run, global_batch=batch) for batch in some], stack)
        found.append(tuple(float(steps[cell.islands[0]].step_time) for cell in cells))
    return found


def _peak(island: Island) -> float:
    return float(island.gpus) * float(island.accelerator.peak.get("bf16", island.accelerator.peak.get("fp16", 1.0)))


def _rounded(batch: float, step: float, least: float) -> float:
    return max(round(batch / step) * step, least)
