"""`shardmeter transitions`: pages, JSON and CSV of one answer, figures, clear errors, exit codes."""

import csv
import io
import json

import pytest

import shardmeter
from shardmeter.cli import main

SCENARIO = ("--model", "llama-3.1-8b", "--gpus", "64xH100-SXM5-80GB", "--plan", "fsdp", "--global-batch", "128")
FABRIC = "fleet.islands.0.fabric.bandwidth=5Gbps..400Gbps:log12"


def printed(capsys, *arguments, code=0):
    """(standard output, standard error)."""
    assert main(["transitions", *SCENARIO, *arguments]) == code
    return capsys.readouterr()


def test_json_is_the_answer_and_its_figures(capsys):
    out, err = printed(capsys, "--x", FABRIC, "--y", "plan.recompute=none,full", "--format", "json")
    answer = json.loads(out)
    assert err == ""
    assert {"version", "data_date", "assumptions", "warnings", "own", "lines", "map", "regimes", "figures"} <= set(
        answer
    )
    line = answer["lines"][0]
    balance = next(one for one in line["crossings"] if one["kind"] == "balance")
    assert balance["below"]["margin"] > 0 > balance["above"]["margin"]
    assert balance["says"] == f"you become communication-bound at {balance['value'] * 8 / 1e9:.3g} Gbit/s"
    assert sum(answer["own"]["shares"].values()) == pytest.approx(1.0, rel=1e-12)
    assert [len(row) for row in answer["map"]["regime"]] == [12, 12]
    assert [figure["slug"] for figure in answer["figures"]] == ["regimes", "along-fabric-bandwidth"]
    labels = answer["figures"][0]["field"]["scale"]["labels"]
    assert (
        labels[int(answer["figures"][0]["field"]["values"][0][0])] == answer["map"]["regime"][0][0] == "exposed gather"
    )
    assert {"yours: 400 Gbit/s"} <= {mark["says"] for mark in answer["figures"][1]["marks"]}


def test_the_own_value_of_a_machines_usual_fabric_is_what_predict_says(capsys):
    """Moving one number of a fabric that was not named keeps its others."""
    answer = shardmeter.transitions(
        None, "fleet.islands.0.fabric.bandwidth=100Gbps,400Gbps", model="llama-3.1-8b", gpus="64xH100-SXM5-80GB"
    )
    alone = shardmeter.predict(model="llama-3.1-8b", gpus="64xH100-SXM5-80GB")
    assert answer.lines[0].reading.step[1] == alone.step_time
    assert answer.lines[0].sought.own == 50e9


def test_csv_and_pages(capsys):
    rows = list(csv.DictReader(io.StringIO(printed(capsys, "--x", FABRIC, "--format", "csv").out)))
    assert {row["kind"] for row in rows} >= {"balance", "tenth"}
    page = printed(capsys).out
    assert page.count("Along ") == 3
    assert "rules the step" in page
    assert "Along micro-batch (yours: 1)" in str(
        shardmeter.transitions(None, "plan.micro_batch=1,2", model="llama-3.1-8b", gpus="64xH100-SXM5-80GB")
    )


def test_pictures(capsys, tmp_path):
    pytest.importorskip("matplotlib")
    page = tmp_path / "a.html"
    printed(capsys, "--x", FABRIC, "--plot", str(page))
    assert "along-fabric-bandwidth" in page.read_text(encoding="utf-8") or "fabric bandwidth" in page.read_text(
        encoding="utf-8"
    )


@pytest.mark.parametrize(("arguments", "says"), [
    (("--y", "plan.tp"), "--y goes with --x"),
    (("--plan", "auto"), "leaves the plan open"),
    (("--x", "plan.nothing"), "no range"),
    (("--x", "plan.nothing=1,2"), "nothing"),
    (("--x", "plan.tp=4..1"), "descends"),
    (("--x", "plan.tp=1,2", "--plot", "a.gif"), "a picture is"),
    (("--x", "plan.tp=1,2", "--y", "plan.tp=1,2"), "two axes"),
])  # fmt: skip
def test_what_is_asked_wrongly(capsys, arguments, says):
    out, err = printed(capsys, *arguments, code=2)
    assert out == ""
    assert says in err


def test_nothing_that_fits_is_a_no(capsys):
    printed(capsys, "--model", "llama-3.1-405b", "--x", "plan.micro_batch=1,2", code=1)
