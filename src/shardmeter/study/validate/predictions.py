"""Predictions for mapped rows: rows of equal structure are evaluated together."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from shardmeter.core.record import changed, record
from shardmeter.engine.constraints import violations
from shardmeter.specs.estimate import Estimate
from shardmeter.specs.scenario import Scenario
from shardmeter.study.fit.batch import batches
from shardmeter.study.validate.measured import FIRST, PROCESS, RESERVED
from shardmeter.study.validate.resolve import MappedRow


@record
class Predicted:
    """What the model says about one row, in seconds and bytes."""

    step_time: float
    allocated: float
    first: float
    """Allocated on the first pipeline stage."""
    reserved: float
    peak: float
    """Reserved, context and communication buffers: what the driver shows."""
    limit: float

    @property
    def fits(self) -> bool:
        """Whether the peak is within the device."""
        return self.peak <= self.limit

    @property
    def finite(self) -> bool:
        """Whether every number is one."""
        return all(map(math.isfinite, (self.step_time, self.allocated, self.reserved, self.peak)))

    def memory(self, reading: str) -> float:
        """The memory that a source's reading is compared with."""
        return {RESERVED: self.reserved, PROCESS: self.peak, FIRST: self.first}.get(reading, self.allocated)


Predict = Callable[[Sequence[Scenario]], tuple[Predicted, ...]]


def legal(row: MappedRow) -> MappedRow:
    """The row itself, or skipped with the first rule that its plan breaks."""
    if row.scenario is None:
        return row
    s = row.scenario
    found = violations(s.model, s.fleet.islands[0], s.plan, s.run, s.stack)
    return changed(row, scenario=None, skip=f"the plan is not legal here: {found[0].says}") if found else row


def predict(scenarios: Sequence[Scenario]) -> tuple[Predicted, ...]:
    """Predictions for many scenarios, in their order."""
    found: dict[int, Predicted] = {}
    for batch in batches(scenarios):
        estimate = batch.estimate()
        slack = batch.stack.fragmentation
        found |= dict(zip(batch.places, _unstacked(estimate, slack, len(batch.places)), strict=True))
    return tuple(found[place] for place in range(len(scenarios)))


def _unstacked(estimate: Estimate, fragmentation: object, rows: int) -> tuple[Predicted, ...]:
    slack = 1.0 + np.asarray(fragmentation, dtype=float)
    columns = [
        np.broadcast_to(np.asarray(numbers, dtype=float), (rows,))
        for numbers in (
            estimate.step_time,
            estimate.memory_allocated,
            estimate.memory_first,
            estimate.memory_allocated * slack,
            estimate.memory_peak,
            estimate.memory_limit,
        )
    ]
    return tuple(
        Predicted(
            step_time=float(step),
            allocated=float(used),
            first=float(first),
            reserved=float(held),
            peak=float(peak),
            limit=float(limit),
        )
        for step, used, first, held, peak, limit in zip(*columns, strict=True)
    )
