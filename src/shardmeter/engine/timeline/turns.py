"""Who takes which turn, and what a turn waits for: the schedule's own order and route over stages, chunks and micro-batches."""

from __future__ import annotations

from collections.abc import Sequence

from shardmeter.core.units import Seconds
from shardmeter.schedules import Op, Slot, schedule, turns_of
from shardmeter.specs.plan import Plan


def turns(plan: Plan, micro_batches: int, slots: Sequence[Slot], hop: Seconds) -> list[tuple[Op, ...]]:
    """The turns of every stage, in order. Without stages: a forward and a backward per micro-batch. Raises UnknownName."""
    if plan.pp == 1:
        kinds = ("forward", "backward")
        return [tuple(Op(kind=kind, micro_batch=k) for k in range(micro_batches) for kind in kinds)]
    return turns_of(schedule(plan.schedule), slots, micro_batches, plan.virtual_stages, hop)


def last_turns(ops: Sequence[Op]) -> frozenset[int]:
    """Positions of the turns after which a chunk's gradients are whole."""
    last = {op.chunk: at for at, op in enumerate(ops) if op.kind in ("backward", "weight_grad")}
    return frozenset(last.values())
