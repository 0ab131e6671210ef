"""One inner step of every island, and the round that joins them: the four verbs over a fleet.

Islands that are equal but for name, price and region are evaluated once; those that differ in numbers only are evaluated as one
batch, with the islands as the last axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shardmeter.core.record import changed, record, stacked, structure
from shardmeter.core.units import Bytes, Number, Seconds
from shardmeter.engine import add, crossing, split
from shardmeter.engine import round as rounds
from shardmeter.engine.crossing import Crossed
from shardmeter.engine.evaluate import evaluate
from shardmeter.engine.round import Folded, Pace
from shardmeter.physics import memory_bound
from shardmeter.schedules import traits
from shardmeter.specs import Estimate, Fleet, Island, MemoryTerm, Model, Plan, Replica, Round, Run, Stack, Wan
from shardmeter.strategies.precision import WIDTH
from shardmeter.sync import round_of

CROSSING, GRADIENTS, UPDATE = "outer synchronisation", "gradients across islands", "outer update"


@record
class Part:
    """One island of a fleet."""

    island: Island
    plan: Plan
    run: Run
    """With the sequences of this island."""
    estimate: Estimate
    """Of its own inner step, outer state included."""
    cell: int
    """Which cell of the round it belongs to."""


@record
class Whole:
    """A fleet's answer: `estimate` is that of one inner step of the fleet, a round divided by its steps."""

    parts: tuple[Part, ...]
    estimate: Estimate
    round: Round | None = None
    """None for one island."""
    folded: Folded | None = None
    priced: tuple[Crossed, ...] = ()
    """What one message of each crossing takes."""
    sent: tuple[Bytes, ...] = ()
    """Bytes that each island sends to others in a round."""
    critical: int = 0
    """The island that sets the pace."""
    inner: tuple[Estimate, ...] = ()
    """The islands' inner steps without what the round adds to their memory."""


def evaluate_fleet(model: Model, fleet: Fleet, plan: Plan, run: Run, stack: Stack, plans: Sequence[Plan] = ()) -> Whole:
    """Predict one inner step of a fleet and the round around it. `plans` are those of the islands, where they have their own.

    Raises UnknownName for a method that is not built, IndivisibleBatch where no whole micro-batches make up the batch. Numbers of
    `plan.sync` may be arrays (all but `num_fragments`); of the rest, plain numbers. One island is `evaluate` exactly."""
    own = tuple(plans) or (plan,) * len(fleet.islands)
    if len(fleet.islands) == 1:
        return alone(fleet.islands[0], own[0], run, evaluate(model, fleet.islands[0], own[0], run, stack))
    runs = shared(model, fleet.islands, own, run, stack, plan.sync.split)
    inner = each(model, fleet.islands, own, runs, stack)
    parts = tuple(
        Part(island=i, plan=p, run=r, estimate=e, cell=at)
        for at, (i, p, r, e) in enumerate(zip(fleet.islands, own, runs, inner, strict=True))
    )
    return joined(model, parts, fleet.wan, plan)


def joined(model: Model, parts: Sequence[Part], wan: Wan | None, plan: Plan) -> Whole:
    """A fleet whose islands' inner steps are known, joined by a network and a method. Raises UnknownName."""
    inner = tuple(part.estimate for part in parts)
    asked = round_of(replica(model, plan, inner[0], len(parts)), plan.sync)
    held = tuple(changed(part, estimate=with_outer_state(part.estimate, asked)) for part in parts)
    return changed(_joined(held, asked, wan, plan), inner=inner)


def alone(island: Island, plan: Plan, run: Run, estimate: Estimate) -> Whole:
    """A fleet of one island."""
    return Whole(parts=(Part(island=island, plan=plan, run=run, estimate=estimate, cell=0),), estimate=estimate)


def replica(model: Model, plan: Plan, one: Estimate, cells: int) -> Replica:
    """What a sync method is told of the model."""
    return Replica(
        parameters=one.ends.trained,
        gradient_bytes=WIDTH[plan.reduce_dtype],
        layers=float(model.layers),
        cells=float(cells),
    )


# ---- islands ---------------------------------------------------------------------------------------------------------------------


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


# ---- the batch -------------------------------------------------------------------------------------------------------------------


class IndivisibleBatch(ValueError):
    """No whole micro-batches of the islands make up the global batch; `near` can be split."""

    def __init__(self, batch: float, near: Sequence[float], units: Sequence[float]) -> None:
        super().__init__(f"global_batch = {batch:g} is not made of whole micro-batches of the islands")
        self.batch, self.near, self.units = batch, tuple(near), tuple(units)


def shared(
    model: Model, islands: Sequence[Island], plans: Sequence[Plan], run: Run, stack: Stack, rule: str = "speed"
) -> tuple[Run, ...]:
    """The run of every island, with its part of the global batch. Raises IndivisibleBatch."""
    batch = float(run.global_batch)
    units = [unit(plan) for plan in plans]
    if rule == "equal" or _alike(islands, plans):
        shares = [split.Share(unit=one, least=least, start=0.0, each=1.0) for one, least in units]
        parts = split.equally(batch, shares) or (split.by_speed(batch, shares) if rule != "equal" else None)
    else:
        shares = _shares(model, islands, plans, run, stack, units)
        parts = split.by_speed(batch, shares)
    if parts is None:
        raise IndivisibleBatch(batch, split.nearest(batch, shares), [one for one, _ in units])
    return tuple(changed(run, global_batch=part) for part in parts)


def unit(plan: Plan) -> tuple[float, float]:
    """(sequences that a cell takes more at a time, the least that it takes)."""
    kind, each_pass = traits(plan.schedule), float(plan.dp * plan.micro_batch)
    step = float(plan.pp) if kind.groups else 2.0 if kind.even else 1.0
    least = max(np.ceil(kind.rounds * plan.pp / step) * step if plan.pp > 1 else 1.0, step if plan.pp > 1 else 1.0)
    return each_pass * (step if plan.pp > 1 else 1.0), each_pass * float(least)


def _alike(islands: Sequence[Island], plans: Sequence[Plan]) -> bool:
    """Whether all islands take the same step for the same batch."""
    first = islands[0]
    same = all(
        i.accelerator is first.accelerator and i.tiers == first.tiers and i.nodes == first.nodes for i in islands
    )
    return same and all(plan == plans[0] for plan in plans)


def _shares(
    model: Model,
    islands: Sequence[Island],
    plans: Sequence[Plan],
    run: Run,
    stack: Stack,
    units: Sequence[tuple[float, float]],
) -> list[split.Share]:
    """What each island makes of a batch: a step lasts so long, and so much longer a sequence, read off its step at a part of the
    batch in proportion to its peak and at half of that. Exact where steps are straight lines in the micro-batches."""
    peaks = [
        float(i.gpus) * float(i.accelerator.peak.get("bf16", i.accelerator.peak.get("fp16", 1.0))) for i in islands
    ]
    guesses = [
        _rounded(float(run.global_batch) * peak / sum(peaks), *one) for peak, one in zip(peaks, units, strict=True)
    ]
    halves = [_rounded(guess / 2.0, *one) for guess, one in zip(guesses, units, strict=True)]
    halves = [half if half < guess else guess + one[0] for half, guess, one in zip(halves, guesses, units, strict=True)]
    times = []
    for batches in (guesses, halves):
        runs = [changed(run, global_batch=batch) for batch in batches]
        times.append([float(one.step_time) for one in each(model, islands, plans, runs, stack)])
    found = []
    for at, (step, least) in enumerate(units):
        slope = (times[0][at] - times[1][at]) / (guesses[at] - halves[at])
        found.append(split.Share(unit=step, least=least, start=times[0][at] - slope * guesses[at], each=slope))
    return found


def _rounded(batch: float, step: float, least: float) -> float:
    return max(round(batch / step) * step, least)


# ---- the round -------------------------------------------------------------------------------------------------------------------


def with_outer_state(one: Estimate, asked: Round) -> Estimate:
    """An island's estimate with what the method keeps on its ranks: whole-model bytes by the share that the fullest rank updates."""
    part = one.ends.shard / one.ends.trained
    terms = tuple(MemoryTerm(label=r.label, size=r.size * part, exactness=r.exactness) for r in asked.residents)
    memory = (*one.memory, *terms)
    more = add.memory_total(terms)
    return changed(
        one, memory=memory, memory_peak=add.memory_total(memory), memory_allocated=one.memory_allocated + more,
        memory_first=one.memory_first + more,
    )  # fmt: skip


def pace_of(parts: Sequence[Part], asked: Round) -> Pace:
    """The pace of cells of one island each."""

    def over(values: Sequence[Number]) -> Number:
        return np.stack([np.asarray(value, dtype=float) for value in values], axis=-1)

    updates: list[Seconds] = []
    for part in parts:
        device = part.island.accelerator
        moved = asked.traffic * part.estimate.ends.shard / part.estimate.ends.trained
        updates.append(memory_bound.traffic_time(moved, 1.0, device.memory_bandwidth * device.memory_share))
    return Pace(
        step=over([p.estimate.step_time for p in parts]),
        tokens=over([p.estimate.tokens for p in parts]),
        backward=over([p.estimate.ends.backward for p in parts]),
        pieces=over([p.estimate.ends.pieces for p in parts]),
        late=over([p.estimate.ends.late for p in parts]),
        update=over(np.broadcast_arrays(*updates)),
    )


def _joined(parts: tuple[Part, ...], asked: Round, wan: Wan | None, plan: Plan) -> Whole:
    """The round of islands that are a cell each."""
    cells = tuple((at,) for at in range(len(parts)))
    if wan is None:
        raise ValueError("several islands and no network between them")
    priced = tuple(crossing.price(one, wan, cells, plan.sync, own=asked.pace != "barrier") for one in asked.crossings)
    pace = pace_of(parts, asked)
    folded = rounds.fold(asked, pace, tuple(one.seconds for one in priced), plan.sync.grace)
    sent: Number = np.zeros(len(parts))
    for one, charge in zip(asked.crossings, priced, strict=True):
        sent = sent + np.asarray(charge.sent) * _last(one.messages)
    return Whole(
        parts=parts,
        estimate=_estimate(parts, asked, folded),
        round=asked,
        folded=folded,
        sent=tuple(np.moveaxis(np.asarray(sent), -1, 0)),
        priced=priced,
        critical=_critical(parts, folded),
    )


def _last(number: Number) -> Number:
    return np.asarray(number)[..., None]


def _critical(parts: Sequence[Part], folded: Folded) -> int:
    """The island that sets the pace, the first of its cell."""
    cell = int(np.asarray(folded.critical).flat[0])
    return next(at for at, part in enumerate(parts) if part.cell == cell)


def _estimate(parts: Sequence[Part], asked: Round, folded: Folded) -> Estimate:
    """One inner step of the fleet: the critical cell's ledger, and a step's part of what the round adds to it."""
    critical = parts[_critical(parts, folded)].estimate
    fullest = max((part.estimate for part in parts), key=lambda one: float(np.max(one.memory_peak / one.memory_limit)))
    exposed = {term.label: term.seconds for term in critical.terms}
    hidden = {term.label: term.hidden for term in critical.terms}
    for one, shown, behind in zip(asked.crossings, folded.exposed, folded.hidden, strict=True):
        label = GRADIENTS if one.behind else CROSSING
        add.merged(exposed, {label: shown / asked.steps}, 1.0)
        add.merged(hidden, {label: behind / asked.steps}, 1.0)
    add.merged(exposed, {UPDATE: folded.update / asked.steps}, 1.0)
    terms = add.ledger(exposed, hidden)
    often = np.moveaxis(np.asarray(folded.counted * folded.steps) / _last(asked.steps), -1, 0)

    def all_of(name: str) -> Number:
        return add.folded(share * getattr(part.estimate, name) for share, part in zip(often, parts, strict=True))

    return changed(
        critical,
        step_time=add.total(terms),
        terms=terms,
        memory=fullest.memory,
        memory_allocated=fullest.memory_allocated,
        memory_first=fullest.memory_first,
        memory_peak=fullest.memory_peak,
        memory_limit=fullest.memory_limit,
        tokens=folded.tokens / asked.steps,
        samples=all_of("samples"),
        model_flops=all_of("model_flops"),
        hardware_flops=all_of("hardware_flops"),
        gpus=add.folded(part.estimate.gpus for part in parts),
        peak_flops=add.folded(part.estimate.peak_flops for part in parts),
    )
