"""Regimes of one published sweep (nanotron on H100), told apart by measured neighbours alone.

With m micro-batches and p stages, a step has m + p − 1 slots. A run R cannot need more time a slot than a run R' of the
same model with as much tensor parallelism or more, scaled by how much larger its micro-batch, its share of layers and its
share of tensor parallelism are. What lies more than 0.35 s a slot (and 2 s a step) above that bound is in the *slow* mode,
an additive delay that no layout explains. On several nodes with stages and tensor parallelism, the time of a layer does
not fall below a *floor* that depends on tp only: software latency, scored apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

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
    return {run.id: SLOW if is_slow(run, pool) else FLOOR if at_floor(run) else NORMAL for run in pool}


def is_slow(run: SweepRun, pool: Iterable[SweepRun]) -> bool:
    """Whether `run` lies above the bound that its measured neighbours set."""
    bounds = [
        other.slot_time
        * max(1.0, run.micro_batch / other.micro_batch)
        * max(1.0, other.pp / run.pp)
        * max(1.0, other.tp / run.tp)
        for other in pool
        if other is not run
        and other.model == run.model
        and (other.pp > 1.0) == (run.pp > 1.0)
        and (other.nodes > 1.0) == (run.nodes > 1.0)
        and other.tp >= run.tp
    ]
    if not bounds:
        return False
    excess = run.slot_time - min(bounds)
    return excess > SLOW_SLOT and excess * run.slots > SLOW_STEP


def at_floor(run: SweepRun) -> bool:
    """Whether the time of a layer and micro-batch sits on the floor of its tp."""
    floor = FLOORS.get(run.tp)
    if floor is None or run.pp <= 1.0 or run.nodes <= 1.0:
        return False
    return run.slot_time * run.pp / run.layers <= NEAR_FLOOR * floor
