"""Which kind of file it is, by its header alone, and its rows as text.

measured   has `step_time_s` and `parallel_tp`: measured runs
geo        has `quantity` and `kind`: runs across islands
whole      has `accel_hours`: whole training runs
failed     has a `status` or a `note` and no time: configurations that did not run
"""

from __future__ import annotations

import csv
import io
from pathlib import Path

from shardmeter.core.errors import BadData, Violation
from shardmeter.core.record import record
from shardmeter.study.validate.rows import Row

MEASURED, GEO, WHOLE, FAILED = "measured", "geo", "whole", "failed"
NEEDS = {
    MEASURED: ("step_time_s", "parallel_tp"),
    GEO: ("quantity", "kind"),
    WHOLE: ("accel_hours",),
    FAILED: ("status",),
}
"""Columns that tell a layout, in the order in which layouts are tried."""

TITLES = {
    MEASURED: "measured runs",
    GEO: "runs across islands",
    WHOLE: "whole training runs",
    FAILED: "failed configurations",
}
LONGEST_CELL = 1 << 20


@record
class Table:
    """A file of runs: its layout and its rows, none left out."""

    name: str
    layout: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]


def read_table(path: Path) -> Table:
    """Read a CSV file of runs whatever its line ends or byte-order mark; refuse what has no known layout."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise BadData(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadData(f"{path}: cannot be read as UTF-8 text ({type(error).__name__})") from None
    return parse_table(text, path.name)


def parse_table(text: str, name: str) -> Table:
    """The same for text at hand; `name` stands in messages."""
    csv.field_size_limit(LONGEST_CELL)
    try:
        lines = csv.reader(io.StringIO(text, newline=""))
        numbered = [(lines.line_num, cells) for cells in lines]
    except csv.Error as error:
        raise BadData(f"{name}: not a CSV file ({error})") from None
    while numbered and not any(cell.strip() for cell in numbered[0][1]):
        numbered.pop(0)
    if not numbered:
        raise BadData(f"{name}: is empty; a header line is needed")
    columns = tuple(cell.strip().lower() for cell in numbered[0][1])
    layout = layout_of(columns, name)
    rows = tuple(
        Row(line=line, cells=_cells(columns, cells, name, line))
        for line, cells in numbered[1:]
        if any(cell.strip() for cell in cells)
    )
    return Table(name=name, layout=layout, columns=columns, rows=rows)


def layout_of(columns: tuple[str, ...], name: str = "file") -> str:
    """The layout that a header tells, or `BadData` with the nearest layout and the columns it would need."""
    repeated = sorted({column for column in columns if column and columns.count(column) > 1})
    if repeated:
        raise BadData(f"{name}: the header names a column twice: {', '.join(repeated)}")
    for layout in (MEASURED, GEO, WHOLE):
        if all(column in columns for column in NEEDS[layout]):
            return layout
    timed = {"step_time_s", "tokens_per_s_per_gpu", "samples_per_s_per_gpu"} & set(columns)
    if not timed and ({"status", "note"} & set(columns)):
        return FAILED
    raise BadData(f"{name}: the header is of no known layout", _nearest(columns))


def _nearest(columns: tuple[str, ...]) -> list[Violation]:
    """What the closest layout would still need."""
    hints = {
        MEASURED: {"id", "model", "n_layers", "hidden", "accelerator", "n_accelerators", "global_batch", "micro_batch",
                   "step_time_s", "parallel_tp", "pp", "dp", "tokens_per_s_per_gpu"},
        GEO: {"quantity", "kind", "value", "unit", "method", "islands_m", "h", "wan_gbps"},
        WHOLE: {"run_id", "accel_hours", "accel_hours_kind", "wall_days", "params_total", "data_seen"},
        FAILED: {"status", "note", "tp", "pp", "dp", "mbs", "micro_batch", "trial"},
    }  # fmt: skip
    shared = {layout: len(hints[layout] & set(columns)) / len(hints[layout]) for layout in hints}
    best = max(shared, key=lambda layout: shared[layout])
    missing = [column for column in NEEDS[best] if column not in columns]
    known = "; ".join(f"{TITLES[layout]}: {', '.join(NEEDS[layout])}" for layout in NEEDS)
    return [
        Violation(
            field="header",
            says=f"nearest is {TITLES[best]}, which needs also: {', '.join(missing)}",
            rule=f"known layouts and the columns that tell them: {known}",
            way_out="rename or add those columns",
        )
    ]


def _cells(columns: tuple[str, ...], cells: list[str], name: str, line: int) -> dict[str, str]:
    if len(cells) > len(columns) and any(cell.strip() for cell in cells[len(columns) :]):
        raise BadData(f"{name}:{line}: the row has {len(cells)} cells where the header names {len(columns)}")
    return dict(zip(columns, cells, strict=False))
