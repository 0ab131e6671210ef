"""`placement: {pp: auto}` on the command line: its JSON and page, and what is refused in words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from shardmeter.cli import main

FLEET = """
model: llama-3.2-1b
fleet:
  islands:
    - {name: oregon, accelerator: H100-SXM5-80GB, nodes: 1}
    - {name: iowa, accelerator: A100-SXM4-80GB, nodes: 1}
    - {name: ohio, accelerator: H100-SXM5-80GB, nodes: 1}
  wan: {default: {bandwidth: 3 Gbps, rtt: 30 ms}}
plan: {sharding: fsdp, tp: [1], cp: 1, dp_shard: 8, dp_replicate: 1, micro_batch: 2, recompute: none, reshard: true, placement: {pp: auto}}
run: {seq_len: 2048, global_batch: 192}
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "fleet.yaml"
    path.write_text(FLEET)
    return str(path)


def refused(capsys, *arguments: str) -> str:
    assert main([*arguments]) == 2
    return str(capsys.readouterr().err)


def test_json_lists_cells_and_its_first_entry_is_predicted(capsys, file, tmp_path) -> None:
    assert main(["plan", file, "--format", "json"]) == 0
    got: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert got["space"]["optimal"]
    assert "gap" not in got["space"]
    assert got["space"]["placement"]["bounded"] > 0
    assert any("placement" in one["plan"] for one in got["plans"])
    assert any("placement" not in one["plan"] for one in got["plans"]), "every island a cell is among the choices"
    first = got["plans"][0]
    assert sorted(first["plan"]["placement"]["pp"][0]) == ["iowa", "ohio", "oregon"]
    entry = tmp_path / "first.json"
    entry.write_text(json.dumps(first))
    assert main(["predict", str(entry), "--format", "json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["step_time_s"] == first["step_time_s"]


def test_the_page_says_which_islands_follow_which(capsys, file) -> None:
    assert main(["plan", file]) == 0
    page = capsys.readouterr().out
    assert " → " in page
    assert "optimal in this space" in page


def test_an_override_opens_it_too(capsys, file) -> None:
    assert main(["plan", file, "--set", "plan.placement={pp: auto}", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["space"]["placement"]["predicted"] > 0


def test_predict_says_that_the_planner_must_be_asked(capsys, file) -> None:
    said = refused(capsys, "predict", file)
    assert "plan.placement.pp" in said
    assert "ask shardmeter plan" in said


@pytest.mark.parametrize("command", ["plan", "predict"])
def test_one_island_has_nothing_to_place(capsys, command: str) -> None:
    options = ["--model", "llama-3.2-1b", "--gpus", "8xH100-SXM5-80GB", "--set", "plan.placement={pp: auto}"]
    said = refused(capsys, command, *options)
    assert "there is one island" in said


def test_only_pipelines_are_placed(capsys, file) -> None:
    said = refused(capsys, "plan", file, "--set", "plan.placement={dp_shard: auto}")
    assert "only pp is placed by the planner" in said


def test_what_it_is_not_planned_with_is_said_at_once(capsys, file) -> None:
    said = refused(
        capsys, "plan", file, "--set", "plan.pp=2", "--set", "fleet.use=any", "--set", "plan.sync.method=diloco,every_step",
        "--objective", "time,throughput", "--set", "plan.schedule=zb-h1",
    )  # fmt: skip
    for field in ("plan.pp", "fleet.use", "plan.sync", "run.objective", "plan.schedule"):
        assert field in said


def test_methods_that_wait_for_nobody_are_refused(capsys, file) -> None:
    said = refused(capsys, "plan", file, "--set", "plan.sync.method=async_local_sgd")
    assert "waits for nobody" in said
