"""The order of a run and what is left of it, on a stage where nothing really runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from lab_stage import Ended, Simulated

from shardmeter.core.errors import ShardMeterError, Unavailable, UnknownName
from shardmeter.core.record import changed
from shardmeter.lab import running, study
from shardmeter.lab.records import Study

TEXT = """
name: mine
models: {small: {layers: 2, hidden: 64}}
lines: {country: {bandwidth: 100 Mbps, rtt: 20 ms}}
experiments:
  - {name: outer, method: diloco, islands: 3, line: country, model: small, sync: {sync_every: 10}}
  - {name: again, method: local_sgd, islands: 3, line: country, model: small, sync: {sync_every: 10}}
  - {name: every, method: ddp, islands: 2, line: country, model: small}
  - {name: probe, method: all_reduce, islands: 2, line: country, model: small, settings: {sizes: [4 B, 1 MB]}}
"""
BROKEN = TEXT.replace(
    "sync: {sync_every: 10}}", "sync: {sync_every: 10}, fault: {kill: worker, island: b, after_round: 1}}", 1
).replace(
    "method: ddp, islands: 2, line: country, model: small}",
    "method: ddp, islands: 2, line: country, model: small, fault: {kill: line, between: [a, b], after_round: 2}}",
)


def run(folder: Path, stage: Simulated, text: str = TEXT, **more: Any) -> running.Ran:
    asked: Study = study.read(text)
    return running.run(asked, text, folder / "out", stage=stage.stage(), **more)


def outcome(folder: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "out" / name / "outcome.json").read_text(encoding="utf-8"))
    return found


def test_every_prediction_is_stored_before_its_run_and_alike_islands_are_timed_once(tmp_path: Path) -> None:
    stage = Simulated()
    ran = run(tmp_path, stage)
    assert ran.failed == ()
    assert stage.seen == [
        "open outer", "alone outer", "run outer, predicted", "close outer", "open again", "run again, predicted", "close again",
        "open every", "alone every", "run every, predicted", "close every", "open probe", "run probe, predicted", "close probe",
    ]  # fmt: skip
    said = json.loads((tmp_path / "out" / "again" / "prediction.json").read_text(encoding="utf-8"))
    assert said["alone"][0]["timed_in"] == "outer"
    assert said["predicted_at"] < outcome(tmp_path, "again")["started_at"]


def test_what_is_left_of_an_experiment(tmp_path: Path) -> None:
    run(tmp_path, Simulated())
    out = tmp_path / "out"
    assert {path.name for path in out.iterdir()} == {"study.yaml", "machine.json", "outer", "again", "every", "probe"}
    assert {path.name for path in (out / "outer").iterdir()} == {
        "catalog",
        "alone",
        "run",
        "scenario.yaml",
        "prediction.json",
        "outcome.json",
    }
    assert (out / "study.yaml").read_text(encoding="utf-8") == TEXT
    assert json.loads((out / "machine.json").read_text(encoding="utf-8"))["emulation"] == "tun"
    carried = outcome(tmp_path, "outer")["traffic"]
    assert {name: each["sent_bytes"] for name, each in carried.items()} == {"a": 1e7, "b": 1e7, "c": 1e7}
    assert not (out / "probe" / "scenario.yaml").exists()


def test_the_scenario_that_is_left_is_the_one_that_was_predicted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from shardmeter.cli.main import main

    run(tmp_path, Simulated(), only=["outer"])
    place = tmp_path / "out" / "outer"
    assert main(["predict", str(place / "scenario.yaml"), "--catalog", str(place / "catalog"), "--format", "json"]) == 0
    again = json.loads(capsys.readouterr().out)
    said = json.loads((place / "prediction.json").read_text(encoding="utf-8"))
    assert again["sync"]["round_s"] == pytest.approx(said["round_s"], rel=1e-6)


def test_a_killed_worker_is_no_failure_where_the_rest_goes_on(tmp_path: Path) -> None:
    stage = Simulated(
        codes=lambda task, fault: (
            -9 if fault and task.island == 1 and fault.kind == "worker" else 3 if fault and fault.kind == "line" else 0
        )
    )
    ran = run(tmp_path, stage, BROKEN)
    assert ran.failed == ()
    assert outcome(tmp_path, "outer") | {"says": ""} == outcome(tmp_path, "outer") | {
        "status": "done",
        "survivors": ["a", "c"],
        "says": "",
    }
    assert outcome(tmp_path, "every")["status"] == "stopped"
    assert outcome(tmp_path, "every")["survivors"] == []


@pytest.mark.parametrize(
    ("codes", "failed"),
    [
        ({"outer": (3, -9, 3)}, ("outer",)),  # nobody went on
        ({"outer": (0, -9, 1)}, ("outer",)),  # another fault than the one that was asked for
        ({"again": (0, 3, 0)}, ("again",)),  # nobody asked for it
        ({"every": (1, 3)}, ("every",)),
        ({"every": (3, 3)}, ()),
        ({"outer": (0, -9, 0)}, ()),
        ({"outer": (0, 0, 0)}, ()),
    ],
)
def test_what_counts_as_a_failure(codes: Any, failed: Any, tmp_path: Path) -> None:
    def code(task: Any, fault: Any) -> int:
        return int(codes.get(task.experiment.name, (0,) * 9)[task.rank])

    assert run(tmp_path, Simulated(codes=code), BROKEN).failed == failed


def test_one_that_fails_is_written_down_and_the_study_goes_on(tmp_path: Path) -> None:
    heard: list[str] = []
    stage = Simulated(raises=ShardMeterError("the line broke"))
    ran = run(tmp_path, stage, say=heard.append)
    assert ran.failed == ("outer", "again", "every", "probe")
    assert outcome(tmp_path, "every")["status"] == "failed"
    assert outcome(tmp_path, "every")["says"] == "the line broke"
    assert all(network.closed for network in stage.networks)
    assert any("the line broke" in line for line in heard)


def test_an_island_alone_that_fails_is_told(tmp_path: Path) -> None:
    class Lame(Simulated):
        def launch(self, tasks: Any, network: Any, **more: Any) -> tuple[Ended, ...]:
            found = super().launch(tasks, network, **more)
            return tuple(changed_code(each) for each in found) if tasks[0].alone else found

    def changed_code(one: Ended) -> Ended:
        return Ended(one.rank, 1, "no text")

    assert run(tmp_path, Lame(), only=["every"]).failed == ("every",)
    assert outcome(tmp_path, "every")["says"] == "the island a alone: worker 0: no text"


def test_an_interrupt_is_written_down_and_goes_on_up(tmp_path: Path) -> None:
    stage = Simulated(raises=KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, stage)
    assert outcome(tmp_path, "outer")["says"] == "interrupted"
    assert all(network.closed for network in stage.networks)


def test_where_no_network_can_be_opened_nothing_runs(tmp_path: Path) -> None:
    class Nowhere(Simulated):
        def open_network(self, experiment: Any, *, kind: str, congestion: str) -> Any:
            raise Unavailable("no /dev/net/tun")

    with pytest.raises(Unavailable, match="/dev/net/tun"):
        run(tmp_path, Nowhere())
    assert run(tmp_path, Simulated(), again=True).failed == (), "the folder is a lab's, and can be used again"


def test_results_are_replaced_only_where_that_is_asked_and_only_what_a_lab_made(tmp_path: Path) -> None:
    run(tmp_path, Simulated())
    own = tmp_path / "out" / "outer" / "notes.txt"
    own.write_text("mine", encoding="utf-8")
    with pytest.raises(ShardMeterError, match="--again replaces them"):
        run(tmp_path, Simulated())
    before = (tmp_path / "out" / "every" / "outcome.json").read_bytes()
    (tmp_path / "out" / "outer" / "run" / "left-over").write_text("", encoding="utf-8")
    run(tmp_path, Simulated(), again=True, only=["outer"])
    assert own.read_text(encoding="utf-8") == "mine"
    assert not (tmp_path / "out" / "outer" / "run" / "left-over").exists()
    assert (tmp_path / "out" / "every" / "outcome.json").read_bytes() == before


def test_a_folder_of_others_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("", encoding="utf-8")
    with pytest.raises(ShardMeterError, match=r"holds thesis.tex, which no lab made"):
        run(tmp_path, Simulated(), again=True)
    assert (tmp_path / "out" / "thesis.tex").exists()


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("", encoding="utf-8")
    with pytest.raises(ShardMeterError, match="is no folder"):
        run(tmp_path, Simulated())


def test_experiments_are_asked_for_by_name(tmp_path: Path) -> None:
    stage = Simulated()
    run(tmp_path, stage, only=["every"])
    assert stage.seen[0] == "open every"
    with pytest.raises(UnknownName, match="outer"):
        run(tmp_path, Simulated(), only=["outr"])


def test_tasks_are_one_a_worker_rank_by_rank(tmp_path: Path) -> None:
    asked = study.read(
        TEXT.replace(
            "islands: 2, line: country, model: small}\n  - {name: probe",
            "islands: 2, workers: 2, line: country, model: small}\n  - {name: probe",
        )
    )
    seen: list[Any] = []

    class Watching(Simulated):
        def launch(self, tasks: Any, network: Any, **more: Any) -> tuple[Ended, ...]:
            seen.append((tasks, more["deadline_s"]))
            return super().launch(tasks, network, **more)

    running.run(changed(asked, seed=7), "", tmp_path / "out", only=["every"], stage=Watching().stage())
    (alone, _), (tasks, deadline) = seen
    assert [task.rank for task in alone] == [0, 1]
    assert [(task.rank, task.island, task.world, task.address) for task in tasks] == [
        (0, 0, 4, "10.77.0.1"), (1, 0, 4, "10.77.0.1"), (2, 1, 4, "10.77.0.2"), (3, 1, 4, "10.77.0.2"),
    ]  # fmt: skip
    assert {task.seed for task in tasks} == {7}
    assert all(task.alone == asked.alone_seconds for task in alone)
    assert deadline > 60.0
