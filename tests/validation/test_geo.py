"""Rows of runs across islands: each once, predictions blind to the values, the published tables, identities, bad files."""

import csv
import io
import json
import math
import random

import numpy as np
import pytest

from shardmeter import data
from shardmeter.cli import main
from shardmeter.core.errors import BadData
from shardmeter.core.record import changed
from shardmeter.scenario.catalog import catalog_of
from shardmeter.study.validate import shipped, validate
from shardmeter.study.validate.geo import account, bandwidth, cells, losses, score
from shardmeter.study.validate.geo.digest import digests
from shardmeter.study.validate.geo.vocabulary import GBIT, method_of
from shardmeter.study.validate.predictions import predict
from shardmeter.study.validate.rows import NotModelled, Row

BYTES = 1_500_000


@pytest.fixture(scope="module")
def judged():
    return account.compare(shipped.geo().rows, catalog_of(None), predict)


def row(**texts):
    return Row(line=2, cells={"kind": "simulated", "unit": "Gbit/s", **texts})


def table_of(*rows, columns=cells.COLUMNS):
    file = io.StringIO()
    writer = csv.DictWriter(file, columns, restval="")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


@pytest.fixture
def report_of(tmp_path):
    def report(text):
        path = tmp_path / "geo.csv"
        path.write_text(text, encoding="utf-8")
        return validate(path).to_dict()

    return report


TABLE_ROW = {
    "id": "a", "source": "a table", "kind": "simulated", "method": "DiLoCo", "model": "10B decoder", "params_b": "10", "h": "100",
    "quantity": "WAN bandwidth to reach CU=90%", "value": "60", "unit": "Gbit/s",
}  # fmt: skip


def test_every_row_is_judged_once(judged):
    for one in judged:
        assert sum((bool(one.skip), bool(one.exclude), one.due is not None, one.predicted is not None)) == 1, one.id
    counts = score.accounting(judged)
    assert counts["rows"] == counts["scored"] + sum(len(counts[key]) for key in ("skipped", "excluded", "identities"))


def _is_beside(one):
    """Whether a row is a synchronous run that others of its paper are measured against."""
    return one.quantity == "loss" and one.method in losses.SYNCHRONOUS


@pytest.mark.parametrize("beside", [False, True])
def test_no_prediction_reads_the_value(judged, beside):
    """The values of scored rows three times as large, synchronous losses apart: nothing that is predicted of them changes."""
    changed_ones = [one.predicted is not None and _is_beside(one) == beside for one in judged]
    blind = [
        changed(one.row, cells={**one.row.cells, "value": f"{3.0 * one.measured!r}"}) if is_changed else one.row
        for one, is_changed in zip(judged, changed_ones, strict=True)
    ]
    again = account.compare(blind, catalog_of(None), predict, {"loss"} if beside else None)
    kept = [one for one in judged if one.quantity == "loss" or not beside]
    scored = [
        (a, b) for a, b in zip(kept, again, strict=True) if a.predicted is not None and _is_beside(a) == beside
    ]  # fmt: skip
    assert len(scored) == sum(changed_ones) > 10
    for a, b in scored:
        assert (b.predicted, b.left_out) == (a.predicted, a.left_out), a.id


def test_shipped_rows_mean_what_they_meant(judged):
    """A rule that changes the meaning of shipped rows changes a digest: write them anew (`scripts/condense_geo.py`) on purpose."""
    with data.open_text("geo/digests.csv") as file:
        stored = {line["source"]: (int(line["rows"]), line["digest"]) for line in csv.DictReader(file)}
    assert digests(judged) == stored
    with data.open_text("geo/sources.csv") as file:
        assert {line["source"] for line in csv.DictReader(file)} == set(stored)


def test_shipped_residuals_are_those_of_today(judged):
    """A prediction that moves moves the intervals of other rows: write them anew (`scripts/condense_geo.py`) on purpose."""
    today, stored = score.residuals(judged), shipped.geo_residuals()
    assert {quantity: [fold for fold, _ in pairs] for quantity, pairs in today.items()} == {
        quantity: [fold for fold, _ in pairs] for quantity, pairs in stored.items()
    }
    for quantity, pairs in today.items():
        assert [miss for _, miss in pairs] == pytest.approx([miss for _, miss in stored[quantity]], abs=1e-6)


def test_shipped_rows_are_small():
    folders = [data.file(name) for name in ("geo", "measured")]
    assert sum(len(one.read_bytes()) for folder in folders for one in folder.iterdir()) < BYTES


def test_exclusions_are_of_rows_that_ship(judged):
    ids = {one.id for one in judged}
    with data.open_text(account.EXCLUSIONS_FILE) as file:
        for line in csv.DictReader(file):
            assert line["reason"]
            assert line["id"] in ids if line["id"] else any(line["source"] in one.source for one in judged)


def test_identities_hold(judged):
    found = score.accounting(judged)["identities"]
    assert len(found) >= 13
    assert [one for one in found if not one["agrees"]] == []


def test_compute_utilization_of_real_runs_within_a_third_of_a_point(judged):
    found = [one for one in judged if one.quantity in ("compute_utilization", "mfu") and one.due is not None]
    assert len(found) >= 8
    assert max(abs(one.due - one.measured) for one in found) < 0.003


def test_the_inner_phase_of_ten_billion_parameters_on_eight_accelerators(judged):
    (one,) = [one for one in judged if one.quantity == "inner_phase_time" and one.predicted]
    assert one.predicted == pytest.approx(one.measured, rel=0.10)


def on_grid(lead):
    """(rows, exact, within one step) of the published bandwidth table."""
    rows = [one for one in shipped.geo().rows if one.text("quantity").startswith("WAN bandwidth to reach CU=")]
    exact = within = 0
    for one in rows:
        found = bandwidth.needed(bandwidth.simulated(one), bandwidth.target_of(one) or 0.0, lead)
        printed = float(one.text("value")) * GBIT
        exact += math.isclose(found, printed)
        within += abs(bandwidth.grid_step(found) - bandwidth.grid_step(printed)) <= 1
    return len(rows), exact, within


def test_the_bandwidth_table():
    rows, exact, within = on_grid(bandwidth.LEAD)
    assert rows == 75
    assert within >= 74
    assert exact >= 60
    assert on_grid(0.5)[2] == 75


def test_bandwidth_asks_for_less_with_fewer_bits_longer_rounds_and_more_overlap():
    base = {**TABLE_ROW, "method": "Streaming DiLoCo", "bits_per_param": "16", "overlap_tau_steps": "0"}

    def asked(**other):
        return account.PREDICTORS["wan_bandwidth"].predict(row(**{**base, **other}))

    assert asked(bits_per_param="4") < asked()
    assert asked(h="500") < asked()
    assert asked(overlap_tau_steps="2") < asked()
    assert asked(quantity="WAN bandwidth to reach CU=50%") < asked()
    assert asked(method="Data-Parallel", h="") > asked(method="DiLoCo") >= asked()


def test_utilization_rises_with_bandwidth():
    for method in bandwidth.METHODS.values():
        run = bandwidth.Simulated(
            parameters=1e10,
            layers=48.0,
            step_time=0.8,
            islands=2.0,
            bits=16.0,
            method=method,
            steps=100.0,
            fragments=16,
            overlap=1.0,
        )
        found = np.asarray(bandwidth.utilization(run, np.geomspace(1e6, 1e13, 50)))
        assert (np.diff(found) >= 0.0).all()
        assert found[-1] == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"params_b": "", "model": "a decoder"}, "the size of the model is not stated"),
        ({"h": ""}, "the steps of a round"),
        ({"params_b": "33", "model": ""}, "the number of layers is not stated"),
        ({"method": "NoLoCo gossip"}, "no closed form for NoLoCo gossip"),
        ({"quantity": "WAN bandwidth to reach a utilization"}, "the compute utilisation to reach is not stated"),
        ({"kind": "measured"}, "a real run"),
    ],
)
def test_what_a_table_row_lacks(changes, reason):
    with pytest.raises(NotModelled, match=reason):
        account.PREDICTORS["wan_bandwidth"].predict(row(**{**TABLE_ROW, **changes}))


@pytest.mark.parametrize(
    ("changes", "block", "reason"),
    [
        ({"quantity": "warp factor"}, "skipped", "unknown quantity 'warp factor'; the nearest are"),
        ({"quantity": ""}, "excluded", "no quantity is named"),
        ({"value": ""}, "excluded", "no value is stated"),
        ({"value": ">20"}, "skipped", "a bound or a range"),
        ({"value": "many"}, "excluded", "value is not a number"),
        ({"value": "0"}, "excluded", "above zero"),
        ({"unit": "h"}, "excluded", "'h' is no unit of bandwidth"),
        ({"kind": "secondary"}, "excluded", "second-hand"),
        ({"params_b": "ten"}, "excluded", "params_b is not a number"),
        ({"quantity": "final loss", "unit": "nats"}, "skipped", "no synchronous run of the same paper"),
        ({"quantity": "mean accuracy", "unit": "%"}, "skipped", "what a loss is worth on a benchmark"),
        ({"wan_gbps": "0.5-4", "quantity": "outer sync time", "unit": "s", "bits_per_param": "8"}, "skipped", "known as a range only"),
    ],
)  # fmt: skip
def test_rows_that_are_not_scored_say_why(report_of, changes, block, reason):
    report = report_of(table_of(TABLE_ROW, {**TABLE_ROW, "id": "b", **changes}))
    assert (report["rows"], report["scored"]) == (2, 1)
    assert [one["id"] for one in report[block]] == ["b"]
    assert reason in report[block][0]["reason"]


def test_damaged_cells_are_told_whatever_becomes_of_their_row(report_of):
    report = report_of(table_of({**TABLE_ROW, "rtt_ms": "slow", "overlap_tau_steps": "H"}))
    assert report["scored"] == 1
    assert [(one["column"], one["value"]) for one in report["damaged"]] == [("rtt_ms", "slow")]


def test_repeated_rows_count_once_and_shared_ids_are_named(report_of):
    report = report_of(table_of(TABLE_ROW, TABLE_ROW, {**TABLE_ROW, "value": "50"}))
    assert (report["rows"], report["scored"]) == (3, 2)
    assert report["excluded"] == [{"id": "a", "reason": "repeats line 2"}]
    assert any("stand for several rows" in one for one in report["warnings"])


def test_a_file_with_few_or_many_columns(report_of):
    report = report_of("quantity,kind\niteration time,measured\n")
    assert (report["rows"], report["scored"]) == (1, 0)
    assert any("no row could be compared" in one for one in report["warnings"])
    extra = [f"extra_{number}" for number in range(50)]
    report = report_of(table_of({**TABLE_ROW, **dict.fromkeys(extra, "x")}, columns=(*cells.COLUMNS, *extra)))
    assert report["scored"] == 1
    assert any("columns that are not read: extra_0" in one for one in report["warnings"])


@pytest.mark.parametrize("text", ["", "quantity,kind\n", "quantity,kind,kind\na,b,c\n", "quantity,kind\na,b,c\n"])
def test_files_that_cannot_be_read_are_refused(report_of, text):
    with pytest.raises(BadData):
        report_of(text)


JUNK = (
    "", "-1", "0", "nan", "inf", "1e400", "9" * 400, "H", ">=", "4-0.5", '"', "%s", "1,000", "up to", "1e-300", "a" * 5000, "×",
    "2*0/0", "CU=0%", "CU=1e9%", "data/x.csv",
)  # fmt: skip
"""Cells that no column expects."""


@pytest.mark.parametrize("seed", range(3))
def test_whatever_cells_hold_every_row_is_accounted_for(report_of, seed):
    rng = random.Random(seed)
    rows = [dict(rng.choice(shipped.geo().rows).cells) for _ in range(60)]
    for one in rows:
        for column in rng.sample(cells.COLUMNS, 3):
            one[column] = rng.choice(JUNK) if rng.random() < 0.7 else rng.choice(rows)[column]
    report = report_of(table_of(*rows))
    assert (
        report["rows"]
        == 60
        == report["scored"] + sum(len(report[key]) for key in ("skipped", "excluded", "identities"))
    )
    json.dumps(report, allow_nan=False)


def test_a_table_in_its_authors_own_words_says_what_its_shipped_row_says(report_of):
    """Links that a cell leaves to another file, remarks behind the notes, long labels of a system: the same prediction."""
    one = dict(next(row for row in shipped.geo().rows if row.id == "DTFM-409").cells)
    own = {
        **one, "kind": "measured (tc emulation)", "n_layers": "24.0", "wan_gbps": "data/scenarios.csv", "rtt_ms": "data/scenarios.csv",
        "quantity": "iteration time", "notes": f"{one['notes']}; mean of 1 seed(s), min 24.34, max 24.34",
    }  # fmt: skip
    (short,) = report_of(table_of(one))["rows_detail"]
    (long,) = report_of(table_of(own))["rows_detail"]
    assert long == short
    assert long["predicted"] > 0.0


def test_no_shipped_row_lacks_the_words_that_its_system_is_read_from(judged):
    assert [one.id for one in judged if "no model of the system" in one.skip] == []


def test_a_wrong_identity_is_told(report_of):
    run = {"id": "x", "source": "s", "kind": "measured", "method": "DiLoCo", "model": "m"}
    rows = (
        {**run, "id": "i", "quantity": "inner phase", "value": "30", "unit": "min"},
        {**run, "id": "s", "quantity": "outer sync time, median", "value": "120", "unit": "s"},
        {**run, "id": "right", "quantity": "compute utilization", "value": "93.8", "unit": "%"},
        {**run, "id": "wrong", "quantity": "compute utilization", "value": "80", "unit": "%"},
    )
    report = report_of(table_of(*rows))
    assert {one["id"]: one["agrees"] for one in report["identities"]} == {"right": True, "wrong": False}
    assert any("wrong" in one for one in report["warnings"])


def test_the_report_of_the_shipped_rows_has_both_parts(shipped_report):
    report = shipped_report
    for name in ("step_time", "memory", "wan_bandwidth", "wall_time"):
        assert report["metrics"][name]["n"] > 0
    assert report["metrics"]["wan_bandwidth"]["within_step"] > 0.98
    tables = (shipped.measured(), shipped.geo(), shipped.whole())
    assert report["rows"] == sum(len(table.rows) for table in tables)
    assert report["rows"] == report["scored"] + sum(len(report[key]) for key in ("skipped", "excluded", "identities"))


def test_intervals_come_from_other_cases(judged):
    one = next(one for one in judged if one.quantity == "wan_bandwidth" and one.predicted)
    alone = {one.quantity: [(one.fold, 5.0)] * 20}
    assert score.factors(one, alone) is None
    found = score.factors(one, shipped.geo_residuals())
    assert found is not None
    assert found[0] <= 1.0 <= found[1]
    covered = [
        one.low <= one.measured <= one.high
        for one in score.scores(judged, shipped.geo_residuals())
        if one.low is not None and one.high is not None
    ]
    assert np.mean(covered) >= 0.85


def test_systems_of_a_cell_are_ranked(monkeypatch):
    """A predictor that knows all times but one orders every cell right but the one it takes for too slow."""
    rows = [one for one in shipped.geo().rows if account.case_of(one)]
    times = {one.id: float(one.text("value")) for one in rows}
    slow = next(one.id for one in rows if method_of(one.text("method")) == "dtfm")
    wrong = account.Predictor(predict=lambda one: times[one.id] * (100.0 if one.id == slow else 1.0))
    monkeypatch.setitem(account.PREDICTORS, "iteration_time", wrong)
    judged = account.compare(rows, catalog_of(None), predict)
    grids = score.grids(judged)
    assert len(grids) == 36
    (worst,) = [one for one in grids.values() if one["regret"] > 0.0]
    assert sum(one["n"] for one in grids.values()) == len(rows)
    assert score.pairs_right(judged) == (552 - (worst["n"] - 1), 552)
    folds = {one.fold for one in judged}
    assert folds == {"case1", "case2", "case3", "case4"}


def test_the_page_shows_runs_across_islands(tmp_path, capsys):
    path = tmp_path / "geo.csv"
    path.write_text(table_of(TABLE_ROW), encoding="utf-8")
    assert main(["validate", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "Runs across islands" in shown
    assert "wan_bandwidth" in shown
    assert "step_time" not in shown
