"""Fits what classes of whole runs take beyond their steps, and writes data/runs/practice.csv and residuals.csv.

    python scripts/fit_practice.py [TABLE.csv]    the rows that ship, or a file of the same layout

One factor a class, from rows of tier A; once more without each source. Residuals are those of the factor that has not seen the
row's source.
"""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from shardmeter.scenario.catalog import catalog_of
from shardmeter.study import practice
from shardmeter.study.validate import shipped
from shardmeter.study.validate.layout import read_table
from shardmeter.study.validate.predictions import predict
from shardmeter.study.validate.runs import account

OUT = Path(__file__).parent.parent / "src" / "shardmeter" / "data" / "runs"
FITTED_ON = "A"
"""The tier that decides."""


def write(name: str, rows: Iterable[Mapping[str, str]], columns: Sequence[str]) -> None:
    """Write one table below `data/runs`."""
    with (OUT / name).open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def factors(seen: Sequence[practice.Residual], today: str) -> list[dict[str, str]]:
    """Every class, whole and without each of its sources."""
    lines = []
    for name in practice.CLASSES:
        own = [one for one in seen if one.kind == name]
        for without in ("", *sorted({one.source for one in own})):
            value, sources = practice.fitted(seen, name, without)
            rows = sum(one.source != without for one in own)
            lines.append(
                {"class": name, "without": without, "factor": f"{value:.4f}", "sources": str(sources), "rows": str(rows), "date": today}
            )  # fmt: skip
    return lines


def main() -> None:
    """Fit and write."""
    rows = read_table(Path(sys.argv[1])).rows if len(sys.argv) > 1 else shipped.whole().rows
    judged = [one for one in account.compare(rows, catalog_of(None), predict) if one.steps is not None]
    seen = [
        practice.Residual(source=one.source, kind=one.practice, log=math.log(one.measured / one.steps))
        for one in judged
        if one.tier == FITTED_ON and one.steps
    ]
    today = datetime.now(UTC).date().isoformat()
    write("practice.csv", factors(seen, today), ("class", "without", "factor", "sources", "rows", "date"))
    misses = (
        (
            one,
            math.log(one.measured / (one.steps or 1.0)) - math.log(practice.fitted(seen, one.practice, one.source)[0]),
        )
        for one in judged
    )
    write(
        "residuals.csv",
        ({"tier": one.tier, "source": one.source, "log": f"{log:.4f}"} for one, log in misses),
        ("tier", "source", "log"),
    )
    for name in practice.CLASSES:
        value, sources = practice.fitted(seen, name)
        print(f"{name:8} {value:.3f}  {sources} sources")


if __name__ == "__main__":
    main()
