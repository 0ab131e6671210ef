"""A pipeline schedule as a program: a compute stream per stage, a stream per pair of neighbours and direction for what they send."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from shardmeter.core.record import changed
from shardmeter.engine.timeline.simulate import Program, Timeline, simulate
from shardmeter.engine.timeline.turns import last_turns
from shardmeter.schedules import Boundary, Hop, Key, Op, Slot, Traits, content, crossed, needs, schedule, turns_of
from shardmeter.schedules import traits as traits_of


Wire: TypeAlias = tuple[int, int, bool]
"""(from, to, whether forward)."""


def pipeline(
    name: str, slots: Sequence[Slot], micro_batches: int, virtual_stages: int, hop: Hop, *, beside: bool = False
) -> Program:  # fmt: skip
    """The program of one step. `slots` are runs of equal stages; a chunk takes 1/virtual_stages of its stage's slot (all of
    it where the second chunk is a second copy of the model). The turn after which a chunk's gradients are whole takes its
    part of `Slot.ending` longer.

    Sends occupy the wire to their neighbour for `hop` seconds, in the order in which they are ready, and arrive when they
    end or, where every boundary has its own link, its delay later. Where others send in turn (`Boundary.others`), all these pipelines
    are in it. `beside`: sends pass beside the turns, whatever the code that introduced the schedule does. Raises UnknownName."""
    stages = [slot for slot in slots for _ in range(slot.count)]
    turns = turns_of(schedule(name), slots, micro_batches, virtual_stages, hop)
    kind = traits_of(name)
    kind = changed(kind, blocking=kind.blocking and not beside)
    return program(kind, stages, turns, virtual_stages, hop, copies=_side_by_side(hop))


def _side_by_side(hop: Hop) -> int:
    """Pipelines that take turns on a shared line: as many as its busy time holds messages of one."""
    shared = [link for link in hop if link.others] if isinstance(hop, tuple) else []
    return max((1 + round(float(link.others / link.wire)) for link in shared), default=1)


def duration(
    name: str, slots: Sequence[Slot], micro_batches: int, virtual_stages: int, hop: Hop, *, beside: bool = False
) -> float:  # fmt: skip
    """Seconds of one step as the timeline has it: the end of the last task or, where devices keep their own clocks, the
    longest span of one device. Raises UnknownName."""
    timeline = simulate(pipeline(name, slots, micro_batches, virtual_stages, hop, beside=beside))
    return span(timeline) if traits_of(name).own_clock else timeline.makespan


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
    traits: Traits,
    stages: Sequence[Slot],
    turns: Sequence[Sequence[Op]],
    virtual_stages: int,
    hop: Hop,
    *,
    copies: int = 1,
) -> Program:
    """The tasks of given turns, with what each waits for, of so many pipelines that share the wires at which others take turns."""
    made = Program()
    shared: dict[Wire, int] = {}
    for _ in range(copies):
        _add(made, traits, stages, turns, virtual_stages, hop, shared)
    return made


def _add(
    made: Program,
    traits: Traits,
    stages: Sequence[Slot],
    turns: Sequence[Sequence[Op]],
    virtual_stages: int,
    hop: Hop,
    shared: dict[Wire, int],
) -> None:
    """The tasks of one pipeline; `shared` are the wires of those before it."""
    pp = len(stages)
    compute = [made.stream("compute", i) for i in range(pp)]
    of = needs(traits.route, pp, {(i, op.kind, op.micro_batch, op.chunk) for i, ops in enumerate(turns) for op in ops})
    own: dict[Wire, int] = {}
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
            boundary = crossed(traits.route, source[0], key[0], forward=source[1] == "forward")
            link = hop[boundary] if isinstance(hop, tuple) else Boundary(wire=hop)
            if link.wire == link.delay == 0.0:
                made.wait(index, done)
                continue
            if traits.blocking:  # the turn that sends lasts as much longer
                made.tasks[done].seconds += float(link.wire)
                made.wait(index, _under_way(made, source, key, link, done))
                continue
            # of a line that either kind crosses both ways there is one wire each way
            alone = isinstance(hop, tuple) and traits.route != "ring"
            way = (source[0], key[0], alone or source[1] == "forward")
            made.wait(index, _sent(made, shared if link.others else own, way, source, key, link, done))


def _sent(
    made: Program, wires: dict[Wire, int], way: Wire, source: Key, key: Key, link: Boundary, done: int
) -> int:  # fmt: skip
    """The task after which the result of a turn has come to another device: its wire one at a time, then any number at once."""
    if way not in wires:
        wires[way] = made.stream(f"send {source[1]} to {key[0]}", source[0], shared=True)
    sent = made.add(f"send {source[2]}", wires[way], float(link.wire), (done,), kind="send")
    return _under_way(made, source, key, link, sent)


def _under_way(made: Program, source: Key, key: Key, link: Boundary, sent: int) -> int:
    """The task after which what was sent has come."""
    if not link.delay:
        return sent
    under_way = made.stream(f"{source[1]} {source[2]} to {key[0]}", source[0], shared=True)
    return made.add(f"way {source[2]}", under_way, float(link.delay), (sent,), kind="send")
