"""Writes the collectives that ship with the package, from a table of rows between islands: numbers and words, no prose.

python scripts/condense_collectives.py TABLE     TABLE has the layout of `validate` for rows between islands
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

from shardmeter.study.validate.geo.collectives import LIBRARY, predict_row
from shardmeter.study.validate.rows import NotModelled

OUT = Path(__file__).parent.parent / "src" / "shardmeter" / "data" / "geo" / "collectives.csv"
COLUMNS = ("id", "method", "quantity", "gpus_per_island", "wan_gbps", "rtt_ms", "value", "unit", "source", "retrieved")
SOURCE, RETRIEVED = "yuan2022", "2026-11-29"


def collectives(table: Path) -> list[dict[str, str]]:
    """The rows of the table that `predict_row` reads, condensed."""
    with table.open(encoding="utf-8", newline="") as lines:
        return [condensed(row) for row in csv.DictReader(lines) if row["method"].startswith(LIBRARY) and modelled(row)]


def modelled(row: dict[str, str]) -> bool:
    """Whether the row is a time of a collective that we price."""
    try:
        predict_row(row)
    except NotModelled:
        return False
    return True


def condensed(row: dict[str, str]) -> dict[str, str]:
    """The row's numbers, and where they come from."""
    return {name: row[name] for name in COLUMNS[:-2]} | {"source": SOURCE, "retrieved": RETRIEVED}


def main(table: Path) -> None:
    """Write the file."""
    rows = collectives(table)
    with OUT.open("w", encoding="utf-8", newline="") as out:
        writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    print(f"{len(rows)} rows in {OUT}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
