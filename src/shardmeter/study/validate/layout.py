"""Which kind of file it is, by its header alone, and its rows as text.

measured   has `step_time_s` and `parallel_tp`: measured runs
geo        has `quantity` and `kind`: runs across islands
whole      has `accel_hours`: whole training runs
failed     has a `status` or a `note` and no time: configurations that did not run
"""

from __future__ import annotations

import csv
import difflib
import io
from collections.abc import Mapping
from pathlib import Path

from shardmeter.core.errors import BadData, Violation, cut
from shardmeter.core.files import file_name, read_text
from shardmeter.core.record import record
from shardmeter.study.validate.geo.cells import COLUMNS as GEO_COLUMNS
from shardmeter.study.validate.rows import Row
from shardmeter.study.validate.runs.cells import COLUMNS as WHOLE_COLUMNS

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
    return parse_table(read_text(path, "a file of runs", LARGEST_FILE, BadData, (".csv",)), file_name(path.name))


def parse_table(text: str, name: str) -> Table:
    """The same for text at hand; `name` stands in messages."""
    csv.field_size_limit(LONGEST_CELL)
    lines = csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline=""))
    try:
        numbered = [(lines.line_num, cells) for cells in lines]
    except csv.Error:
        says = f"a cell of more than {LONGEST_CELL} characters, or a quote that does not end"
        raise BadData(f"{name}:{lines.line_num}: not readable as CSV ({says})") from None
    numbered = [(line, cells) for line, cells in numbered if any(cell.strip() for cell in cells)]
    if not numbered:
        raise BadData(f"{name}: is empty; a header line is needed")
    columns = tuple(cell.strip().lower() for cell in numbered[0][1])
    layout = layout_of(columns, name)
    if len(numbered) == 1:
        raise BadData(f"{name}: a header and no rows: nothing to compare")
    _check_lengths(numbered[1:], len(columns), name)
    rows = tuple(Row(line=line, cells=dict(zip(columns, cells, strict=False))) for line, cells in numbered[1:])
    return Table(name=name, layout=layout, columns=columns, rows=rows)


def _check_lengths(numbered: list[tuple[int, list[str]]], width: int, name: str) -> None:
    """Refuse rows with more filled cells, or fewer cells, than the header has names."""
    bad = [
        Violation(
            field="",
            says=f"the row has {len(cells)} cells where the header names {width}",
            way_out="quote cells that hold a comma" if len(cells) > width else "write a comma for every empty cell",
            where=f"{name}:{line}",
        )
        for line, cells in numbered
        if len(cells) < width or any(cell.strip() for cell in cells[width:])
    ]
    if bad:
        more = f" (the first {MOST_SHOWN})" if len(bad) > MOST_SHOWN else ""
        count = "a row does" if len(bad) == 1 else f"{len(bad)} rows do"
        raise BadData(f"{name}: {count} not fit the header{more}", bad[:MOST_SHOWN])


MOST_SHOWN = 10
"""Rows that one message names."""
LARGEST_FILE = 64_000_000
"""Bytes of the largest file of runs."""
READ: Mapping[str, frozenset[str]] = {
    MEASURED: frozenset(
        {"id", "source_key", "source_title", "source_ref", "file", "year", "model", "n_params", "n_layers", "hidden", "ffn_hidden",
         "n_heads", "n_kv_heads", "head_dim", "vocab", "n_experts", "top_k", "moe_ffn_hidden", "seq_len", "accelerator",
         "n_accelerators", "accelerators_per_node", "intra_node_link", "inter_node_link", "precision", "parallel_tp", "tp", "pp",
         "parallel_pp", "virtual_pp", "cp", "ep", "dp", "sharding", "sequence_parallel", "recompute", "micro_batch",
         "global_batch", "kernel_notes", "framework", "tokens_per_s_per_gpu", "samples_per_s_per_gpu", "tflops_per_gpu", "mfu",
         "hfu", "step_time_s", "peak_memory_gib", "memory_reading", "task", "arch_ref", "notes", "status", "note"}
    ),
    GEO: frozenset(GEO_COLUMNS),
    WHOLE: frozenset((*WHOLE_COLUMNS, "id", "unverified")),
}  # fmt: skip
"""Columns of a layout that mean something, or belong to its published form."""


def unread(table: Table) -> list[str]:
    """A warning about columns that nothing reads, each with what it may have been meant to be; none for other layouts."""
    known = READ.get(table.layout)
    extra = [column for column in table.columns if known is not None and column and column not in known]
    hints = []
    for column in extra[:MOST_SHOWN]:
        close = difflib.get_close_matches(column, known or (), 1, 0.75)
        hints.append(f"{cut(column)} (did you mean {close[0]}?)" if close else cut(column))
    return [f"columns that are not read: {', '.join(hints)}{' …' if len(extra) > MOST_SHOWN else ''}"] if extra else []


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
