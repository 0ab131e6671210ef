"""One optimizer step as a program: the demands and prices of the closed form, one representative rank per pipeline stage.

Data-parallel and tensor-parallel ranks do the same at the same time, so one stands for all. A rank has a compute stream, a
channel for each of the scale-up link and the fabric (in order as issued; a serial collective interrupts what may hide), the
host's stream where its pace binds, and a wire to each neighbour. Leaves out: jitter inside a stage (its slowest rank is
a factor on all of it), sends that share the adapter with collectives, copies to and from the host, two copies of a model on one pipeline
(DualPipe), devices that start their next step on their own clock (the zero-bubble schedules): a step here ends for all at once.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from statistics import NormalDist

from shardmeter.core.record import changed, record
from shardmeter.engine.evaluate import priced
from shardmeter.engine.timeline.rank import Case, Drain, Rank, Unit
from shardmeter.engine.timeline.simulate import Program
from shardmeter.engine.timeline.turns import last_turns, turns
from shardmeter.schedules import Key, Op, needs, traits
from shardmeter.specs.fleet import Island
from shardmeter.specs.model import Model
from shardmeter.specs.plan import Plan
from shardmeter.specs.run import Run
from shardmeter.specs.stack import Stack

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
    steps: tuple[int, ...]
    """The task that ends each step."""
    contention: float


def case_of(model: Model, island: Island, plan: Plan, run: Run, stack: Stack) -> Case:
    """Demands and prices of one step. Raises UnknownName for a family that is not built."""
    work, price, pieces, stages = priced(model, island, plan, run, stack)
    slots = [changed(stages[kind].slot, first=first, count=count, owed=work.owed) for kind, first, count in work.runs]
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
    kinds = [work.stages[kind] for kind, _, count in work.runs for _ in range(count)]
    ranks = [Rank(program, case, i, kind, pace[i] if pace else 1.0) for i, kind in enumerate(kinds)]
    wires = {(i, way): program.stream(f"send {way}", i, shared=True) for i in range(plan.pp) for way in WAYS}
    hop = 0.0 if plan.pp == 1 or case.stack.pipeline_overlap else float(case.price.transfer(work.send).seconds)
    orders = turns(plan, round(float(work.micro_batches)), case.slots, hop)
    ended: list[int] = []
    before: list[list[int]] = [[] for _ in ranks]
    for _ in range(steps):
        _turns(program, ranks, orders, before, plan, wires, hop)
        before, end = _close(program, ranks, case)
        ended.append(end)
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
        rank.update(after)
        whole = last_turns(ops)
        for at, op in enumerate(ops):
            key = (rank.position, op.kind, op.micro_batch, op.chunk)
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


def _close(program: Program, ranks: Sequence[Rank], case: Case) -> tuple[list[list[int]], int]:
    """After the last turns: reductions, the tied matrix, the norm over all stages, the optimizer, the software's own time."""
    ends = [rank.finish() for rank in ranks]
    if case.work.tied is not None:
        tied = case.price.transfer(case.work.tied)
        both = [*ends[0], *ends[-1]]
        for place in (0, -1):
            ends[place] = [*ends[place], *ranks[place].move(tied, both, "sum the tied matrix", "tied", "tied matrix")]
    host = ranks[0].streams["host"]
    whole = program.add("gradient norm", host, 0.0, [task for mine in ends for task in mine])
    updated = []
    for rank in ranks:
        seconds = rank.optimizer * rank.pace
        stream = rank.streams["compute"]
        updated.append(program.add("optimizer", stream, seconds, [whole], "optimizer", terms={"optimizer": seconds}))
    after: list[list[int]] = []
    overhead = float(case.stack.step_overhead)
    for rank in ranks:
        stream = rank.streams["host"]
        task = program.add("software", stream, overhead, updated, "software", terms={"software": overhead})
        after.append([task])
    return after, after[0][0]
