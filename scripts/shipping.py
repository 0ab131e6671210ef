"""What the scripts share that condense tables of others into rows that ship."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

LONGEST = 600
"""Characters of a reading that a refusal shows."""
MOST = 8
"""Rows that a refusal shows."""


def write(path: Path, rows: Iterable[Mapping[str, str]], columns: Sequence[str]) -> None:
    """Write one table; cells of other columns stay out, missing ones are empty."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def write_digests(path: Path, digests: Mapping[str, tuple[int, str]]) -> None:
    """Write the number of rows and the digest of every source."""
    rows = [{"source": source, "rows": str(count), "digest": digest} for source, (count, digest) in digests.items()]
    write(path, rows, ("source", "rows", "digest"))


def stop_if_moved(readings: Sequence[tuple[str, str, str]]) -> None:
    """End with the first rows whose meaning is another than before: (id, before, after)."""
    wrong = [one for one in readings if one[1] != one[2]]
    for name, before, after in wrong[:MOST]:
        print(f"{name}:\n  {before[:LONGEST]}\n  {after[:LONGEST]}", file=sys.stderr)
    if wrong:
        sys.exit(f"{len(wrong)} of {len(readings)} rows change their meaning")
