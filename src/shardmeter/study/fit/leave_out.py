"""Leave-one-source-out: every source predicted by numbers that have not seen it.

The rule, written before any error was looked at. A row keeps the documented facts of its own stack (kernels, schedule, dtypes:
known before the run). Its fitted numbers come from
1. the same stack refitted without the source's family, if at least `ENOUGH` rows of it remain, else
2. the stand-in: the geometric mean of the numbers of all stacks fitted without that family, each stack one vote.
Sources of one family (one vendor's tables of one software line) leave together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from shardmeter.core.record import changed, record
from shardmeter.specs import Scenario
from shardmeter.study.fit.batch import Floats, batches, step_times
from shardmeter.study.fit.stacks import Fit, fit

ENOUGH = 8
FAMILIES = (
    ("torchtitan", ("torchtitan", "torchao", "pytorch/ao")),
    ("nvidia", ("NeMo", "Megatron-Bridge", "Megatron-LM README")),
)
"""Sources whose key holds one of these texts are one family."""


@record
class FitRow:
    """One measured step time with the scenario that was known before it."""

    id: str
    source: str
    stack: str
    scenario: Scenario
    step_time: float
    weight: float = 1.0


def family_of(source: str) -> str:
    """The family of a source: its own name unless it belongs to a larger one."""
    return next((name for name, keys in FAMILIES if any(key in source for key in keys)), source)


def fit_stacks(rows: Sequence[FitRow], least: int = 1) -> dict[str, Fit]:
    """Fit every stack that has `least` rows; sources of a stack weigh the same."""
    fits = {}
    for stack in sorted({row.stack for row in rows}):
        chosen = [row for row in rows if row.stack == stack]
        if len(chosen) >= least:
            fits[stack] = fit_rows(chosen)
    return fits


def fit_rows(rows: Sequence[FitRow]) -> Fit:
    """Fit one stack to `rows`."""
    count: dict[str, int] = {}
    for row in rows:
        count[row.source] = count.get(row.source, 0) + 1
    weights = np.array([row.weight * len(rows) / (len(count) * count[row.source]) for row in rows])
    groups = batches([row.scenario for row in rows])
    return fit(groups, np.array([row.step_time for row in rows]), weights)


def stand_in(fits: Mapping[str, Fit]) -> dict[str, float]:
    """Geometric mean of every number over the fitted stacks."""
    names = next(iter(fits.values())).numbers
    return {name: float(np.exp(np.mean([np.log(f.numbers[name]) for f in fits.values()]))) for name in names}


def leave_one_source_out(rows: Sequence[FitRow], fits: Mapping[str, Fit]) -> Floats:
    """Predicted step time of every row, its source's family left out of every fit."""
    predicted = np.empty(len(rows))
    for family in sorted({family_of(row.source) for row in rows}):
        inside = [i for i, row in enumerate(rows) if family_of(row.source) == family]
        others = [row for row in rows if family_of(row.source) != family]
        remaining = _refitted(others, rows, family, fits)
        fallback = stand_in(remaining)
        for i in inside:
            row = rows[i]
            left = sum(other.stack == row.stack for other in others)
            numbers = remaining[row.stack].numbers if left >= ENOUGH else fallback
            stack = changed(row.scenario.stack, **numbers)
            scenario = changed(row.scenario, stack=stack)
            predicted[i] = step_times(batches([scenario]), 1)[0]
    return predicted


def _refitted(
    others: Sequence[FitRow], rows: Sequence[FitRow], family: str, fits: Mapping[str, Fit]
) -> dict[str, Fit]:
    """The fits without `family`: stacks it never touched keep theirs, the rest are fitted anew from what remains."""
    touched = {row.stack for row in rows if family_of(row.source) == family}
    result = {name: found for name, found in fits.items() if name not in touched}
    for name in sorted(touched & {row.stack for row in others}):
        result[name] = fit_rows([row for row in others if row.stack == name])
    return result
