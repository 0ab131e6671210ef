"""`shardmeter returns`: its page, JSON and CSV, its words for what goes wrong, its pictures."""

import csv
import io
import json
from pathlib import Path

import pytest

import shardmeter
from shardmeter.cli import main

EXAMPLES = Path(__file__).parents[2] / "examples"
LLAMA, CLOUDS, HOMES = (
    str(EXAMPLES / f"{name}.yaml") for name in ("llama-8b-64xh100", "three-clouds-70b", "home-workers")
)
SIZES = ("--over", "gpus=32,64,128")


def said(capsys, *words):
    code = main(["returns", *words])
    return code, capsys.readouterr()


def test_the_page(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    code, told = said(capsys, LLAMA, *SIZES)
    assert code == 0
    for text in ("There is no knee from 32 GPUs to 128 GPUs", "strong scaling: the global batch stays at 128", "the scenario", "Regimes of returns",
                 "exponent", "What is next", "7 sizes before it are illegal", "90 % between"):  # fmt: skip
        assert text in told.out


def test_the_json_and_the_figures(capsys):
    code, told = said(capsys, LLAMA, "--over", "fabric=25Gbps,50Gbps,100Gbps,400Gbps", "--format", "json")
    answer = json.loads(told.out)
    assert code == 0
    assert {
        "version",
        "data_date",
        "assumptions",
        "warnings",
        "axis",
        "points",
        "own",
        "regimes",
        "thresholds",
        "knee",
        "next",
        "figures",
    } <= set(answer)
    assert answer["axis"]["unit"] == "B/s"
    assert [point["x"] for point in answer["points"]] == [25e9 / 8, 50e9 / 8, 100e9 / 8, 400e9 / 8]
    rate, cost, mfu = answer["figures"]
    assert [rate["slug"], cost["slug"], mfu["slug"]] == ["rate", "cost", "mfu"]
    assert rate["x"]["unit"] == "bit/s"
    assert rate["title"] == "The knee is at 51.5 Gbit/s"
    assert [mark["says"] for mark in rate["marks"]] == ["the scenario: 400 Gbit/s", "knee: 51.5 Gbit/s"]
    line = rate["lines"][0]
    assert all(low < y < high for low, y, high in zip(line["low"], line["y"], line["high"], strict=True))
    assert len(line["x"]) == 5  # the knee is a point of its own


def test_the_csv_has_a_line_a_point(capsys):
    code, told = said(capsys, LLAMA, "--over", "gpus=24,64", "--format", "csv")
    lines = list(csv.DictReader(io.StringIO(told.out)))
    assert code == 0
    assert [line["x"] for line in lines] == ["24.0", "64.0"]
    assert lines[0]["why"].startswith("run.global_batch")
    assert float(lines[1]["tokens_per_s_low"]) < float(lines[1]["tokens_per_s"]) < float(lines[1]["tokens_per_s_high"])


def test_nothing_fits_is_an_answer(capsys):
    code, told = said(
        capsys, "--model", "llama-3.1-70b", "--gpus", "8xH100-SXM5-80GB", "--plan", "fsdp", "--over", "gpus=8,16"
    )
    assert code == 1
    assert "No point fits" in told.out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((LLAMA, "--axis", "islands"), "say one, as in --set fleet.wan.default="),
        ((LLAMA, "--axis", "wan"), "nothing lies between islands"),
        ((LLAMA, "--axis", "plan.nonsense"), "the nearest are"),
        ((LLAMA, "--axis", "plan.sharding"), "'fsdp' is no number"),
        ((LLAMA, "--axis", "fabric", "--scaling", "weak"), "--scaling goes with gpus and islands"),
        ((LLAMA, "--over", "gpus=8,12"), "the nearest is 16"),
        ((LLAMA, "--over", "fabric=8,16"), "numbers above 0 in its unit"),
        ((LLAMA, "--over", "gpus=8", "--over", "fabric=1Gbps"), "goes along one field"),
        ((LLAMA, "--axis", "fabric", "--over", "gpus=8"), "one of the two"),
        ((LLAMA, "--over", "gpus=24,40"), "no point along gpus is legal"),
        ((CLOUDS, "--axis", "wan", "--set", "plan=auto"), "state the plan"),
        ((LLAMA, "--plot", "curve.txt"), "a picture is a .png"),
    ],
)  # fmt: skip
def test_what_goes_wrong_is_said_with_the_way_out(capsys, words, says):
    code, told = said(capsys, *words)
    assert (code, told.out) == (2, "")
    assert says in told.err


def test_a_picture_for_each_figure(capsys, tmp_path):
    pytest.importorskip("matplotlib")
    code, _ = said(capsys, LLAMA, *SIZES, "--plot", str(tmp_path / "curve.svg"))
    assert code == 0
    assert {path.name for path in tmp_path.iterdir()} == {"curve-rate.svg", "curve-cost.svg", "curve-mfu.svg"}
    assert "the scenario: 64 GPUs" in (tmp_path / "curve-rate.svg").read_text(encoding="utf-8")


def test_the_python_face():
    found = shardmeter.returns(HOMES, "islands", over={"islands": [15, 30, 60]})
    assert repr(found).startswith("<Returns along islands: 3 points, 3 fit")
    assert "The knee" in str(found) or "no knee" in str(found)
    made = shardmeter.returns(LLAMA, "plan.micro_batch").to_dict()
    assert [point["x"] for point in made["points"]] == [1.0, 2.0, 4.0, 8.0, 16.0]
    with pytest.raises(TypeError, match="no fields"):
        shardmeter.returns(shardmeter.load(LLAMA))  # type: ignore[arg-type]
    with pytest.raises(shardmeter.BadScenario, match="strong"):
        shardmeter.returns(LLAMA, scaling="medium")
