"""Regimes of one published sweep (nanotron on H100), told apart by measured neighbours alone.

With m micro-batches and p stages, a step has m + p − 1 slots. A run R cannot need more time a slot than a run R' of the
same model with as much tensor parallelism or more, scaled by how much larger its micro-batch, its share of layers and its
share of tensor parallelism are. What lies more than 0.35 s a slot (and 2 s a step) above that bound is in the *slow* mode,
an additive delay that no layout explains. On several nodes with stages and tensor parallelism, the time of a layer does
not fall below a *floor* that depends on tp only: software latency, scored apart.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from shardmeter.core.record import record

NORMAL, FLOOR, SLOW = "normal", "floor", "slow"
SLOW_SLOT, SLOW_STEP = 0.35, 2.0
FLOORS: Mapping[float, float] = {2.0: 9.7e-3, 4.0: 14.2e-3, 8.0: 22.5e-3, 16.0: 49.5e-3, 32.0: 128e-3}
"""Seconds of a layer and micro-batch that no run of the sweep falls below, by tp."""
NEAR_FLOOR = 1.25
SWEEP = re.compile(r"ultra-?scale")


@record
class SweepRun:
    """What the rule needs of one run."""

    id: str
    model: str
    layers: float
    tp: float
    pp: float
    dp: float
    micro_batch: float
    global_batch: float
    nodes: float
    step_time: float

    @property
    def slots(self) -> float:
        """Micro-batches and the fill of the pipe."""
        return self.global_batch / (self.dp * self.micro_batch) + self.pp - 1.0

    @property
    def slot_time(self) -> float:
        """Seconds a slot."""
        return self.step_time / self.slots


def in_sweep(source_key: str) -> bool:
    """Whether a source is the sweep that has these regimes."""
    return bool(SWEEP.search(source_key.lower()))


def regimes(runs: Iterable[SweepRun]) -> dict[str, str]:
    """The regime of every run of the sweep, by id."""
    pool = tuple(runs)
    bounds = _bounds(pool)
    return {
        run.id: SLOW if _above(run, bound) else FLOOR if at_floor(run) else NORMAL
        for run, bound in zip(pool, bounds, strict=True)
    }


def _above(run: SweepRun, bound: float) -> bool:
    excess = run.slot_time - bound
    return excess > SLOW_SLOT and excess * run.slots > SLOW_STEP


def _bounds(pool: Sequence[SweepRun]) -> list[float]:
    """The time of a slot that the neighbours of every run allow it; infinite where it has none.

    Neighbours of one layout differ in time only, so each run meets the fastest of a layout, and for its own the fastest
    other one: the work grows with runs times layouts, not with runs squared."""
    groups: dict[tuple[str, bool, bool], dict[tuple[float, float, float], list[float]]] = {}
    for run in pool:
        layouts = groups.setdefault(_group(run), {})
        best = layouts.setdefault(_layout(run), [])
        best.append(run.slot_time)
        best.sort()
        del best[2:]
    tables = {name: _Neighbours(layouts) for name, layouts in groups.items()}
    return [tables[_group(run)].bound(run) for run in pool]


def _group(run: SweepRun) -> tuple[str, bool, bool]:
    return run.model, run.pp > 1.0, run.nodes > 1.0


def _layout(run: SweepRun) -> tuple[float, float, float]:
    return run.tp, run.pp, run.micro_batch


class _Neighbours:
    """The layouts of one group with their fastest slots; the bound of a layout from all others is worked out once."""

    def __init__(self, layouts: Mapping[tuple[float, float, float], list[float]]) -> None:
        self.layouts = layouts
        self.tp, self.pp, self.micro = np.array(list(layouts), dtype=float).T
        self.fastest = np.array([best[0] for best in layouts.values()])
        self.others: dict[tuple[float, float, float], float] = {}

    def bound(self, run: SweepRun) -> float:
        """The least scaled time of a slot among the other runs of the group with as much tensor parallelism or more."""
        layout = _layout(run)
        if layout not in self.others:
            self.others[layout] = self._elsewhere(run)
        own = self.layouts[layout]
        here = own[1:] if run.slot_time == own[0] else own[:1]
        return min([self.others[layout], *here])

    def _elsewhere(self, run: SweepRun) -> float:
        scaled = (
            self.fastest
            * np.maximum(1.0, run.micro_batch / self.micro)
            * np.maximum(1.0, self.pp / run.pp)
            * np.maximum(1.0, self.tp / run.tp)
        )
        same = (self.tp == run.tp) & (self.pp == run.pp) & (self.micro == run.micro_batch)
        scaled = scaled[(self.tp >= run.tp) & ~same]
        return float(scaled.min()) if scaled.size else math.inf


def at_floor(run: SweepRun) -> bool:
    """Whether the time of a layer and micro-batch sits on the floor of its tp."""
    floor = FLOORS.get(run.tp)
    if floor is None or run.pp <= 1.0 or run.nodes <= 1.0:
        return False
    return run.slot_time * run.pp / run.layers <= NEAR_FLOOR * floor
