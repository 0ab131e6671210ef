"""One rank of a timeline: its streams, and the tasks of one turn (a micro-batch's forward or gradients on one chunk)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from shardmeter.core.record import record
from shardmeter.engine import demand, whole
from shardmeter.engine.demand import Work
from shardmeter.engine.layer import Charges, Piece
from shardmeter.engine.micro_batch import chunks
from shardmeter.engine.price import NOTHING, Charge, Prices
from shardmeter.engine.timeline.simulate import Program
from shardmeter.engine.update import whole_matrices
from shardmeter.families.operations import is_end
from shardmeter.schedules import Op, Slot, traits
from shardmeter.specs.demands import FORWARD, INPUT_GRAD, WEIGHT_GRAD
from shardmeter.specs.plan import Plan
from shardmeter.specs.stack import Stack
from shardmeter.strategies import data, fsdp
from shardmeter.strategies.pipeline import Stage

STREAMS = ("compute", "scale-up", "fabric", "host")
PHASES = {
    "forward": (FORWARD,),
    "backward": (INPUT_GRAD, WEIGHT_GRAD),
    "input_grad": (INPUT_GRAD,),
    "weight_grad": (WEIGHT_GRAD,),
}
COMPUTE = ("matrix products", "core attention", "memory-bound kernels", "dispatch wait", "contention")
BINDS = 0.01
"""Share of a unit's time above which the host's pace is drawn on a stream of its own; below, it is part of the compute."""
GATHER, REDUCE = "parameter gather", "gradient reduction"


@record
class Case:
    """The demands and prices of one step: those of the closed form, nothing of its own."""

    work: Work
    pieces: Mapping[str, Piece]
    price: Prices
    plan: Plan
    stack: Stack
    slots: tuple[Slot, ...] = ()
    """What the closed form gives to the schedule: runs of equal stages."""


class Unit(NamedTuple):
    """What compute did for one layer in one turn; `slows` are the tasks that last longer when communication runs beside."""

    rank: int
    turn: int
    tasks: tuple[int, ...]
    slows: tuple[int, ...]
    ends: tuple[int, ...]


class Drain(NamedTuple):
    """Reductions that a turn leaves to be waited for. `free`: nothing inside the turn waits for any of them."""

    rank: int
    turn: int
    moves: tuple[int, ...]
    free: bool


@record
class Cost:
    """What one unit takes in one kind of turn."""

    again: Mapping[str, float]
    """Seconds by term of what runs again first."""
    terms: Mapping[str, float]
    """Seconds by term of its compute."""
    serial: Charges
    """What its collectives in line occupy, by term."""
    behind: Charges
    """What collectives behind its own compute occupy, by term."""
    host: float
    """Seconds of the host's stream, where its pace binds."""
    paced: float
    """The host's excess over the device."""


def _cost(piece: Piece, kind: str, pace: float) -> Cost:
    """A piece's ledgers over the phases of a turn, told apart into what computes, what is moved and what the host adds."""
    terms: dict[str, float] = {}
    moved: dict[str, Charge] = {}
    for phase in PHASES[kind]:
        for term, seconds in piece.ledgers[phase].items():
            terms[term] = terms.get(term, 0.0) + float(seconds)
        for term, charge in piece.collectives[phase].items():
            moved[term] = moved.get(term, NOTHING).plus(charge)
    total, paced = sum(terms.values()), terms.pop("launch overhead", 0.0)
    compute = {term: pace * seconds for term, seconds in terms.items() if term in COMPUTE and seconds}
    again = {term: pace * seconds for term, seconds in terms.items() if term == "recompute" and seconds}
    shown = {term: terms[term] / float(charge.seconds) for term, charge in moved.items() if float(charge.seconds)}
    binds = paced > BINDS * total
    if not binds and paced:
        compute["launch overhead"] = paced
    return Cost(
        again=again,
        terms=compute,
        serial={term: moved[term].times(share) for term, share in shown.items()},
        behind={term: moved[term].times(1.0 - share) for term, share in shown.items() if share < 1.0 - 1e-9},
        host=total if binds else 0.0,
        paced=paced if binds else 0.0,
    )


class Rank:
    """Builds the tasks of one representative rank of a stage. `pace` multiplies its compute: a straggler's is above 1."""

    def __init__(self, program: Program, case: Case, position: int, stage: Stage, pace: float) -> None:
        self.program, self.case, self.position, self.pace = program, case, position, pace
        self.streams = {name: program.stream(name, position) for name in STREAMS}
        self.units = _units(stage, position, case)
        self.sharded = fsdp.applies(case.plan)
        held, blocks = demand.gradient_parameters(case.work, stage), case.work.blocks
        self.reductions: dict[str, tuple[Charge, ...]] = {}
        """What the collectives of one whole piece of a block take, one after the other: its gradients', …"""
        self.updates: dict[str, tuple[Charge, ...]] = {}
        """… and its updated parameters'."""
        if not self.sharded:
            both = (whole.gradient_charges, whole.update_charges)
            found = [charges(case.work, stage, case.price, case.plan) for charges in both]
            self.reductions, self.updates = ({name: one.of(blocks[name]) for name in blocks} for one in found)
        self.each = data.reduces_each(case.plan, case.stack.accumulate)
        traffic = demand.optimizer_traffic(held.sharded(case.plan), held.all, case.plan)
        self.optimizer = float(case.price.streamed(traffic) + whole_matrices(case.work, case.price, case.plan))
        self.costs: dict[tuple[str, str], Cost] = {}
        self.done: list[Unit] = []
        self.drains: list[Drain] = []
        self.ready: list[int] = []
        """What the next turn waits for: the end of the turn before it."""
        self.reduced: list[int] = []
        """What the optimizer waits for besides: reductions that run on."""
        self.late: list[tuple[str, str]] = []
        """Units whose gradients are whole and not reduced yet, where the stack does not overlap that."""
        self.updated: dict[tuple[int, int], list[int]] = {}
        self.turn = -1
        """Number of the turn under construction, counted over all steps."""

    def update(self, after: Sequence[int]) -> None:
        """Begin a step: gather the parameters that the optimizer has updated, unit by unit in the order of their use."""
        self.ready, self.reduced, self.updated = list(after), [], {}
        for chunk, units in enumerate(self.units):
            for k, (name, label) in enumerate(units):
                self.updated[chunk, k] = [
                    task
                    for charge in self.updates.get(name, ())
                    for task in self.move(charge, after, f"gather updated {label}", "update", GATHER)
                ]
        if not self.case.stack.gather_overlap:
            self.ready += [task for tasks in self.updated.values() for task in tasks]
            self.updated = {}

    def take(self, op: Op, *, last: bool) -> int:
        """The tasks of one turn; the index of the one that opens it. `last`: the chunk's gradients are whole after it."""
        self.turn += 1
        label = f"begin {op.kind} {op.micro_batch}"
        begin = self.program.add(label, self.streams["compute"], 0.0, self.ready, turn=self.turn)
        if op.kind == "forward":
            self.ready = self._forward(op, begin)
            self.updated = {at: tasks for at, tasks in self.updated.items() if at[0] != op.chunk}
        else:
            self.ready = self._backward(op, begin, last=last)
        return begin

    def send(self, seconds: float, micro_batch: int) -> None:
        """Let compute wait until the last turn's result is with the neighbour."""
        stream, terms = self.streams["compute"], {"stage sends": seconds}
        task = self.program.add(f"send {micro_batch}", stream, seconds, self.ready, "send", terms=terms, turn=self.turn)
        self.ready = [task]

    def finish(self) -> list[int]:
        """After the last turn of a step: the reductions that were put off; what ends the stage's gradients."""
        self.reduced += self._in_a_row(self.late, self.ready)
        self.late = []
        return [*self.ready, *self.reduced]

    def _forward(self, op: Op, begin: int) -> list[int]:
        """Layers in order, one gathered ahead of the one that computes; the root unit first, whole."""
        ends = [[begin], [begin]]
        first = self._roots(op, "gather", "gather root", [begin])
        for k, (name, label) in enumerate(self.units[op.chunk]):
            waits = [*ends[-1], *first, *self.updated.get((op.chunk, k), ())]
            first = []
            if not is_end(name):
                charge = self.case.pieces[name].gather
                waits += self.move(charge, ends[-2], f"gather {label}", "gather", GATHER)
            ends.append(self._unit(name, f"{label} · {op.micro_batch}", "forward", waits))
        return ends[-1]

    def _backward(self, op: Op, begin: int, *, last: bool) -> list[int]:
        """Layers in reverse: gather one ahead, compute, reduce behind the next (and sum over replicas behind one more, so that
        as many are in flight); then the root unit, and the wait for all."""
        units = self.units[op.chunk][::-1]
        ends, behind, moves = [[begin], [begin]], [], list[int]()
        scattered: list[list[int]] = [[], [], []]
        summed: list[list[int]] = [[], [], []]
        ahead = self._again(op, units, 0, [begin])
        for k, (name, label) in enumerate(units):
            waits = [*ends[-1], *ahead, *scattered[-2], *summed[-3]]
            ahead = self._again(op, units, k + 1, ends[-1])
            ends.append(self._unit(name, f"{label} · {op.micro_batch}", op.kind, waits))
            if op.kind == "input_grad":
                continue
            if self.sharded and not is_end(name) and self._due(last=last):
                piece = self.case.pieces[name]
                scattered.append(self._chain((piece.scatter,), ends[-1], label))
                after = scattered[-1] or ends[-1]
                summed.append(self.move(piece.replicate, after, f"sum {label}", "replicate", REDUCE))
                behind = [*scattered[-1], *summed[-1]]
                moves += behind
            elif not self.sharded and self._due(last=last) and self.case.stack.gradient_overlap:
                moves += self._chain(self.reductions[name], ends[-1], label)
        if op.kind == "input_grad":
            return ends[-1]
        if self.sharded and self._due(last=last):
            roots = self._roots(op, "scatter", "root", ends[-1])
            behind, moves = [*behind, *roots], [*moves, *roots]
        elif not self.sharded and self._due(last=last):
            behind = self._whole(units, ends[-1], moves)
        self.drains.append(Drain(self.position, self.turn, tuple(moves), not self.sharded))
        return [*ends[-1], *behind]

    def _due(self, *, last: bool) -> bool:
        """Whether gradients are reduced after this turn: the last of a chunk, or every one."""
        return last or self.each

    def _whole(self, units: Sequence[tuple[str, str]], ends: list[int], moves: list[int]) -> list[int]:
        """Reductions of whole gradients: what the next turn waits for (where every turn reduces its own), the rest is left to
        run on or put off."""
        each = self.each
        if not self.case.stack.gradient_overlap and not each:
            self.late += units
        elif not self.case.stack.gradient_overlap:
            moves += self._in_a_row(units, ends)
        if not each:
            self.reduced += moves
        return moves if each else []

    def _again(self, op: Op, units: Sequence[tuple[str, str]], k: int, after: list[int]) -> list[int]:
        """The gather that brings a layer's parameters back for its gradients."""
        if op.kind == "weight_grad" or k >= len(units) or is_end(units[k][0]):
            return []
        charge = self.case.pieces[units[k][0]].gather_again
        return self.move(charge, after, f"gather {units[k][1]} again", "gather", GATHER)

    def _roots(self, op: Op, kind: str, label: str, after: list[int]) -> list[int]:
        """Collectives of the embedding and the head: one root unit, gathered first and reduced last."""
        tasks: list[int] = []
        for name, _ in self.units[op.chunk]:
            if not is_end(name) or not self.sharded:
                continue
            piece = self.case.pieces[name]
            if kind == "gather":
                tasks += self.move(piece.gather, after, f"{label} ({name})", kind, GATHER)
            else:
                tasks += self._chain((piece.scatter, piece.replicate), after, f"{label} ({name})")
        return tasks

    def _in_a_row(self, units: Sequence[tuple[str, str]], after: list[int]) -> list[int]:
        """Reductions that nothing overlaps: one after the other."""
        found: list[int] = []
        for name, label in units:
            moved = self._chain(self.reductions[name], after, label)
            after = moved[-1:] or after
            found += moved
        return found

    def _chain(self, charges: Sequence[Charge], after: list[int], label: str) -> list[int]:
        """Collectives one after the other: scattered gradients, then their sum over replicas; experts' after the others."""
        found: list[int] = []
        for kind, charge in zip(itertools.cycle(("scatter", "replicate")), charges, strict=False):
            moved = self.move(charge, after, f"{'reduce' if kind == 'scatter' else 'sum'} {label}", kind, REDUCE)
            after = moved or after
            found += moved
        return found

    def _unit(self, name: str, label: str, kind: str, after: list[int]) -> list[int]:
        """Compute of one layer, its serial collectives and, where it binds, the host's pace; the tasks that end it."""
        cost, slows, ends = self._cost(name, kind), list[int](), after
        for what, terms in (("recompute", cost.again), (kind, cost.terms)):
            seconds = sum(terms.values())
            if seconds:
                stream = self.streams["compute"]
                slows.append(
                    self.program.add(f"{what} {label}", stream, seconds, ends, what, terms=terms, turn=self.turn)
                )
                ends = slows[-1:]
        tasks, slows = tuple(slows), slows[-1:]
        for term, charge in cost.serial.items():
            ends = self.move(charge, ends, f"{term} {label}", "serial", term, urgent=True) or ends
        for term, charge in cost.behind.items():
            ends = [*ends, *self.move(charge, after, f"{term} {label}", "serial", term, urgent=True)]
        if cost.host:
            terms = {"launch overhead": cost.paced}
            stream = self.streams["host"]
            slows.append(
                self.program.add(f"issue {label}", stream, cost.host, after, "launch", terms=terms, turn=self.turn)
            )
            ends = [*ends, slows[-1]]
        if tasks:
            self.done.append(Unit(self.position, self.turn, tasks, tuple(slows), tuple(ends)))
        return ends

    def _cost(self, name: str, kind: str) -> Cost:
        if (name, kind) not in self.costs:
            self.costs[name, kind] = _cost(self.case.pieces[name], kind, self.pace)
        return self.costs[name, kind]

    def move(
        self, charge: Charge, after: Sequence[int], label: str, kind: str, term: str, *, urgent: bool = False
    ) -> list[int]:
        """A collective on the channels that its price names, each held for its own time; done when both are.

        Only the longer of two carries the term: its seconds are the collective's."""
        held = {"fabric": float(charge.fabric), "scale-up": float(charge.scale_up)}
        tasks: list[int] = []
        for channel, seconds in held.items():
            if seconds > 0.0:
                terms = None if tasks else {term: float(charge.seconds)}
                stream = self.streams[channel]
                tasks.append(
                    self.program.add(label, stream, seconds, after, kind, terms=terms, urgent=urgent, turn=self.turn)
                )
        return tasks


def _units(stage: Stage, position: int, case: Case) -> tuple[tuple[tuple[str, str], ...], ...]:
    """(block, label) of every unit of every chunk, in forward order; layers are numbered from 0 over the model."""
    plan, line = case.plan, [case.work.stages[kind] for kind, _, count in case.work.runs for _ in range(count)]
    counts = [[sum(count for _, count in row) for row in chunks(one, plan)] for one in line]
    vee = plan.pp > 1 and traits(plan.schedule).route == "vee"
    found = []
    for chunk, row in enumerate(chunks(stage, plan)):
        earlier = range(position + 1, plan.pp) if vee and chunk % 2 else range(position)
        before = sum(sum(each[:chunk]) for each in counts) + sum(counts[i][chunk] for i in earlier)
        names = [name for name, count in row for _ in range(count)]
        units = [(name, f"layer {before + k}") for k, name in enumerate(names)]
        if stage.embedding and chunk == 0:
            units.insert(0, ("embedding", "embedding"))
        if stage.head and chunk == len(counts[0]) - 1:
            units.append(("head", "head"))
        found.append(tuple(units))
    return tuple(found)
