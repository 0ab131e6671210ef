"""The commands import and export, and their Python face: exit codes, files, what differs from an original."""

import json
import os
from pathlib import Path

import pytest

import shardmeter
from shardmeter.cli import main
from shardmeter.core.errors import BadScenario

EXAMPLES = Path(__file__).parents[2] / "examples"
EXAMPLE = str(EXAMPLES / "llama-8b-64xh100.yaml")
GPUS = ("--gpus", "64xH100-SXM5-80GB")


@pytest.fixture
def exported(tmp_path):
    """A file of torchtitan 0.2's settings."""
    made = shardmeter.export(EXAMPLE, "torchtitan", version="0.2.2").exported.files[0]
    path = tmp_path / "mine.toml"
    path.write_text(made.text.replace("local_batch_size = 1", "local_batch_size = 2"), encoding="utf-8")
    return path


def asked(capsys, *arguments):
    """(exit code, standard output, standard error)."""
    code = main(list(arguments))
    seen = capsys.readouterr()
    return code, seen.out, seen.err


def test_what_is_exported_is_imported_and_predicted(exported, tmp_path, capsys):
    scenario = tmp_path / "run.yaml"
    code, out, err = asked(capsys, "import", str(exported), *GPUS, "-o", str(scenario))
    assert code == 0
    assert "read as torchtitan 0.2.2" in out
    assert f"saved: {scenario}" in err
    assert main(["predict", str(scenario), "--format", "json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert (
        again["step_time_s"] == shardmeter.predict(EXAMPLE, overrides=["plan.micro_batch=2"]).to_dict()["step_time_s"]
    )


def test_what_is_missing_is_told_and_the_answer_is_no(exported, capsys):
    code, out, _ = asked(capsys, "import", str(exported), "--format", "json")
    answer = json.loads(out)
    assert code == 1
    assert answer["complete"] is False
    assert any("gpus" in one for one in answer["missing"])
    assert answer["scenario"]["plan"]["micro_batch"] == 2
    assert {"understood", "assumed", "ignored", "unknown", "assumptions", "warnings", "version", "data_date"} <= set(
        answer
    )


def test_a_mistyped_setting_is_a_warning(exported, capsys):
    exported.write_text(exported.read_text(encoding="utf-8").replace("seq_len", "seq_length"), encoding="utf-8")
    code, _, err = asked(capsys, "import", str(exported), *GPUS)
    assert code == 0
    assert "training.seq_length: torchtitan 0.2.2 has no such setting; the nearest are training.seq_len" in err


def test_files_are_shown_or_written(tmp_path, capsys):
    code, out, _ = asked(capsys, "export", EXAMPLE, "--to", "torchtitan")
    assert code == 0
    assert "\ndef plan() -> Trainer.Config:\n" in out, "from the first column, to be copied"
    folder = tmp_path / "run"
    code, out, err = asked(capsys, "export", EXAMPLE, "--to", "torchtitan", "-o", str(folder), "--format", "json")
    assert code == 0
    answer = json.loads(out)
    assert [(folder / one["name"]).read_text(encoding="utf-8") for one in answer["files"]] == [
        one["text"] for one in answer["files"]
    ]
    assert "written: " in err
    assert "def plan" not in asked(capsys, "export", EXAMPLE, "--to", "torchtitan", "-o", str(folder))[1]


def test_what_differs_from_an_original_is_listed(exported, capsys):
    code, out, _ = asked(
        capsys,
        "export",
        EXAMPLE,
        "--to",
        "torchtitan",
        "--for",
        "0.2.2",
        "--against",
        str(exported),
        "--format",
        "json",
    )
    assert code == 0
    assert json.loads(out)["departures"] == [
        {"key": "training.local_batch_size", "original": "2", "ours": "1", "counts": True}
    ]
    answer = shardmeter.export(
        EXAMPLE, "torchtitan", version="0.2.2", against=str(exported), overrides=["plan.micro_batch=2"]
    )
    assert answer.departures == ()
    assert "Every setting is the same" in str(answer)


def test_a_plan_that_a_format_cannot_say_is_a_no_with_every_reason(capsys):
    cannot = ("export", EXAMPLE, "--to", "torchtitan", "--set", "plan.sharding=zero1", "--set", "plan.optimizer=sgd")
    code, out, _ = asked(capsys, *cannot, "--format", "json")
    answer = json.loads(out)
    assert code == 1
    assert answer["expressible"] is False
    assert len(answer["reasons"]) == 2
    code, out, _ = asked(capsys, *cannot)
    assert code == 1
    assert "say fsdp, with reshard true or false" in out
    with pytest.raises(BadScenario, match="zero1"):
        shardmeter.export(EXAMPLE, "torchtitan", overrides=["plan.sharding=zero1"])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("export", EXAMPLE, "--to", "torchtitn"), "the nearest are: torchtitan"),
        (("export", EXAMPLE, "--to", "torchtitan", "--for", "9"), "unknown version of torchtitan '9'"),
        (("export", EXAMPLE, "--to", "torchtitan", "--trainer", "torchft"), "is a trainer itself"),
        (("export", EXAMPLE, "--to", "torchtitan", "-o", EXAMPLE), "is a file"),
        (("export", EXAMPLE, "--to", "torchtitan", "-o", "no/such/folder"), "no folder"),
        (("export", EXAMPLE, "--to", "torchtitan", "--against", "none.toml"), "no such file"),
        (("import", "no-such-file.toml"), "no such file"),
        (("import", EXAMPLE), "no format was recognised"),
        (("import", EXAMPLE, "--from", "fortran"), "unknown format 'fortran'"),
        (("import", EXAMPLE, "-o", "x.png"), "-o 'x.png': a scenario is a .yaml or a .json"),
    ],
)
def test_what_is_malformed_is_told_in_words(arguments, says, capsys):
    code, out, err = asked(capsys, *arguments)
    assert (code, out) == (2, "")
    assert says in err
    assert "Traceback" not in err


def test_the_python_face_takes_a_file_a_path_and_a_text(exported):
    one, two, three = (
        shardmeter.import_config(given, gpus=GPUS[1])
        for given in (exported, str(exported), exported.read_text(encoding="utf-8"))
    )
    assert one.scenario is not None
    assert one.scenario == two.scenario == three.scenario
    assert repr(one).startswith("<Import of ")
    assert "Understood" in str(one)


def test_an_executable_file_can_be_run(tmp_path):
    from shardmeter.cli.export import _written
    from shardmeter.interop.configs.record import Written

    _written((Written(name="start.sh", text="#!/bin/sh\n", executable=True),), tmp_path / "new")
    assert os.access(tmp_path / "new" / "start.sh", os.X_OK)


def test_a_launcher_starts_the_trainer_of_the_version_that_is_asked_for(capsys):
    code, out, _ = asked(
        capsys, "export", EXAMPLE, "--to", "slurm", "--trainer", "torchtitan", "--for", "0.2.2", "--format", "json"
    )
    answer = json.loads(out)
    assert code == 0
    assert (answer["format"], answer["format_version"], answer["launcher"]) == ("torchtitan", "0.2.2", "slurm")
    assert [one["name"] for one in answer["files"]] == ["slurm.sh", "torchtitan.toml"]
    assert answer["launch"].startswith("sbatch ")
    assert asked(capsys, "export", EXAMPLE, "--to", "slurm")[0] == 2, "a launcher starts something"


LOG = """
[titan] 2026-01-02 10:00:20,000 - root - INFO - step: 10  loss:  9.1000  memory: 47.20GiB(59.63%)  tps: 5,801  tflops: 340.10  mfu: 34.38%
[titan] 2026-01-02 10:00:34,000 - root - INFO - step: 20  loss:  7.5000  memory: 47.20GiB(59.63%)  tps: 5,820  tflops: 341.10  mfu: 34.49%
[titan] 2026-01-02 10:00:48,000 - root - INFO - step: 30  loss:  6.9000  memory: 47.20GiB(59.63%)  tps: 5,811  tflops: 340.90  mfu: 34.46%
[titan] 2026-01-02 10:01:02,000 - root - INFO - step: 40  loss:  6.5000  memory: 47.20GiB(59.63%)  tps: 5,809  tflops: 340.80  mfu: 34.45%
"""


def test_a_log_tells_how_fast_its_run_was(tmp_path, capsys):
    path = tmp_path / "train.log"
    path.write_text(LOG, encoding="utf-8")
    code, out, _ = asked(capsys, "import", str(path), "--format", "json")
    answer = json.loads(out)
    assert code == 0, "what is missing of a plan is no fault of a log"
    assert answer["log"]["step_time"] == pytest.approx(1.4)
    assert "time of a step" in asked(capsys, "import", str(path))[1]


def test_the_best_plan_is_saved_and_exported(tmp_path, capsys):
    best = str(tmp_path / "best.yaml")
    pins = ("plan.tp=1", "plan.pp=1", "plan.cp=1", "plan.micro_batch=1", "plan.recompute=full", "plan.sharding=fsdp")
    pinned = [word for pin in pins for word in ("--set", pin)]
    assert (
        asked(capsys, "plan", "--model", "llama-3.2-1b", "--gpus", "8xH100-SXM5-80GB", *pinned, "--save", best)[0] == 0
    )
    assert asked(capsys, "export", best, "--to", "torchtitan")[0] == 0
