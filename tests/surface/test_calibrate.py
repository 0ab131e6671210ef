"""`shardmeter calibrate`: a table of runs becomes a profile that predict takes; what is wrong is told at once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shardmeter.cli.main import main

RUN = str(Path(__file__).parents[2] / "examples" / "llama-8b-64xh100.yaml")


def test_a_table_of_runs_becomes_a_profile(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, profile = tmp_path / "runs.csv", tmp_path / "ours"
    table.write_text("run,step_time,tokens_per_s,plan.tp\na,3.4 s,,1\nb,,240000,4\n")
    assert main(["calibrate", RUN, "--rows", str(table), "-o", str(profile), "--format", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [run["run"] for run in answer["runs"]] == ["a", "b"]
    assert answer["runs"][1]["measured_s"] == pytest.approx(128 * 8192 / 240000)
    assert {figure["slug"] for figure in answer["figures"]} == {"runs", "numbers"}
    assert sorted(entry.name for entry in profile.iterdir()) == ["intervals.csv", "stacks.csv"]
    assert main(["predict", RUN, "--catalog", str(profile), "--stack", "ours", "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["intervals"]["basis"] == f"ours, calibrated on 2 rows of {table}"


def test_what_is_wrong_with_a_table_is_told_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "runs.csv"
    table.write_text("step_time,plan.tp\n3.4,1\n,4\n2 s,3\n")
    assert main(["calibrate", RUN, "--rows", str(table)]) == 2
    told = capsys.readouterr().err
    assert all(f"runs.csv:{line}" in told for line in (2, 3))
    assert "tp" in told
    table.write_text("time,tp\n3.4 s,1\n")
    assert main(["calibrate", RUN, "--rows", str(table)]) == 2
    told = capsys.readouterr().err
    assert "did you mean step_time" in told
    assert "plan.tp" in told
    assert main(["calibrate", RUN]) == 2
