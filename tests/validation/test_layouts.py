"""The header alone tells what a file is; rows survive byte-order marks, line ends, float notation and empty cells."""

import os

import pytest

from shardmeter.cli import main
from shardmeter.core.errors import BadData
from shardmeter.study.validate import shipped, validate
from shardmeter.study.validate.damage import damaged
from shardmeter.study.validate.layout import FAILED, GEO, MEASURED, WHOLE, layout_of, parse_table
from shardmeter.study.validate.rows import Row, Unclear


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


def test_a_whole_run_that_says_nothing_but_its_hours_does_not_count(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("run_id,accel_hours\nllama,1000\nmistral,1000\n", encoding="utf-8")
    report = validate(path).to_dict()
    assert (report["rows"], report["scored"]) == (2, 0)
    assert [entry["id"] for entry in report["excluded"]] == ["llama", "mistral"]
    assert report["metrics"]["step_time"]["mape"] is None


HEADER = "id,step_time_s,parallel_tp,seq_len,foo,n_layer"


def report_of(tmp_path, *rows):
    path = tmp_path / "runs.csv"
    path.write_text("\n".join((HEADER, *rows)) + "\n", encoding="utf-8")
    return validate(path).to_dict()


def test_files_that_are_no_files_of_runs(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "dangling.csv").symlink_to("nowhere")
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "large.csv").write_bytes(b"x" * 100)
    for path, says in (
        ("/dev/zero", "is a device"), (tmp_path / "fifo", "is a pipe"), (tmp_path, "is a folder"),
        (tmp_path / "dangling.csv", "is a link to a file that does not exist"), (tmp_path / "binary.csv", "binary"),
        (tmp_path / "large.cvs", "beside it are"),
    ):  # fmt: skip
        with pytest.raises(BadData, match=says):
            validate(path)


def test_a_file_has_a_largest_size(tmp_path, monkeypatch):
    monkeypatch.setattr("shardmeter.study.validate.layout.LARGEST_FILE", 50)
    with pytest.raises(BadData, match="at most 50"):
        report_of(tmp_path, "a,1,1,1,,")


def test_a_header_without_rows_and_short_rows_are_refused(tmp_path):
    with pytest.raises(BadData, match="no rows"):
        report_of(tmp_path)
    with pytest.raises(BadData) as caught:
        report_of(tmp_path, "a,1", "b,1,1,1,,", "c,1,1,1,,,7")
    assert [violation.where for violation in caught.value.violations] == ["runs.csv:2", "runs.csv:4"]


def test_every_fault_of_a_row_stands_in_one_reason(tmp_path):
    report = report_of(tmp_path, "a,2_6,1,1e18,,", "b,\uff11\uff12,1,8,,")
    first, second = (entry["reason"] for entry in report["excluded"])
    for part in ("framework", "accelerator", "seq_len is beyond reason", "size is not stated", "not a number: '2_6'"):
        assert part in first
    assert "step_time_s is not a number" in second


DAMAGED = """id,model,accelerator,framework,year,n_layers,seq_len,n_accelerators,parallel_tp,pp,cp,dp,micro_batch,global_batch,step_time_s,peak_memory_gib
run-1,llama-3.1-8b,H100-SXM5-80GB,torchtitan,2025,32,81x92,64,1,1,1,64,0,12.5,-2.41,inf
run-2,llama-3.1-8b,H100-SXM5-80GB,torchtitan,20l5,320000,8192,64,1,5000,1,64,1,64,2.41,1e30
run-3,llama-3.1-8b,H100-SXM5-80GB,torchtitan,2025,32,8192,64,1,1,1,64,1,64,1.2,44
"""
CELLS = [
    ("run-1", 2, "seq_len", "81x92", "a plain number"),
    ("run-1", 2, "micro_batch", "0", "above zero"),
    ("run-1", 2, "global_batch", "12.5", "a whole number"),
    ("run-1", 2, "step_time_s", "-2.41", "above zero"),
    ("run-1", 2, "peak_memory_gib", "inf", "a finite number"),
    ("run-2", 3, "year", "20l5", "a plain number"),
    ("run-2", 3, "n_layers", "320000", "at most 10000"),
    ("run-2", 3, "pp", "5000", "at most 1024"),
    ("run-2", 3, "peak_memory_gib", "1e30", "from 1e-09 to 1e+18"),
]


def test_every_damaged_cell_of_a_file_is_named(tmp_path, capsys):
    path = tmp_path / "runs.csv"
    path.write_text(DAMAGED, encoding="utf-8")
    report = validate(path).to_dict()
    assert report["scored"] == 1
    found = [(one["id"], one["line"], one["column"], one["value"]) for one in report["damaged"]]
    assert found == [cell[:4] for cell in CELLS]
    for one, (*_, rule) in zip(report["damaged"], CELLS, strict=True):
        assert rule in one["rule"]
    reasons = " ".join(entry["reason"] for entry in report["excluded"])
    assert main(["validate", str(path)]) == 0
    page, err = capsys.readouterr()
    for _, _, column, value, _ in CELLS:
        assert column in reasons
        assert value in page
    assert "9 cells are damaged: run-1 (line 2): seq_len = '81x92'" in err


def test_damaged_cells_of_failed_configurations_have_the_ids_of_the_report(tmp_path):
    path = tmp_path / "failed.csv"
    path.write_text("trial,kernel,tp,pp,micro_batch,global_batch,status\n7,fa2,x,1,1,1e99,oom\n", encoding="utf-8")
    report = validate(path).to_dict()
    assert [(one["id"], one["column"]) for one in report["damaged"]] == [("trial-7", "tp"), ("trial-7", "global_batch")]


def test_the_shipped_rows_have_no_damaged_cell():
    for table in (shipped.measured(), shipped.failed()):
        assert damaged(table, [row.id for row in table.rows]) == []


def test_what_a_file_says_for_nothing_is_a_warning(tmp_path):
    warnings = "\n".join(report_of(tmp_path, "a,1,1,8,,", "a,1,1,8,,", "a,2,1,8,,")["warnings"])
    assert "foo, n_layer (did you mean n_layers?)" in warnings
    assert "ids that stand for several rows, which all count: a" in warnings
    assert "no row could be compared" in warnings


def test_a_row_counts_once(tmp_path):
    report = report_of(tmp_path, "a,1,1,8,,", "a,1,1,8,,", "a,2,1,8,,")
    assert [entry["reason"] == "repeats line 2" for entry in report["excluded"]] == [False, True, False]


@pytest.mark.parametrize("text", ["2_6", "\uff18", "1e", "0x10", "1,5", "--1", "1.5.2", "\u0663", "1 000"])
def test_numbers_are_plain_ones(text):
    row = Row(line=1, cells={"a": text})
    with pytest.raises(Unclear):
        row.number("a")
