"""0 answered, 1 the answer is no, 2 malformed; standard output holds the answer and nothing else."""

import copy
import functools
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from shardmeter.cli import main
from shardmeter.core.errors import BadScenario, Unavailable, UnknownName, Violation

EXAMPLES = Path(__file__).parents[2] / "examples"
TEMPLATE = str(EXAMPLES / "measured-template.csv")
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
        ["trace", *FITS, "-o", "no-such-folder/trace.json"],
        ["trace", *FITS, "--svg", "."],
        ["trace", *FITS, "-o", "a\0b"],
        ["trace", *FITS, "--ranks", "1"],
        ["trace", *FITS, "--ranks", "first"],
        ["trace", *FITS, "--steps", "0"],
        ["trace", *FITS, "--straggle", "-1"],
        ["trace", *FITS, "--steps", "1000", "--global-batch", "65536"],
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


@pytest.mark.parametrize(
    "error",
    [
        UnknownName("model", "lama", ("llama", "gpt2"), "because"),
        BadScenario("a\nb", [Violation(field="plan.tp", says="no")]),
        Unavailable("full"),
    ],
)
def test_every_error_can_be_copied_and_sent(error):
    for other in (copy.deepcopy(error), pickle.loads(pickle.dumps(error))):
        assert (type(other), str(other), other.args, other.__dict__) == (
            type(error),
            str(error),
            error.args,
            error.__dict__,
        )


def test_unknown_names_beside_what_is_open(capsys):
    assert main(["transitions", "--model", "lama", "--gpus", "8xH100-SXM5-80GB", "--instance", "<<: {}"]) == 2
    assert "lama" in capsys.readouterr().err


def test_an_unknown_name_lists_the_nearest(capsys):
    main(["predict", "--model", "lama-3.1-8b", "--gpus", "64xH100-SXM5-80GB"])
    assert "llama-3.1-8b" in capsys.readouterr().err


def test_a_missed_bar_is_a_no(tmp_path, capsys):
    bars = tmp_path / "bars.yaml"
    bars.write_text("metrics.step_time.mape: {max: 0.000001}\n", encoding="utf-8")
    assert main(["validate", TEMPLATE, "--bars", str(bars), "--format", "json"]) == 1
    bars.write_text("metrics.step_time.mape: {max: 100}\n", encoding="utf-8")
    assert main(["validate", TEMPLATE, "--bars", str(bars), "--format", "json"]) == 0
    capsys.readouterr()


def test_a_fault_of_ours_is_one_line(monkeypatch, capsys):
    monkeypatch.setattr("shardmeter.study.predict.predict", lambda scenario: 1 / 0)
    assert main(["predict", *FITS]) == 70
    seen = capsys.readouterr()
    assert "report" in seen.err
    assert "Traceback" not in seen.err
    assert main(["--debug", "predict", *FITS]) == 70
    assert "Traceback" in capsys.readouterr().err


WHILE_IMPORTING = """
import signal, sys
from shardmeter.__main__ import main
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "shardmeter.cli":
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Finder())
sys.exit(main())
"""


def test_interrupted_while_it_starts():
    done = subprocess.run([sys.executable, "-c", WHILE_IMPORTING], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


def test_what_runs_before_an_interrupt_is_heeded_is_little():
    source = str(Path(main.__code__.co_filename).parents[2])
    code = f"import sys; sys.path.insert(0, {source!r}); import shardmeter.__main__; print('typing' in sys.modules)"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


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


@pytest.mark.parametrize("form", ["json", "csv"])
def test_what_programs_read_is_utf_8_in_every_locale(form):
    said = []
    for encoding in ("utf-8", "ascii"):
        command = [sys.executable, "-m", "shardmeter", "predict", *FITS, "--format", form]
        done = subprocess.run(command, capture_output=True, env=os.environ | {"PYTHONIOENCODING": encoding, "PYTHONUTF8": "1"}, check=False)  # fmt: skip
        assert done.returncode == 0
        said.append(done.stdout)
    assert said[0] == said[1]
    assert not (form == "json" and said[1].isascii())
    assert said[1].decode()


def run_in_shell(line: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A command line of a shell, where `shardmeter` is this package."""
    line = line.replace("shardmeter", f"{sys.executable} -m shardmeter")
    return subprocess.run(
        ["bash", "-c", line], capture_output=True, text=True, env=os.environ | environment, check=False
    )


@functools.cache
def usual(line: str) -> str:
    """What a command line says where nothing stands in its way."""
    return run_in_shell(line).stdout


ANSWER = "shardmeter predict --model llama-3.1-8b --gpus 8xH100-SXM5-80GB"


@pytest.mark.parametrize("command", [ANSWER, "shardmeter --help", "shardmeter --version", "shardmeter catalog stacks"])
@pytest.mark.parametrize(
    ("streams", "codes"),
    [(">&-", (0, 1, 141)), (">/dev/full", (74,)), ("1</dev/null", (74,)), ("2>/dev/full", (0, 1)), ("2>&-", (0, 1))],
)
def test_streams_that_take_nothing(command: str, streams: str, codes: tuple[int, ...]) -> None:
    done = run_in_shell(f"{command} {streams}")
    assert done.returncode in codes, done.stderr
    assert "Traceback" not in done.stderr
    assert "unexpected" not in done.stderr
    if 74 in codes:
        assert "the output cannot be written" in done.stderr
    if streams.startswith("2"):
        assert done.stdout == usual(command), "the answer does not depend on standard error"


def test_a_refusal_keeps_its_code_without_standard_error():
    assert run_in_shell("shardmeter predict nofile.yaml 2>/dev/full").returncode == 2


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["predict", "--help"], ["explain", *FITS]])
def test_every_closed_pipe_is_the_same(arguments):
    process = subprocess.Popen([sys.executable, "-m", "shardmeter", *arguments], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait() == 141


@pytest.mark.parametrize("columns", ["0", "1", "-3", "wide", "999999999999"])
def test_a_width_that_is_none_is_not_taken(columns):
    assert run_in_shell(ANSWER, COLUMNS=columns).stdout == usual(f"env -u COLUMNS {ANSWER}")


def test_no_colour_means_no_escape_at_all(monkeypatch, capsys):
    monkeypatch.setattr("shardmeter.cli.output._Page.isatty", lambda self: True)
    for name in ("TERM", "COLORTERM"):
        monkeypatch.setenv(name, "xterm-256color")
    main(["predict", *FITS])
    assert "\x1b[" in capsys.readouterr().out
    monkeypatch.setenv("NO_COLOR", "1")
    main(["predict", *FITS])
    assert "\x1b" not in capsys.readouterr().out


def test_explain_says_no_as_predict_does(capsys):
    assert main(["explain", str(EXAMPLES / "does-not-fit.yaml"), "--format", "csv"]) == 1
    assert capsys.readouterr().out
