"""Many fleets of one model at once: variants of a scenario, whose islands' inner steps are evaluated as arrays where they have one
structure. Each comes out as `evaluate_fleet` has it, bit for bit."""

from __future__ import annotations

from collections.abc import Sequence

from shardmeter.core.errors import ShardMeterError
from shardmeter.core.record import changed, record
from shardmeter.engine import sharing
from shardmeter.engine.cells import Cell, cells_of, each, step_times
from shardmeter.engine.fleet import Part, Whole, alone, evaluate_fleet, joined
from shardmeter.engine.wans import Networks
from shardmeter.specs import Fleet, Model, Plan, Run, Stack
from shardmeter.sync import inner_of


@record
class Case:
    """One of the fleets."""

    fleet: Fleet
    plan: Plan
    run: Run
    stack: Stack
    plans: tuple[Plan, ...] = ()
    """Of each island, where they have their own."""

    @property
    def own(self) -> tuple[Plan, ...]:
        """The plan of each island."""
        return self.plans or (self.plan,) * len(self.fleet.islands)


def evaluate_fleets(model: Model, cases: Sequence[Case]) -> list[Whole | ShardMeterError]:
    """Every case by itself, or why it cannot be answered (a batch that cannot be shared).

    Cells of several islands, and methods that cut the model, are evaluated one by one."""
    found: dict[int, Whole | ShardMeterError] = {}
    together: dict[tuple[object, ...], list[int]] = {}
    for at, case in enumerate(cases):
        if any(cell.axis for cell in _cells(case)) or inner_of(case.own[0].sync).blocks > 1:
            found[at] = _by_itself(model, case)
        else:
            run = case.run
            together.setdefault((run.seq_len, run.document_len, id(run.reference)), []).append(at)
    for ats in together.values():
        found |= dict(zip(ats, _together(model, [cases[at] for at in ats]), strict=True))
    return [found[at] for at in range(len(cases))]


def _cells(case: Case) -> tuple[Cell, ...]:
    return cells_of(case.plan, case.fleet.islands)


def _by_itself(model: Model, case: Case) -> Whole | ShardMeterError:
    try:
        return evaluate_fleet(model, case.fleet, case.plan, case.run, case.stack, case.plans)
    except ShardMeterError as error:
        return error


def _together(model: Model, cases: Sequence[Case]) -> list[Whole | ShardMeterError]:
    """Cases whose runs differ in their batches alone, every island a cell."""
    batches = _shared(model, cases)
    good = [at for at, parts in enumerate(batches) if not isinstance(parts, ShardMeterError)]
    runs = {
        at: [changed(cases[at].run, global_batch=part) for part in batches[at]]  # type: ignore[union-attr]
        for at in good
    }
    islands = [island for at in good for island in cases[at].fleet.islands]
    inner = iter(
        each(
            model, islands, [plan for at in good for plan in cases[at].own], [run for at in good for run in runs[at]],
            [cases[at].stack for at in good for _ in cases[at].fleet.islands],
        )
    )  # fmt: skip
    found: list[Whole | ShardMeterError] = []
    for at, (case, parts) in enumerate(zip(cases, batches, strict=True)):
        if isinstance(parts, ShardMeterError):
            found.append(parts)
            continue
        own = [
            Part(island=island, plan=plan, run=run, estimate=next(inner), cell=cell)
            for cell, (island, plan, run) in enumerate(zip(case.fleet.islands, case.own, runs[at], strict=True))
        ]
        found.append(
            joined(model, own, case.fleet.wan, case.plan)
            if len(own) > 1
            else alone(own[0].island, own[0].plan, case.run, own[0].estimate)
        )
    return found


def _shared(model: Model, cases: Sequence[Case]) -> list[Sequence[float] | ShardMeterError]:
    """The batch of every island of every case: what tells the speeds of unlike islands is evaluated for all cases at once."""
    units, peaks, at_speed = {}, {}, []
    for at, case in enumerate(cases):
        cells = _cells(case)
        units[at] = sharing.units_of(case.fleet.islands, cells, case.own)
        peaks[at] = [sharing.peak(island) for island in case.fleet.islands]
        networks = Networks(case.fleet.islands, case.fleet.wan)
        if case.own[0].sync.split != "equal" and not sharing.equal_cells(case.fleet, cells, case.own, networks):
            at_speed.append(at)
    asked = {at: sharing.asked(float(cases[at].run.global_batch), units[at], peaks[at]) for at in at_speed}
    times: list[list[float]] = [[], []]
    if at_speed:
        islands = [island for at in at_speed for island in cases[at].fleet.islands]
        plans = [plan for at in at_speed for plan in cases[at].own]
        stacks = [cases[at].stack for at in at_speed for _ in cases[at].fleet.islands]
        sizes = [[size for at in at_speed for size in asked[at][row]] for row in range(2)]
        times = [list(row) for row in step_times(model, islands, plans, sizes, cases[at_speed[0]].run, stacks)]
    found: list[Sequence[float] | ShardMeterError] = []
    for at, case in enumerate(cases):
        if len(case.fleet.islands) == 1:
            found.append((float(case.run.global_batch),))
            continue
        own = None
        if at in asked:
            own = [[row.pop(0) for _ in units[at]] for row in times]
        found.append(_parted(case, units[at], None if own is None else (peaks[at], own)))
    return found


def _parted(
    case: Case, units: Sequence[tuple[float, float]], speeds: tuple[Sequence[float], Sequence[Sequence[float]]] | None
) -> Sequence[float] | ShardMeterError:
    known = None if speeds is None else (speeds[0], lambda _: speeds[1])
    try:
        return sharing.parted(float(case.run.global_batch), units, known, case.own[0].sync.split)
    except ShardMeterError as error:
        return error
