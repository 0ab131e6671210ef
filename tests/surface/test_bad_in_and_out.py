"""Hostile files, names and places for import, export, calibrate and measure: refused in one sentence, run by nobody, nothing left behind."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import shardmeter
from shardmeter.cli import main
from shardmeter.core.errors import ShardMeterError
from shardmeter.core.record import changed
from shardmeter.interop import logs
from shardmeter.interop.configs import formats
from shardmeter.interop.configs.record import Inexpressible
from shardmeter.study.measure.collectives import _run

EVIL = '$(: > RUN) `: > RUN` ${A:?x} }"; : > RUN; # \'"""\n: > RUN\nNODE\n: > RUN\n'
OPTIONS = ("--model", "llama-3.1-8b", "--gpus", "8xH100-SXM5-80GB")
ISLAND = {"accelerator": "H100-SXM5-80GB", "nodes": 2, "gpus_per_node": 8, "fabric": "ib-ndr400"}
RUN = """model: llama-3.1-8b
gpus: 8xH100-SXM5-80GB
plan: {tp: 2, micro_batch: 1}
run: {seq_len: 4096, global_batch: 32}
"""


def over(*names, name):
    """A scenario of islands with these names."""
    return {
        "name": name, "model": "llama-3.1-8b", "plan": {"sync": {"method": "diloco", "sync_every": 100}},
        "fleet": {"islands": [{"name": one, **ISLAND} for one in names],
                  "wan": {"default": {"bandwidth": "10 Gbps", "rtt": "40 ms", "loss": 0}}},
        "run": {"seq_len": 8192, "global_batch": 64, "steps": 100},
    }  # fmt: skip


@pytest.fixture
def refusal(capsys):
    """The one refusal of a command."""

    def refused(*arguments):
        assert main([str(one) for one in arguments]) == 2
        seen = capsys.readouterr()
        assert not seen.out
        return seen.err

    return refused


@pytest.mark.parametrize("launcher", ["slurm", "torchrun", "skypilot", "dstack"])
def test_a_name_in_a_script_is_no_command(launcher, tmp_path):
    made = shardmeter.export(over(EVIL, f"{EVIL}2", name=EVIL), launcher, trainer="torchft").exported
    assert len({file.name for file in made.files}) == len(made.files) == 3
    for file in made.files:
        (tmp_path / file.name).write_text(file.text, encoding="utf-8")
        if file.name.endswith(".py"):
            ast.parse(file.text)
        elif launcher in ("slurm", "torchrun"):
            subprocess.run(["bash", file.name, "h", "0"], cwd=tmp_path, check=False, capture_output=True)
    assert not (tmp_path / "RUN").exists()
    assert all(": > RUN" not in line.partition("#")[0] for file in made.files for line in file.text.splitlines())


def test_a_name_of_the_python_face_stays_in_its_comment():
    examples = Path(__file__).parents[2] / "examples"
    tried = 0
    for path in (examples / "llama-8b-64xh100.yaml", examples / "llama-70b-tp8-pp4.yaml"):
        scenario = shardmeter.load(path)
        evil = changed(scenario, name=EVIL, model=changed(scenario.model, name=f"{scenario.model.name}, {EVIL}"))
        for trainer in [name for name, module in formats().items() if hasattr(module, "write")]:
            for launcher in (None, "slurm"):
                try:
                    made = shardmeter.export(evil, launcher or trainer, trainer=trainer if launcher else None)
                except Inexpressible:
                    continue
                tried += 1
                lines = [line for file in made.exported.files for line in file.text.splitlines()]
                assert not [line for line in lines if line.startswith((":", "NODE ", 'NODE"')) or '""""' in line]
    assert tried >= 6


def test_islands_of_one_spelling_have_files_and_jobs_of_their_own():
    made = shardmeter.export(over("東京", "大阪", "run-1", name="x"), "dstack", trainer="torchft").exported
    assert [file.name for file in made.files[:3]] == ["dstack-run-1.yaml", "dstack-run-2.yaml", "dstack-run-1-3.yaml"]
    assert len({line for file in made.files[:3] for line in file.text.splitlines() if line.startswith("name:")}) == 3


def test_a_trainers_name_means_its_settings_unless_the_file_is_its_log(tmp_path):
    settings = shardmeter.export(tmp_path_run(tmp_path), "torchtitan", version="0.2.2").exported.files[0].text
    read = shardmeter.import_config(settings, "torchtitan", gpus="8xH100-SXM5-80GB")
    assert read.log is None
    assert read.document["plan"]["tp"] == 2
    log = Path(__file__).parents[2] / "examples" / "logs" / "torchtitan.log"
    assert shardmeter.import_config(log, "torchtitan").log is not None


def tmp_path_run(folder):
    """A scenario as a file."""
    path = folder / "run.yaml"
    path.write_text(RUN, encoding="utf-8")
    return path


PYTHON = "from torchtitan.trainer import Trainer\ndef f():\n{}    return Trainer.Config(training=x9)\n"


@pytest.mark.parametrize(
    ("file", "text", "says"),
    [
        ("itself.py", PYTHON.format("    x9 = F.Config(a=x9)\n"), "not readable as Python"),
        ("ever.py", PYTHON.format("    x0 = F.Config(a=1)\n" + "".join(
            f"    x{at} = F.Config({','.join(f'{one}=x{at - 1}' for one in 'abcdefgh')})\n" for at in range(1, 10))), "more than 1000 settings"),
        ("deep.toml", f'[model]\nname = "llama3"\n[{".".join("a" * 30_000)}]\nx = 1\n', "more than 40 sections"),
        ("below.toml", '[model]\nname = "llama3"\nflavor = "8B"\n[training]\nseq_len = -5\nsteps = inf\n', "steps: inf is no whole"),
        ("empty.toml", "", "no flags in it"),
    ],
)  # fmt: skip
def test_settings_that_are_none_are_refused(file, text, says, tmp_path, refusal):
    path = tmp_path / file
    path.write_text(text, encoding="utf-8")
    assert says in refusal("import", path, "--from", "torchtitan", *OPTIONS)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (("--gpus", "0xH100-SXM5-80GB"), "--gpus: 0 makes no sense"),
        (("--gpus", "8xH1000"), "unknown accelerator 'H1000'"),
        ((*OPTIONS[2:], "--set", "plan.tp=1e400"), "--set plan.tp=1e400: inf is too large"),
    ],
)
def test_an_option_that_is_wrong_is_no_setting_that_is_missing(wrong, says, refusal):
    file = Path(__file__).parents[2] / "examples" / "trainers" / "torchtitan-8b.toml"
    assert says in refusal("import", file, *wrong)
    assert main(["import", str(file)]) == 1


def test_a_value_is_refused_once(tmp_path, refusal):
    path = tmp_path / "run.sh"
    path.write_text("python pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 2 "
                    "--tensor-model-parallel-size 1e400\n", encoding="utf-8")  # fmt: skip
    assert refusal("import", path, *OPTIONS).count("1e400") == 1


def test_a_large_file_is_not_read_to_be_recognised(tmp_path, monkeypatch):
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(logs.LARGEST - 1)
    monkeypatch.setattr(Path, "read_bytes", lambda _: pytest.fail("read as a whole"))
    assert not logs.is_log(path)


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ("tokens_per_s\n0\n", "r.csv:2: a step takes"),
        ("step_time,tokens_per_s\n3 s,5\n", "the same by step_time and tokens_per_s"),
        ("step_time,plan.tp,plan.tp\n3 s,1,2\n", "plan.tp: column is there twice"),
        ("step_time,plan.tp\n3 s,2,7\n", "r.csv:2: 3 cells under 2 columns"),
        ("step_time,plan.tp\n3 s,2\n3 s,nan\n", "r.csv:3: plan.tp"),
        ("step_time\n" + "3 s\n" * 1000, "1000 runs; a calibration takes 1 to 200"),
    ],
)
def test_a_table_of_runs_tells_the_line_of_what_is_wrong(table, says, tmp_path, refusal):
    (tmp_path / "r.csv").write_text(table, encoding="utf-8")
    assert says in refusal("calibrate", tmp_path_run(tmp_path), "--rows", tmp_path / "r.csv")


@pytest.mark.parametrize("place", ["r.csv", "r.csv/x", "loop", "a\0b", "x" * 400, "broken"])
def test_a_profile_that_cannot_be_is_refused_before_the_work(place, tmp_path, refusal, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("r.csv").write_text("step_time\n3 s\n", encoding="utf-8")
    Path("loop").symlink_to("loop")
    Path("broken").mkdir()
    Path("broken/stacks.csv").write_text("name,foo\nx,1\n", encoding="utf-8")
    monkeypatch.setattr("shardmeter.study.calibrate.calibration.calibrate", lambda *_, **__: pytest.fail("worked"))
    refusal("calibrate", tmp_path_run(tmp_path), "--rows", "r.csv", "-o", place)
    refusal("measure", "--profile", place)


def test_a_time_that_is_none_is_refused(refusal):
    assert "--budget" in refusal("measure", "--budget", "nan")


def test_the_first_rank_that_fails_ends_all_others(tmp_path):
    program = "import sys, time; sys.exit('no such GPU') if sys.argv[1] == '1' else time.sleep(60)"
    with pytest.raises(ShardMeterError, match="no such GPU"):
        _run(tmp_path, [sys.executable, "-c", program], 3)
