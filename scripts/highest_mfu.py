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
    assert s is not None
    assert row.step_time is not None
    estimate = evaluate(s.model, s.fleet.islands[0], s.plan, s.run, s.stack)
    return float(estimate.model_flops / (row.step_time * estimate.peak_flops))


def main() -> None:
    """Read, compare, write."""
    best: dict[tuple[str, str, bool], tuple[float, MappedRow]] = {}
    for row in map(legal, map_rows(shipped.measured().rows, load_catalog())):
        if row.scenario is None or row.step_time is None or row.exclude or row.identity:
            continue
        s = row.scenario
        key = (s.fleet.islands[0].accelerator.name, s.plan.precision, bool(s.fleet.gpus >= NODE))
        mfu = mfu_of(row)
        if mfu > best.get(key, (0.0, row))[0]:
            best[key] = (mfu, row)
    with OUT.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for (accelerator, precision, _), (mfu, row) in sorted(best.items()):
            assert row.scenario is not None
            gpus = f"{float(row.scenario.fleet.gpus):g}"
            writer.writerow((accelerator, precision, f"{mfu:.4f}", row.scenario.model.name, gpus, row.id, row.source_key))


if __name__ == "__main__":
    main()
