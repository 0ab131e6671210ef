"""One step of cells whose gradients cross the network, turn by turn: the oracle that `hide.tail` and `schedules.leaving` are held to.

Every cell runs its pipeline; each layer's gradients are whole when its part of the last backward of its chunk is done, and pass one
after the other over the line of its stage once every cell has them.
"""

from __future__ import annotations

from collections.abc import Sequence

from shardmeter.core.record import record
from shardmeter.engine.timeline.pipeline import pipeline
from shardmeter.engine.timeline.simulate import Program, simulate
from shardmeter.engine.timeline.turns import last_turns
from shardmeter.schedules import Hop, Slot, schedule, turns_of


@record
class Step:
    """One cell's step."""

    schedule: str
    slots: tuple[Slot, ...]
    micro_batches: int
    virtual_stages: int
    hop: Hop
    layers: int
    """Of every chunk of every stage."""


def run(cells: Sequence[Step], seconds: float, lines: int) -> tuple[float, float]:
    """(seconds of a step of all cells, the same without the network) where all gradients take so many `seconds` over one line. Cells
    have as many stages, chunks and layers; neighbouring stages share a line where there are fewer `lines` than stages, and the
    gradients of every line take that long. Where devices keep their own clocks, the longest span of one, up to
    the end of its own gradients."""
    program = Program()
    made = [_Cell(program, cell, number) for number, cell in enumerate(cells)]
    stages = made[0].stages
    each = -(-stages // lines)
    networks = [program.stream("network", line, shared=True) for line in range(-(-stages // each))]
    sent: dict[int, list[int]] = {at: [] for at in range(stages)}
    for device, chunk in made[0].last:
        sharing = sum(at // each == device // each for at, _ in made[0].last)
        size = seconds / (sharing * cells[0].layers)
        for layer in range(cells[0].layers):
            after = [one.whole[device, chunk][layer] for one in made]
            sent[device].append(
                program.add(f"gradients {device}.{chunk}", networks[device // each], size, after, "gradients")
            )
    timeline = simulate(program)
    with_it, without = 0.0, 0.0
    for one in made:
        own_clock = schedule(one.step.schedule).TRAITS.own_clock
        ends = [timeline.end[tasks[-1]] for tasks in one.tasks]
        begins = [timeline.begin[tasks[0]] if own_clock else 0.0 for tasks in one.tasks]
        without = max(without, *(end - begin for end, begin in zip(ends, begins, strict=True)))
        for device, (end, begin) in enumerate(zip(ends, begins, strict=True)):
            through = max((timeline.end[task] for task in sent[device]), default=0.0)
            with_it = max(with_it, max(end, through) - begin)
    return with_it, without


class _Cell:
    """A cell's turns in the program of all."""

    def __init__(self, program: Program, step: Step, number: int) -> None:
        self.step = step
        own = pipeline(step.schedule, step.slots, step.micro_batches, step.virtual_stages, step.hop)
        shift, streams = len(program.tasks), len(program.streams)
        for stream in own.streams:
            program.stream(stream.name, stream.rank, shared=stream.shared)
        for task in own.tasks:
            after = [shift + one for one in task.after]
            program.add(task.label, streams + task.stream, task.seconds, after, task.kind)
        turns = turns_of(schedule(step.schedule), step.slots, step.micro_batches, step.virtual_stages, step.hop)
        self.stages = len(turns)
        self.tasks: list[list[int]] = []
        self.whole: dict[tuple[int, int], list[int]] = {}
        at = shift
        for device, ops in enumerate(turns):
            row = list(range(at, at + len(ops)))
            at += len(ops)
            self.tasks.append(row)
            for place in last_turns(ops):
                self.whole[device, ops[place].chunk] = self._layers(program, row, place, number)
        self.last = sorted(self.whole)

    def _layers(self, program: Program, row: list[int], place: int, number: int) -> list[int]:
        """Tasks that end when each layer of a turn does: they begin with it, on a stream of their own."""
        turn = program.tasks[row[place]]
        stream = program.stream("layers", number)
        before = [*turn.after, *row[place - 1 : place]]
        each = turn.seconds / self.step.layers
        return [
            program.add("layer", stream, each, before if layer == 0 else (), "layer")
            for layer in range(self.step.layers)
        ]


__all__ = ["Step", "run"]
