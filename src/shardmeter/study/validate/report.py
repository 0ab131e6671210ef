"""`validate`: a file of runs (or the shipped ones) against the model, and the bars it must keep."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from shardmeter.core.errors import BadData, cut, kind_of
from shardmeter.core.record import changed, record
from shardmeter.scenario.catalog import Catalog, catalog_of
from shardmeter.study.validate import failures, score, shipped
from shardmeter.study.validate.bars import Missed, missed, read_bars
from shardmeter.study.validate.damage import damaged, warning
from shardmeter.study.validate.geo import report as geo
from shardmeter.study.validate.layout import FAILED, GEO, MEASURED, WHOLE, Table, read_table, unread
from shardmeter.study.validate.metrics import STEP_TIME, Score
from shardmeter.study.validate.predictions import Predict, predict
from shardmeter.study.validate.resolve import MappedRow, map_rows
from shardmeter.study.validate.rows import Row
from shardmeter.study.validate.runs import report as whole


@record
class Report:
    """The answer of `validate`: its JSON as plain data, and the bars that it does not keep."""

    data: Mapping[str, Any]
    bars_missed: tuple[Missed, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The JSON: all numbers finite or null."""
        return dict(self.data)


def validate(
    path: str | os.PathLike[str] | None = None,
    *,
    bars: str | os.PathLike[str] | None = None,
    catalog: Catalog | str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
    predictor: Predict = predict,
) -> Report:
    """Compare predictions with the runs of a CSV file; without one, with the runs, failures, runs across islands and
    whole runs that ship.

    `bars` is a file of limits; `predictor` answers scenarios (tests give their own). Raises BadData for a file of no known
    layout, and for bars that cannot be read.
    """
    for name, given in (("file", path), ("bars", bars)):
        if given is not None and not isinstance(given, str | os.PathLike):
            raise TypeError(f"{name}: {kind_of(given)}, where the name of a file belongs")
        if given is not None and not str(given).strip():
            raise BadData(f"{name}: the name of the file is empty")
    limits = read_bars(Path(bars)) if bars is not None else ()
    rows = catalog_of(catalog)
    if path is None:
        data = _measured(shipped.measured(), rows, predictor, shipped.failed().rows)
        data = both(data, _geo(shipped.geo(), rows, predictor))
        data = both(data, _whole(shipped.whole(), rows, predictor))
    else:
        table = read_table(Path(path))
        data = _OF_LAYOUT[table.layout](table, rows, predictor)
    return Report(data=data, bars_missed=missed(data, limits))


def _measured(table: Table, catalog: Catalog, predictor: Predict, failed: Sequence[Row] = ()) -> dict[str, Any]:
    """A file of measured runs."""
    mapped, repeats = once(table.rows, map_rows(table.rows, catalog))
    compared = score.compare(mapped, predictor)
    known = score.identities(compared)
    scores = compared.scores
    lost = failures.compare(failed, catalog, predictor, compared.rows) if failed else failures.NOTHING
    cells = damaged(table, [row.id for row in compared.rows])
    return {
        **score.accounting(compared.rows, len(compared.predicted) - len(known)),
        "damaged": cells,
        "identities": known,
        **score.metrics(scores),
        "ranking": score.grids(compared),
        "failures": failures.summary(lost, score.alarms(compared)),
        "transfer": score.transfer(scores),
        "rows_detail": score.details(scores),
        "assumptions": _assumptions(compared.rows),
        "warnings": [
            *unread(table),
            *warning(cells),
            *repeats,
            *nothing_counts(compared.rows),
            *_warnings(compared, scores),
        ],
    }


def _failed(table: Table, catalog: Catalog, predictor: Predict) -> dict[str, Any]:
    """A file of configurations that did not run; false alarms come from the shipped runs of the same sources."""
    shown = map_rows(shipped.measured().rows, catalog)
    lost = failures.compare(table.rows, catalog, predictor, shown)
    sources = {row.source_key for row in lost.rows if row.scenario is not None}
    ran = [row for row in shown if row.source_key in sources]
    cells = damaged(table, [row.id for row in lost.rows])
    alarms = score.alarms(score.compare(ran, predictor))
    return {
        **score.accounting(lost.rows, len(lost.fits)),
        **_no_scores(),
        "damaged": cells,
        "failures": failures.summary(lost, alarms),
        "assumptions": _assumptions(lost.rows),
        "warnings": [*warning(cells), *nothing_counts(lost.rows)],
    }


def _geo(table: Table, catalog: Catalog, predictor: Predict) -> dict[str, Any]:
    """A file of runs across islands."""
    repeats = repeated(table.rows)
    return {**_no_scores(), **geo.report(table, catalog, predictor, repeats)}


def both(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """One report of two files of unlike layouts: counts add, lists follow each other, what only one has is that one's."""
    merged = dict(first)
    for key, value in second.items():
        own = first.get(key)
        if isinstance(value, int):
            merged[key] = value + (own or 0)
        elif isinstance(value, list):
            merged[key] = [*(own or []), *value]
        elif key in ("by_source", "by_group"):
            merged[key] = _together(own or {}, value)
        elif key in ("metrics", "ranking"):
            merged[key] = {**value, **(own or {})} if key == "metrics" else {**(own or {}), **value}
    return merged


def _together(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Groups of two files: of one that both have, each quantity's figures are those of the file that has rows of it."""
    merged = {**first, **second}
    for name in first.keys() & second.keys():
        own, other = first[name], second[name]
        head, rest = (own, other) if own.get("n") else (other, own)
        merged[name] = {**rest, **head}
        for key, block in rest.items():
            if key == "by_source":
                merged[name][key] = _together(own.get(key, {}), other.get(key, {}))
            elif isinstance(block, dict) and block.get("n"):
                merged[name][key] = block
    return merged


def _whole(table: Table, catalog: Catalog, predictor: Predict) -> dict[str, Any]:
    """A file of whole training runs."""
    repeats = repeated(table.rows)
    return {**_no_scores(), **whole.report(table, catalog, predictor, repeats)}


_OF_LAYOUT = {MEASURED: _measured, FAILED: _failed, GEO: _geo, WHOLE: _whole}


def _no_scores() -> dict[str, Any]:
    """The blocks of a report that has no scores."""
    return {
        "damaged": [],
        "identities": [],
        **score.metrics(()),
        "ranking": {},
        "failures": failures.summary(failures.NOTHING, {}),
        "transfer": {},
        "rows_detail": [],
        "assumptions": [],
        "warnings": [],
    }


def once(rows: Sequence[Row], mapped: Sequence[MappedRow]) -> tuple[tuple[MappedRow, ...], list[str]]:
    """The rows, each counted once: one that repeats an earlier row cell by cell is excluded; other rows that share an id all
    count, and are named."""
    copies, warnings = repeated(rows)
    made = [
        changed(one, scenario=None, skip="", exclude=copies[place]) if place in copies else one
        for place, one in enumerate(mapped)
    ]
    return tuple(made), warnings


def repeated(rows: Sequence[Row]) -> tuple[dict[int, str], list[str]]:
    """(reasons of rows that repeat an earlier row cell by cell, by place; a warning that names ids of several unlike rows)."""
    first: dict[str, Row] = {}
    copies: dict[int, str] = {}
    shared = []
    for place, row in enumerate(rows):
        id_ = row.text("id") or row.text("run_id")
        earlier = first.setdefault(id_, row) if id_ else row
        if earlier is row:
            continue
        if earlier.cells == row.cells:
            copies[place] = f"repeats line {earlier.line}"
        else:
            shared.append(id_)
    names = list(dict.fromkeys(shared))
    listed = ", ".join(map(cut, names[:MOST_NAMED])) + (" …" if len(names) > MOST_NAMED else "")
    return copies, [f"ids that stand for several rows, which all count: {listed}"] if names else []


MOST_NAMED = 5
"""Ids that one warning names."""


def nothing_counts(rows: Sequence[MappedRow]) -> list[str]:
    """A warning where not one row of a file could be compared, with the most frequent reason."""
    if not rows or any(row.scenario is not None for row in rows):
        return []
    reason, count = Counter(row.skip or row.exclude for row in rows).most_common(1)[0]
    return [f"no row could be compared; most often ({count} of {len(rows)}): {reason}"]


def _assumptions(rows: Sequence[MappedRow]) -> list[str]:
    """What rows leave out and the mapping fills in, each with how many rows need it."""
    counts = Counter(said for row in rows if row.scenario is not None for said in row.scenario.assumptions)
    return [f"{said} ({count} rows): the usual of its stack or accelerator is taken" if "not stated" in said
            else f"{said} ({count} rows)" for said, count in counts.most_common()]  # fmt: skip


def _warnings(compared: score.Compared, scores: Sequence[Score]) -> list[str]:
    """What a reader of the numbers should know."""
    floor = sum(row.scenario is not None and row.regime != "normal" for row in compared.rows)
    found = []
    if floor:
        found.append(f"{floor} rows sit on a software floor: they count in by_group only")
    if not shipped.left_out() and any(row.source_key in shipped.sources() for row in compared.rows):
        found.append("errors with the source left out are not known: `make fit` writes them")
    known = {one.source for one in scores if one.loso is not None}
    late = [one for one in scores if one.quantity == STEP_TIME and one.loso is None and one.source in known]
    if late:
        found.append(f"{len(late)} rows came after the last fit: no error with their source left out is known")
    return found
