"""One inner step of every island, and the round that joins them: the four verbs over a fleet."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from shardmeter.core.formula import under
from shardmeter.core.record import changed, record
from shardmeter.core.sums import plain_sum
from shardmeter.core.units import Bytes, Count, Number, Seconds, Usd
from shardmeter.engine import add
from shardmeter.engine import round as rounds
from shardmeter.engine.asked import BACKEND
from shardmeter.engine.cells import Cell, cells_of, inner_steps
from shardmeter.engine.crossing import Crossed
from shardmeter.engine.evaluate import evaluate
from shardmeter.engine.price import products_time
from shardmeter.engine.round import Folded, Pace
from shardmeter.engine.sharing import shared_by_part
from shardmeter.engine.wans import Networks, along
from shardmeter.families import matrices
from shardmeter.physics import memory_bound
from shardmeter.physics.crossing import RING_CHUNK, hierarchical_time
from shardmeter.specs import (
    Crossing,
    Effect,
    Estimate,
    Fleet,
    Island,
    Leaving,
    MemoryTerm,
    Model,
    Plan,
    Replica,
    Round,
    Run,
    Stack,
    Wan,
)
from shardmeter.specs.estimate import Ends
from shardmeter.strategies.precision import WIDTH
from shardmeter.sync import effect, round_of

CROSSING, GRADIENTS, UPDATE = "outer synchronisation", "gradients across islands", "outer update"
LOSS = "loss"
"""Under which formulas of a method's effect on the loss are traced: no term of the ledger."""


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
    pace: Pace | None = None
    folded: Folded | None = None
    priced: tuple[Crossed, ...] = ()
    """What one message of each crossing takes."""
    sent: tuple[Bytes, ...] = ()
    """Bytes that each island sends to others in a round."""
    paid: tuple[Usd, ...] = ()
    """What they cost each of them; NaN where a price is not known."""
    wan: Wan | None = None
    """What joins the islands, as it was said."""
    critical: int = 0
    """The island that sets the pace."""
    inner: tuple[Estimate, ...] = ()
    """The islands' inner steps without what the round adds to their memory."""
    effect: Effect | None = None
    """What the method is known to cost in loss; None for one island."""


def evaluate_fleet(
    model: Model, fleet: Fleet, plan: Plan, run: Run, stack: Stack, plans: Sequence[Plan] = (), networks: Networks | None = None
) -> Whole:  # fmt: skip
    """Predict one inner step of a fleet and the round around it. `plans` are those of the islands, where they have their own;
    `networks`, the fleet's own, save who asks many plans of it what does not depend on them.

    Raises UnknownName for a method that is not built, IndivisibleBatch where no whole micro-batches make up the batch. Numbers of
    `plan.sync` may be arrays (all but `num_fragments`); of the rest, plain numbers. One island is `evaluate` exactly."""
    own = tuple(plans) or (plan,) * len(fleet.islands)
    if len(fleet.islands) == 1:
        return alone(fleet.islands[0], own[0], run, evaluate(model, fleet.islands[0], own[0], run, stack))
    cells, networks = cells_of(plan, fleet.islands), networks or Networks(fleet.islands, fleet.wan)
    (runs,), _ = shared_by_part(model, fleet, cells, own, run, stack, networks)
    return joined(model, parts_of(model, fleet, cells, own, runs, stack, networks), fleet.wan, plan, networks=networks)


def parts_of(
    model: Model,
    fleet: Fleet,
    cells: Sequence[Cell],
    plans: Sequence[Plan],
    runs: Sequence[Run],
    stack: Stack,
    networks: Networks,
) -> tuple[Part, ...]:
    """The islands with their inner steps, before the round adds to their memory; `plans` are theirs, `runs` those of the cells. On
    networks side by side, steps of cells of several islands have the shape (networks,)."""
    inner = inner_steps(model, fleet, cells, plans, runs, stack, networks)
    owner = {at: number for number, cell in enumerate(cells) for at in cell.islands}
    return tuple(
        Part(island=i, plan=p, run=runs[owner[at]], estimate=e, cell=owner[at])
        for at, (i, p, e) in enumerate(zip(fleet.islands, plans, inner, strict=True))
    )


def joined(
    model: Model, parts: Sequence[Part], wan: Wan | None, plan: Plan, known: Whole | None = None, networks: Networks | None = None
) -> Whole:  # fmt: skip
    """A fleet whose islands' inner steps are known, joined by a network and a method; `known` is the same but for the network, and
    saves what does not depend on that; so do `networks` of these islands and this network alone. Raises UnknownName."""
    if known is not None and known.round is not None:
        return changed(_joined(known.parts, known.round, wan, plan, networks), inner=known.inner, effect=known.effect)
    told = told_of(model, parts)
    asked = round_of(told, plan.sync)
    with under(LOSS):
        costs = effect(told, plan.sync)
    whole = _joined(holding(parts, asked), asked, wan, plan, networks)
    return changed(whole, inner=tuple(part.estimate for part in parts), effect=costs)


def told_of(model: Model, parts: Sequence[Part]) -> Replica:
    """What the method is told of these islands."""
    return replica(model, [part.plan for part in parts], parts[0].estimate, 1 + max(part.cell for part in parts))


def holding(parts: Sequence[Part], asked: Round) -> tuple[Part, ...]:
    """The islands with what the round adds to their memory."""
    return tuple(changed(part, estimate=with_outer_state(part.estimate, asked)) for part in parts)


def alone(island: Island, plan: Plan, run: Run, estimate: Estimate) -> Whole:
    """A fleet of one island."""
    return Whole(parts=(Part(island=island, plan=plan, run=run, estimate=estimate, cell=0),), estimate=estimate)


def replica(model: Model, plans: Sequence[Plan], one: Estimate, cells: int) -> Replica:
    """What a sync method is told of the model. Islands that reduce in unlike formats send each other the widest."""
    return Replica(
        parameters=one.ends.trained,
        gradient_bytes=max(WIDTH[plan.reduce_dtype] for plan in plans),
        layers=float(model.layers),
        cells=float(cells),
        matrices=matrices(model),
    )


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


def pace_of(parts: Sequence[Part], asked: Round, lanes: Count, release: str = "layers") -> Pace:
    """The pace of the cells. Stages that share one of so many `lanes` send one after the other, each as its gradients
    become whole; a stage with lanes of its own cannot use those of the others. `release` as in `specs.Sync`: of
    gradients, which other messages are not."""
    cells = [[parts[at] for at in cell] for cell in grouped(parts)]

    def over(value: Callable[[Part], Number], join: Callable[[Sequence[Number]], Number]) -> Number:
        return along([join([value(part) for part in cell]) for cell in cells])

    lines: list[list[tuple[Leaving, ...]]] = [[(Leaving(),)] for _ in cells]
    if release == "layers" and any(one.behind for one in asked.crossings):
        lines = [[line for part in cell for line in lines_of(part.estimate.ends, lanes)] for cell in cells]
    return Pace(
        step=over(lambda part: part.estimate.step_time, _most),
        tokens=over(lambda part: part.estimate.tokens, add.folded),
        leaving=rounds.beside(lines),
        late=over(lambda part: part.estimate.ends.late, _most),
        update=over(lambda part: outer_update(asked, part.estimate, part.island), _most),
    )


def lines_of(ends: Ends, lanes: Count) -> list[tuple[Leaving, ...]]:
    """The gradients of an island's stages by the line that they leave over: neighbouring stages share one where there
    are fewer than stages. The gradients of a line are all of those that pass it, over its part of the lanes. Raises ValueError for an
    island that was evaluated as if it met no others."""
    if not ends.leaving:
        raise ValueError(
            "nobody asked when the gradients of an island are whole that meets others: evaluate(…, meets=True)"
        )
    each = math.ceil(ends.stages / min(float(lanes), ends.stages))
    made: list[tuple[Leaving, ...]] = []
    for first in range(0, ends.stages, each):
        line = [one for one in ends.leaving if first <= one.stage < first + each]
        if not line:
            continue
        whole = plain_sum(float(one.share) for one in line)
        made.append(rounds.in_order([changed(one, share=one.share / whole) for one in line]))
    return made


def refolded(whole: Whole, plan: Plan, inner: Number, across: Number) -> Folded | None:
    """The round again with every inner step `inner` times as long and every message `across` times; None for one island."""
    if whole.round is None or whole.pace is None:
        return None
    pace = whole.pace
    scaled = {name: getattr(pace, name) * inner for name in ("step", "late", "update")}
    lines = tuple(tuple(rounds.scaled(one, inner) for one in line) for line in pace.leaving)
    scaled["start"] = pace.start * across
    seconds = tuple(one.seconds * across for one in whole.priced)
    return rounds.fold(whole.round, changed(pace, leaving=lines, **scaled), seconds, plan.sync.grace)


def stretched(whole: Whole, plan: Plan, inner: Number, across: Number) -> Whole:
    """The fleet if every inner step took `inner` times as long and every message `across` times; the share of a step that is computed
    stays. Memory and the ledger are left as they are."""
    parts = tuple(changed(part, estimate=_slowed(part.estimate, inner)) for part in whole.parts)
    folded = refolded(whole, plan, inner, across)
    if folded is None or whole.round is None:
        return changed(whole, parts=parts, estimate=_slowed(whole.estimate, inner))
    estimate = changed(
        whole.estimate, step_time=folded.seconds / whole.round.steps, tokens=folded.tokens / whole.round.steps
    )
    sent, paid = _moved(parts, whole.round, folded, whole.priced)
    return changed(whole, parts=parts, estimate=estimate, folded=folded, sent=sent, paid=paid)


def _slowed(one: Estimate, times: Number) -> Estimate:
    return changed(one, step_time=one.step_time * times, compute_seconds=one.compute_seconds * times)


def outer_update(asked: Round, one: Estimate, island: Island) -> Seconds:
    """Of a round, on the rank that updates most: what it streams, and the products between. Leaves out: what one hides of the other."""
    device, ends = island.accelerator, one.ends
    part = ends.shard / ends.trained
    with under(UPDATE):
        seconds: Seconds = memory_bound.traffic_time(
            asked.traffic * part, 1.0, device.memory_bandwidth * device.memory_share
        )
        if np.any(np.greater(asked.products, 0.0)):
            seconds = seconds + products_time(device, asked.products * part)
    return seconds


def _most(values: Sequence[Number]) -> Number:
    longest: Number = np.maximum.reduce([np.asarray(value, dtype=float) for value in values])
    return longest


def _joined(
    parts: tuple[Part, ...], asked: Round, wan: Wan | None, plan: Plan, networks: Networks | None = None
) -> Whole:
    """The round of the cells."""
    networks = networks or Networks([part.island for part in parts], wan)
    met = meet(parts, asked, networks, plan, networks.lanes(plan.sync)[0])
    critical = first_of(parts, int(np.asarray(met.folded.critical).flat[0]))
    return Whole(
        parts=parts,
        estimate=critical_step(met, critical),
        round=asked,
        pace=met.pace,
        folded=met.folded,
        priced=met.priced,
        sent=met.sent,
        paid=met.paid,
        wan=wan,
        critical=critical,
    )


@record
class Met:
    """The round of a fleet's cells: the fields of `Whole` that no choice of a critical cell enters. Those of networks side by side
    begin with their axis."""

    parts: tuple[Part, ...]
    round: Round
    pace: Pace
    folded: Folded
    priced: tuple[Crossed, ...]
    sent: tuple[Bytes, ...]
    paid: tuple[Usd, ...]


def meet(parts: tuple[Part, ...], asked: Round, networks: Networks, plan: Plan, lanes: Count) -> Met:
    """Islands whose inner steps are known, joined by networks whose pairs have so many `lanes`, and by a method. Raises ValueError
    without a network."""
    cells, weights, priced = grouped(parts), held_by(parts), []
    pace = pace_of(parts, asked, lanes, plan.sync.release)
    for one, idle in messages_of(parts, asked, networks, pace):
        with under(term_of(one)):
            charge = networks.crossed(one, cells, plan.sync, own=asked.pace != "barrier", weights=weights, idle=idle)
            priced.append(spread_inside(charge, one, parts))
    start = np.repeat(_last(_most([one.start for one in priced] or [0.0])), len(cells), axis=-1)
    pace = changed(pace, start=start)
    folded = rounds.fold(asked, pace, tuple(one.seconds for one in priced), plan.sync.grace, apart=networks.many)
    sent, paid = _moved(parts, asked, folded, priced)
    return Met(parts=parts, round=asked, pace=pace, folded=folded, priced=tuple(priced), sent=sent, paid=paid)


def messages_of(parts: Sequence[Part], asked: Round, networks: Networks, pace: Pace) -> list[tuple[Crossing, Seconds]]:
    """The messages of a round as the backend of the networks passes them, each with the seconds that nothing passed before."""
    if BACKEND not in networks.backends:
        return [(one, 0.0) for one in asked.crossings]
    return [(_cut(one, parts), _idle(one, asked, pace)) for one in asked.crossings]


def _cut(one: Crossing, parts: Sequence[Part]) -> Crossing:
    """Gradients as the collectives that gloo passes one after the other, each with round trips of its own."""
    if not one.behind:
        return one
    return changed(one, calls=float(np.max(_most([part.estimate.ends.collectives for part in parts]))))


def _idle(one: Crossing, asked: Round, pace: Pace) -> Seconds:
    """For how long connections stand idle before a message: the inner steps between two of them, of the fastest cell."""
    idle: Seconds = asked.steps / one.messages * np.min(pace.step, axis=-1)
    return idle


def grouped(parts: Sequence[Part]) -> list[list[int]]:
    """The places of the islands of every cell."""
    cells: list[list[int]] = [[] for _ in range(1 + max(part.cell for part in parts))]
    for at, part in enumerate(parts):
        cells[part.cell].append(at)
    return cells


def held_by(parts: Sequence[Part]) -> list[float]:
    """What every island holds of its cell's parameters, over an even part: of a pipeline its stages."""
    return weights_of(grouped(parts), [part.estimate.ends.stages for part in parts])


def weights_of(cells: Sequence[Sequence[int]], stages: Sequence[int]) -> list[float]:
    """The same of cells whose islands have so many stages each."""
    weights = [1.0] * len(stages)
    for cell in cells:
        for at in cell:
            weights[at] = stages[at] * len(cell) / plain_sum(stages[one] for one in cell)
    return weights


def _moved(
    parts: Sequence[Part], asked: Round, folded: Folded, priced: Sequence[Crossed]
) -> tuple[tuple[Bytes, ...], tuple[Usd, ...]]:
    """What every island sends in a round, and what that costs it."""
    sent: Number = along([part.estimate.ends.sent for part in parts]) * _last(asked.steps)
    paid: Number = along([part.estimate.ends.egress for part in parts]) * _last(asked.steps)
    for one, charge in zip(asked.crossings, priced, strict=True):
        often = folded.exchanges * _last(one.messages)
        sent = sent + np.sum(charge.caused * _last(often), axis=-2)
        paid = paid + np.sum(charge.charged * _last(often), axis=-2)
    return tuple(np.moveaxis(np.asarray(sent), -1, 0)), tuple(np.moveaxis(np.asarray(paid), -1, 0))


def spread_inside(charge: Crossed, one: Crossing, parts: Sequence[Part]) -> Crossed:
    """A message with what follows inside islands whose ranks hold the same parameters: each received a part, and all gather it, chunk
    by chunk behind the rest. Gradients of a step are spread by the island's own reduction."""
    if one.behind:
        return charge
    inside = _most([part.estimate.ends.spread / part.estimate.ends.trained for part in parts]) * one.size
    chunks: Number = np.maximum(np.ceil(one.size / RING_CHUNK), 1.0)
    if np.ndim(charge.seconds) > np.ndim(inside):  # of every cell
        inside, chunks = _last(inside), _last(chunks)
    return changed(charge, seconds=hierarchical_time(0.0, charge.seconds, inside, chunks))


def term_of(one: Crossing) -> str:
    """The term of the ledger under which a message shows."""
    return GRADIENTS if one.behind else CROSSING


def _last(number: Number) -> Number:
    return np.asarray(number)[..., None]


def first_of(parts: Sequence[Part], cell: int) -> int:
    """The first island of a cell."""
    return next(at for at, part in enumerate(parts) if part.cell == cell)


def critical_step(met: Met, at: int) -> Estimate:
    """One inner step of the fleet: the ledger of the critical island, which is `at` this place, and a step's part of what the round
    adds to it."""
    parts, asked, folded = met.parts, met.round, met.folded
    critical = parts[at].estimate
    fullest = max((part.estimate for part in parts), key=lambda one: float(np.max(one.memory_peak / one.memory_limit)))
    exposed = {term.label: term.seconds for term in critical.terms}
    hidden = {term.label: term.hidden for term in critical.terms}
    for one, shown, behind in zip(asked.crossings, folded.exposed, folded.hidden, strict=True):
        label = term_of(one)
        add.merged(exposed, {label: shown / asked.steps}, 1.0)
        add.merged(hidden, {label: behind / asked.steps}, 1.0)
    add.merged(exposed, {UPDATE: folded.update / asked.steps}, 1.0)
    terms = add.ledger(exposed, hidden)
    often = np.moveaxis(np.asarray(folded.counted * folded.steps) / _last(asked.steps), -1, 0)
    share = [often[part.cell] for part in parts]

    def all_of(name: str) -> Number:
        return add.folded(one * getattr(part.estimate, name) for one, part in zip(share, parts, strict=True))

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
        samples=folded.tokens / asked.steps * (critical.samples / critical.tokens),
        model_flops=all_of("model_flops"),
        hardware_flops=all_of("hardware_flops"),
        gpus=add.folded(part.estimate.gpus for part in parts),
        peak_flops=add.folded(part.estimate.peak_flops for part in parts),
    )
