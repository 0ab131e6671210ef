"""Limits that no plan keeps: every way out that `plan` offers is one, as it is written."""

from __future__ import annotations

import json

import pytest

from shardmeter.cli import main
from shardmeter.core.quantity import quantity
from shardmeter.study.planning import relaxed

LARGE = [
    "--model", "llama-3.1-70b", "--gpus", "256xH100-SXM5-80GB", "--price", "$2.5/gpu/h", "--set", "plan.tp=4", "--set", "plan.pp=1",
    "--set", "plan.cp=1",
]  # fmt: skip
SMALL = [
    "--model", "llama-3.1-8b", "--gpus", "8xH100-SXM5-80GB", "--price", "$2/gpu/h", "--set", "plan.pp=1", "--set", "plan.cp=1",
    "--set", "plan.recompute=none",
]  # fmt: skip
LIMITED = {
    "both": [*LARGE, "--tokens", "2T", "--deadline", "60 d", "--budget", "$1M"],
    "late": [*SMALL, "--tokens", "100B", "--deadline", "3 d"],
    "dear": [*SMALL, "--tokens", "100B", "--budget", "$100"],
    "late, and dear": [*SMALL, "--tokens", "101B", "--deadline", "61 min", "--budget", "$33.33"],
    "steps": [*SMALL, "--set", "run.steps=16107", "--deadline", "7 h", "--budget", "$112"],
    "pinned ranks": [*SMALL, "--set", "plan.tp=2", "--set", "plan.dp_shard=4", "--tokens", "100B", "--deadline", "10 d"],
    "hsdp": [*LARGE[:6], "--set", "plan.sharding=hsdp", "--set", "plan.tp=2", "--set", "plan.pp=2", "--set", "plan.cp=1",
             "--tokens", "2T", "--deadline", "60 d"],
    "nothing fits": ["--model", "llama-3.1-70b", "--gpus", "8xH100-SXM5-80GB", "--global-batch", "16", "--price", "$2/gpu/h",
                     "--tokens", "100B", "--deadline", "10 d", "--budget", "$2000"],
}  # fmt: skip


@pytest.mark.parametrize("name", LIMITED)
def test_every_way_out_is_one_alone(capsys, name):
    """Asked again with what one line says, and nothing else, the answer is yes."""
    assert main(["plan", *LIMITED[name], "--format", "json"]) == 1
    ways = json.loads(capsys.readouterr().out)["way_out"]
    assert ways
    for way in ways:
        again = ["plan", *LIMITED[name], "--top", "1", *(f"--set={text}" for text in way["set"])]
        assert main(again) == 0, way["change"]
        capsys.readouterr()


def test_two_limits_are_mended_by_one_line(capsys):
    assert main(["plan", *LIMITED["both"], "--format", "json"]) == 1
    data = json.loads(capsys.readouterr().out)
    first = data["way_out"][0]
    assert [text.partition("=")[0] for text in first["set"]] == ["run.deadline", "run.budget"]
    assert " and " in first["change"]
    fewer = next(one for one in data["way_out"] if "tokens" in one["change"])
    assert fewer["set"] == ["run.tokens=1.2T"]
    assert fewer["wall_clock_s"] <= data["deadline_s"]
    assert fewer["cost_usd"] <= data["budget_usd"]


@pytest.mark.parametrize("value", [1.0, 59.99999, 1234.5, 86400.0 * 99.3349999, 172800.0, 3.1e9])
def test_a_period_is_rounded_up(value):
    assert value < quantity(relaxed.period(value), "time") < 1.002 * value


@pytest.mark.parametrize("value", [0.012, 33.331, 999.99, 1000.0, 923_133.2, 999_999.5, 1_525_700.1, 9.9999e9])
def test_dollars_are_rounded_up(value):
    assert value <= quantity(relaxed.dollars(value), "money") < 1.002 * value


@pytest.mark.parametrize("value", [1.0, 7.9, 999.9, 1000.0, 16_199.0, 1.2099e12, 5.5555e14])
def test_counts_are_rounded_down(value):
    assert 0.9 * value - 1.0 < quantity(relaxed.count(value), "count") <= value
