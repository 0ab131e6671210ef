"""How much a few rows of a measured grid tell of its other rows: the calibration, scored on what it was not given.

A grid is one model on one machine under many plans. Its stack keeps its documented facts; the numbers it starts from are those that
every other source teaches (`unseen`). Rows are drawn at random, seeded; the error is scored on the rest, before and after.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from shardmeter.core.record import changed, record
from shardmeter.scenario.catalog import Catalog
from shardmeter.specs import Scenario
from shardmeter.study.calibrate.posterior import (
    DRAWS,
    Ensemble,
    Given,
    Order,
    Posterior,
    ensemble,
    interval,
    posteriors,
)
from shardmeter.study.calibrate.prior import teaches
from shardmeter.study.fit.batch import Floats, batches, step_times
from shardmeter.study.fit.leave_out import FitRow, family_of
from shardmeter.study.fit.stacks import PRIORS, WHERE_SEEN, WITH_EXPERTS
from shardmeter.study.validate import shipped
from shardmeter.study.validate.predictions import legal
from shardmeter.study.validate.regimes import NORMAL
from shardmeter.study.validate.resolve import MappedRow, map_rows
from shardmeter.study.validate.score import grid

SEEN = (1, 2, 3, 5)
"""Rows that are given."""
SEEDS = 20


@record
class Scored:
    """One grid after so many rows: means over the seeded draws of rows."""

    grid: str
    rows: int
    seen: int
    before: float
    """Mean |predicted / measured − 1| of the rows that were not given, as every other source predicts them."""
    after: float
    before_inside: float
    """The same over rows whose tensor parallelism stays inside a node: wider, a setting that no table states doubles the time."""
    after_inside: float
    worst: float
    """Most that one draw of rows made the error larger (below nought: none did)."""
    covered: float
    """Share of the rest that lies inside the 90 % interval after."""
    width: float
    """Upper over lower end of that interval."""


SCORED = ("Aleph Alpha", "nanotron/ultrascale")
"""How the sources begin that calibration is scored on: one model under many plans each."""
FEWEST = 10
"""Rows of a grid."""


def grids(catalog: Catalog) -> dict[str, list[FitRow]]:
    """The grids of the shipped rows, in the normal regime, each with the numbers that every other source teaches."""
    mapped = map_rows(shipped.measured().rows, catalog)
    taught = touched([one for row in mapped if (one := _row(row)) is not None])
    scored = [legal(row) for row in mapped if row.source_key.startswith(SCORED) and row.regime == NORMAL]
    rows = {one.id: one for row in scored if (one := _row(row)) is not None}
    found: dict[str, list[FitRow]] = {}
    for row in scored:
        place = grid(row)
        if place is not None and row.id in rows:
            found.setdefault(place[0], []).append(rows[row.id])
    return {name: unseen(some, taught, catalog) for name, some in sorted(found.items()) if len(some) >= FEWEST}


def _row(row: MappedRow) -> FitRow | None:
    """A mapped row as fits take it; None without a scenario or a time."""
    if row.scenario is None or not row.step_time:
        return None
    return FitRow(
        id=row.id, source=row.source_key, stack=row.stack, scenario=row.scenario, step_time=float(row.step_time)
    )


def unseen(rows: Sequence[FitRow], taught: Mapping[str, set[str]], catalog: Catalog) -> list[FitRow]:
    """Rows of one source with the numbers that every other source teaches: the median over the fitted stacks that the family of the
    source never touched. `taught`: family → stacks that it touched."""
    family = family_of(rows[0].source)
    stacks = [catalog.stack(name) for name in catalog.names("stacks") if name not in taught[family]]
    fitted = [one for one in stacks if one.fitted_on]
    numbers = {name: float(np.median([getattr(one, name) for one in fitted])) for name in PRIORS}
    numbers |= dict.fromkeys(WHERE_SEEN, 0.0)
    for name in WITH_EXPERTS:
        numbers[name] = float(np.median([getattr(one, name) for one in fitted if getattr(one, name) > 0.0] or [0.0]))
    return [changed(row, scenario=changed(row.scenario, stack=changed(row.scenario.stack, **numbers))) for row in rows]


def touched(rows: Sequence[FitRow]) -> dict[str, set[str]]:
    """The stacks of every family of sources."""
    found: dict[str, set[str]] = {}
    for row in rows:
        found.setdefault(family_of(row.source), set()).add(row.stack)
    return found


def score(
    name: str, rows: Sequence[FitRow], *, seen: Sequence[int] = SEEN, seeds: int = SEEDS, draws: int = DRAWS
) -> list[Scored]:
    """Score one grid, its rows as `unseen` gives them, for every number of rows given that leaves as many."""
    measured = np.array([row.step_time for row in rows])
    scenarios = [row.scenario for row in rows]
    prior = ensemble(scenarios, draws=draws)
    before = np.exp(prior.times[0])
    told = np.array([teaches(one) for one in scenarios])
    found = []
    for count in seen:
        if 2 * count > len(rows):
            continue
        orders: list[Order] = [np.random.default_rng(seed).permutation(len(rows)) for seed in range(seeds)]
        known = [order[:count][told[order[:count]]] for order in orders]
        after = posteriors(prior, [Given(rows=some, measured=measured[some]) for some in known])
        predicted = _told(scenarios, after)
        found.append(_score(name, count, (measured, before, predicted), orders, (prior, after)))
    return found


def _told(scenarios: Sequence[Scenario], after: Sequence[Posterior]) -> Floats:
    """Seconds of every scenario as each posterior's numbers predict it, shape (posteriors, scenarios)."""
    numbers = {name: np.array([one.numbers[name] for one in after]) for name in after[0].numbers}
    return step_times(batches(scenarios), len(scenarios), numbers)


def _score(
    name: str, count: int, times: tuple[Floats, Floats, Floats], orders: Sequence[Order],
    found: tuple[Ensemble, Sequence[Posterior]],
) -> Scored:  # fmt: skip
    measured, before, told = times
    inside = np.array([teaches(one) for one in found[0].scenarios])
    errors, covered, widths = [], [], []
    for order, predicted, one in zip(orders, told, found[1], strict=True):
        rest = order[count:]
        low, high = interval(one, found[0].times)
        ratio = measured[rest] / predicted[rest]
        off = np.abs(before[rest] / measured[rest] - 1.0), np.abs(1.0 / ratio - 1.0)
        errors.append([float(np.mean(some)) for some in (*off, *(one[inside[rest]] for one in off))])
        covered.append(float(np.mean((ratio >= low) & (ratio <= high))))
        widths.append(high / low)
    old, new, old_inside, new_inside = np.array(errors).T
    return Scored(
        grid=name, rows=len(measured), seen=count, before=float(old.mean()), after=float(new.mean()), before_inside=float(old_inside.mean()),
        after_inside=float(new_inside.mean()),
        worst=float((new - old).max()), covered=float(np.mean(covered)), width=float(np.mean(widths)),
    )  # fmt: skip
