"""Who takes which turn, and what a turn waits for: the schedule's order over stages, chunks and micro-batches."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import TypeAlias

from shardmeter.schedules import Op, schedule
from shardmeter.specs.plan import Plan
from shardmeter.strategies import pipeline

Key: TypeAlias = tuple[int, str, int, int]
"""(stage, kind, micro-batch, chunk)."""


def turns(plan: Plan, micro_batches: int) -> tuple[tuple[Op, ...], ...]:
    """The turns of every stage, in order. Without stages: a forward and a backward per micro-batch. Raises UnknownName."""
    if plan.pp == 1:
        kinds = ("forward", "backward")
        return (tuple(Op(kind=kind, micro_batch=k) for k in range(micro_batches) for kind in kinds),)
    order = schedule(plan.schedule).order
    return tuple(tuple(order(i, plan.pp, micro_batches, plan.virtual_stages)) for i in range(plan.pp))


def chunks(layers: int, plan: Plan) -> tuple[int, ...]:
    """Layers of each virtual stage of a stage, the remainder to the earliest."""
    return pipeline.even(layers, plan.virtual_stages if plan.pp > 1 else 1)


def last_turns(ops: Sequence[Op]) -> frozenset[int]:
    """Positions of the turns after which a chunk's gradients are whole."""
    last = {op.chunk: at for at, op in enumerate(ops) if op.kind in ("backward", "weight_grad")}
    return frozenset(last.values())


def needs(key: Key, plan: Plan, known: Container[Key]) -> list[tuple[Key, str]]:
    """What a turn waits for on other stages, with the direction of the send: the chunk before it, round the ring of stages,
    or after it on the way back. A gradient may come from a turn that makes both gradients or the first only."""
    stage, kind, micro_batch, chunk = key
    if kind == "forward":
        before = (stage - 1, chunk) if stage else (plan.pp - 1, chunk - 1)
        return [] if before[1] < 0 else [((before[0], kind, micro_batch, before[1]), "forward")]
    if kind == "weight_grad":
        return []
    later = (stage + 1, chunk) if stage < plan.pp - 1 else (0, chunk + 1)
    found = [(later[0], each, micro_batch, later[1]) for each in ("backward", "input_grad")]
    return [(source, "backward") for source in found if source in known][:1]
