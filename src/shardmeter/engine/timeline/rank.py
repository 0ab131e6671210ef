"""One rank of a timeline: its streams, and the tasks of one turn (a micro-batch's forward or gradients on one chunk)."""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterable, Sequence
from typing import NamedTuple

from shardmeter.core.sums import plain_sum
from shardmeter.core.units import Ratio, Seconds
from shardmeter.engine import demand, host, whole
from shardmeter.engine.joined import exchanges
from shardmeter.engine.layer import EXCHANGE, HOST
from shardmeter.engine.price import Charge
from shardmeter.engine.timeline.cost import Case, Cost, cost, units
from shardmeter.engine.timeline.simulate import Program
from shardmeter.engine.update import matrices
from shardmeter.families.operations import is_end
from shardmeter.schedules import Op
from shardmeter.strategies import data, fsdp
from shardmeter.strategies.pipeline import Stage

STREAMS = ("compute", "scale-up", "fabric", "host")
COPYING = ("to host", "from host", "host update")
"""Streams of a plan that offloads: a link each way, and what the host computes."""
GATHER, REDUCE = "parameter gather", "gradient reduction"
Tasks = list[int]
Row = Sequence[tuple[str, str]]
"""(block, label) of the units of a chunk."""
Turn = Generator[None, None, Tasks]
"""A turn under construction: it stops after every unit and returns what ends it."""


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


class Rank:
    """Builds the tasks of one representative rank of a device. `stages`: the one that it holds or, with two copies of the model,
    that of its first chunk and that of its second; `part` of them it updates. `pace` multiplies its compute: a straggler's is
    above 1."""

    def __init__(
        self, program: Program, case: Case, position: int, stages: tuple[Stage, ...], part: Ratio, pace: float
    ) -> None:
        self.program, self.case, self.position, self.part, self.pace = program, case, position, part, pace
        offloads = COPYING if case.plan.offload else ()
        self.streams = {name: program.stream(name, position) for name in (*STREAMS, *offloads)}
        self.streams["turns"] = program.stream("turns", position, shared=True)
        places = (position, case.plan.pp - 1 - position)
        self.units = [row for stage, place in zip(stages, places, strict=False) for row in units(stage, place, case)]
        owners = stages if len(stages) > 1 else stages * len(self.units)
        self.sharded = fsdp.applies(case.plan)
        self.reductions = [self._whole_charges(whole.gradient_charges, stage) for stage in owners]
        """What the collectives of one whole piece of a block take, one after the other, by chunk: its gradients', …"""
        self.updates = [self._whole_charges(whole.update_charges, stage) for stage in owners]
        """… and its updated parameters'."""
        self.each = data.reduces_each(case.plan, case.stack.accumulate)
        sums = any(float(one.seconds) for chunk in self.reductions for charges in chunk.values() for one in charges)
        self.overlaps = case.stack.gradient_overlap or not sums
        """Whether whole gradients are reduced, if they are, and go to the host beside what is computed next."""
        self.on_host = "optimizer" in case.plan.offload
        self.optimizer = self._optimizer(stages)
        self.costs: dict[tuple[str, str, bool], Cost] = {}
        self.done: list[Unit] = []
        self.drains: list[Drain] = []
        self.ready: Tasks = []
        """What the next turn waits for: the end of the turn before it."""
        self.reduced: Tasks = []
        """What the optimizer waits for besides: reductions and copies that run on."""
        self.late: list[tuple[int, str, str]] = []
        """(chunk, block, label) of units whose gradients are whole and not reduced yet, where the stack does not overlap that."""
        self.updated: dict[tuple[int, int], Tasks] = {}
        self.inline: Tasks = []
        """What a unit has computed and sent in line; where turns are joined the other micro-batch computes after it."""
        self.together = False
        self.turn = self.joint = -1
        """Number of the turn under construction, counted over all steps; of joined turns, the first one's."""

    def _whole_charges(self, charges: whole.Charging, stage: Stage) -> dict[str, tuple[Charge, ...]]:
        if self.sharded:
            return {}
        case, blocks = self.case, self.case.work.blocks
        found = charges(case.work, stage, case.price, case.plan)
        return {name: found.of(blocks[name]) for name in blocks}

    def _optimizer(self, stages: tuple[Stage, ...]) -> float:
        case = self.case
        if self.on_host:
            return 0.0
        traffic = demand.optimizer_traffic(*demand.owned(case.work, case.plan, stages, self.part), case.plan)
        return float(case.price.streamed(traffic) + matrices(case.work, case.price, case.plan))

    def update(self, after: Sequence[int], order: Iterable[int]) -> None:
        """Begin a step: gather the parameters that the optimizer has updated, unit by unit in the order of their use, which for
        chunks is `order`."""
        self.ready, self.reduced, self.updated = list(after), [], {}
        for chunk in order:
            for k, (name, label) in enumerate(self.units[chunk]):
                self.updated[chunk, k] = [
                    task
                    for charge in self.updates[chunk].get(name, ())
                    for task in self.move(charge, after, f"gather updated {label}", "update", GATHER)
                ]
        if not self.case.stack.gather_overlap:
            self.ready += [task for tasks in self.updated.values() for task in tasks]
            self.updated = {}

    def take(self, op: Op, *, last: bool) -> int:
        """The tasks of one turn; the index of the one that opens it. `last`: the chunk's gradients are whole after it."""
        self.turn += 1
        self.joint = self.turn
        begin = self._begin(op, "compute")
        turn = self._turn(op, begin, last=last, paired=0)
        self.ready = _finished(turn)
        return begin

    def send(self, seconds: float, micro_batch: int) -> None:
        """Let compute wait until the last turn's result is with the neighbour."""
        stream, terms = self.streams["compute"], {"stage sends": seconds}
        task = self.program.add(f"send {micro_batch}", stream, seconds, self.ready, "send", terms=terms, turn=self.turn)
        self.ready = [task]

    def take_joined(self, there: Op, back: Op, *, last: bool) -> tuple[int, int]:
        """A forward and a backward of two micro-batches, layer by layer in turn: each one's exchange with experts runs beside the
        other's compute, the backward's before its layer and the forward's after it (DeepSeek-AI 2024 Figure 4)."""
        before, pieces = self.ready, self.case.pieces
        rows = [
            [name for name, _ in row if not is_end(name)]
            for row in (self.units[there.chunk], self.units[back.chunk][::-1])
        ]
        pairs = list(zip(*rows, strict=False))
        if not any(exchanges(pieces[f], pieces[b]) for f, b in pairs):
            first = self.take(there, last=False)
            return first, self.take(back, last=last)
        self.turn += 1
        self.joint = number = self.turn
        begins = self._begin(there, "compute"), self._begin(back, "turns")
        turns = (
            self._turn(there, begins[0], last=False, paired=len(pairs)),
            self._turn(back, begins[1], last=last, paired=len(pairs)),
        )
        roots = (
            plain_sum(is_end(name) for name, _ in self.units[there.chunk][:1]),
            plain_sum(is_end(name) for name, _ in self.units[back.chunk][-1:]),
        )
        ends: list[Tasks] = [[], []]
        self.together = True
        steps = [*([0] * roots[0]), *([1] * roots[1]), *itertools.chain.from_iterable([(0, 1)] * len(pairs))]
        for which in steps:
            self.turn = number + which
            next(turns[which])
        for which in (0, 1):
            self.turn = number + which
            ends[which] = _finished(turns[which])
        self.together, self.inline = False, []
        self.ready = [*ends[0], *ends[1]] or before
        return begins

    def _begin(self, op: Op, stream: str) -> int:
        label = f"begin {op.kind} {op.micro_batch}"
        return self.program.add(label, self.streams[stream], 0.0, self.ready, turn=self.turn)

    def _turn(self, op: Op, begin: int, *, last: bool, paired: int) -> Turn:
        return (
            self._forward(op, begin, paired) if op.kind == "forward" else self._backward(op, begin, paired, last=last)
        )

    def finish(self) -> Tasks:
        """After the last turn of a step: the reductions that were put off; what ends the device's gradients."""
        after = self.ready
        for chunk, name, label in self.late:
            moved = self._chain(self.reductions[chunk][name], after, label)
            after = moved or after
            self.reduced += [*moved, *self._gradients(name, label, after)]
        self.late = []
        return [*self.ready, *self.reduced]

    def on_the_host(self, after: Sequence[int]) -> Tasks:
        """The optimizer step on the host: unit by unit, each copied up behind the update of the next. What ends it."""
        ends: Tasks = []
        for name, label in itertools.chain.from_iterable(self.units):
            _, seconds, up = self._host_unit(name)
            ends = self._copy("host update", seconds, after, f"update {label}")
            ends = self._copy("from host", up, ends or after, f"updated {label} up")
            after = [] if ends else after
        return [*after, *ends]

    def _forward(self, op: Op, begin: int, paired: int) -> Turn:
        """Layers in order, one gathered ahead of the one that computes; the root unit first, whole. What is on the host comes up
        one layer before its gather; what is kept there goes down behind the next layer."""
        row, ends, away = self.units[op.chunk], [[begin], [begin]], [list[int](), list[int]()]
        first = self._roots(op, "gather", "gather root", [begin])
        shards = [self._shard_up(row, k, [begin]) for k in (0, 1)]
        ahead = self._gather(row, 0, [begin], shards[0])
        layers = 0
        for k, (name, label) in enumerate(row):
            waits = [*ends[-1], *first, *ahead, *self.updated.pop((op.chunk, k), ())]
            first = []
            if not is_end(name):
                layers += 1
                waits += away[-2]
            ahead = self._gather(row, k + 1, ends[-1], shards[-1])
            shards.append(self._shard_up(row, k + 2, ends[-1]))
            joined = not is_end(name) and layers <= paired
            ends.append(self._unit(name, f"{label} · {op.micro_batch}", op.kind, waits, joined=joined))
            down = self.case.pieces[name].copies.down
            away.append(self._copy("to host", down, ends[-1], f"{label} · {op.micro_batch} down"))
            yield
        return [*ends[-1], *away[-2], *away[-1]]

    def _gather(self, row: Row, k: int, after: Tasks, shard: Tasks) -> Tasks:
        """What brings a layer's parameters for its forward."""
        if k >= len(row) or is_end(row[k][0]):
            return []
        name, label = row[k]
        return [
            *shard,
            *self.move(self.case.pieces[name].gather, [*after, *shard], f"gather {label}", "gather", GATHER),
        ]

    def _backward(self, op: Op, begin: int, paired: int, *, last: bool) -> Turn:
        """Layers in reverse: gather one ahead, compute, reduce behind the next (and sum over replicas behind one more, so that
        as many are in flight); then the root unit, and the wait for all."""
        row = self.units[op.chunk][::-1]
        ends, behind, moves = [[begin], [begin]], list[int](), list[int]()
        scattered: list[Tasks] = [[], [], []]
        summed: list[Tasks] = [[], [], []]
        back = op.kind != "weight_grad"
        ahead = self._again(op, row, 0, [begin], self._shard_up(row, 0, [begin], needed=back))
        shard = self._shard_up(row, 1, [begin], needed=back)
        layers = 0
        for k, (name, label) in enumerate(row):
            waits = [*ends[-1], *ahead, *scattered[-2], *summed[-3]]
            ahead = self._again(op, row, k + 1, ends[-1], shard)
            shard = self._shard_up(row, k + 2, ends[-1], needed=back)
            layers += not is_end(name)
            joined = not is_end(name) and layers <= paired
            ends.append(self._unit(name, f"{label} · {op.micro_batch}", op.kind, waits, joined=joined))
            if op.kind == "input_grad":
                yield
                continue
            if self.sharded and not is_end(name) and self._due(last=last):
                piece = self.case.pieces[name]
                scattered.append(self._chain((piece.scatter,), ends[-1], label))
                after = scattered[-1] or ends[-1]
                summed.append(self.move(piece.replicate, after, f"sum {label}", "replicate", REDUCE))
                behind = [*scattered[-1], *summed[-1]]
                moves += behind
                self.reduced += self._gradients(name, label, summed[-1] or after) if last else []
            elif not self.sharded and self._due(last=last) and self.overlaps:
                moved = self._chain(self.reductions[op.chunk][name], ends[-1], label)
                moves += moved
                self.reduced += self._gradients(name, label, moved or ends[-1]) if last else []
            yield
        if op.kind == "input_grad":
            return ends[-1]
        if self.sharded and self._due(last=last):
            roots = self._roots(op, "scatter", "root", ends[-1], last=last)
            behind, moves = [*behind, *roots], [*moves, *roots]
        elif not self.sharded and self._due(last=last):
            behind = self._whole(op.chunk, row, ends[-1], moves, last=last)
        self.drains.append(Drain(self.position, self.joint, tuple(moves), not self.sharded))
        return [*ends[-1], *behind]

    def _due(self, *, last: bool) -> bool:
        """Whether gradients are reduced after this turn: the last of a chunk, or every one."""
        return last or self.each

    def _whole(self, chunk: int, row: Row, ends: Tasks, moves: Tasks, *, last: bool) -> Tasks:
        """Reductions of whole gradients: what the next turn waits for (where every turn reduces its own), the rest is left to
        run on or put off."""
        each = self.each
        if not self.overlaps and not each:
            self.late += [(chunk, name, label) for name, label in row]
        elif not self.overlaps:
            for name, label in row:
                moved = self._chain(self.reductions[chunk][name], ends, label)
                ends = moved or ends
                moves += moved
                self.reduced += self._gradients(name, label, ends) if last else []
        if not each:
            self.reduced += moves
        return moves if each else []

    def _again(self, op: Op, row: Row, k: int, after: Tasks, shard: Tasks) -> Tasks:
        """What brings a layer's parameters back for its gradients, and from the host what it has kept for them."""
        if op.kind == "weight_grad" or k >= len(row) or is_end(row[k][0]):
            return []
        name, label = row[k]
        piece = self.case.pieces[name]
        gathered = self.move(piece.gather_again, [*after, *shard], f"gather {label} again", "gather", GATHER)
        kept = self._copy("from host", piece.copies.up, after, f"{label} · {op.micro_batch} up")
        return [*gathered, *kept, *shard]

    def _shard_up(self, row: Row, k: int, after: Tasks, *, needed: bool = True) -> Tasks:
        """The copy of a layer's shard from the host."""
        if not needed or k >= len(row) or is_end(row[k][0]):
            return []
        return self._copy("from host", self.case.pieces[row[k][0]].copies.parameters, after, f"{row[k][1]} up")

    def _roots(self, op: Op, kind: str, label: str, after: Tasks, *, last: bool = False) -> Tasks:
        """Collectives of the embedding and the head: one root unit, gathered first and reduced last."""
        tasks: Tasks = []
        for name, called in self.units[op.chunk]:
            if not is_end(name) or not self.sharded:
                continue
            piece = self.case.pieces[name]
            if kind == "gather":
                tasks += self.move(piece.gather, after, f"{label} ({name})", kind, GATHER)
            else:
                moved = self._chain((piece.scatter, piece.replicate), after, f"{label} ({name})")
                tasks += moved
                self.reduced += self._gradients(name, called, moved or after) if last else []
        return tasks

    def _chain(self, charges: Sequence[Charge], after: Tasks, label: str) -> Tasks:
        """Collectives one after the other: scattered gradients, then their sum over replicas; experts' after the others."""
        found: Tasks = []
        for kind, charge in zip(itertools.cycle(("scatter", "replicate")), charges, strict=False):
            moved = self.move(charge, after, f"{'reduce' if kind == 'scatter' else 'sum'} {label}", kind, REDUCE)
            after = moved or after
            found += moved
        return found

    def _gradients(self, name: str, label: str, after: Sequence[int]) -> Tasks:
        """What the host needs of a unit's whole gradients, where it updates them."""
        if not self.on_host:
            return []
        return self._copy("to host", self._host_unit(name)[0], after, f"gradients of {label} down")

    def _host_unit(self, name: str) -> tuple[float, float, float]:
        owned = self.part * demand.unit_share(self.case.work, name, self.case.plan)
        down, update, up = host.unit(owned, self.case.price, self.case.plan)
        return float(down), float(update), float(up)

    def _copy(self, stream: str, seconds: Seconds, after: Sequence[int], label: str) -> Tasks:
        """A copy between device and host, or what the host computes; nothing where it takes no time."""
        if not float(seconds):
            return []
        kind = "host update" if stream == "host update" else f"copy {stream}"
        terms = {HOST: float(seconds)}
        return [self.program.add(label, self.streams[stream], float(seconds), after, kind, terms=terms, turn=self.turn)]

    def _unit(self, name: str, label: str, kind: str, after: Tasks, *, joined: bool = False) -> Tasks:
        """Compute of one layer, its serial collectives and, where it binds, the host's pace; the tasks that end it. `joined`: its
        exchange with experts runs beside what another micro-batch computes."""
        one, slows, begun = self._cost(name, kind, joined=joined), list[int](), after
        if kind != "forward":
            after = [*after, *self._exchange(one, after, label)]
        ends = [*after, *self.inline]
        for what, terms in (("recompute", one.again), (kind, one.terms)):
            seconds = plain_sum(terms.values())
            if seconds:
                stream = self.streams["compute"]
                slows.append(
                    self.program.add(f"{what} {label}", stream, seconds, ends, what, terms=terms, turn=self.turn)
                )
                ends = slows[-1:]
        tasks, slows = tuple(slows), slows[-1:]
        for term, charge in one.serial.items():
            ends = self.move(charge, ends, f"{term} {label}", "serial", term, urgent=True) or ends
        for term, charge in one.behind.items():
            ends = [*ends, *self.move(charge, after, f"{term} {label}", "serial", term, urgent=True)]
        self.inline = ends if self.together else []
        if kind == "forward":
            ends = [*ends, *self._exchange(one, ends, label)]
        if one.host:
            terms = {"launch overhead": one.paced}
            stream = self.streams["host"]
            slows.append(
                self.program.add(f"issue {label}", stream, one.host, begun, "launch", terms=terms, turn=self.turn)
            )
            ends = [*ends, slows[-1]]
        if tasks:
            self.done.append(Unit(self.position, self.joint, tasks, tuple(slows), tuple(ends)))
        return ends

    def _exchange(self, one: Cost, after: Tasks, label: str) -> Tasks:
        return self.move(one.exchange, after, f"{EXCHANGE} {label}", "exchange", EXCHANGE, urgent=True)

    def _cost(self, name: str, kind: str, *, joined: bool) -> Cost:
        if (name, kind, joined) not in self.costs:
            self.costs[name, kind, joined] = cost(self.case.pieces[name], kind, self.pace, joined=joined)
        return self.costs[name, kind, joined]

    def move(
        self, charge: Charge, after: Sequence[int], label: str, kind: str, term: str, *, urgent: bool = False
    ) -> Tasks:
        """A collective on the channels that its price names, each held for its own time; done when both are.

        Only the longer of two carries the term: its seconds are the collective's."""
        held = {"fabric": float(charge.fabric), "scale-up": float(charge.scale_up)}
        tasks: Tasks = []
        for channel, seconds in held.items():
            if seconds > 0.0:
                terms = None if tasks else {term: float(charge.seconds)}
                stream = self.streams[channel]
                tasks.append(
                    self.program.add(label, stream, seconds, after, kind, terms=terms, urgent=urgent, turn=self.turn)
                )
        return tasks


def _finished(turn: Turn) -> Tasks:
    """Build a turn to its end."""
    while True:
        try:
            next(turn)
        except StopIteration as end:
            found: Tasks = end.value
            return found
