"""Writes `data/measured/highest.csv`: of every accelerator and precision, on less than a usual node and on
more, the highest MFU among the shipped measured runs.

    python scripts/highest_mfu.py

By mfu's count over the dense bf16 peak, whatever the source printed: model FLOPs of the row's own step over its measured time.
Rows that do not count (excluded, identities, not expressible) are left out.
"""

from __future__ import annotations

import csv
from pathlib import Path

from shardmeter.engine.evaluate import evaluate
from shardmeter.scenario.catalog import load_catalog
from shardmeter.study.validate import shipped
from shardmeter.study.validate.predictions import legal
from shardmeter.study.validate.resolve import MappedRow, map_rows

OUT = Path(__file__).parent.parent / "src" / "shardmeter" / "data" / "measured" / "highest.csv"
NODE = 8.0
"""Accelerators of a usual node."""
COLUMNS = ("accelerator", "precision", "mfu", "model", "gpus", "id", "source")


def mfu_of(row: MappedRow) -> float:
    """Model FLOPs over measured time and dense bf16 peak."""
    s = row.scenario
    if s is None or row.step_time is None:
        return 0.0
    estimate = evaluate(s.model, s.fleet.islands[0], s.plan, s.run, s.stack)
    return float(estimate.model_flops / (row.step_time * estimate.peak_flops))


def main() -> None:
    """Read, compare, write."""
    best: dict[tuple[str, str, bool], tuple[float, tuple[str, ...]]] = {}
    for row in map(legal, map_rows(shipped.measured().rows, load_catalog())):
        s = row.scenario
        if s is None or row.exclude or row.identity:
            continue
        key = (s.fleet.islands[0].accelerator.name, s.plan.precision, bool(s.fleet.gpus >= NODE))
        mfu = mfu_of(row)
        if mfu > best.get(key, (0.0, ()))[0]:
            best[key] = (mfu, (s.model.name, f"{float(s.fleet.gpus):g}", row.id, row.source_key))
    with OUT.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for (accelerator, precision, _), (mfu, said) in sorted(best.items()):
            writer.writerow((accelerator, precision, f"{mfu:.4f}", *said))


if __name__ == "__main__":
    main()
