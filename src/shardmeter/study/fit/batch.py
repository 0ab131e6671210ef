"""Many scenarios, few evaluations: rows of equal structure become one array call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from shardmeter.core.record import changed, record, stacked, structure
from shardmeter.core.units import Number
from shardmeter.engine.evaluate import evaluate
from shardmeter.specs import Estimate, Island, Model, Plan, Run, Scenario, Stack, bare

Floats = npt.NDArray[np.float64]


@record
class Batch:
    """Scenarios of equal structure, stacked; `places` are their positions in the sequence they came from."""

    places: tuple[int, ...]
    model: Model
    island: Island
    plan: Plan
    run: Run
    stack: Stack

    def estimate(self, numbers: Mapping[str, Number] | None = None) -> Estimate:
        """Evaluate, with some of the stack's numbers replaced (shape (k, 1) gives results of shape (k, rows))."""
        stack = changed(self.stack, **numbers) if numbers else self.stack
        return evaluate(self.model, self.island, self.plan, self.run, stack)


def batches(scenarios: Sequence[Scenario]) -> tuple[Batch, ...]:
    """Group scenarios by structure (names, ints, model, device) and stack each group."""
    groups: dict[object, list[int]] = {}
    for place, scenario in enumerate(scenarios):
        island = scenario.fleet.islands[0]
        plain = bare(island)
        key = (
            scenario.model,
            structure(plain),
            structure(scenario.plan),
            structure(scenario.run),
            structure(scenario.stack),
        )
        groups.setdefault(repr(key), []).append(place)
    return tuple(_batch([scenarios[p] for p in places], tuple(places)) for places in groups.values())


def _batch(scenarios: Sequence[Scenario], places: tuple[int, ...]) -> Batch:
    first = scenarios[0]
    islands = [bare(s.fleet.islands[0]) for s in scenarios]
    return Batch(
        places=places, model=first.model, island=stacked(islands), plan=stacked([s.plan for s in scenarios]),
        run=stacked([s.run for s in scenarios]), stack=stacked([s.stack for s in scenarios]),
    )  # fmt: skip


def step_times(groups: Sequence[Batch], rows: int, numbers: Mapping[str, Floats] | None = None) -> Floats:
    """Step time of every scenario; with `numbers` of shape (k,), the result has shape (k, rows)."""
    if numbers is None:
        flat = np.empty(rows)
        for group in groups:
            flat[list(group.places)] = group.estimate().step_time
        return flat
    columns = {name: values[:, None] for name, values in numbers.items()}
    result = np.empty((len(next(iter(numbers.values()))), rows))
    for group in groups:
        result[:, list(group.places)] = group.estimate(columns).step_time
    return result


__all__ = ["Batch", "Floats", "batches", "step_times"]
