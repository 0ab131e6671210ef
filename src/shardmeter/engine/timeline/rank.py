"""One rank of a timeline: its streams, and the tasks of one turn (a micro-batch's forward or gradients on one chunk)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from shardmeter.core.record import record
from shardmeter.engine import demand, whole
from shardmeter.engine.demand import Work
from shardmeter.engine.layer import Piece
from shardmeter.engine.price import NOTHING, Charge, Prices
from shardmeter.engine.timeline.simulate import Program
from shardmeter.engine.timeline.turns import chunks
from shardmeter.schedules import Op
from shardmeter.specs.demands import FORWARD, INPUT_GRAD, WEIGHT_GRAD
from shardmeter.specs.plan import Plan
from shardmeter.specs.stack import Stack
from shardmeter.strategies import fsdp
from shardmeter.strategies.pipeline import Stage

STREAMS = ("compute", "scale-up", "fabric", "host")
PHASES = {
    "forward": (FORWARD,),
    "backward": (INPUT_GRAD, WEIGHT_GRAD),
    "input_grad": (INPUT_GRAD,),
    "weight_grad": (WEIGHT_GRAD,),
}
COMPUTE = ("matrix products", "core attention", "memory-bound kernels")
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
    serial: Mapping[str, float]
    """Share of `moved` by term of its serial collectives."""
    moved: Charge
    host: float
    """Seconds of the host's stream, where its pace binds."""
    paced: float
    """The host's excess over the device."""


def _cost(piece: Piece, kind: str, pace: float) -> Cost:
    """A piece's ledgers over the phases of a turn, told apart into what computes, what is moved and what the host adds."""
    terms: dict[str, float] = {}
    moved = NOTHING
    for phase in PHASES[kind]:
        for term, seconds in piece.ledgers[phase].items():
            terms[term] = terms.get(term, 0.0) + float(seconds)
        moved = moved.plus(piece.serial[phase])
    total, paced = sum(terms.values()), terms.pop("launch overhead", 0.0)
    compute = {term: pace * seconds for term, seconds in terms.items() if term in COMPUTE and seconds}
    again = {term: pace * seconds for term, seconds in terms.items() if term == "recompute" and seconds}
    whole = float(moved.seconds)
    serial = {
        term: seconds / whole
        for term, seconds in terms.items()
        if whole and term not in COMPUTE and term != "recompute"
    }
    binds = paced > BINDS * total
    if not binds and paced:
        compute["launch overhead"] = paced
    return Cost(
        again=again,
        terms=compute,
        serial=serial,
        moved=moved,
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
        held = float(demand.gradient_parameters(case.work, stage))
        self.shares = {name: float(block.held) / held if held else 0.0 for name, block in case.work.blocks.items()}
        self.reductions = () if self.sharded else whole.gradient_charges(case.work, stage, case.price, case.plan)
        self.updates = () if self.sharded else whole.update_charges(case.work, stage, case.price, case.plan)
        self.optimizer = float(case.price.streamed(demand.optimizer_traffic(held, case.plan)))
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
                    for charge in self.updates
                    for task in self.move(charge, after, f"gather updated {label}", "update", GATHER, self.shares[name])
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

    def finish(self) -> list[int]:
        """After the last turn of a step: the reductions that were put off; what ends the stage's gradients."""
        for name, label in self.late:
            self.reduced += self._chain(self.reductions, self.ready, label, self.shares[name])
        self.late = []
        return [*self.ready, *self.reduced]

    def _forward(self, op: Op, begin: int) -> list[int]:
        """Layers in order, one gathered ahead of the one that computes; the root unit first, whole."""
        ends = [[begin], [begin]]
        first = self._roots(op, "gather", "gather root", [begin])
        for k, (name, label) in enumerate(self.units[op.chunk]):
            waits = [*ends[-1], *first, *self.updated.get((op.chunk, k), ())]
            first = []
            if name == "layer":
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
            if self.sharded and name == "layer":
                piece = self.case.pieces[name]
                scattered.append(self._chain((piece.scatter,), ends[-1], label, 1.0))
                after = scattered[-1] or ends[-1]
                summed.append(self.move(piece.replicate, after, f"sum {label}", "replicate", REDUCE))
                behind = [*scattered[-1], *summed[-1]]
                moves += behind
            elif not self.sharded and self._due(last=last) and self.case.stack.gradient_overlap:
                moves += self._chain(self.reductions, ends[-1], label, self.shares[name])
        if op.kind == "input_grad":
            return ends[-1]
        if self.sharded:
            roots = self._roots(op, "scatter", "root", ends[-1])
            behind, moves = [*behind, *roots], [*moves, *roots]
        elif self._due(last=last):
            behind = self._whole(units, ends[-1], moves)
        self.drains.append(Drain(self.position, self.turn, tuple(moves), not self.sharded))
        return [*ends[-1], *behind]

    def _due(self, *, last: bool) -> bool:
        """Whether whole gradients are reduced after this turn: the last of a chunk, or every one under zero2."""
        return bool(self.reductions) and (last or self.case.plan.sharding == "zero2")

    def _whole(self, units: Sequence[tuple[str, str]], ends: list[int], moves: list[int]) -> list[int]:
        """Reductions of whole gradients: what the next turn waits for (zero2), the rest is left to run on or put off."""
        each = self.case.plan.sharding == "zero2"
        if not self.case.stack.gradient_overlap and not each:
            self.late += units
        elif not self.case.stack.gradient_overlap:
            for name, label in units:
                moves += self._chain(self.reductions, ends, label, self.shares[name])
        if not each:
            self.reduced += moves
        return moves if each else []

    def _again(self, op: Op, units: Sequence[tuple[str, str]], k: int, after: list[int]) -> list[int]:
        """The gather that brings a layer's parameters back for its gradients."""
        if op.kind == "weight_grad" or k >= len(units) or units[k][0] != "layer":
            return []
        charge = self.case.pieces["layer"].gather_again
        return self.move(charge, after, f"gather {units[k][1]} again", "gather", GATHER)

    def _roots(self, op: Op, kind: str, label: str, after: list[int]) -> list[int]:
        """Collectives of the embedding and the head: one root unit, gathered first and reduced last."""
        tasks: list[int] = []
        for name, _ in self.units[op.chunk]:
            if name == "layer" or not self.sharded:
                continue
            piece = self.case.pieces[name]
            if kind == "gather":
                tasks += self.move(piece.gather, after, f"{label} ({name})", kind, GATHER)
            else:
                tasks += self._chain((piece.scatter, piece.replicate), after, f"{label} ({name})", 1.0)
        return tasks

    def _chain(self, charges: Sequence[Charge], after: list[int], label: str, share: float) -> list[int]:
        """Collectives one after the other: scattered gradients, then their sum over replicas."""
        found: list[int] = []
        for kind, charge in zip(("scatter", "replicate"), charges, strict=False):
            moved = self.move(charge, after, f"{'reduce' if kind == 'scatter' else 'sum'} {label}", kind, REDUCE, share)
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
        for term, share in cost.serial.items():
            ends = self.move(cost.moved, ends, f"{term} {label}", "serial", term, share, urgent=True) or ends
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
        self, charge: Charge, after: Sequence[int], label: str, kind: str, term: str, share: float = 1.0, *,
        urgent: bool = False,
    ) -> list[int]:  # fmt: skip
        """A collective on the channels that its price names, each held for its own time; done when both are.

        Only the longer of two carries the term: its seconds are the collective's."""
        held = {"fabric": float(charge.fabric) * share, "scale-up": float(charge.scale_up) * share}
        tasks: list[int] = []
        for channel, seconds in held.items():
            if seconds > 0.0:
                terms = None if tasks else {term: float(charge.seconds) * share}
                stream = self.streams[channel]
                tasks.append(
                    self.program.add(label, stream, seconds, after, kind, terms=terms, urgent=urgent, turn=self.turn)
                )
        return tasks


def _units(stage: Stage, position: int, case: Case) -> tuple[tuple[tuple[str, str], ...], ...]:
    """(block, label) of every unit of every chunk, in forward order; layers are numbered from 0 over the model."""
    parts = chunks(stage.layers, case.plan)
    everywhere = [chunks(layers, case.plan) for layers in case.work.counts]
    found = []
    for chunk, layers in enumerate(parts):
        before = sum(sum(each[:chunk]) for each in everywhere) + sum(each[chunk] for each in everywhere[:position])
        units = [("layer", f"layer {before + k}") for k in range(layers)]
        if stage.embedding and chunk == 0:
            units.insert(0, ("embedding", "embedding"))
        if stage.head and chunk == len(parts) - 1:
            units.append(("head", "head"))
        found.append(tuple(units))
    return tuple(found)
