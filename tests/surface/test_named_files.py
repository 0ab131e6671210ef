"""Files and folders that a scenario names: a sweep is not resumed when one has changed, a plan is found from anywhere."""

from __future__ import annotations

import json

import pytest

from shardmeter.cli import main

CONFIG = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 1024, "num_hidden_layers": 24,
    "num_attention_heads": 16, "num_key_value_heads": 8, "intermediate_size": 4096, "vocab_size": 32000,
}  # fmt: skip
MANY = ["--over", "run.global_batch=64..1024:+16", "--over", "plan.micro_batch=1..48", "-o", "a.csv", "--workers", "1"]


def checkpoint(folder, layers=24):
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**CONFIG, "num_hidden_layers": layers}))


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A checkpoint's folder, a scenario beside it, and one whose model's file names it."""
    monkeypatch.chdir(tmp_path)
    checkpoint(tmp_path / "ck")
    (tmp_path / "model.yaml").write_text("base: ./ck\nwindow: 2048\n")
    (tmp_path / "inline.yaml").write_text("model: {base: ./ck, vocab: 64000}\ngpus: 8xH100-SXM5-80GB\n")
    (tmp_path / "scenario.yaml").write_text("model: ./ck\ngpus: 8xH100-SXM5-80GB\n")
    return tmp_path


@pytest.mark.parametrize(
    "named",
    [
        ["--model", "./ck"],
        ["--model", "ck"],
        ["scenario.yaml"],
        ["--model", "llama-3.1-8b", "--over", "model=./ck,llama-3.1-8b"],
        ["inline.yaml"],
        ["--model", "llama-3.1-8b", "--set", "run.reference=./ck"],
        ["--model", "model.yaml"],
    ],
    ids=" ".join,
)
def test_a_checkpoint_that_has_changed_is_not_resumed(capsys, here, named):
    command = ["sweep", *named, "--gpus", "8xH100-SXM5-80GB", *MANY]
    assert main([*command, "--shard", "1/2"]) == 0
    checkpoint(here / "ck", layers=12)
    capsys.readouterr()
    assert main(command) == 2
    said = capsys.readouterr().err
    assert "a file that it names (" in said
    assert "ck) differs" in said
    checkpoint(here / "ck")
    assert main(command) == 0


def test_a_plan_of_a_checkpoint_beside_its_scenario_is_read_from_elsewhere(capsys, here, monkeypatch):
    asked = ["--set", "plan.pp=1", "--set", "plan.recompute=none", "--set", "plan.tp=1", "--format", "json"]
    assert main(["plan", "scenario.yaml", *asked]) == 0
    best = json.loads(capsys.readouterr().out)["plans"][0]
    assert best["scenario"]["model"] == str(here / "ck")
    (here / "elsewhere").mkdir()
    monkeypatch.chdir(here / "elsewhere")
    (here / "elsewhere" / "plan.json").write_text(json.dumps(best["scenario"]))
    assert main(["predict", "plan.json", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["step_time_s"] == pytest.approx(best["step_time_s"])


def test_a_tilde_of_nobody_is_no_folder(capsys, here):
    assert main(["predict", "--model", "~no-such-user/ck", "--gpus", "8xH100-SXM5-80GB"]) == 2
    assert "no such file or folder" in capsys.readouterr().err
