"""What benchmarks said of links, as rows of a user profile: those of the fabric and of the accelerator, with what rows told replaced."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from shardmeter.core.record import changed
from shardmeter.scenario.catalog import Catalog
from shardmeter.specs import Accelerator, Fabric
from shardmeter.study.calibrate.fabric import LEVEL, WIRE, FabricFit
from shardmeter.study.calibrate.profile import cell, cells, put, put_interval


def put_fabric(folder: Path, fit: FabricFit, date: str, catalog: Catalog) -> tuple[Path, ...]:
    """Write the rows of what a fit tells, and their intervals, into a profile; gives the files, none where nothing was told.

    Rows keep the names of the catalog's, so that scenarios that name them need no change. `date` is that of the measurement. Raises
    what `profile.put` raises. Leaves out: numbers that the benchmarks tell nothing of, which stay as they were."""
    made: list[Path] = []
    for kind, row in rows(fit, date, catalog).items():
        basis = f"{sum(len(one.size) for one in fit.curves)} sizes of {len(fit.curves)} tables, {_source(fit)}"
        made += [
            put(folder, kind, row),
            put_interval(folder, kind, row["name"], fit.bounds(kind), level=LEVEL, basis=basis),
        ]
    return tuple(dict.fromkeys(made))


def rows(fit: FabricFit, date: str, catalog: Catalog) -> dict[str, dict[str, str]]:
    """The rows by kind, as text by column."""
    found = {}
    for kind, before in (("accelerators", fit.accelerator), ("fabrics", fit.fabric)):
        numbers = fit.numbers(kind)
        if before is None or not numbers:
            continue
        numbers |= {
            column: min(value, WIRE) for column, value in numbers.items() if column in ("share", "scale_up_share")
        }
        after = cells(kind, changed(before, **numbers))
        found[kind] = {
            **_written(catalog, kind, before), **{column: after[column] for column in numbers}, "name": before.name,
            "source": f"calibrated from {_source(fit)}", "retrieved": date, "notes": _notes(fit, kind),
        }  # fmt: skip
        if kind == "fabrics":
            found[kind] = {**cells(kind, before), **found[kind], "latency_basis": f"fitted to {_source(fit)}"}
    return found


def _written(catalog: Catalog, kind: str, before: Accelerator | Fabric) -> Mapping[str, str]:
    """The row of the catalog that is replaced; of a machine that it has not, what a scenario said of it."""
    held = next((row for row in catalog.rows(kind) if row["name"] == before.name), None)
    if held is not None or isinstance(before, Fabric):
        return held or {}
    peaks = {f"peak_{dtype}": cell(rate, "FlopPerS") for dtype, rate in before.peak.items()}
    shares = {f"matmul_share_{dtype}": cell(share, "Ratio") for dtype, share in before.matmul_share.items()}
    return {**cells(kind, before), **peaks, **shares}


def _source(fit: FabricFit) -> str:
    return fit.source or "benchmarks of collectives"


def _notes(fit: FabricFit, kind: str) -> str:
    """What was told, with its interval, and what was not."""
    told = [f"{column} {low:.3g} to {high:.3g}" for column, (low, high) in fit.bounds(kind).items()]
    kept = [one.number.column for one in fit.learned if not one.told and one.number.kind == kind]
    rest = f"; not told by the benchmarks, as before: {', '.join(kept)}" if kept else ""
    return f"at {100 * LEVEL:.0f} %, SI: {', '.join(told)}{rest}"
