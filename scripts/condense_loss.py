"""Write data/geo/diloco.csv: what replicas that meet every H steps lost against synchronous training, from the rows that ship.

Each row of a DiLoCo method in data/geo/rows.csv with a synchronous run of the same paper, parameters and tokens beside it becomes a
ratio of two losses. Rows that delay what they apply by a round, and those of M = 1 (their optimizer differs, nothing is synchronised),
are left out.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from shardmeter import data
from shardmeter.study.validate.geo.vocabulary import method_of

OUT = Path(__file__).parents[1] / "src/shardmeter/data/geo/diloco.csv"
COLUMNS = ("parameters", "tokens", "cells", "period", "ratio", "source", "retrieved")
RETRIEVED = "2026-11-30"
METHODS = ("diloco", "streaming_diloco")


def main(arguments: Sequence[str]) -> int:
    """Write the file, or with --check say whether it is as it would be written."""
    text = written(rows())
    if "--check" in arguments:
        return 0 if OUT.read_text(encoding="utf-8") == text else 1
    OUT.write_text(text, encoding="utf-8")
    return 0


def rows() -> list[tuple[str, ...]]:
    """One row a run, each setting once."""
    with data.open_text("geo/rows.csv") as file:
        known = [row for row in csv.DictReader(file) if row["unit"] == "nats/token" and row["kind"] == "trained"]
    bases = {_key(row): float(row["value"]) for row in known if method_of(row["method"]) == "data_parallel"}
    found: dict[tuple[str, ...], tuple[str, ...]] = {}
    for row in known:
        base = bases.get(_key(row))
        if base is None or method_of(row["method"]) not in METHODS or float(row["islands_m"]) == 1.0:
            continue
        ratio = f"{float(row['value']) / base:.4f}"
        setting = (row["params_b"], row["tokens_b"], row["islands_m"], row["h"], ratio, paper(row))
        size, tokens = (f"{1e3 * float(row[name]):g}M" for name in ("params_b", "tokens_b"))
        found[setting] = (size, tokens, row["islands_m"], row["h"], ratio, row["source"], RETRIEVED)
    return sorted(found.values(), key=lambda one: (float(one[2]), float(one[3]), float(one[0][:-1]), one[5], one[4]))


def paper(row: Mapping[str, str]) -> str:
    """The paper of a row, without its table."""
    return row["source"].partition(" ")[0]


def _key(row: Mapping[str, str]) -> tuple[str, str, str]:
    return paper(row), row["params_b"], row["tokens_b"]


def written(lines: Sequence[Sequence[str]]) -> str:
    """The file as text."""
    return "\n".join((",".join(COLUMNS), *(",".join(line) for line in lines), ""))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
