"""Fits the constants of the decentralised-pipeline runs to their measured iterations, and what leaving one network out costs.

    python scripts/fit_geo.py [ROWS.csv] [--held-out]

ROWS has the layout of geo rows (id, method, model, n_layers, global_batch_tokens, gpus_per_island, wan_gbps, rtt_ms, notes, value).
Prints the fitted numbers for study/validate/geo/constants.py and the errors by network and system. With --held-out each network
is predicted from the others, ZeRO-3 left out (it crosses the network with other traffic).
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from itertools import combinations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from shardmeter.study.validate.geo.constants import BOUNDS, FITTED, Fitted
from shardmeter.study.validate.geo.pipelines import predict_row
from shardmeter.study.validate.rows import NotModelled

ROWS = Path(__file__).parent.parent / "src/shardmeter/data/geo/rows.csv"
NAMES = tuple(field.name for field in fields(Fitted))
START = np.array([getattr(FITTED, name) for name in NAMES])
THROTTLED = 2.0
"""Weight of a throttled row of Megatron: there are six, beside 216 of the cases."""
Row = Mapping[str, str]


def network(row: Row) -> str:
    """The emulated network of a row, or how its links were throttled."""
    return row["notes"].split(":")[0][:5] if row["notes"].startswith("case") else "uniform"


def fitted_on(row: Row) -> bool:
    """Whether the row teaches: the four networks, and Megatron's throttled rows (the unthrottled rate was not measured)."""
    if row["unit"] != "s" or "iteration" not in row["quantity"]:
        return False
    if network(row) in ("case1", "case2", "case3", "case4"):
        return True
    return row["method"].startswith("Megatron P8") and row["rtt_ms"] != "0.1"


def errors(rows: Iterable[Row], fitted: Fitted) -> dict[tuple[str, str], list[float]]:
    """predicted/measured − 1 by network and system, of the rows that are modelled."""
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in rows:
        try:
            seconds = predict_row(row, fitted)
        except NotModelled:
            continue
        found[network(row), row["method"].lower()].append(seconds / float(row["value"]) - 1.0)
    return found


def fit(rows: Sequence[Row], tries: int) -> Fitted:
    """The constants with the least error, large ones counting less than their square."""
    weights = np.array([THROTTLED if network(row) == "uniform" else 1.0 for row in rows])
    low, high = (np.array([BOUNDS[name][side] for name in NAMES]) for side in (0, 1))
    scale = high - low

    def residuals(point: NDArray[np.float64]) -> NDArray[np.float64]:
        fitted = Fitted(**dict(zip(NAMES, (low + point * scale).tolist(), strict=True)))
        logs = [float(np.log(predict_row(row, fitted) / float(row["value"]))) for row in rows]
        return np.asarray(weights * np.array(logs), dtype=np.float64)

    found = least_squares(
        residuals, np.clip((START - low) / scale, 1e-3, 1 - 1e-3), bounds=(0.0, 1.0), loss="soft_l1", f_scale=0.1,
        diff_step=1e-3, max_nfev=tries,
    )  # fmt: skip
    return Fitted(**dict(zip(NAMES, (low + found.x * scale).tolist(), strict=True)))


def table(found: Mapping[tuple[str, str], Sequence[float]]) -> str:
    """Mean absolute error and bias, in percent."""
    lines = [
        f"{case:8s} {system[:60]:60s} {len(own):4d} {100 * np.mean(np.abs(own)):6.1f} {100 * np.mean(own):+6.1f}"
        for (case, system), own in found.items()
    ]
    every = [one for own in found.values() for one in own]
    return "\n".join([*lines, f"{'all':69s} {len(every):4d} {100 * np.mean(np.abs(every)):6.1f}"])


def order(rows: Sequence[Row], fitted: Fitted) -> str:
    """In how many cells (network, layers, batch) the fastest system is predicted, and how many pairs of systems in order."""
    cells: dict[tuple[str, str, str], list[tuple[float, float]]] = defaultdict(list)
    for row in rows:
        if network(row) != "uniform":
            cell = network(row), row["n_layers"], row["global_batch_tokens"]
            cells[cell].append((float(row["value"]), predict_row(row, fitted)))
    fastest = sum(min(own)[1] == min(predicted for _, predicted in own) for own in cells.values())
    pairs = [
        (one[0] - other[0]) * (one[1] - other[1]) > 0.0 for own in cells.values() for one, other in combinations(own, 2)
    ]
    return f"fastest system right in {fastest} of {len(cells)} cells, {sum(pairs)} of {len(pairs)} pairs in order"


def main(arguments: Sequence[str]) -> None:
    """Fit, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="?", type=Path, default=ROWS)
    parser.add_argument("--held-out", action="store_true")
    parser.add_argument("--tries", type=int, default=8, help="evaluations of the fit (eight more each for derivatives)")
    asked = parser.parse_args(arguments)
    with asked.rows.open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if fitted_on(row)]
    fitted = fit(rows, asked.tries)
    print(asdict(fitted), table(errors(rows, fitted)), order(rows, fitted), sep="\n")
    if not asked.held_out:
        return
    plain = [row for row in rows if not row["method"].startswith("ZeRO")]
    for case in ("case1", "case2", "case3", "case4"):
        left = fit([row for row in plain if network(row) != case], asked.tries)
        print(
            case,
            "held out",
            asdict(left),
            table(errors([row for row in plain if network(row) == case], left)),
            sep="\n",
        )


if __name__ == "__main__":
    main(sys.argv[1:])
