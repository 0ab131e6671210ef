"""`sensitivity` and `tradeoffs` on the command line: pages, JSON, CSV, figures, refusals."""

import csv
import io
import json
import math
from pathlib import Path

import pytest

import shardmeter
from shardmeter.cli import main
from shardmeter.render import sensitivity as sensitivity_page
from shardmeter.render import tradeoffs as tradeoffs_page
from shardmeter.render.plot import picture

EXAMPLES = Path(__file__).parents[2] / "examples"
ONE, FLEET = str(EXAMPLES / "llama-8b-64xh100.yaml"), str(EXAMPLES / "target-loss.yaml")


def plain(value):
    """Whether everything is what JSON has, and finite."""
    if isinstance(value, dict):
        return all(isinstance(key, str) and plain(one) for key, one in value.items())
    if isinstance(value, list):
        return all(map(plain, value))
    return value is None or isinstance(value, str | bool | int) or math.isfinite(value)


def test_the_json_of_sensitivity(capsys):
    moves = ["--what-if", "memory_bandwidth=x2", "--with", "run.tokens=+10%"]
    assert main(["sensitivity", ONE, "--of", "run.cost_usd", "--pairs", "2", *moves, "--format", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert plain(answer)
    assert {
        "version",
        "data_date",
        "assumptions",
        "warnings",
        "figures",
        "levers",
        "silent",
        "stuck",
        "says",
    } <= answer.keys()
    assert answer["interval"][0] < answer["value"] < answer["interval"][1]
    assert len(answer["pairs"]) == 2
    assert [one["factor"] for one in answer["what_if"]] == [2.0, pytest.approx(1.1)]
    price = next(one for one in answer["levers"] if one["name"].endswith(".price"))
    assert price["elasticity"] == pytest.approx(1.0)
    assert price["doubled"]["rent_usd_per_hour"] == pytest.approx(64 * 2.10)
    assert price["beyond_interval"]
    assert answer["figures"][0]["slug"] == "tornado"


def test_pages_rows_and_all(capsys):
    assert main(["sensitivity", ONE]) == 0
    page = capsys.readouterr().out
    assert "numbers do nothing" in page
    assert "tokens of the run" not in page  # which moves no step
    assert main(["sensitivity", ONE, "--all"]) == 0
    assert "tokens of the run" in capsys.readouterr().out
    assert main(["sensitivity", ONE, "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert {"name", "elasticity", "doubled_change", "halved_change"} <= rows[0].keys()
    found = shardmeter.sensitivity(ONE)
    assert [row["name"] for row in rows] == [one.lever.name for one in found.ranked]
    assert str(found).startswith("llama-3.1-8b on 64")
    assert repr(found).startswith("<Sensitivity of tokens_per_s")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--of", "speed"], "no figure that is a number"),
        (["--of", "run.loss"], "is null here"),
        (["--what-if", "fleet.wan.x=x2", "--with", "tp=x3"], ("2 problems", "no number 'fleet.wan.x'", "not legal")),
        (["--what-if", "run.tokens=x-2"], "run.tokens=x-2"),
        (["--what-if", "run.tokens"], "moves nothing"),
        (["--what-if", "accelerator.memory_bandwidth=3 TB"], "3 TB"),
        (["--pairs", "99"], "from 2 to 12"),
        (["--plot", "a.gif"], "a picture is"),
    ],
)  # fmt: skip
def test_what_sensitivity_refuses(options, says, capsys):
    assert main(["sensitivity", ONE, *options]) == 2
    seen = capsys.readouterr()
    assert not seen.out
    for text in [says] if isinstance(says, str) else says:
        assert text in seen.err


def test_the_json_and_rows_of_tradeoffs(capsys):
    over = ["--over", "plan.sync.sync_every=50,200", "--over", "plan.micro_batch=4,8,32"]
    assert main(["tradeoffs", FLEET, *over, "--format", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert plain(answer)
    assert [knob["title"] for knob in answer["knobs"]] == ["H", "micro-batch"]
    assert answer["joint"]["points"] == 9
    assert answer["joint"]["fitting"] == 6  # micro-batches of 32 do not
    assert {figure["slug"] for figure in answer["figures"]} >= {
        "plan-sync-sync-every-loss",
        "plan-micro-batch-memory",
        "front",
    }
    assert main(["tradeoffs", FLEET, *over, "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["knob"] for row in rows] == ["plan.sync.sync_every"] * 3 + ["plan.micro_batch"] * 3


@pytest.mark.parametrize(
    ("over", "says"),
    [
        ("plan.sync.sync_every=1..", "plan.sync.sync_every"),
        ("plan.sync.sync_evry=1,2", "sync_every"),
        ("plan.tp", "plan.tp"),
    ],
)
def test_what_tradeoffs_refuses(over, says, capsys):
    assert main(["tradeoffs", FLEET, "--over", over]) == 2
    assert says in capsys.readouterr().err


def test_pictures_are_drawn(tmp_path, capsys):
    """Bars that lie, points with names, and the front; several figures are several files."""
    tornado = sensitivity_page.figures(shardmeter.sensitivity(ONE).to_dict())
    assert picture(tornado[0], "png").startswith(b"\x89PNG")
    found = shardmeter.tradeoffs(FLEET, {"plan.sync.sync_every": [50, 200], "plan.micro_batch": [4, 8]})
    assert str(found).startswith("inline on 2 islands")
    for figure in tradeoffs_page.figures(found.to_dict()):
        assert b"<svg" in picture(figure, "svg")
    assert main(["tradeoffs", ONE, "--over", "plan.recompute=none,full", "--plot", str(tmp_path / "one.html")]) == 0
    assert "drawn" in capsys.readouterr().err
    assert (tmp_path / "one.html").stat().st_size > 1000


def test_numbers_are_in_words_with_their_names_beside():
    answer = shardmeter.sensitivity(ONE).to_dict()
    page = sensitivity_page.document(answer)
    assert page.verdict.startswith("Throughput hangs most on ")
    rows = sensitivity_page.ranked(answer, None).rows
    assert {row["name"]: row["title"] for row in rows}["plan.tp"] == "tensor parallelism (tp)"
    assert [row["title"] for row in rows if row["title"] in ("tp", "pp", "cp", "dp_replicate", row["name"])] == []
    assert "tokens_per_s" not in " ".join(
        (page.verdict, *(figure.title for figure in sensitivity_page.figures(answer)))
    )
