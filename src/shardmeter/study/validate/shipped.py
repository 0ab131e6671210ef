"""The rows that ship: measured runs and failed configurations, condensed, and what `make fit` wrote about them."""

from __future__ import annotations

import csv
from functools import cache

from shardmeter import data
from shardmeter.study.validate.layout import Table, parse_table
from shardmeter.study.validate.metrics import STEP_TIME

GEO_FILE, GEO_SOURCES_FILE, RESIDUALS_FILE = "geo/rows.csv", "geo/sources.csv", "geo/residuals.csv"
WHOLE_FILE = "runs/rows.csv"
MEASURED_FILE, FAILED_FILE, SOURCES_FILE = "measured/runs.csv", "measured/failed.csv", "measured/sources.csv"
LOSO_FILE, TRANSFER_FILE = "fit_loso.csv", "fit_transfer.csv"


@cache
def measured() -> Table:
    """The shipped measured runs."""
    return parse_table(data.read_text(MEASURED_FILE), MEASURED_FILE)


@cache
def failed() -> Table:
    """The shipped configurations that did not run."""
    return parse_table(data.read_text(FAILED_FILE), FAILED_FILE)


@cache
def geo() -> Table:
    """The shipped rows of runs across islands."""
    return parse_table(data.read_text(GEO_FILE), GEO_FILE)


@cache
def geo_residuals() -> dict[str, tuple[tuple[str, float], ...]]:
    """What predictions of the shipped rows across islands miss, by quantity: (fold, log of measured over predicted)."""
    found: dict[str, list[tuple[str, float]]] = {}
    with data.open_text(RESIDUALS_FILE) as file:
        for line in csv.DictReader(file):
            found.setdefault(line["quantity"], []).append((line["fold"], float(line["log_ratio"])))
    return {quantity: tuple(pairs) for quantity, pairs in found.items()}


@cache
def whole() -> Table:
    """The shipped whole training runs."""
    return parse_table(data.read_text(WHOLE_FILE), WHOLE_FILE)


@cache
def sources() -> dict[str, str]:
    """Sources of the shipped rows, each with its citation."""
    with data.open_text(SOURCES_FILE) as file:
        return {line["source_key"]: line["citation"] for line in csv.DictReader(file)}


@cache
def left_out() -> dict[tuple[str, str], float]:
    """What was predicted for a row (id, quantity) by a fit that had not seen its source; empty until `make fit` ran."""
    if not data.file(LOSO_FILE).is_file():
        return {}
    with data.open_text(LOSO_FILE) as file:
        return {
            (line["id"], line.get("quantity") or STEP_TIME): float(line["predicted_step_time"])
            for line in csv.DictReader(file)
            if line["predicted_step_time"]
        }


@cache
def five_rows() -> dict[str, float]:
    """Error of a source after five of its rows were seen, by source; empty until `make fit` wrote it."""
    if not data.file(TRANSFER_FILE).is_file():
        return {}
    with data.open_text(TRANSFER_FILE) as file:
        return {
            line["source_key"]: float(line["five_row_mape"]) for line in csv.DictReader(file) if line["five_row_mape"]
        }
