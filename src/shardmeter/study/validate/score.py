"""Mapped rows and predictions to scores, and scores to the `validate` report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from shardmeter.core.record import changed, record
from shardmeter.study.intervals import factors
from shardmeter.study.validate import shipped
from shardmeter.study.validate.metrics import (
    MEMORY,
    STEP_TIME,
    Score,
    by_source,
    entry,
    over_sources,
    quantities,
    summary,
)
from shardmeter.study.validate.predictions import Predict, Predicted, legal
from shardmeter.study.validate.ranking import Candidate, ranking
from shardmeter.study.validate.regimes import NORMAL
from shardmeter.study.validate.resolve import MappedRow

ENDLESS = "the prediction is not finite: some number of the row is beyond reason"
NODE = 8
"""Accelerators of a usual node."""
TOLERANCE = 0.005
"""An identity (a row whose answer follows from a measurement of the same run) must agree within this share."""


@record
class Compared:
    """All rows of a file, those that were predicted with their prediction."""

    rows: tuple[MappedRow, ...]
    predicted: Mapping[int, Predicted]
    """By position in `rows`."""

    @property
    def scores(self) -> tuple[Score, ...]:
        """One score for every measured quantity of every predicted row that is no identity."""
        return tuple(
            score
            for place, answer in self.predicted.items()
            if not self.rows[place].identity
            for score in scores_of(self.rows[place], answer)
        )


def compare(mapped: Sequence[MappedRow], predict: Predict) -> Compared:
    """Predict every row that has a legal scenario."""
    rows = tuple(legal(row) for row in mapped)
    places = [place for place, row in enumerate(rows) if row.scenario is not None]
    answers = predict([scenario for row in rows if (scenario := row.scenario) is not None])
    predicted = dict(zip(places, answers, strict=True))
    endless = {place for place, answer in predicted.items() if not answer.finite}
    return Compared(
        rows=tuple(changed(row, scenario=None, skip=ENDLESS) if at in endless else row for at, row in enumerate(rows)),
        predicted={place: answer for place, answer in predicted.items() if place not in endless},
    )


def scores_of(row: MappedRow, answer: Predicted) -> tuple[Score, ...]:
    """The measured quantities of a row beside their predictions."""
    pairs = {
        STEP_TIME: (row.step_time, answer.step_time),
        MEMORY: (row.memory, answer.memory(row.memory_reading)),
    }
    known = row.source_key in shipped.sources()
    left_out = shipped.left_out()
    return tuple(
        Score(
            id=row.id,
            source=row.source_key,
            quantity=quantity,
            measured=measured,
            predicted=predicted,
            loso=left_out.get((row.id, quantity)) if known else predicted,
            low=interval(row, quantity, predicted)[0],
            high=interval(row, quantity, predicted)[1],
            groups=(f"stack:{row.stack}", f"task:{row.task}", f"regime:{row.regime}", f"layout:{layout(row)}"),
            in_metrics=row.regime == NORMAL,
        )
        for quantity, (measured, predicted) in pairs.items()
        if measured is not None
    )


def interval(row: MappedRow, quantity: str, predicted: float) -> tuple[float | None, float | None]:
    """The 90 % interval of one future run like this row: that of its stack if it was fitted, of any other if one stands in."""
    if row.scenario is None:
        return None, None
    stack = row.scenario.stack
    found = factors(quantity, stack.name, fitted=not row.stand_in and bool(stack.fitted_on))
    return (None, None) if found is None else (predicted * found[0], predicted * found[1])


def layout(row: MappedRow) -> str:
    """How a row lays the model out: with one stage or several, tensor parallelism inside a usual node of 8 or wider.

    Wide tensor parallelism is told apart because a setting that no table states doubles its time."""
    if row.scenario is None:
        return "unknown"
    plan = row.scenario.plan
    return f"pp{'=' if plan.pp == 1 else '>'}1,tp{'<=' if plan.tp <= NODE else '>'}{NODE}"


def accounting(rows: Sequence[MappedRow], scored: int) -> dict[str, Any]:
    """Every row once: scored, skipped, excluded or an identity."""
    return {
        "rows": len(rows),
        "scored": scored,
        "skipped": [{"id": row.id, "reason": row.skip} for row in rows if row.skip],
        "excluded": [{"id": row.id, "reason": row.exclude} for row in rows if row.exclude],
    }


def identities(compared: Compared) -> list[dict[str, Any]]:
    """Rows whose answer follows from a measurement of the same run: checked, never scored."""
    found = []
    for place, answer in compared.predicted.items():
        row = compared.rows[place]
        if row.identity and row.step_time is not None:
            error = answer.step_time / row.step_time - 1.0
            found.append({"id": row.id, "error": error, "agrees": abs(error) <= TOLERANCE})
    return found


def metrics(scores: Sequence[Score]) -> dict[str, Any]:
    """`metrics`, `by_source` and `by_group`. Rows off the normal regime count in `by_group` only.

    Groups are `stack:…`, `task:…`, `regime:…` and `layout:…` (see `layout`); each is the mean over its sources, which stand
    under its `by_source`."""
    counted = [score for score in scores if score.in_metrics]
    groups = sorted({group for score in scores for group in score.groups})
    return {
        "metrics": {quantity: over_sources(_of(counted, quantity)) for quantity in quantities(counted)},
        "by_source": _entries(counted),
        "by_group": {group: _group([score for score in scores if group in score.groups]) for group in groups},
    }


def _entries(scores: Sequence[Score]) -> dict[str, Any]:
    """Metrics by source."""
    return {
        source: entry({quantity: summary(_of(part, quantity)) for quantity in quantities(part)})
        for source, part in by_source(scores).items()
    }


def _group(scores: Sequence[Score]) -> dict[str, Any]:
    """The mean over the sources of a group, and those sources."""
    means = {quantity: over_sources(_of(scores, quantity)) for quantity in quantities(scores)}
    return {**entry(means), "by_source": _entries(scores)}


def grids(compared: Compared) -> dict[str, dict[str, Any]]:
    """The `ranking` block: grids of one source, model, accelerator, size, sequence and batch."""
    found = []
    for place, answer in compared.predicted.items():
        row = compared.rows[place]
        named = grid(row)
        if named is not None and row.step_time is not None:
            found.append(Candidate(grid=named[0], plan=named[1], measured=row.step_time, predicted=answer.step_time))
    return ranking(found)


def grid(row: MappedRow) -> tuple[str, str] | None:
    """The grid that a measured time belongs to, and its plan there; None for a row that is in none."""
    scenario = row.scenario
    if scenario is None or row.step_time is None or row.regime != NORMAL or row.identity:
        return None
    island, run = scenario.fleet.islands[0], scenario.run
    key = (
        f"{row.source_key} | {scenario.model.name} | {island.accelerator.name} | {float(island.gpus):g} GPUs"
        f" | {float(run.seq_len):g} | {float(run.global_batch):g}"
    )
    return key, f"{scenario.plan!r} {scenario.stack.attention} {scenario.stack.kernels}"


def details(scores: Iterable[Score]) -> list[dict[str, Any]]:
    """The `rows_detail` block: memory in GiB, everything else in SI."""
    scale = {MEMORY: 2.0**30}

    def shown(value: float | None, quantity: str) -> float | None:
        return None if value is None else value / scale.get(quantity, 1.0)

    return [
        {
            "id": score.id,
            "quantity": score.quantity,
            "measured": shown(score.measured, score.quantity),
            "predicted": shown(score.predicted, score.quantity),
            "lo": shown(score.low, score.quantity),
            "hi": shown(score.high, score.quantity),
            "error": score.error,
        }
        for score in scores
    ]


def transfer(scores: Sequence[Score]) -> dict[str, Any]:
    """By source: the error when its source was left out, and after five of its rows; null until the fit has written them."""
    times = [score for score in scores if score.quantity == STEP_TIME and score.in_metrics]
    return {
        source: {"loso_mape": summary(part)["loso_mape"], "five_row_mape": shipped.five_rows().get(source)}
        for source, part in by_source(times).items()
    }


def alarms(compared: Compared) -> dict[str, list[bool]]:
    """By source: of rows that ran, whether each is said not to fit."""
    found: dict[str, list[bool]] = {}
    for place, answer in compared.predicted.items():
        row = compared.rows[place]
        if row.step_time is not None or row.memory is not None:
            found.setdefault(row.source_key, []).append(not answer.fits)
    return found


def _of(scores: Iterable[Score], quantity: str) -> list[Score]:
    return [score for score in scores if score.quantity == quantity]
