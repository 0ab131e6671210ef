"""A name that no file system takes is said in a sentence, wherever a file or a folder is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardmeter.cli import main

EXAMPLES = Path(__file__).parents[2] / "examples"
ONE, LONG = str(EXAMPLES / "llama-8b-64xh100.yaml"), "a" * 300
NAMED = {
    "plan": ["plan", "--model", "gpt2", "--gpus", "8xH100-SXM5-80GB", "--set", "plan.tp=1", "--save", f"{LONG}.yaml"],
    "sweep": ["sweep", ONE, "--over", "plan.micro_batch=1,2", "-o", f"{LONG}.csv"],
    "export": ["export", ONE, "--to", "torchtitan", "-o", LONG],
    "trace": ["trace", ONE, "-o", f"{LONG}.json"],
    "returns": ["returns", ONE, "--plot", f"{LONG}.svg"],
    "report": ["report", ONE, "-o", f"{LONG}.html"],
    "lab": ["lab", "report", LONG],
    "measure": ["measure", "-o", f"{LONG}.csv"],
    "predict": ["predict", LONG],
}


@pytest.mark.parametrize("name", NAMED)
def test_a_name_that_is_too_long_is_one_sentence(capsys, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    code = main(NAMED[name])
    said = capsys.readouterr().err
    assert code in (2, 74), said
    assert "unexpected" not in said
    assert "error: " in said
    assert not list(tmp_path.iterdir())
