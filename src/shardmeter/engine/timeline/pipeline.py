"""A pipeline schedule as a program: a compute stream per stage, a stream per pair of neighbours and direction for what they send."""

from __future__ import annotations

from collections.abc import Sequence

from shardmeter.engine.timeline.simulate import Program, Timeline, simulate
from shardmeter.engine.timeline.turns import last_turns
from shardmeter.schedules import Boundary, Hop, Key, Op, Slot, Traits, content, crossed, needs, schedule, turns_of


def pipeline(name: str, slots: Sequence[Slot], micro_batches: int, virtual_stages: int, hop: Hop) -> Program:
    """The program of one step. `slots` are runs of equal stages; a chunk takes 1/virtual_stages of its stage's slot (all of
    it where the second chunk is a second copy of the model). The turn after which a chunk's gradients are whole takes its
    part of `Slot.ending` longer.

    Sends occupy the wire to their neighbour for `hop` seconds, in the order in which they are ready, and arrive when they
    end or, where every boundary has its own link, its delay later. Raises UnknownName."""
    stages = [slot for slot in slots for _ in range(slot.count)]
    turns = turns_of(schedule(name), slots, micro_batches, virtual_stages, hop)
    return program(schedule(name).TRAITS, stages, turns, virtual_stages, hop)


def duration(name: str, slots: Sequence[Slot], micro_batches: int, virtual_stages: int, hop: Hop) -> float:
    """Seconds of one step as the timeline has it: the end of the last task or, where devices keep their own clocks, the
    longest span of one device. Raises UnknownName."""
    timeline = simulate(pipeline(name, slots, micro_batches, virtual_stages, hop))
    return span(timeline) if schedule(name).TRAITS.own_clock else timeline.makespan


def span(timeline: Timeline) -> float:
    """The longest time from the first task of a compute stream to its last."""
    first: dict[int, float] = {}
    last: dict[int, float] = {}
    for task, begin, end in zip(timeline.program.tasks, timeline.begin, timeline.end, strict=True):
        if task.kind != "send":
            first[task.stream] = min(begin, first.get(task.stream, begin))
            last[task.stream] = max(end, last.get(task.stream, end))
    return max(last[stream] - first[stream] for stream in first)


def program(
    traits: Traits, stages: Sequence[Slot], turns: Sequence[Sequence[Op]], virtual_stages: int, hop: Hop
) -> Program:
    """The tasks of given turns, with what each waits for."""
    pp = len(stages)
    made = Program()
    compute = [made.stream("compute", i) for i in range(pp)]
    of = needs(traits.route, pp, {(i, op.kind, op.micro_batch, op.chunk) for i, ops in enumerate(turns) for op in ops})
    wires: dict[tuple[int, int, bool], int] = {}
    place: dict[Key, int] = {}
    joined: set[Key] = set()
    for i, ops in enumerate(turns):
        whole, together = last_turns(ops), False
        for at, op in enumerate(ops):
            owner = stages[content(traits.route, (i, op.chunk), pp)].chunk(op.chunk, virtual_stages)
            longer = (owner.ending if at in whole else 0.0) - (owner.joined if together else 0.0)
            together = op.joined
            key = (i, op.kind, op.micro_batch, op.chunk)
            place[key] = made.add(
                f"{op.kind} {op.micro_batch}", compute[i], float(getattr(owner, op.kind) + longer), kind=op.kind
            )
            if op.joined:
                joined.add(key)
    for key, index in place.items():
        for source in of(key):
            if source[0] == key[0]:
                made.wait(index, place[source])
                continue
            done = place[source] + (1 if source in joined else 0)
            link = hop[crossed(source[0], key[0])] if isinstance(hop, tuple) else Boundary(wire=hop)
            if link.wire == link.delay == 0.0:
                made.wait(index, done)
                continue
            if traits.blocking:  # the turn that sends lasts as much longer
                made.tasks[done].seconds += float(link.wire)
                made.wait(index, done)
                continue
            made.wait(index, _sent(made, wires, source, key, link, done))
    return made


def _sent(
    made: Program, wires: dict[tuple[int, int, bool], int], source: Key, key: Key, link: Boundary, done: int
) -> int:
    """The task after which the result of a turn has come to another device: its wire one at a time, then any number at once."""
    way = (source[0], key[0], source[1] == "forward")
    if way not in wires:
        wires[way] = made.stream(f"send {source[1]} to {key[0]}", source[0], shared=True)
    sent = made.add(f"send {source[2]}", wires[way], float(link.wire), (done,), kind="send")
    if not link.delay:
        return sent
    under_way = made.stream(f"{source[1]} {source[2]} to {key[0]}", source[0], shared=True)
    return made.add(f"way {source[2]}", under_way, float(link.delay), (sent,), kind="send")
