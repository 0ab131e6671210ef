"""The header alone tells what a file is; rows survive byte-order marks, line ends, float notation and empty cells."""

import pytest

from shardmeter.core.errors import BadData
from shardmeter.study.validate import validate
from shardmeter.study.validate.layout import FAILED, GEO, MEASURED, WHOLE, layout_of, parse_table
from shardmeter.study.validate.rows import Unclear


@pytest.mark.parametrize(
    ("columns", "layout"),
    [
        (("id", "step_time_s", "parallel_tp", "notes"), MEASURED),
        (("id", "quantity", "kind", "value"), GEO),
        (("run_id", "accel_hours", "notes"), WHOLE),
        (("trial", "tp", "status"), FAILED),
        (("mbs", "tp", "note"), FAILED),
    ],
)
def test_a_header_tells_the_layout(columns, layout):
    assert layout_of(columns) == layout


def test_an_unknown_header_names_the_nearest_layout_and_what_is_missing():
    with pytest.raises(BadData) as error:
        layout_of(("id", "model", "n_layers", "hidden", "accelerator", "step_time_s"), "runs.csv")
    assert "measured runs" in str(error.value)
    assert "parallel_tp" in str(error.value)


@pytest.mark.parametrize("header", ["step_time_s,parallel_tp,step_time_s", ""])
def test_a_broken_header_is_refused(header):
    with pytest.raises(BadData):
        parse_table(header, "x.csv")


def test_a_row_longer_than_the_header_is_refused_with_its_line():
    with pytest.raises(BadData, match=r"x\.csv:2"):
        parse_table("step_time_s,parallel_tp\n1,2,3\n", "x.csv")


def test_marks_line_ends_and_notation(tmp_path):
    plain = "id,step_time_s,parallel_tp\nrow-1,8.0,2\n\nrow-2,,\n"
    for name, raw in {"bom": "\ufeff" + plain, "crlf": plain.replace("\n", "\r\n"), "plain": plain}.items():
        path = tmp_path / f"{name}.csv"
        path.write_bytes(raw.encode())
        report = validate(path).to_dict()
        assert report["rows"] == 2
        assert [entry["id"] for entry in report["excluded"]] == ["row-1", "row-2"]


def test_numbers_are_stated_empty_or_unclear():
    row = parse_table("step_time_s,parallel_tp,a,b,c,d,e\n1,8.0,,nan,many,-1,2.5\n", "x.csv").rows[0]
    assert row.count("parallel_tp") == 8.0
    assert row.number("a") is None
    assert row.number("b") is None
    assert row.number("no such column") is None
    for column, read in (("c", row.number), ("d", row.positive), ("e", row.count)):
        with pytest.raises(Unclear):
            read(column)


@pytest.mark.parametrize(
    ("header", "row", "reason"),
    [
        ("id,quantity,kind,value", "a,wall,measured,1", "runs across islands are not modelled yet"),
        ("run_id,accel_hours", "llama,1000", "whole training runs are not modelled yet"),
    ],
)
def test_layouts_that_are_not_modelled_skip_every_row(tmp_path, header, row, reason):
    path = tmp_path / "x.csv"
    path.write_text(f"{header}\n{row}\n{row}\n", encoding="utf-8")
    report = validate(path).to_dict()
    assert (report["rows"], report["scored"]) == (2, 0)
    assert [entry["reason"] for entry in report["skipped"]] == [reason, reason]
    assert report["skipped"][0]["id"] in ("a", "llama")
    assert report["metrics"]["step_time"]["mape"] is None
