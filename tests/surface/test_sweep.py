"""`shardmeter sweep`: rows in every format, nothing dropped, nothing lost; bad input is one clear error."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import shardmeter
from shardmeter.cli import main
from shardmeter.scenario import opened
from shardmeter.scenario.resolve import read_parts
from shardmeter.study.sweep import space
from shardmeter.study.sweep.figures import FIGURES
from shardmeter.study.sweep.kinds import telling
from shardmeter.study.sweep.points import Evaluator

SCENARIO = ["--model", "llama-3.1-8b", "--gpus", "16xH100-SXM5-80GB", "--price", "$2/gpu/h", "--tokens", "1B"]
OVER = ["--over", "plan.tp=1,2,3", "--over", "plan.recompute=none,full", "--over", "plan.micro_batch=1,8"]
MANY = ["--over", "plan.tp=1,2,4", "--over", "run.global_batch=64..1024:+16", "--over", "plan.micro_batch=1..24"]
FLEET = {"islands": [{"accelerator": "H100-SXM5-80GB", "nodes": 2}]}
ROWS = {"csv": 12, "json": 12, "parquet": 12}


def swept(capsys, *arguments, code=0):
    """Standard output of one sweep, which leaves nothing but its progress on standard error."""
    assert main(["sweep", *SCENARIO, *arguments]) == code
    return capsys.readouterr().out


def refused(capsys, *arguments, code=2):
    assert main(["sweep", *SCENARIO, *arguments]) == code
    seen = capsys.readouterr()
    assert seen.out == ""
    assert "Traceback" not in seen.err
    assert "unexpected" not in seen.err
    return seen.err


def test_the_page_shows_every_point_and_why_some_are_illegal(capsys):
    page = swept(capsys, *OVER)
    assert "12 points: plan.tp (3) × plan.recompute (2) × plan.micro_batch (2)" in page
    assert "5 fit, 3 do not fit, 4 are illegal." in page
    assert page.count("  illegal\n") == 4
    assert "4  plan: GPUs/(tp·pp·cp·dp_replicate) = 16/(3·1·1·1) = 5.33333 is no whole number of 1 or more" in page


def test_json_and_csv_have_the_same_rows(capsys):
    answer = json.loads(swept(capsys, *OVER, "--format", "json"))
    table = list(csv.DictReader(io.StringIO(swept(capsys, *OVER, "--format", "csv"))))
    assert {"version", "data_date", "assumptions", "warnings", "axes", "columns", "rows"} <= answer.keys()
    assert len(answer["rows"]) == len(table) == 12
    assert answer["columns"] == list(table[0]) == list(answer["rows"][0])
    for row, line in zip(answer["rows"], table, strict=True):
        assert row["step_time_s"] == (float(line["step_time_s"]) if line["step_time_s"] else None)
        assert str(row["status"]) == line["status"]


def test_rows_are_what_predict_says(capsys):
    rows = json.loads(swept(capsys, *OVER, "--format", "json"))["rows"]
    row = next(row for row in rows if row["status"] == "ok")
    assert (
        main(["predict", *SCENARIO, *(f"--set={name}={row[name]}" for name in list(row)[:3]), "--format", "json"]) == 0
    )
    alone = json.loads(capsys.readouterr().out)
    assert row["step_time_s"] == alone["step_time_s"]
    assert row["memory.peak_gib"] == alone["memory"]["peak_gib"]
    assert row["run.cost_usd"] == alone["run"]["cost_usd"]


@pytest.mark.parametrize("kind", ROWS)
def test_every_file_has_every_row_and_reason(capsys, tmp_path, kind):
    if kind == "parquet":
        pytest.importorskip("pyarrow", reason="Parquet is the extra `parquet`")
    out = tmp_path / f"grid.{kind}"
    said = json.loads(swept(capsys, *OVER, "-o", str(out), "--format", "json"))
    assert (said["complete"], said["fit"], said["do_not_fit"], said["illegal"]) == (True, 5, 3, 4)
    assert list(tmp_path.iterdir()) == [out]
    if kind == "parquet":
        import pyarrow.parquet

        rows = pyarrow.parquet.read_table(out).to_pylist()
    else:
        text = out.read_text()
        rows = json.loads(text)["rows"] if kind == "json" else list(csv.DictReader(io.StringIO(text)))
    printed = json.loads(swept(capsys, *OVER, "--format", "json"))["rows"]
    assert [row["status"] for row in rows] == [row["status"] for row in printed]
    assert [float(row["step_time_s"] or 0) for row in rows] == [row["step_time_s"] or 0.0 for row in printed]
    assert all(row["status"].partition(": ")[2] for row in rows if row["status"].startswith("illegal"))


def test_the_columns_that_are_asked_for(capsys):
    line, *_ = swept(capsys, *OVER, "--columns", "mfu,run.gpu_hours", "--format", "csv").splitlines()
    assert line == "plan.tp,plan.recompute,plan.micro_batch,status,mfu,run.gpu_hours"


def test_every_column_is_on_the_page_of_sweeps():
    page = (Path(__file__).parents[2] / "docs" / "sweep.md").read_text(encoding="utf-8")
    assert [name for name, figure in FIGURES.items() if f"| `{name}` | {figure.says} |\n" not in page] == []


def test_exit_code_1_when_nothing_fits(capsys, tmp_path):
    huge = ["--over", "plan.micro_batch=512,1024"]
    assert "0 fit" in swept(capsys, *huge, code=1)
    assert "0 fit" in swept(capsys, *huge, "-o", str(tmp_path / "a.csv"), code=1)


def test_in_python():
    answer = shardmeter.sweep(model="llama-3.1-8b", gpus="8xH100-SXM5-80GB", over={"plan.tp": [1, 2, 4, 8]})
    assert len(answer) == 4
    assert answer.columns["step_time_s"].shape == (4,)
    assert [row["plan.tp"] for row in answer.rows()] == [1, 2, 4, 8]
    assert "4 points" in repr(answer)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--over", "plan.tp=0..4:log3"], "a log range has no 0"),
        (["--over", "plan.tp="], "has no values"),
        (["--over", "name=\udcff,b", "-o", "a.csv"], r"'\udcff' is no text of Unicode characters"),
        (["--over", "plan.tp=8..1"], "a range ascends"),
        (["--over", "plan.tq=1,2"], "did you mean 'tp'?"),
        (["--over", "plan.tp=1,2", "--over", "plan.tp=4,8"], "is on two axes"),
        (["--over", "model=lama-3.1-8b,llama-3.1-8b"], "the nearest are: llama-3.1-8b"),
        (["--over", "fleet.islands.3.nodes=1,2"], "no item '3'"),
        (["--over", "plan.micro_batch=-30..1"], "11 more"),
        (["--over", "run.seq_len=1..1000", "--over", "plan.micro_batch=1..1000", "--over", "plan.tp=1..999"], "at most 100,000,000"),
        (["--over", "plan.tp=1,2", "--over", "plan=fsdp,zero1"], "comes after it; plan first"),
        (["--over", "plan.tp=1,2", "--columns", "mfv"], "the nearest are mfu"),
        (["--over", "plan.tp=1,2", "--engine", "spark"], "local, dask"),
        (["--over", "plan.tp=1,2", "--engine", "dask://127.0.0.1"], "is no dask://HOST:PORT"),
        (["--over", "plan.tp=1,2", "--engine", "dask://[::1"], "is no dask://HOST:PORT"),
        (["--over", "plan.tp=1,2", "--engine", "dask://a:99999"], "is no dask://HOST:PORT"),
        (["--over", "plan.tp=1,2", "--columns", ","], "names no figure"),
        (["--over", "plan=auto,fsdp"], "shardmeter plan finds one"),
        (["--over", "plan.sharding=fsdp,auto"], "shardmeter plan finds one"),
        (["--over", "plan.tp=1,2", "--shard", "3/2", "-o", "a.csv"], "as in 3/8"),
        (["--over", "plan.tp=1,2", "--shard", "1/2"], "go with -o FILE"),
        (["--over", "plan.tp=1,2", "--shard", "1/2", "--overwrite", "-o", "a.csv"], "one of --shard, --join"),
        (["--over", "plan.tp=1,2", "--join", "-o", "a.csv"], "no chunk is done yet"),
        (["--over", "plan.tp=1,2", "-o", "a\0b.csv"], "no file can have this name"),
        (["--over", "plan.tp=1,2", "-o", "a.txt"], "the formats are .csv, .json, .parquet"),
        (["--over", "plan.tp=1,2", "-o", "folder.csv"], "is a folder; name a file"),
        (["--over", "run.seq_len=1..1000", "--over", "plan.micro_batch=1..2000"], "too many to print"),
    ],
    ids=lambda part: " ".join(part)[-50:] if isinstance(part, list) else None,
)  # fmt: skip
def test_malformed(capsys, tmp_path, monkeypatch, arguments, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.csv").mkdir()
    assert says in refused(capsys, *arguments)
    assert [path.name for path in tmp_path.iterdir()] == ["folder.csv"]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"over": None}, "nothing is no list of axes"),
        ({"over": 5}, "5 is no list of axes"),
        ({"over": "plan.tp=1,2"}, "'plan.tp=1,2' is no list of axes"),
        ({"columns": 5}, "columns: 5 is no list of figures"),
        ({"columns": [5]}, "columns: 5 is no name of a figure"),
        ({"columns": "mfu"}, "columns: 'mfu' is no list of figures"),
        ({"engine": 5}, "unknown engine 5"),
        *(({"workers": workers}, "is no whole number from 1 to 1024") for workers in ("2", 0, -3, 1.5, True, None)),
    ],
    ids=str,
)
def test_malformed_in_python(given, says):
    with pytest.raises(shardmeter.BadScenario) as raised:
        shardmeter.sweep(model="llama-3.1-8b", gpus="8xH100-SXM5-80GB", **{"over": {"plan.tp": [1]}, **given})
    assert says in str(raised.value)


@pytest.mark.parametrize("out", ["no-such-folder/a.csv", "a-file/a.csv", f"{'a' * 300}.csv"])
def test_what_cannot_be_written(capsys, tmp_path, monkeypatch, out):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a-file").write_text("x")
    assert "cannot be written" in refused(capsys, *OVER, "-o", out, code=74)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write into a read-only folder")
def test_a_read_only_folder(capsys, tmp_path):
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    assert "Permission denied" in refused(capsys, *OVER, "-o", str(tmp_path / "a.csv"), code=74)


def test_a_full_disk_keeps_what_is_done(capsys, tmp_path, monkeypatch):
    out, calls, fsync = tmp_path / "a.csv", [], os.fsync

    def full(descriptor):
        calls.append(descriptor)
        if len(calls) > 3:  # the manifest and two chunks
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    said = refused(capsys, *MANY, "-o", str(out), "--workers", "1", code=74)
    assert "No space left on device" in said
    assert "2 of 5 chunks are kept: the same command goes on from there" in said
    monkeypatch.setattr(os, "fsync", fsync)
    assert json.loads(swept(capsys, *MANY, "-o", str(out), "--workers", "1", "--format", "json"))["chunks_resumed"] == 2
    assert list(tmp_path.iterdir()) == [out]


def test_memory_that_is_not_there_is_said(capsys, tmp_path, monkeypatch):
    def short(*_):
        raise MemoryError

    monkeypatch.setattr(Evaluator, "chunk", short)
    assert "memory" in refused(capsys, *MANY, "-o", str(tmp_path / "a.csv"), "--workers", "1", code=74)


def test_a_file_that_is_there_stays(capsys, tmp_path):
    out = tmp_path / "a.csv"
    out.write_text("mine")
    assert "--overwrite replaces it" in refused(capsys, *OVER, "-o", str(out))
    assert out.read_text() == "mine"
    swept(capsys, *OVER, "-o", str(out), "--overwrite")
    assert len(out.read_text().splitlines()) == 13


def test_a_file_that_is_replaced_is_there_until_the_new_one_is(capsys, tmp_path, monkeypatch):
    out = tmp_path / "a.csv"
    out.write_text("mine")
    with monkeypatch.context() as patch:
        patch.setattr(Evaluator, "chunk", lambda *_: 1 / 0)
        assert main(["sweep", *SCENARIO, *OVER, "-o", str(out), "--overwrite"]) == 70
    capsys.readouterr()
    assert out.read_text() == "mine"
    swept(capsys, *OVER, "-o", str(out))
    assert len(out.read_text().splitlines()) == 13


def test_shards_that_begin_at_once(tmp_path):
    out = tmp_path / "a.csv"
    line = [sys.executable, "-m", "shardmeter", "sweep", *SCENARIO, *MANY, "-o", str(out), "--workers", "1"]
    shards = [subprocess.Popen([*line, "--shard", f"{i}/7"], stdout=subprocess.DEVNULL) for i in range(1, 8)]
    assert [shard.wait() for shard in shards] == [0] * 7, "five chunks: two shards have none"
    assert list(tmp_path.iterdir()) == [out]


def test_a_folder_that_is_no_sweep_stays(capsys, tmp_path):
    folder = tmp_path / "a.csv.parts"
    folder.mkdir()
    (folder / "thesis.tex").write_text("mine")
    for more in ([], ["--overwrite"]):
        assert "left as it is" in refused(capsys, *OVER, "-o", str(tmp_path / "a.csv"), *more)
    assert (folder / "thesis.tex").read_text() == "mine"


def test_shards_in_any_order_make_the_same_file(capsys, tmp_path):
    whole, out = tmp_path / "whole.csv", tmp_path / "a.csv"
    swept(capsys, *MANY, "-o", str(whole), "--workers", "1")
    for shard in ("3/3", "1/3"):
        said = json.loads(swept(capsys, *MANY, "-o", str(out), "--shard", shard, "--workers", "1", "--format", "json"))
        assert not said["complete"]
        assert not out.exists()
    assert main(["sweep", *SCENARIO, *MANY, "-o", str(out), "--join", "--format", "json"]) == 1
    assert json.loads(capsys.readouterr().out)["chunks_done"] == 3
    swept(capsys, *MANY, "-o", str(out), "--shard", "2/3", "--workers", "1")
    assert out.read_bytes() == whole.read_bytes()
    assert sorted(tmp_path.iterdir()) == [out, whole]


def test_a_shard_without_chunks_says_whether_the_file_is_joined(capsys, tmp_path):
    out = tmp_path / "small.csv"
    assert "has 1 chunk" in swept(capsys, *OVER, "-o", str(out), "--shard", "2/2")
    swept(capsys, *OVER, "-o", str(out), "--shard", "1/2", "--workers", "1")
    page = swept(capsys, *OVER, "-o", str(out), "--shard", "2/2")
    assert "is already joined." in page
    assert " fit" not in page
    assert "when all shards" not in page


def test_a_join_that_is_too_early_says_which_shards_are_missing(capsys, tmp_path):
    out = tmp_path / "a.csv"
    swept(capsys, *MANY, "-o", str(out), "--shard", "2/3", "--workers", "1")
    assert "missing: shard 1/3, 3/3" in swept(capsys, *MANY, "-o", str(out), "--join", code=1)


def test_the_page_of_a_file_has_the_reasons_of_every_chunk(capsys, tmp_path):
    over = ["--over", "run.global_batch=64..1024:+16", "--over", "plan.micro_batch=1..24", "--over", "plan.tp=1,3"]
    out = tmp_path / "a.csv"
    swept(capsys, *over, "-o", str(out), "--shard", "1/2", "--workers", "1")
    page = swept(capsys, *over, "-o", str(out), "--workers", "1")
    reason = "16/(3·1·1·1) = 5.33333 is no whole number of 1 or more"
    assert f"{61 * 24:,}  plan: GPUs/(tp·pp·cp·dp_replicate) = {reason}" in page
    assert (
        page.partition("Illegal points")[2]
        == swept(capsys, *over).partition("Illegal points")[2].partition("\n\n")[0] + "\n"
    )


@pytest.mark.parametrize(("chunks", "says"), [(0, "no chunk was finished yet"), (1, "1 finished chunk is kept")])
def test_an_interruption_says_what_is_kept(capsys, tmp_path, monkeypatch, chunks, says):
    one_chunk = Evaluator.chunk

    def interrupted(self, number):
        if number >= chunks:
            raise KeyboardInterrupt
        return one_chunk(self, number)

    monkeypatch.setattr(Evaluator, "chunk", interrupted)
    assert main(["sweep", *SCENARIO, *MANY, "-o", str(tmp_path / "a.csv"), "--workers", "1"]) == 130
    assert says in capsys.readouterr().err


def test_many_numbers_are_looked_at_by_their_ends(monkeypatch):
    looked = []

    def counted(found, rows):
        looked.append(found)
        return read_parts(found, rows)

    monkeypatch.setattr(space, "read_parts", counted)
    over = {"model.layers": "1..2000", "fleet.islands.0.fabric.bandwidth": "50Gbps..800Gbps:lin40000"}
    space.space_of(*opened({"model": "llama-3.1-8b", "fleet": FLEET}), over)
    assert len(looked) < 12


@pytest.mark.parametrize(
    ("points", "places"),
    [
        ([(n,) for n in range(64)], list(range(64))),
        ([(n,) for n in range(100)], [0, 99]),
        ([(f"{n}Gbps",) for n in (*range(50, 100), *range(50), *range(100, 120))], [50, 119]),
        ([(n / 2,) for n in range(100)], [0, 1, 98, 99]),
        ([*((n,) for n in range(98)), ("auto",), (None,)], [0, 97, 98, 99]),
        ([(n, "a" if n else "b") for n in range(100)], [0, 1, 99]),
    ],
)
def test_values_that_tell_what_is_wrong(points, places):
    assert telling(points) == places


def test_a_file_that_is_there_is_refused_before_a_value_is_read(capsys, tmp_path, monkeypatch):
    out = tmp_path / "a.csv"
    out.write_text("mine\n")
    monkeypatch.setattr(space, "read_parts", pytest.fail)
    assert "a.csv exists" in refused(capsys, *OVER, "-o", str(out))


@pytest.fixture
def half_done(capsys, tmp_path):
    """A sweep whose second shard is missing, beside the model file that it names."""
    model = tmp_path / "model.yaml"
    model.write_text("{base: llama-3.1-8b, layers: 16}\n")
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text("model: model.yaml\ngpus: 16xH100-SXM5-80GB\n")
    command = ["sweep", str(scenario), *MANY, "-o", str(tmp_path / "a.csv"), "--workers", "1"]
    assert main([*command, "--shard", "1/2"]) == 0
    capsys.readouterr()
    return command, tmp_path


CHANGES = {
    "the scenario differs": lambda command, folder: [*command, "--set", "run.seq_len=4096"],
    "what it goes over (plan.tp) differs": lambda command, folder: [
        "plan.tp=1,2,8" if word == "plan.tp=1,2,4" else word for word in command
    ],
    "the columns": lambda command, folder: [*command, "--columns", "mfu"],
    "the order of the axes (plan.tp,": lambda command, folder: [*command[:2], *command[6:8], *command[2:6], *command[8:]],
    "a file that it names (model.yaml) differs": lambda command, folder: (
        (folder / "model.yaml").write_text("{base: llama-3.1-8b, layers: 8}\n") and command
    ),
}  # fmt: skip


@pytest.mark.parametrize("says", CHANGES)
def test_what_has_changed_is_not_resumed(capsys, half_done, says):
    command, folder = half_done
    kept = sorted((folder / "a.csv.parts").glob("[0-9]*"))
    assert kept
    assert main(CHANGES[says](command, folder)) == 2
    seen = capsys.readouterr().err
    assert "holds chunks of another sweep: nothing is resumed" in seen
    assert says.partition(" (plan.tp,")[0] in seen
    assert kept == sorted((folder / "a.csv.parts").glob("[0-9]*"))


def test_another_version_is_not_resumed(capsys, half_done, monkeypatch):
    command, _ = half_done
    monkeypatch.setattr("shardmeter.study.sweep.space.__version__", "99.0")
    assert main(command) == 2
    assert "the version of shardmeter (0." in capsys.readouterr().err


def test_two_sweeps_on_one_folder(capsys, half_done):
    fcntl = pytest.importorskip("fcntl")
    command, folder = half_done
    with (folder / "a.csv.parts" / ".1-of-1.lock").open("wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        for more in ([], ["--overwrite"]):
            assert main([*command, *more]) == 2
            assert "another process is at this sweep already" in capsys.readouterr().err
        assert main([*command, "--shard", "1/2"]) == 0, "a shard of it is another matter"
    assert main(command) == 0
    assert (folder / "a.csv").exists()


def test_a_plan_that_is_left_open_is_refused_with_the_way_out(capsys):
    assert "shardmeter plan finds one" in refused(capsys, "--plan", "auto", "--over", "run.seq_len=1k,2k")
