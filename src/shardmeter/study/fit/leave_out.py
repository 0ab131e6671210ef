"""Leave-one-source-out: every source predicted by numbers that have not seen it.

The rule, written before any error was looked at. A row keeps the documented facts of its own stack (kernels, schedule, dtypes:
known before the run). Its fitted numbers come from
1. the same stack refitted without the source's family, if at least `ENOUGH` rows of it remain, else
2. the stand-in: the median of every number over all stacks fitted without that family, each stack one vote.
Sources of one family (one vendor's tables of one software line) leave together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from shardmeter.core.record import changed, record
from shardmeter.specs import Scenario
from shardmeter.study.fit.batch import Floats, batches, step_times
from shardmeter.study.fit.stacks import EXPERT_ROWS, PRIORS, STARTS, WHERE_SEEN, WITH_EXPERTS, Fit, Prior, fit

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


def family_of(source: str) -> str:
    """The family of a source: its own name unless it belongs to a larger one."""
    return next((name for name, keys in FAMILIES if any(key in source for key in keys)), source)


def fit_stacks(rows: Sequence[FitRow], least: int = 1) -> dict[str, Fit]:
    """Fit every stack that has `least` rows."""
    fits = {}
    for stack in sorted({row.stack for row in rows}):
        chosen = [row for row in rows if row.stack == stack]
        if len(chosen) >= least:
            fits[stack] = fit_rows(chosen)
    return fits


def own_priors(rows: Sequence[FitRow], priors: Mapping[str, Prior] = PRIORS) -> dict[str, Prior]:
    """The priors of a stack: the usual ones, those of numbers that its row holds above zero, those of routed experts if it has
    rows enough of such models."""
    stack = rows[0].scenario.stack
    seen = {name: prior for name, prior in WHERE_SEEN.items() if getattr(stack, name) > 0.0}
    routed = sum(bool(np.any(np.greater(row.scenario.model.experts, 0.0))) for row in rows)
    return {**priors, **seen, **(WITH_EXPERTS if routed >= EXPERT_ROWS else {})}


def fit_rows(rows: Sequence[FitRow], priors: Mapping[str, Prior] = PRIORS, starts: Sequence[float] = STARTS) -> Fit:
    """Fit one stack to `rows`, each row one vote; `starts` are launch overheads to begin from."""
    groups = batches([row.scenario for row in rows])
    return fit(groups, np.array([row.step_time for row in rows]), own_priors(rows, priors), starts)


def stand_in(fits: Mapping[str, Fit]) -> dict[str, float]:
    """Median of every number over the fitted stacks; those of experts over the stacks that have them; what only one stack showed
    is nought."""
    found = dict.fromkeys((*WHERE_SEEN, *WITH_EXPERTS), 0.0)
    for name in (*PRIORS, *WITH_EXPERTS):
        values = [one.numbers[name] for one in fits.values() if name in one.numbers]
        if values:
            found[name] = float(np.median(values))
    return found


def leave_one_source_out(taught: Sequence[FitRow], rows: Sequence[FitRow], fits: Mapping[str, Fit]) -> Floats:
    """Predicted step time of each of `rows`, its source's family left out of every fit. `taught` are the rows fits may see."""
    predicted = np.empty(len(rows))
    for family in sorted({family_of(row.source) for row in rows}):
        inside = [i for i, row in enumerate(rows) if family_of(row.source) == family]
        remaining = refitted(family, taught, fits)
        fallback = stand_in(remaining)
        told = []
        for i in inside:
            row = rows[i]
            own = remaining.get(row.stack)
            numbers = {**fallback, **(own.numbers if own is not None and own.rows >= ENOUGH else {})}
            told.append(changed(row.scenario, stack=changed(row.scenario.stack, **numbers)))
        predicted[inside] = step_times(batches(told), len(told))
    return predicted


def numbers_without(family: str, taught: Sequence[FitRow], fits: Mapping[str, Fit]) -> dict[str, float]:
    """The stand-in's numbers when `family` is left out."""
    return stand_in(refitted(family, taught, fits))


def refitted(family: str, taught: Sequence[FitRow], fits: Mapping[str, Fit]) -> dict[str, Fit]:
    """The fits without `family`: stacks it never touched keep theirs, the rest are fitted anew from what remains."""
    touched = {row.stack for row in taught if family_of(row.source) == family}
    others = [row for row in taught if family_of(row.source) != family]
    result = {name: found for name, found in fits.items() if name not in touched}
    for name in sorted(touched & {row.stack for row in others}):
        result[name] = fit_rows([row for row in others if row.stack == name])
    return result


def five_row_error(rows: Sequence[FitRow], prior: Mapping[str, float], draws: int = 20, seen: int = 5) -> float | None:
    """Mean error of a source when `seen` of its rows were given: the mean over seeded draws, scored on the rest.

    `prior` is the answer without the source: the few rows move the numbers away from it. None for sources too small."""
    if len(rows) < 2 * seen:
        return None
    rows = [_unseen(row) for row in rows]
    centred = {
        name: changed(PRIORS[name], centre=_inside(PRIORS[name], value))
        for name, value in prior.items()
        if name in PRIORS
    }
    errors = []
    for seed in range(draws):
        order = np.random.default_rng(seed).permutation(len(rows))
        known, rest = [rows[i] for i in order[:seen]], [rows[i] for i in order[seen:]]
        by_stack = {
            stack: fit_rows([r for r in known if r.stack == stack], centred, (centred["launch_overhead"].centre,))
            for stack in {r.stack for r in known}
        }
        pooled = stand_in(by_stack)
        told = [
            changed(
                r.scenario,
                stack=changed(r.scenario.stack, **(by_stack[r.stack].numbers if r.stack in by_stack else pooled)),
            )
            for r in rest
        ]
        predicted = step_times(batches(told), len(told))
        errors.append(float(np.mean(np.abs(predicted / np.array([r.step_time for r in rest]) - 1.0))))
    return float(np.mean(errors))


def _unseen(row: FitRow) -> FitRow:
    """A row whose stack has none of the numbers that only this stack showed."""
    return changed(
        row, scenario=changed(row.scenario, stack=changed(row.scenario.stack, **dict.fromkeys(WHERE_SEEN, 0.0)))
    )


def _inside(prior: Prior, value: float) -> float:
    return min(max(value, prior.low), prior.high)
