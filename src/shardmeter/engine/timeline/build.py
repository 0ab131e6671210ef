"""One optimizer step as a program: the demands and prices of the closed form, one representative rank per pipeline stage.

Data-parallel and tensor-parallel ranks do the same at the same time, so one stands for all. A rank has a compute stream, a
channel for each of the scale-up link and the fabric (in order as issued; a serial collective interrupts what may hide), the
host's stream where its pace binds, a wire to each neighbour and, for a plan that offloads, a link to the host each way and what
the host computes. A step ends for all at once or, where the schedule says so, for every device on its own clock.
Leaves out: jitter inside a stage (its slowest rank is a factor on all of it), sends that share the adapter with collectives,
undoing a step that a late validation refuses.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from statistics import NormalDist

from shardmeter.core.record import record
from shardmeter.engine import demand, joined
from shardmeter.engine.evaluate import priced
from shardmeter.engine.step import slots_of
from shardmeter.engine.timeline.cost import Case
from shardmeter.engine.timeline.rank import REDUCE, Drain, Rank, Unit
from shardmeter.engine.timeline.simulate import Program
from shardmeter.engine.timeline.turns import last_turns, turns
from shardmeter.schedules import Key, Op, needs, traits
from shardmeter.specs.fleet import Island
from shardmeter.specs.model import Model
from shardmeter.specs.plan import Plan
from shardmeter.specs.run import Run
from shardmeter.specs.stack import Stack
from shardmeter.strategies import probes

WAYS = ("forward", "backward")
NORMAL = NormalDist()
TINIEST = 1e-15
"""How near to 0 and 1 a share may be that is looked up in the normal distribution."""


@record
class Built:
    """A program with what the account of overlap needs: which tasks are a unit's compute, which reductions are waited for."""

    program: Program
    units: tuple[Unit, ...]
    drains: tuple[Drain, ...]
    steps: tuple[tuple[int, ...], ...]
    """The task of every rank that ends its step, step by step."""
    contention: float


def case_of(model: Model, island: Island, plan: Plan, run: Run, stack: Stack) -> Case:
    """Demands and prices of one step. Raises UnknownName for a family that is not built."""
    work, price, pieces, stages = priced(model, island, plan, run, stack)
    slots = slots_of(work, stages, plan, joined.line(work, pieces, plan, stack))
    return Case(work=work, pieces=pieces, price=price, plan=plan, stack=stack, slots=tuple(slots))


def stragglers(seed: int, pp: int, jitter: float, ranks: float = 1.0) -> tuple[float, ...]:
    """A factor on the compute of every stage: the pace of the slowest of its `ranks`, each drawn from a normal distribution
    around 1 with the standard deviation `jitter`; equal seeds give equal factors. Never below 0."""
    draw = random.Random(seed)  # noqa: S311  (no secret)
    # the largest of n variates lies where a uniform one to the power 1/n does
    shares = (max(draw.random(), TINIEST) ** (1.0 / ranks) for _ in range(pp))
    return tuple(max(1.0 + jitter * NORMAL.inv_cdf(min(share, 1.0 - TINIEST)), 0.0) for share in shares)


def build(case: Case, *, steps: int = 1, pace: Sequence[float] = ()) -> Built:
    """The program of `steps` steps. `pace` multiplies the compute of each stage; left out, all are equal.

    Raises UnknownName for a schedule that is not built."""
    program = Program()
    plan, work = case.plan, case.work
    held = demand.devices(work, plan)
    ranks = [Rank(program, case, i, *one, pace[i] if pace else 1.0) for i, one in enumerate(held)]
    wires = {(i, way): program.stream(f"send {way}", i, shared=True) for i in range(plan.pp) for way in WAYS}
    hop = 0.0 if plan.pp == 1 or case.stack.pipeline_overlap else float(case.price.transfer(work.send).seconds)
    orders = turns(plan, round(float(work.micro_batches)), case.slots, hop)
    ended: list[tuple[int, ...]] = []
    before: list[list[int]] = [[] for _ in ranks]
    for _ in range(steps):
        _turns(program, ranks, orders, before, plan, wires, hop)
        before = _close(program, ranks, case)
        ended.append(tuple(task for (task,) in before))
    return Built(
        program=program,
        units=tuple(unit for rank in ranks for unit in rank.done),
        drains=tuple(drain for rank in ranks for drain in rank.drains),
        steps=tuple(ended),
        contention=float(case.stack.contention),
    )


def _turns(
    program: Program,
    ranks: Sequence[Rank],
    orders: Sequence[Sequence[Op]],
    before: Sequence[Sequence[int]],
    plan: Plan,
    wires: dict[tuple[int, str], int],
    hop: float,
) -> None:
    """All turns of one step, then what each waits for on other stages. A schedule that blocks has its sends in the row of its
    turns; else they are on wires of their own."""
    opens: dict[Key, int] = {}
    closes: dict[Key, list[int]] = {}
    kind = traits(plan.schedule)
    keys = {
        (rank.position, op.kind, op.micro_batch, op.chunk)
        for rank, ops in zip(ranks, orders, strict=True)
        for op in ops
    }
    of = needs(kind.route, plan.pp, keys)
    blocks = kind.blocking and hop > 0.0
    sends = {source for key in keys for source in of(key) if source[0] != key[0]} if blocks else set()
    for rank, ops, after in zip(ranks, orders, before, strict=True):
        rank.update(after, dict.fromkeys(op.chunk for op in ops))
        whole = last_turns(ops)
        rest = enumerate(ops)
        for at, op in rest:
            key = (rank.position, op.kind, op.micro_batch, op.chunk)
            if op.joined:
                then, other = next(rest)
                pair = (key, (rank.position, other.kind, other.micro_batch, other.chunk))
                opens |= zip(pair, rank.take_joined(op, other, last=then in whole), strict=True)
                closes |= dict.fromkeys(pair, rank.ready)
                continue
            opens[key] = rank.take(op, last=at in whole)
            if key in sends:
                rank.send(hop, op.micro_batch)
            closes[key] = rank.ready
    for key, begin in opens.items():
        for source in of(key):
            if source[0] == key[0]:
                if source[3] != key[3]:  # a device that goes on with its own result
                    program.tasks[begin].after.extend(closes[source])
                continue  # its own forward or input gradient: an earlier turn of the same rank
            if hop == 0.0 or blocks:
                program.tasks[begin].after.extend(closes[source])
                continue
            wire = wires[source[0], WAYS[source[1] != "forward"]]
            label = f"send {source[2]} to stage {key[0]}"
            program.wait(begin, program.add(label, wire, hop, closes[source], "send", terms={"stage sends": hop}))


def _close(program: Program, ranks: Sequence[Rank], case: Case) -> list[list[int]]:
    """After the last turns: reductions, the tied matrix, the copies of the model, losses, the norm over all stages, the optimizer,
    the software's own time. What each rank's next step waits for; on their own clocks ranks wait for no norm and no other."""
    ends = [rank.finish() for rank in ranks]
    if case.work.tied is not None:
        tied = case.price.transfer(case.work.tied)
        both = [*ends[0], *ends[-1]]
        for place in (0, -1):
            ends[place] = [*ends[place], *ranks[place].move(tied, both, "sum the tied matrix", "tied", "tied matrix")]
    copied = demand.copies_reductions(case.work, case.plan)
    mirrored = [[*own, *other] for own, other in zip(ends, ends[::-1], strict=True)]
    for at, transfer in enumerate(copied):
        moved = ranks[at].move(
            case.price.transfer(transfer), mirrored[at], "sum both copies' gradients", "copies", REDUCE
        )
        ends[at] = [*ends[at], *moved]
    compared = probes.losses(case.plan)
    if compared is not None:
        charge = case.price.transfer(compared)
        ends = [
            [*mine, *rank.move(charge, mine, "compare losses", "losses", probes.LOSSES)]
            for rank, mine in zip(ranks, ends, strict=True)
        ]
    own = len(ranks) > 1 and traits(case.plan.schedule).own_clock
    together = [task for mine in ends for task in mine]
    norm = [] if own else [program.add("gradient norm", ranks[0].streams["host"], 0.0, together)]
    updated: list[list[int]] = []
    for rank, mine in zip(ranks, ends, strict=True):
        seconds, after = rank.optimizer * rank.pace, norm or mine
        if rank.on_host:
            updated.append(rank.on_the_host(after))
            continue
        terms = {"optimizer": seconds}
        updated.append([program.add("optimizer", rank.streams["compute"], seconds, after, "optimizer", terms=terms)])
    overhead = float(case.stack.step_overhead)
    every = [task for mine in updated for task in mine]
    found: list[list[int]] = []
    for rank, mine in zip(ranks, updated, strict=True):
        stream, terms = rank.streams["host"], {"software": overhead}
        found.append([program.add("software", stream, overhead, mine if own else every, "software", terms=terms)])
    return found
