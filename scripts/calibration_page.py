"""Score calibration on every measured grid and write what came out as data: `python scripts/calibration_page.py`.

Writes src/shardmeter/data/calibration.csv (a line a grid and number of rows given: the error of the others before and after) and
the table in docs/calibration.md between its two marks. Takes some minutes.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Any

import numpy as np

from shardmeter.core.record import field_names
from shardmeter.scenario.catalog import load_catalog
from shardmeter.study.calibrate.score import SEEN, Scored, grids, score

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "src" / "shardmeter" / "data" / "calibration.csv"
PAGE = ROOT / "docs" / "calibration.md"
BEGIN, END = "<!-- grids -->", "<!-- /grids -->"


def main() -> int:
    """Score, write, say; with `--check` only whether the page has the recorded table."""
    if "--check" in sys.argv[1:]:
        fresh = PAGE.read_text(encoding="utf-8") == page(recorded())
        if not fresh:
            sys.stderr.write("docs/calibration.md does not have the recorded table: run scripts/calibration_page.py\n")
        return int(not fresh)
    found: list[Scored] = []
    for name, rows in grids(load_catalog()).items():
        found += score(name, rows)
        sys.stderr.write(
            f"{name}: {', '.join(f'{one.seen} rows {one.after:.1%}' for one in found if one.grid == name)}\n"
        )
    columns = field_names(Scored)
    with FILE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([_cell(getattr(one, name)) for name in columns] for one in found)
    PAGE.write_text(page(recorded()), encoding="utf-8")
    return 0


def recorded() -> list[Scored]:
    """What was written, as it was rounded."""

    def value(name: str, text: str) -> Any:
        return text if name == "grid" else int(text) if name in ("rows", "seen") else float(text)

    with FILE.open(encoding="utf-8", newline="") as file:
        return [Scored(**{name: value(name, text) for name, text in line.items()}) for line in csv.DictReader(file)]


def page(found: list[Scored]) -> str:
    """The page with its table anew."""
    head, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    return f"{head}{BEGIN}\n{table(found)}\n{END}{rest.split(END)[1]}"


def table(found: list[Scored]) -> str:
    """All grids, and what is in their middle."""
    lines = ["| grid | rows | before | " + " | ".join(f"after {seen}" for seen in SEEN) + " | inside 90 % |",
             "|---|--:|--:|" + "--:|" * (len(SEEN) + 1)]  # fmt: skip
    by_grid: dict[str, list[Scored]] = {}
    for one in found:
        by_grid.setdefault(one.grid, []).append(one)
    for name, some in by_grid.items():
        after = {one.seen: _percent(one.after) for one in some}
        cells = " | ".join(after.get(seen, "") for seen in SEEN)
        covered = np.mean([one.covered for one in some])
        lines.append(
            f"| {name.replace(' | ', ', ')} | {some[0].rows} | {_percent(some[0].before)} | {cells} | {_percent(covered, 0)} |"
        )
    return "\n".join([*lines, *middles(found)])


def middles(found: list[Scored]) -> list[str]:
    """Medians over the grids, of all rows and of those with tensor parallelism inside a node."""
    lines = []
    for where, inside in (("all rows", False), ("tp inside a node", True)):
        ends = [_ends([one for one in found if one.seen == seen], inside) for seen in SEEN]
        after = " | ".join(f"{_percent(np.median(new))}" for _, new in ends)
        cut = " | ".join(f"{_percent(np.median(1.0 - new / old), 0)}" for old, new in ends)
        worse = " | ".join(f"{100.0 * np.max(new - old):+.1f}" for old, new in ends)
        lines += [f"| **median, {where}** | | | {after} | |", f"| **median cut, {where}** | | | {cut} | |",
                  f"| **worst change of a grid in points, {where}** | | | {worse} | |"]  # fmt: skip
    return lines


def _ends(some: list[Scored], inside: bool) -> tuple[np.ndarray, np.ndarray]:
    """Errors of every grid before and after."""
    pairs = [(one.before_inside, one.after_inside) if inside else (one.before, one.after) for one in some]
    old, new = np.array(pairs).T
    return old, new


def _percent(share: float | np.floating, digits: int = 1) -> str:
    return f"{100.0 * share:.{digits}f} %"


def _cell(value: object) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    sys.exit(main())
