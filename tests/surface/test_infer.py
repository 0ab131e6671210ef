"""`infer`: the keys that scripts rely on, exit codes, and everything that may be asked wrongly."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import math
import re
from typing import Any

import pytest

import shardmeter
from shardmeter.cli import main
from shardmeter.core.errors import BadScenario, UnknownName
from shardmeter.families import writes
from shardmeter.scenario.catalog import load_catalog
from shardmeter.specs.serving import METHODS

KEYS = {
    "version", "data_date", "assumptions", "warnings", "how", "fits", "latency_per_token_s", "first_token_s", "output_s",
    "tokens_per_s", "tokens_per_s_in_flight", "in_flight", "hosts", "ledger", "bottleneck", "crossover", "intervals", "compared",
    "prompt", "output", "batch", "traversals", "figures",
}  # fmt: skip
HOST = {
    "name", "accelerator", "accelerators", "copies", "memory_gib", "limit_gib", "fits", "seconds", "layers", "blocks", "experts",
    "memory_terms",
}  # fmt: skip
EXAMPLE = "examples/three-clouds-70b.yaml"
MODELS = [name for name in load_catalog().names("models") if writes(load_catalog().model(name))]


@pytest.fixture
def run(capsys, monkeypatch, request):
    monkeypatch.chdir(request.config.rootpath)

    def call(*arguments: str) -> tuple[int, str, str]:
        code = main(["infer", *arguments])
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return code, out, err

    return call


def finite(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(finite, value.values()))
    if isinstance(value, list):
        return all(map(finite, value))
    return not isinstance(value, float) or math.isfinite(value)


@pytest.mark.parametrize("how", METHODS)
def test_the_keys(run, how):
    code, out, _ = run(EXAMPLE, "--how", how, "--experts", "6", "--format", "json")
    found = json.loads(out)
    assert code == 0
    assert set(found) == KEYS
    assert finite(found)
    assert all(set(host) == HOST for host in found["hosts"])
    assert sum(term["seconds"] for term in found["ledger"]) == pytest.approx(found["output_s"], rel=1e-12)
    assert sum(term["share"] for term in found["ledger"]) == pytest.approx(1.0)
    assert found["crossover"] is None
    assert found["compared"] is None
    for host in found["hosts"]:
        assert host["memory_gib"] == pytest.approx(sum(term["gib"] for term in host["memory_terms"]))
        assert host["fits"] == (host["memory_gib"] <= host["limit_gib"])
    for name, bounds in found["intervals"].items():
        assert name == "level" or (bounds is found[name] is None) or bounds[0] < found[name] < bounds[1]
    assert (found["latency_per_token_s"] is None) == (how == "block_train")


def test_crossover_and_comparison_in_json(run):
    _, out, _ = run(EXAMPLE, "--compare", "--crossover", "--format", "json")
    found = json.loads(out)
    assert [row["how"] for row in found["compared"]] == list(METHODS)
    for row in found["crossover"]:
        assert {cell["output"] for cell in row["cells"]} >= {16.0, 64.0, 256.0, 1024.0, 4096.0}
        for cell in row["cells"]:
            assert cell["ratio"] == pytest.approx(cell["pipeline_s"] / cell["block_train_s"])
            assert (cell["ratio"] > 1.0) == (cell["output"] > row["output_at"])
            assert (cell["local_s"] > cell["block_train_s"]) == (cell["output"] > row["local_at"])
        assert row["local_faster_beyond"] == "block_train"
    *alike, own = found["crossover"]
    assert (alike[0]["rtt_s"], alike[-1]["rtt_s"]) == (1e-3, 0.3)
    assert [row["fleet"] for row in (*alike, own)] == [False] * len(alike) + [True]
    compared = {row["how"]: row["output_s"] for row in found["compared"]}
    cell = next(cell for cell in own["cells"] if cell["output"] == found["output"])
    for how in ("pipeline", "block_train", "local"):
        assert cell[f"{how}_s"] == pytest.approx(compared[how])
    assert 0.03 < own["rtt_least_s"] < own["rtt_s"] < own["rtt_most_s"] < 0.1


def test_the_page_says_at_which_batch_ways_are_compared_and_what_comes_at_once(run):
    _, out, _ = run(EXAMPLE, "--compare", "--how", "block_train")
    assert "All at --batch 1: one sequence a pass; --batch 64 compares throughput." in out
    assert re.search(r"^  block_train +\d+ ms +– ", out, re.MULTILINE)
    assert re.search(r"^  each further token +– +all tokens come at once", out, re.MULTILINE)
    assert "All at --batch 64." in run(EXAMPLE, "--compare", "--batch", "64")[1]


def test_no_crossover_with_a_whole_model_that_fits_nowhere(run):
    options = ("--model", "llama-3.1-70b", "--gpus", "1xH100-SXM5-80GB", "--crossover")
    (row,) = json.loads(run(*options, "--format", "json")[1])["crossover"]
    assert row["local_at"] is row["local_faster_beyond"] is row["cells"][0]["local_s"] is None
    assert "No island holds the whole model." in run(*options)[1]


@pytest.mark.parametrize("options", [(), ("--compare",), ("--crossover",)])
def test_csv(run, options):
    code, out, _ = run(EXAMPLE, *options, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert code == 0
    assert len(rows) >= 3
    assert all(None not in row and None not in row.values() for row in rows)


def test_it_is_the_same_in_python(run):
    _, out, _ = run(EXAMPLE, "--how", "block_train", "--output", "1000", "--format", "json")
    found = shardmeter.infer(EXAMPLE, how="block_train", output=1000)
    assert json.loads(out)["output_s"] == found.to_dict()["output_s"]
    assert "block_train" in repr(found)
    assert "How soon" in str(found)


def test_what_does_not_fit_is_an_answer(run):
    code, out, _ = run("--model", "llama-3.1-70b", "--gpus", "1xRTX 4090", "--how", "local")
    assert code == 1
    assert "Does not fit" in out
    assert "tokens a second" in out


WRONG = {
    "negative output": (("--output", "-5"), ["output: -5", "whole number from 1"]),
    "nothing given": (("--prompt", "0"), ["prompt: 0"]),
    "more of an ensemble than there are": (("--how", "soma", "--experts", "2", "--top-k", "3"), ["top_k", "2 experts"]),
    "fewer under way than in a batch": (("--batch", "8", "--in-flight", "4"), ["in_flight", "--in-flight 8"]),
    "more blocks than layers": (("--how", "block_train", "--blocks", "81"), ["blocks", "80 layers"]),
    "fewer blocks than islands": (("--how", "block_train", "--blocks", "2"), ["blocks", "3 islands"]),
    "a way that is none": (("--how", "train"), ["'train'"]),
    "no number": (("--batch", "many"), ["'many'"]),
    "a picture of no kind": (("--plot", "x.gif"), [".png"]),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_asked_wrongly(run, name):
    options, said = WRONG[name]
    code, out, err = run(EXAMPLE, *options)
    assert code == 2
    assert not out
    for text in said:
        assert text in err


def test_everything_wrong_at_once(run):
    code, _, err = run(EXAMPLE, "--output", "-1", "--prompt", "0", "--batch", "0", "--top-k", "-3", "--traversals", "0")
    assert code == 2
    assert "5 problems" in err
    code, _, err = run(EXAMPLE, "--how", "block_train", "--blocks", "100", "--batch", "4", "--in-flight", "2")
    assert code == 2
    assert "2 problems" in err


def test_more_islands_than_layers(run):
    code, _, err = run("examples/home-workers.yaml")
    assert code == 2
    assert "30 islands are more than the 24 layers" in err
    assert run("examples/home-workers.yaml", "--how", "local")[0] == 0


def test_the_whole_model_is_served_where_islands_train_one_block_of_it():
    plain, cut = (
        shardmeter.infer(EXAMPLE, overrides=over).to_dict()
        for over in ((), ("plan.sync.method=block_train", "plan.sync.blocks=3"))
    )
    assert sum(host["layers"] for host in cut["hosts"]) == 80
    assert cut["output_s"] == plain["output_s"]


def test_experts_of_soma_are_served():
    found = shardmeter.infer(
        model="soma-lstm-32", gpus="8xRTX 5090", how="soma", experts=256, batch=64, compare=True
    ).to_dict()
    assert [host["accelerators"] for host in found["hosts"]] == [1.0]
    assert all(row["why"] is None for row in found["compared"])


def test_a_recipe_of_training_is_not_served_in_silence():
    plain, narrow = (
        shardmeter.infer(model="llama-3.1-8b", gpus="8xH100-SXM5-80GB", plan=f"fsdp,precision={word}").to_dict()
        for word in ("bf16", "fp8")
    )
    assert narrow["output_s"] == plain["output_s"]
    said = [warning for warning in narrow["warnings"] if warning not in plain["warnings"]]
    assert said == ["fp8 is a recipe of training: served in bf16, weights and products"]


def test_no_model(run):
    assert run("--gpus", "8xH100-SXM5-80GB")[0] == 2
    assert run()[0] == 2


@pytest.mark.parametrize("model", ["vit-base-patch16-224", "bert-base", "dit-xl-2", "t5-base"])
def test_models_that_do_not_write(run, model):
    code, _, err = run("--model", model, "--gpus", "8xH100-SXM5-80GB")
    assert code == 2
    assert "does not write token by token" in err


def test_learned_positions_end(run):
    code, _, err = run("--model", "gpt2", "--gpus", "1xRTX 4090", "--prompt", "1000", "--output", "100")
    assert code == 2
    assert "1100 tokens are more than the 1024 positions" in err


@pytest.mark.parametrize("value", ["many", None, True, math.nan, math.inf, 1.5, [3]])
def test_numbers_that_are_none_in_python(value):
    with pytest.raises(BadScenario, match="output"):
        shardmeter.infer(EXAMPLE, output=value)


def test_ways_that_are_none_in_python():
    with pytest.raises(UnknownName, match="block_train"):
        shardmeter.infer(EXAMPLE, how="blocktrain")


def test_a_way_that_cannot_be_is_told_in_the_comparison():
    rows = {row["how"]: row for row in shardmeter.infer(EXAMPLE, blocks=2, compare=True).to_dict()["compared"]}
    assert "2 blocks are less than the 3 islands" in rows["block_train"]["why"]
    assert rows["block_train"]["output_s"] is None
    assert rows["pipeline"]["why"] is None


@pytest.mark.parametrize("model", MODELS[::4])
def test_every_model_that_writes_is_served(model):
    fleet = {
        "islands": [{"name": name, "accelerator": "H200-SXM-141GB", "nodes": 1} for name in "ab"],
        "wan": {"default": {"bandwidth": "10 Gbps", "rtt": "20 ms"}},
    }
    for row in shardmeter.infer({"model": model, "fleet": fleet}, prompt=64, output=64, compare=True).to_dict()[
        "compared"
    ]:
        assert row["why"] is None
        assert finite(row)
        assert 0.0 < row["first_token_s"] <= row["output_s"]


def test_a_picture_without_matplotlib(run, monkeypatch, tmp_path):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    code, _, err = run(EXAMPLE, "--plot", str(tmp_path / "crossover.png"))
    assert code == 74
    assert "shardmeter[plot]" in err


@pytest.mark.parametrize(("kind", "begins"), [("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_a_picture(run, tmp_path, kind, begins):
    pytest.importorskip("matplotlib")
    file = tmp_path / f"crossover.{kind}"
    assert run(EXAMPLE, "--plot", str(file))[0] == 0
    assert file.read_bytes().startswith(begins)
    assert run(EXAMPLE, "--plot", str(tmp_path / "nowhere" / f"crossover.{kind}"))[0] == 2


def test_equal_homes_stand_in_one_line(run):
    code, out, _ = run("examples/home-workers.yaml", "--how", "local")
    assert code == 0
    assert re.search(r"^  home-1 … home-30 +30 of 1 × RTX 4090 ", out, re.MULTILINE)
    assert "divide the heads): 1 on home-1 … home-30\n" in out
    assert "home-7" not in out
    rows = list(csv.DictReader(io.StringIO(run("examples/home-workers.yaml", "--how", "local", "--format", "csv")[1])))
    assert len(rows) == 30
