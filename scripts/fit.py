"""Refit the stacks from the shipped measured rows and write what came out as data: `make fit`.

Writes, in src/shardmeter/data: stacks.csv (the fitted numbers with date and provenance), fit_loso.csv (every row as
predicted without its source's family) and fit_transfer.csv (error per source after five of its rows).
"""

from __future__ import annotations

import csv
import datetime as dt
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np

from shardmeter.scenario.catalog import load_catalog
from shardmeter.specs import Scenario
from shardmeter.study.fit.leave_out import (
    FitRow,
    family_of,
    fit_stacks,
    five_row_error,
    leave_one_source_out,
    numbers_without,
)
from shardmeter.study.fit.memory import memory_numbers
from shardmeter.study.fit.ratio import ratio_spread
from shardmeter.study.fit.spread import source_votes, spread, step_time_spreads
from shardmeter.study.fit.stacks import Fit
from shardmeter.study.intervals import OTHER, SPREAD_FILE
from shardmeter.study.validate import shipped
from shardmeter.study.validate.predictions import legal, predict
from shardmeter.study.validate.resolve import MappedRow, map_rows

DATA = Path(__file__).resolve().parents[1] / "src" / "shardmeter" / "data"
LEAST = 5
"""Rows a stack needs to have numbers of its own."""


def main() -> None:
    """Fit, leave out, write."""
    began = time.perf_counter()
    catalog = load_catalog()
    own = set(catalog.names("stacks"))
    mapped = [row for row in map(legal, map_rows(shipped.measured().rows, catalog)) if row.scenario and row.step_time]
    rows = [fit_row(row) for row in mapped]
    chosen = [row for row, origin in zip(rows, mapped, strict=True) if row.stack in own and teaches(origin)]
    say(f"{len(chosen)} of {len(rows)} rows teach {len({row.stack for row in chosen})} stacks")
    fits = fit_stacks(chosen, LEAST)
    for name, found in fits.items():
        say(f"  {name}: {found.rows} rows, {', '.join(f'{k} {v:.3g}' for k, v in found.numbers.items())}")
    write_stacks(fits, chosen, memory_fits(mapped))
    left_out = leave_one_source_out(chosen, rows, fits)
    write_left_out(rows, left_out)
    write_spread(mapped, chosen, rows, left_out)
    usual = {row.id for row in mapped if row.regime == "normal"}
    write_transfer([row for row in chosen if row.id in usual], chosen, fits)
    say(f"done in {time.perf_counter() - began:.0f} s; `make validate` shows the table")


def fit_row(row: MappedRow) -> FitRow:
    """A mapped row as the fit takes it."""
    assert row.scenario is not None  # noqa: S101 - filtered by the caller
    assert row.step_time is not None  # noqa: S101
    return FitRow(
        id=row.id, source=row.source_key, stack=row.stack, scenario=row.scenario, step_time=float(row.step_time)
    )


def teaches(row: MappedRow) -> bool:
    """Rows on a software floor that the stack has no number for teach nothing; nor does tensor parallelism wider than a node,
    where a hidden setting doubles the time."""
    assert row.scenario is not None  # noqa: S101
    island = row.scenario.fleet.islands[0]
    floored = row.regime == "floor" and bool(row.scenario.stack.collective_overhead > 0.0)
    return (row.regime == "normal" or floored) and bool(row.scenario.plan.tp <= island.tiers[0].size)


def memory_fits(mapped: list[MappedRow]) -> dict[str, dict[str, float]]:
    """Memory numbers of every stack with enough rows: tensor parallelism inside a node, whatever the regime of the time."""
    by_stack: dict[str, list[tuple[Scenario, str, float]]] = {}
    for row in mapped:
        if row.memory and row.scenario and bool(row.scenario.plan.tp <= row.scenario.fleet.islands[0].tiers[0].size):
            by_stack.setdefault(row.stack, []).append((row.scenario, row.memory_reading, row.memory))
    found = {stack: memory_numbers(rows) for stack, rows in by_stack.items()}
    for stack, numbers in found.items():
        if numbers:
            say(f"  memory of {stack}: {', '.join(f'{k} {v:.3g}' for k, v in numbers.items())}")
    return found


def write_stacks(fits: dict[str, Fit], rows: list[FitRow], memory: dict[str, dict[str, float]]) -> None:
    """The fitted numbers, rounded to three digits, with what they were fitted on and when."""
    path = DATA / "stacks.csv"
    with path.open(encoding="utf-8") as file:
        reader = csv.DictReader(file)
        columns, lines = list(reader.fieldnames or ()), list(reader)
    today = dt.datetime.now(tz=dt.UTC).date().isoformat()
    for line in lines:
        found = fits.get(line["name"])
        if found is None:
            continue
        for name, value in found.numbers.items():
            line[name] = f"{value * 1e6:.3g} us" if name.endswith(("overhead", "wait")) else f"{value:.3g}"
        for name, value in memory.get(line["name"], {}).items():
            line[name] = f"{value:.3g}" if name.endswith("share") else f"{value:.3g} B"
        sources = Counter(row.source for row in rows if row.stack == line["name"])
        line["fitted_on"] = "; ".join(f"{count} rows of {source}" for source, count in sorted(sources.items()))
        line["fitted_date"] = today
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)


def write_left_out(rows: list[FitRow], predicted: np.ndarray) -> None:
    """Every row as predicted without its source's family."""
    with (DATA / shipped.LOSO_FILE).open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["id", "quantity", "predicted_step_time"])
        writer.writerows([row.id, "step_time", f"{value:.5g}"] for row, value in zip(rows, predicted, strict=True))


def write_transfer(rows: list[FitRow], taught: list[FitRow], fits: dict[str, Fit]) -> None:
    """Error per source after five of its `rows`, from the answer without its family as the prior."""
    with (DATA / shipped.TRANSFER_FILE).open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["source_key", "five_row_mape"])
        for source in sorted({row.source for row in rows}):
            prior = numbers_without(family_of(source), taught, fits)
            error = five_row_error([row for row in rows if row.source == source], prior)
            writer.writerow([source, "" if error is None else f"{error:.4f}"])
            say(f"  five rows of {source}: {'too few rows' if error is None else f'{100 * error:.1f} %'}")


def write_spread(mapped: list[MappedRow], taught: list[FitRow], rows: list[FitRow], left_out: np.ndarray) -> None:
    """How far one future run may lie from its prediction: step time by stack, memory over sources."""
    predicted = {row.id: float(value) for row, value in zip(rows, left_out, strict=True)}
    spreads = step_time_spreads(taught, predicted)
    known = [row for row in mapped if row.memory is not None and row.regime == "normal"]
    answers = predict([row.scenario for row in known if row.scenario is not None])
    residuals = np.array(
        [np.log(r.memory / a.memory(r.memory_reading)) for r, a in zip(known, answers, strict=True) if r.memory]
    )
    votes = source_votes([row.source_key for row in known])
    spreads.append(spread(OTHER, "memory", residuals, votes, "all rows, one vote a source: nothing is fitted"))
    spreads.append(ratio_spread(mapped, predicted))
    with (DATA / SPREAD_FILE).open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["quantity", "stack", "low", "high", "rows", "basis"])
        for one in spreads:
            writer.writerow([one.quantity, one.stack, f"{one.low:.4f}", f"{one.high:.4f}", one.rows, one.basis])
            say(f"  90 % of {one.quantity} {one.stack}: {np.expm1(one.low):+.1%} to {np.expm1(one.high):+.1%}")


def say(text: str) -> None:
    """Progress, on stderr."""
    sys.stderr.write(text + "\n")


if __name__ == "__main__":
    main()
