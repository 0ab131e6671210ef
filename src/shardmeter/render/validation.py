"""The page of a validation: leave-one-source-out error first, in-sample beside it, weighted by source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from shardmeter.core.record import changed
from shardmeter.render import cells
from shardmeter.render.document import Column, Document, Fact, Facts, Notes, Row, Section, Table

ERRORS = (
    Column(key="n", title="rows", unit=""),
    Column(key="loso_mape", title="source left out", unit="%"),
    Column(key="mape", title="in sample", unit="%"),
    Column(key="median_ape", title="median", unit="%", drop=3),
    Column(key="p90_ape", title="90th", unit="%", drop=2),
    Column(key="bias", title="bias", unit="±%", drop=4),
    Column(key="within_10pct", title="within 10 %", unit="%", drop=5),
    Column(key="coverage_90", title="coverage", unit="%", drop=1),
)

ISLANDS = ("step_time", "memory")
"""Quantities of measured runs on one island; every other one but `WHOLE` is of runs across islands."""
WHOLE = "accel_hours"
ALWAYS = frozenset({"n", "loso_mape", "mape"})
"""Columns that stand even when nothing is known for them."""
REASONS = 12
"""Reasons shown for rows that were not scored; JSON has all."""


FEW = 20
"""Scored numbers up to which each is shown; JSON and CSV have all of any file."""
UNITS = {"step_time": "s", "memory": "GiB", WHOLE: "h"}
"""Units of quantities that have one in every file."""
CELLS = 200
"""Damaged cells shown; JSON has all."""


def document(report: Mapping[str, Any], bars_missed: Iterable[Any] = (), title: str = "") -> Document:
    """A `validate` JSON as a document."""
    missed = tuple(str(bar) for bar in bars_missed)
    sections: list[Section | None] = [
        metrics_table(report) if _has(report, own=True) or not _has(report, own=False) else None,
        geo_table(report),
        whole_table(report),
        *rows_tables(report),
        source_table(report),
        group_table(report),
        _ranking(report.get("ranking")),
        _failures(report.get("failures")),
        _damaged(report.get("damaged")),
        _reasons("Skipped (cannot be expressed)", report.get("skipped")),
        _reasons("Excluded (does not count)", report.get("excluded")),
        Notes(title="Assumed", lines=tuple(report["assumptions"])) if report.get("assumptions") else None,
        Notes(title="Bars missed", lines=missed) if missed else None,
    ]
    return Document(
        title=title,
        verdict=_verdict(report, len(missed)),
        good=not missed,
        sections=tuple(section for section in sections if section is not None),
        data=report,
        flat=tuple(_scalars(row) for row in report.get("rows_detail") or ()),
    )


def _verdict(report: Mapping[str, Any], missed: int) -> str:
    others = ", ".join(f"{len(report.get(key) or ())} {key}" for key in ("skipped", "excluded", "identities"))
    bars = f"; {missed} bars missed" if missed else ""
    return f"{report.get('scored')} of {report.get('rows')} rows scored ({others}){bars}"


def metrics_table(report: Mapping[str, Any]) -> Table:
    """One line a quantity of runs on one island: the mean over sources."""
    return _errors("Error by quantity (mean over sources)", "quantity", _quantities(report, own=True))


def geo_table(report: Mapping[str, Any]) -> Table | None:
    """One line a quantity of runs across islands: the mean over sources; None without any."""
    found = {key: value for key, value in _quantities(report, own=False).items() if key != WHOLE}
    if not any(value and value.get("n") for value in found.values()):
        return None
    grid = report["metrics"].get("wan_bandwidth") or {}
    near = grid.get("within_step")
    caption = f"wan_bandwidth: {grid['exact']:.0%} exact, {near:.1%} within a step of the table's grid" if near else ""
    table = _errors("Runs across islands: error by quantity (mean over sources)", "quantity", found)
    return changed(table, caption=caption)


def whole_table(report: Mapping[str, Any]) -> Table | None:
    """Accelerator-hours of whole runs: the mean over sources; None without any."""
    found = (report.get("metrics") or {}).get(WHOLE)
    if not found or not found.get("n"):
        return None
    return _errors("Whole runs (mean over sources)", "quantity", {WHOLE: found})


def rows_tables(report: Mapping[str, Any]) -> tuple[Table, ...]:
    """Each number of a short file beside its prediction, one table a quantity; none for files of more than `FEW`."""
    rows = report.get("rows_detail") or ()
    if len(rows) > FEW:
        return ()
    tables = []
    for quantity in dict.fromkeys(one["quantity"] for one in rows):
        unit = UNITS.get(quantity, "")
        own = [one for one in rows if one["quantity"] == quantity]
        ends = any(one["lo"] is not None and one["hi"] is not None for one in own)
        columns = (
            Column(key="id", title="row", wide=True),
            Column(key="measured", title="measured", unit=unit),
            Column(key="predicted", title="predicted", unit=unit),
            *((Column(key="interval", title="90 % interval"),) if ends else ()),
            Column(key="error", title="error", unit="±%"),
        )
        lines = tuple({**_scalars(one), "interval": _interval(one, unit)} for one in own)
        tables.append(Table(title=f"Every row: {quantity}", columns=columns, rows=lines))
    return tuple(tables)


def _interval(one: Mapping[str, Any], unit: str) -> str | None:
    if one["lo"] is None or one["hi"] is None:
        return None
    return f"{cells.text(one['lo'], unit)} to {cells.text(one['hi'], unit)}"


def _quantities(report: Mapping[str, Any], *, own: bool) -> dict[str, Any]:
    """The metrics of runs on one island (`own`), or those of runs across islands."""
    return {key: value for key, value in (report.get("metrics") or {}).items() if (key in ISLANDS) is own}


def _has(report: Mapping[str, Any], *, own: bool) -> bool:
    return any(value and value.get("n") for value in _quantities(report, own=own).values())


def source_table(report: Mapping[str, Any]) -> Table | None:
    """One line a source."""
    return _errors("Error by source", "source", report.get("by_source")) if report.get("by_source") else None


def group_table(report: Mapping[str, Any]) -> Table | None:
    """One line a stack, task or regime."""
    return _errors("Error by group", "group", report.get("by_group")) if report.get("by_group") else None


def _errors(title: str, name: str, data: Any) -> Table:
    rows: list[Row] = [
        {"name": f"{key}{_leading(value)}", **_scalars(value)} for key, value in (data or {}).items() if value
    ]
    used = [column for column in ERRORS if column.key in ALWAYS or any(row.get(column.key) is not None for row in rows)]
    return Table(title=title, columns=(Column(key="name", title=name, wide=True), *used), rows=tuple(rows))


def _leading(entry: Mapping[str, Any]) -> str:
    """Which quantity the numbers of a source or group are of, where it is one of runs across islands."""
    parts = {key: value for key, value in entry.items() if isinstance(value, Mapping) and value.get("n")}
    first = next(iter(parts), "")
    return f" ({first})" if first and first not in ISLANDS and first != "by_source" else ""


def _ranking(ranking: Mapping[str, Any] | None) -> Table | None:
    if not ranking:
        return None
    return Table(
        title="Ranking of plans on measured grids",
        columns=(
            Column(key="grid", title="grid", wide=True),
            Column(key="n", title="plans"),
            Column(key="spearman", title="rank correlation"),
            Column(key="regret", title="regret", unit="%"),
        ),
        rows=tuple({"grid": grid, **_scalars(value)} for grid, value in ranking.items()),
    )


def _failures(failures: Mapping[str, Any] | None) -> Facts | None:
    if not failures or not failures.get("n"):
        return None
    return Facts(
        title="Failed configurations",
        facts=(
            Fact(label="rows", value=failures.get("n")),
            Fact(label="found", value=failures.get("recall"), unit="%"),
            Fact(label="false alarms", value=failures.get("false_alarm"), unit="%"),
        ),
    )


def _damaged(found: Any) -> Table | None:
    if not found:
        return None
    rest = len(found) - CELLS
    return Table(
        title="Damaged cells",
        columns=(
            Column(key="id", title="row", wide=True),
            Column(key="line", title="line"),
            Column(key="column", title="column"),
            Column(key="value", title="value", wide=True),
            Column(key="rule", title="what it must be", wide=True),
        ),
        rows=tuple({**cell, "value": str(cell["value"])} for cell in found[:CELLS]),
        caption=f"and {rest} more (`--format json` has all)" if rest > 0 else "",
    )


def _reasons(title: str, entries: Any) -> Table | None:
    if not entries:
        return None
    counts = Counter(str(entry.get("reason", "")) for entry in entries)
    rest = len(counts) - REASONS
    return Table(
        title=title,
        columns=(Column(key="n", title="rows"), Column(key="reason", title="reason", wide=True)),
        rows=tuple({"n": count, "reason": reason} for reason, count in counts.most_common(REASONS)),
        caption=f"and {rest} more reasons (`--format json` has all)" if rest > 0 else "",
    )


def _scalars(data: Mapping[str, Any]) -> Row:
    return {key: value for key, value in data.items() if value is None or isinstance(value, str | bool | int | float)}
