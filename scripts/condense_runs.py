"""Writes the rows of whole training runs that ship with the package: numbers and canonical words, no prose.

    python scripts/condense_runs.py TABLES    from a directory with runs-dev.csv
    python scripts/condense_runs.py           only the digests, from the rows that ship already

Rows without hours, and rows whose hours nobody measured, stay out. Of notes only what the mapping reads is kept; inputs that the
collector had not read in a source (a sequence length, a layout) are named in `unverified`. A condensed row must mean exactly what
its original means: both are judged and compared, and the digest of every source's readings is stored, so that a test can tell when
a rule changes what a shipped row means.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from shardmeter.core.record import changed
from shardmeter.scenario.catalog import catalog_of
from shardmeter.study.validate.layout import read_table
from shardmeter.study.validate.predictions import predict
from shardmeter.study.validate.rows import Row, Unclear
from shardmeter.study.validate.runs.account import PER_TRILLION, Judged, compare
from shardmeter.study.validate.runs.architecture import TOP_K
from shardmeter.study.validate.runs.digest import digests, meaning
from shardmeter.study.validate.runs.layout import CHECKPOINTING
from shardmeter.study.validate.runs.words import check_hours
from shipping import stop_if_moved, write, write_digests

OUT = Path(__file__).parent.parent / "src" / "shardmeter" / "data" / "runs"
LIMIT = 60_000
"""Bytes of the rows."""
COLUMNS = (
    "run_id", "model", "org", "kind", "params_total", "params_active", "arch_notes", "data_seen", "data_unit", "seq_len",
    "global_batch", "global_batch_unit", "steps", "accelerator", "n_accel", "framework", "parallel_layout", "precision",
    "accel_hours", "accel_hours_kind", "tok_s_per_accel", "tflops_per_accel", "date", "source", "tier", "unverified", "notes",
)  # fmt: skip
NUMBERS = (
    "params_total",
    "params_active",
    "data_seen",
    "steps",
    "n_accel",
    "accel_hours",
    "tok_s_per_accel",
    "tflops_per_accel",
)
SHORT = 56
"""Characters of a cell of words that is kept whole; a longer one is cut at its first bracket, comma or semicolon."""
CITED = 60
PRINTED = re.compile(r"arXiv:? ?[0-9]{4}\.[0-9]{4,5}( (Table|Tables|p)[ 0-9-]+)?")


def condensed(row: Row) -> dict[str, str]:
    """One row in short words."""
    cells = {column: row.text(column) for column in COLUMNS if column in row.cells}
    cells |= {column: f"{value:.15g}" for column in NUMBERS if (value := row.number(column)) is not None}
    for column in ("kind", "framework", "parallel_layout", "accel_hours_kind", "seq_len", "global_batch_unit"):
        cells[column] = short(cells.get(column, ""))
    experts = TOP_K.search(row.text("arch_notes").lower())
    kept = (pattern.search(row.text("notes")) for pattern in (PER_TRILLION, CHECKPOINTING))
    return cells | {
        "arch_notes": experts[0] if experts else "",
        "notes": "; ".join(found[0] for found in kept if found),
        "unverified": row.text("memory_fields"),
        "source": citation(row.text("source")),
    }


def short(text: str) -> str:
    """A cell of words without remarks."""
    return text if len(text) <= SHORT else re.split(r"[(,;]", text)[0].strip()


def citation(text: str) -> str:
    """The paper that a source names, else its beginning."""
    found = PRINTED.search(text)
    return found[0].strip() if found else text[:CITED].rpartition(" ")[0] if len(text) > CITED else text


def measured(row: Row) -> bool:
    """Whether somebody measured the hours of a row."""
    try:
        check_hours(row.text("accel_hours_kind"))
    except Unclear:
        return False
    return bool(row.text("accel_hours"))


def condense(tables: Path) -> None:
    """Write the shipped rows from the collected ones, and stop if one of them means something else."""
    rows = [row for row in read_table(tables / "runs-dev.csv").rows if measured(row)]
    write(OUT / "rows.csv", map(condensed, rows), COLUMNS)
    judged = compare(rows, catalog_of(None), predict)
    shipped = compare(read_table(OUT / "rows.csv").rows, catalog_of(None), predict)
    stop_if_moved([(a.id, full(a), full(b)) for a, b in zip(judged, shipped, strict=True)])


def full(one: Judged) -> str:
    """What a row means and what is predicted for it."""
    return f"{meaning(changed(one, assumptions=()))} {one.steps!r}"


def main() -> None:
    """Condense, if a directory of tables is named, and write the digests."""
    if len(sys.argv) > 1:
        condense(Path(sys.argv[1]))
    judged = compare(read_table(OUT / "rows.csv").rows, catalog_of(None), predict)
    write_digests(OUT / "digests.csv", digests(judged))
    size = (OUT / "rows.csv").stat().st_size
    print(f"{size:,} bytes of rows")
    if size > LIMIT:
        sys.exit(f"more than {LIMIT:,} bytes")


if __name__ == "__main__":
    main()
