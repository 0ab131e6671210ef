"""A file of whole training runs as a part of the `validate` report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from shardmeter.core.record import changed
from shardmeter.scenario.catalog import Catalog
from shardmeter.study import practice
from shardmeter.study.validate import fates
from shardmeter.study.validate import score as measured
from shardmeter.study.validate.damage import damaged, warning
from shardmeter.study.validate.layout import Table, unread
from shardmeter.study.validate.metrics import Score
from shardmeter.study.validate.predictions import Predict
from shardmeter.study.validate.runs import account, cells
from shardmeter.study.validate.runs.account import TOLERANCE, Judged

QUANTITY = "accel_hours"
COUNTED = "A"
"""The tier whose errors are the statistic; other tiers count in `by_group`. Of a file without tiers all rows count."""
UNSTATED = "unstated"


def report(
    table: Table, catalog: Catalog, predictor: Predict, repeats: tuple[Mapping[int, str], Sequence[str]]
) -> dict[str, Any]:
    """The blocks of the report that files of whole runs have. `repeats`: rows that repeat others, and warnings."""
    judged = once(account.compare(table.rows, catalog, predictor), repeats[0])
    found = scores(judged)
    bad = damaged(table, [one.id for one in judged], cells.READERS)
    return {
        **accounting(judged),
        **measured.metrics(found),
        "damaged": bad,
        "rows_detail": measured.details(found),
        "assumptions": assumptions(judged),
        "warnings": [*unread(table), *warning(bad), *repeats[1], *disagreeing(judged), *nothing_counts(judged)],
    }


def once(judged: Sequence[Judged], copies: Mapping[int, str]) -> tuple[Judged, ...]:
    """The rows with those that repeat an earlier one excluded."""
    return tuple(
        changed(one, exclude=copies[place], skip="", due=None, steps=None) if place in copies else one
        for place, one in enumerate(judged)
    )


def scores(judged: Sequence[Judged]) -> tuple[Score, ...]:
    """One score for every predicted row, by the factor that has not seen its source."""
    made = []
    for one in judged:
        predicted = one.predicted
        if predicted is None:
            continue
        ends = practice.spread(one.tier, one.source)
        made.append(
            Score(
                id=one.id,
                source=one.source,
                quantity=QUANTITY,
                measured=one.measured,
                predicted=predicted,
                loso=predicted,
                low=None if ends is None else predicted * ends[0],
                high=None if ends is None else predicted * ends[1],
                groups=one.groups,
                in_metrics=one.tier in (COUNTED, UNSTATED),
            )
        )
    return tuple(made)


def accounting(judged: Sequence[Judged]) -> dict[str, Any]:
    """Every row once: scored, skipped, excluded or an identity."""
    return fates.accounting(judged, lambda one: one.steps is not None, lambda _: TOLERANCE)


def assumptions(judged: Sequence[Judged]) -> list[str]:
    """What rows leave out and the mapping fills in, each with how many rows need it; sizes and names of single rows left out."""
    counts = Counter(said.partition(": ")[0] for one in judged if one.steps is not None for said in one.assumptions)
    return [f"{said} ({count} {'row' if count == 1 else 'rows'})" for said, count in counts.most_common()]


def disagreeing(judged: Sequence[Judged]) -> list[str]:
    """A warning that names identities that do not hold; none where all do."""
    wrong = [one["id"] for one in accounting(judged)["identities"] if not one["agrees"]]
    return [f"rows whose hours do not follow from their own rate: {', '.join(wrong[:5])}"] if wrong else []


def nothing_counts(judged: Sequence[Judged]) -> list[str]:
    """A warning where not one row of a file could be compared, with the most frequent reason."""
    if any(one.steps is not None or one.due is not None for one in judged):
        return []
    reason, count = Counter(one.skip or one.exclude for one in judged).most_common(1)[0]
    return [f"no row could be compared; most often ({count} of {len(judged)}): {reason}"]
