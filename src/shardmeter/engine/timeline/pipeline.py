"""A pipeline schedule as a program: a compute stream per stage, a stream per stage and direction for what it sends."""

from __future__ import annotations

from collections.abc import Sequence

from shardmeter.engine.timeline.simulate import Program
from shardmeter.schedules import Op, Slot, schedule

Key = tuple[int, str, int, int]


def pipeline(name: str, slots: Sequence[Slot], micro_batches: int, virtual_stages: int, hop: float) -> Program:
    """The program of one step. `slots` are runs of equal stages; a chunk takes 1/virtual_stages of its stage's slot.

    Sends occupy the sender's stream of their direction for `hop` seconds and arrive when they end. Raises UnknownName."""
    module = schedule(name)
    stages = [slot for slot in slots for _ in range(slot.count)]
    pp = len(stages)
    turns = [module.order(i, pp, micro_batches, virtual_stages) for i in range(pp)]
    program = Program()
    compute = [program.stream("compute", i) for i in range(pp)]
    wires = {(i, kind): program.stream(f"send {kind}", i) for i in range(pp) for kind in ("forward", "backward")}
    place: dict[Key, int] = {}
    for i, ops in enumerate(turns):
        for op in ops:
            place[i, op.kind, op.micro_batch, op.chunk] = len(place)
    for i, ops in enumerate(turns):
        for op in ops:
            seconds = float(_seconds(stages[i], op)) / virtual_stages
            program.add(f"{op.kind} {op.micro_batch}", compute[i], seconds, kind=op.kind)
    for key, index in place.items():
        for source, kind in _needs(key, pp, virtual_stages):
            if source[0] == key[0] or hop == 0.0:
                program.wait(index, place[source])
            else:
                wire = wires[source[0], kind]
                program.wait(index, program.add(f"send {source[2]}", wire, hop, (place[source],), kind="send"))
    return program


def _seconds(slot: Slot, op: Op) -> float:
    parts = {
        "forward": slot.forward,
        "backward": slot.backward,
        "input_grad": slot.input_grad,
        "weight_grad": slot.weight_grad,
    }
    return float(parts[op.kind])


def _needs(key: Key, pp: int, chunks: int) -> list[tuple[Key, str]]:
    """What a turn waits for: its neighbour (the chunk before or after, round the ring of stages), and its own forward."""
    stage, kind, micro_batch, chunk = key
    if kind == "forward":
        if stage > 0:
            return [((stage - 1, kind, micro_batch, chunk), "forward")]
        return [((pp - 1, kind, micro_batch, chunk - 1), "forward")] if chunk else []
    if kind == "weight_grad":
        return [((stage, "input_grad", micro_batch, chunk), "backward")]
    own = [((stage, "forward", micro_batch, chunk), "forward")]
    if stage < pp - 1:
        return [*own, ((stage + 1, kind, micro_batch, chunk), "backward")]
    return [*own, ((0, kind, micro_batch, chunk + 1), "backward")] if chunk < chunks - 1 else own
