"""0 answered, 1 the answer is no, 2 malformed; standard output holds the answer and nothing else."""

import subprocess
import sys
from pathlib import Path

import pytest

from shardmeter.cli import main

EXAMPLES = Path(__file__).parents[2] / "examples"
FITS = ["--model", "llama-3.1-8b", "--gpus", "64xH100-SXM5-80GB", "--plan", "fsdp"]


def test_answered(capsys):
    assert main(["predict", *FITS]) == 0
    assert "Fits" in capsys.readouterr().out


def test_the_answer_is_no(capsys):
    assert main(["predict", str(EXAMPLES / "does-not-fit.yaml")]) == 1
    assert "Does not fit" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        ["predict"],
        ["predict", "no-such-file.yaml"],
        ["predict", "."],
        ["predict", "--model", "lama-3.1-8b", "--gpus", "64xH100-SXM5-80GB"],
        ["predict", "--model", "llama-3.1-8b"],
        ["predict", "--model", "llama-3.1-8b", "--gpus", "64"],
        ["predict", "--model", "llama-3.1-8b", "--gpus", "64xH100"],
        ["predict", *FITS, "--plan", "fsdp,tp=3"],
        ["predict", *FITS, "--set", "plan.tp"],
        ["predict", *FITS, "--set", "plan.colour=red"],
        ["predict", *FITS, "--format", "xml"],
        ["predict", *FITS, "--modle", "x"],
        ["predict", *FITS, "--catalog", "no-such-folder"],
        ["catalog", "planets"],
        ["catalog", "models", "lama"],
        ["explain", *FITS, "--term", "no such formula"],
        ["validate", "no-such-file.csv"],
        ["validate", "--bars", "no-such-file.yaml"],
        ["nonsense"],
    ],
    ids=lambda arguments: " ".join(arguments)[-60:],
)
def test_malformed(capsys, arguments):
    assert main(arguments) == 2
    seen = capsys.readouterr()
    assert seen.out == ""
    assert seen.err.strip()
    assert "Traceback" not in seen.err


def test_an_unknown_name_lists_the_nearest(capsys):
    main(["predict", "--model", "lama-3.1-8b", "--gpus", "64xH100-SXM5-80GB"])
    assert "llama-3.1-8b" in capsys.readouterr().err


def test_a_missed_bar_is_a_no(tmp_path, capsys):
    bars = tmp_path / "bars.yaml"
    bars.write_text("metrics.step_time.mape: {max: 0.000001}\n", encoding="utf-8")
    assert main(["validate", "--bars", str(bars), "--format", "json"]) == 1
    bars.write_text("metrics.step_time.mape: {max: 100}\n", encoding="utf-8")
    assert main(["validate", "--bars", str(bars), "--format", "json"]) == 0
    capsys.readouterr()


def test_a_fault_of_ours_is_one_line(monkeypatch, capsys):
    monkeypatch.setattr("shardmeter.study.predict.predict", lambda scenario: 1 / 0)
    assert main(["predict", *FITS]) == 70
    seen = capsys.readouterr()
    assert "report" in seen.err
    assert "Traceback" not in seen.err
    assert main(["--debug", "predict", *FITS]) == 70
    assert "Traceback" in capsys.readouterr().err


def test_interrupted(monkeypatch, capsys):
    def interrupt(scenario):
        raise KeyboardInterrupt

    monkeypatch.setattr("shardmeter.study.predict.predict", interrupt)
    assert main(["predict", *FITS]) == 130
    assert "Traceback" not in capsys.readouterr().err


def test_a_closed_pipe_is_quiet():
    command = [sys.executable, "-m", "shardmeter", "catalog", "accelerators", "--format", "json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 141


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_every_terminal_can_show_it(encoding):
    command = [sys.executable, "-m", "shardmeter", "predict", *FITS]
    done = subprocess.run(command, capture_output=True, env={"PYTHONIOENCODING": encoding}, check=False)
    assert done.returncode == 0
    assert b"\x1b[" not in done.stdout
