"""An order found by rules for given seconds: who can begin first does; weight gradients fill what would be idle (Qi 2024 §3.1)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from shardmeter.schedules._slots import Op, Slot, stages

KINDS = ("forward", "input_grad", "weight_grad")
WORTH = 0.3
"""A gap is filled with a weight gradient if it is at least so much of one: the turn after it then begins a little late."""


@dataclass(slots=True)
class _Stage:
    slot: Slot
    ahead: int
    limit: float
    free: float = 0.0
    last: str = "input_grad"
    done: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    ready: dict[str, list[float]] = field(default_factory=dict)
    turns: list[Op] = field(default_factory=list)

    def begins(self, kind: str) -> float:
        """When the next turn of a kind could begin; never, if nothing of it is known to come."""
        come = self.ready[kind]
        k = self.done[kind]
        return max(self.free, come[k]) if k < len(come) else math.inf

    def choice(self) -> tuple[float, int, str]:
        """(when, rank among equals, what) of the next turn: forward and input gradient in turn, the warm-up forwards first;
        a weight gradient where the others come late, or where memory is full."""
        forward, back, weight = (self.done[kind] for kind in KINDS)
        warm = forward < self.ahead + 1
        after_forward = self.last == "forward" and not warm
        full = forward - back + 1 + (back - weight) * float(self.slot.owed) > self.limit + 1e-9
        blocked = full or forward - back > self.ahead
        found = [(self.begins("input_grad"), int(not after_forward), "input_grad")]
        found.append((math.inf if blocked else self.begins("forward"), int(after_forward), "forward"))
        best = min(found)
        if weight < back:
            wants = full and self.last == "input_grad" and self.begins("forward") <= best[0]
            if wants or best[0] - self.free >= WORTH * float(self.slot.weight_grad):
                return self.free, -1 if wants else 2, "weight_grad"
        return best


def orders(
    slots: Sequence[Slot], micro_batches: int, ways: Sequence[float], ahead: Sequence[int], limits: Sequence[float]
) -> list[tuple[Op, ...]]:
    """Turns of all stages; `ways` are the seconds over every boundary. A stage holds at most so many micro-batches (`limits`), and at
    most ahead + 1 that are not back yet.

    Leaves out: the paper's search over its rules' switches, and its integer programme; messages that wait for a wire."""
    line = [
        _Stage(slot=slot, ahead=far, limit=limit, ready={kind: [] for kind in KINDS})
        for slot, far, limit in zip(stages(slots), ahead, limits, strict=True)
    ]
    line[0].ready["forward"] = [0.0] * micro_batches
    for _ in range(3 * micro_batches * len(line)):
        (begin, _, kind), at = min((stage.choice(), i) for i, stage in enumerate(line))
        stage = line[at]
        end = begin + float(getattr(stage.slot, kind))
        k = stage.done[kind]
        stage.done[kind], stage.free = k + 1, end
        stage.turns.append(Op(kind=kind, micro_batch=k))
        if kind == "weight_grad":
            continue
        stage.last = kind
        if kind == "forward":
            target = line[at + 1] if at + 1 < len(line) else stage
            way = ways[at] if target is not stage else 0.0
            target.ready["forward" if target is not stage else "input_grad"].append(end + way)
        elif at > 0:
            line[at - 1].ready["input_grad"].append(end + ways[at - 1])
    return [tuple(stage.turns) for stage in line]
