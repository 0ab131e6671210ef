"""A file of runs across islands as a part of the `validate` report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from shardmeter.core.record import changed
from shardmeter.scenario.catalog import Catalog
from shardmeter.study.validate import score as measured
from shardmeter.study.validate import shipped
from shardmeter.study.validate.damage import damaged, warning
from shardmeter.study.validate.geo import account, cells, score
from shardmeter.study.validate.geo.account import Judged
from shardmeter.study.validate.layout import Table, unread
from shardmeter.study.validate.predictions import Predict, predict


def report(
    table: Table, catalog: Catalog, predictor: Predict, repeats: tuple[Mapping[int, str], Sequence[str]]
) -> dict[str, Any]:
    """The blocks of the report that files of runs across islands have. `repeats`: rows that repeat others, and warnings."""
    compared = account.compare(table.rows, catalog, predictor)
    judged = once(compared, repeats[0])
    is_shipped = predictor is predict and table.rows == shipped.geo().rows
    found = score.scores(judged, score.residuals(compared) if is_shipped else shipped.geo_residuals())
    bad = damaged(table, [one.id for one in judged], cells.READERS)
    blocks = measured.metrics(found)
    grid = score.on_grid(found)
    for place in (blocks["metrics"], *blocks["by_source"].values()):
        if grid and score.GRID_QUANTITY in place:
            place[score.GRID_QUANTITY] = {**place[score.GRID_QUANTITY], **grid}
    return {
        **score.accounting(judged),
        **blocks,
        "damaged": bad,
        "ranking": score.grids(judged),
        "rows_detail": measured.details(found),
        "warnings": [*unread(table), *warning(bad), *repeats[1], *disagreeing(judged), *nothing_counts(judged)],
    }


def once(judged: Sequence[Judged], copies: Mapping[int, str]) -> tuple[Judged, ...]:
    """The rows with those that repeat an earlier one excluded."""
    return tuple(
        changed(one, exclude=copies[place], skip="", due=None, predicted=None) if place in copies else one
        for place, one in enumerate(judged)
    )


def disagreeing(judged: Sequence[Judged]) -> list[str]:
    """A warning that names identities that do not hold; none where all do."""
    wrong = [one["id"] for one in score.accounting(judged)["identities"] if not one["agrees"]]
    return [f"rows that do not follow from the measurements of their own run: {', '.join(wrong[:5])}"] if wrong else []


def nothing_counts(judged: Sequence[Judged]) -> list[str]:
    """A warning where not one row of a file could be compared, with the most frequent reason."""
    if any(one.predicted is not None or one.due is not None for one in judged):
        return []
    reason, count = Counter(one.skip or one.exclude for one in judged).most_common(1)[0]
    return [f"no row could be compared; most often ({count} of {len(judged)}): {reason}"]
