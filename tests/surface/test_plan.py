"""`plan` on the command line and in Python: its JSON, its page, pins, what is refused, what is answered with no."""

from __future__ import annotations

import csv
import io
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

import shardmeter
from shardmeter.cli import main, progress
from shardmeter.study.planning import search

ROOT = Path(__file__).parents[2]
MODEL = ["--model", "llama-3.1-8b", "--gpus", "8xH100-SXM5-80GB", "--global-batch", "64"]
NARROW = [
    *MODEL,
    "--set",
    "plan.pp=1",
    "--set",
    "plan.cp=1",
    "--set",
    "plan.sharding=fsdp",
    "--set",
    "plan.recompute=none,full",
]
PRICED = ["--tokens", "100B", "--price", "$2/gpu/h"]
KEYS = {
    "objective", "deadline_s", "budget_usd", "space", "plans", "pareto", "yours", "nearest_miss", "way_out", "command",
    "version", "data_date", "assumptions", "warnings",
}  # fmt: skip
ENTRY = {
    "scenario", "plan", "line", "gpus", "seq_len", "global_batch", "step_time_s", "tokens_per_s", "tokens_per_s_per_gpu", "mfu",
    "micro_batches", "memory_peak_gib", "memory_limit_gib", "fits", "fits_probability", "wall_clock_s", "gpu_hours", "cost_usd",
    "energy_kwh", "cost_usd_per_token", "energy_j_per_token", "behind", "tie", "complexity", "differs", "intervals", "deadline", "budget",
}  # fmt: skip


def answer(capsys, *arguments, code=0):
    assert main(["plan", *arguments, "--format", "json"]) == code
    return json.loads(capsys.readouterr().out, parse_constant=lambda text: pytest.fail(f"{text} in JSON"))


def refused(capsys, *arguments):
    assert main(["plan", *arguments]) == 2
    out, said = capsys.readouterr()
    assert out == ""
    assert "Traceback" not in said
    return said


def test_json(capsys):
    data = answer(capsys, *NARROW, *PRICED)
    assert set(data) == KEYS
    assert set(data["space"]) == {"evaluated", "feasible", "rejected", "seconds", "plans_per_s", "optimal", "shut_out"}
    space = data["space"]
    assert space["optimal"]
    assert space["evaluated"] == space["feasible"] + sum(space["rejected"].values())
    assert all(set(one) == ENTRY for one in [*data["plans"], *data["pareto"]])
    assert data["plans"][0]["fits"]
    assert data["plans"][0]["wall_clock_s"] > 0.0
    assert any("chosen from" in text for text in data["assumptions"])
    assert any("tie" in text for text in data["assumptions"])


def test_every_plan_is_fed_back_to_predict(capsys, tmp_path):
    data = answer(capsys, *NARROW, *PRICED)
    for one in data["plans"][:4]:
        for fed in (one, one["scenario"]):
            again = shardmeter.predict(fed).to_dict()
            assert again["step_time_s"] == one["step_time_s"]
            assert again["memory"]["peak_gib"] == one["memory_peak_gib"]
            assert again["run"]["cost_usd"] == one["cost_usd"]
    file = tmp_path / "best.json"
    file.write_text(json.dumps(data["plans"][0]), encoding="utf-8")
    assert main(["predict", str(file), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["step_time_s"] == data["plans"][0]["step_time_s"]


def test_the_command_of_the_page_predicts_the_first_plan(capsys):
    data = answer(capsys, *NARROW, *PRICED)
    words = shlex.split(data["command"])
    assert words[:2] == ["shardmeter", "predict"]
    assert main([*words[1:], "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["step_time_s"] == data["plans"][0]["step_time_s"]


def test_the_command_keeps_what_the_stack_or_the_plan_says_of_arithmetic(capsys):
    data = answer(capsys, *MODEL, "--stack", "mcore-2024", "--set", "plan.pp=2", "--set", "plan.tp=2", "--set",
                  "plan.schedule=interleaved", "--set", "plan.optimizer=adamw8bit", "--set", "plan.reduce_dtype=bf16")  # fmt: skip
    assert main([*shlex.split(data["command"])[1:], "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["step_time_s"] == data["plans"][0]["step_time_s"]


def test_pins_and_ranges_narrow(capsys):
    data = answer(
        capsys, *MODEL, "--set", "plan.tp=2", "--set", "plan.pp=1", "--set", "plan.micro_batch=1..4:x2", "--top", "50"
    )
    assert {one["plan"]["tp"] for one in data["plans"]} == {2}
    assert {one["plan"]["micro_batch"] for one in data["plans"]} <= {1, 2, 4}
    lines = answer(capsys, *MODEL[:4], "--global-batch", "64", "--plan", "auto,tp=2,pp=1,micro_batch=2")
    assert {(one["plan"]["tp"], one["plan"]["micro_batch"]) for one in lines["plans"]} == {(2, 2)}


def test_words_that_are_not_offered_can_be_asked_for(capsys):
    pins = [
        "--set",
        "plan.tp=1",
        "--set",
        "plan.pp=2",
        "--set",
        "plan.cp=1",
        "--set",
        "plan.micro_batch=1",
        "--set",
        "plan.sharding=fsdp",
    ]
    data = answer(capsys, *MODEL, *pins, "--set", "plan.schedule=any", "--set", "plan.recompute=full", "--top", "100")
    assert {"1f1b", "zb-h1", "dualpipe"} <= {one["plan"].get("schedule", "") for one in data["plans"]} | {
        one["plan"].get("schedule", "") for one in data["pareto"]
    }


def test_simpler_first_and_ties_are_said(capsys):
    data = answer(capsys, *MODEL, "--set", "plan.pp=1", "--top", "20")
    bands = [int(100 * one["behind"] + 1e-6) for one in data["plans"]]
    assert bands[0] == 0
    first = [one for one in data["plans"] if one["behind"] < 0.0099]
    assert [one["complexity"] for one in first] == sorted(one["complexity"] for one in first)
    assert data["plans"][0]["tie"]
    assert not any(one["tie"] for one in data["plans"] if one["behind"] > 0.15)


def test_all_plans_have_one_batch(capsys):
    data = answer(capsys, "--model", "llama-3.1-8b", "--gpus", "8xH100-SXM5-80GB", "--set", "plan.pp=1")
    assert len({one["global_batch"] for one in data["plans"]}) == 1
    assert any("4 Mi tokens for every plan" in text for text in data["assumptions"])


def test_your_plan_is_placed(capsys):
    small = ["--model", "llama-3.2-1b", "--gpus", "2xH100-SXM5-80GB", "--global-batch", "8"]
    data = answer(capsys, *small, "--plan", "fsdp,tp=2,recompute=full")
    yours = data["yours"]
    assert yours["rank"] > 1
    assert yours["behind"] > 0.1
    assert yours["differs"]["tp"] == 2
    again = shardmeter.predict(
        model="llama-3.2-1b", gpus="2xH100-SXM5-80GB", plan="fsdp,tp=2,recompute=full", global_batch=8
    )
    assert yours["step_time_s"] == again.step_time
    better = [one for one in data["plans"] if one["step_time_s"] < yours["step_time_s"]]
    assert yours["rank"] == len(better) + 1 or len(better) == len(data["plans"])


def test_the_page_of_your_plan(capsys):
    record = shardmeter.load(
        None, options={"model": "llama-3.1-8b", "gpus": "1xH100-SXM5-80GB", "plan": "none", "global_batch": 8}
    )
    found = shardmeter.plan(record, top=1)
    assert found.compared is not None
    assert found.compared.rank is None
    assert "does not fit" in str(found)


def test_a_pin_sets_the_plan_of_the_file_aside(capsys):
    data = answer(capsys, str(ROOT / "examples" / "llama-8b-64xh100.yaml"), "--set", "plan.tp=2", "--set", "plan.pp=1")
    assert {one["plan"]["tp"] for one in data["plans"]} == {2}
    assert data["yours"] is None
    assert any("set aside" in text for text in data["assumptions"])
    assert any("set aside" in text for text in data["warnings"])


def test_pins_of_a_file_stay_beside_those_of_the_command(capsys, tmp_path):
    """A plan with a list is none, and nothing to set aside."""
    file = tmp_path / "pins.yaml"
    file.write_text("model: llama-3.1-8b\ngpus: 8xH100-SXM5-80GB\nrun: {global_batch: 64}\n"
                    "plan: {sharding: fsdp, recompute: [none, full], pp: 1, cp: 1, reshard: true, dp_replicate: 1}\n")  # fmt: skip
    data = answer(capsys, str(file), "--set", "plan.tp=2")
    assert {(one["plan"]["tp"], one["plan"]["sharding"], one["plan"]["reshard"]) for one in data["plans"]} == {
        (2, "fsdp", True)
    }
    assert not any("set aside" in text for text in (*data["assumptions"], *data["warnings"]))


def test_a_plan_set_aside_is_warned_of(capsys):
    assert main(["plan", *MODEL, "--plan", "fsdp,tp=4", "--set", "plan.tp=2", "--set", "plan.pp=1", "--top", "1"]) == 0
    said = capsys.readouterr().err
    assert "warning: the scenario's own plan is set aside: plan.tp, plan.pp narrow the plans to choose from" in said
    assert main(["plan", *MODEL, "--plan", "fsdp,tp=4", "--top", "1"]) == 0
    assert "set aside" not in capsys.readouterr().err


def test_progress_counts_points(capsys, monkeypatch):
    """The answer counts plans: a point is none where the degrees do not divide, or another point means the same."""
    monkeypatch.setattr(progress, "QUIET", -1.0)
    assert main(["plan", *MODEL, "--top", "1"]) == 0
    said = capsys.readouterr().err
    assert said.startswith("points: ")
    assert "/s, at most " in said


def test_several_objectives_give_the_front(capsys):
    two = ["--gpus", "8xH100-SXM5-80GB,16xH100-SXM5-80GB"]
    data = answer(capsys, *NARROW[:2], *two, *NARROW[4:], *PRICED, "--objective", "time,cost")
    assert data["objective"] == ["time", "cost"]
    times, costs = zip(*((one["wall_clock_s"], one["cost_usd"]) for one in data["pareto"]), strict=True)
    assert list(times) == sorted(times)
    assert list(costs) == sorted(costs, reverse=True)
    assert len(times) > 1
    assert main(["plan", *NARROW[:2], *two, *NARROW[4:], *PRICED, "--objective", "time,cost"]) == 0
    assert "no other one beats in time and cost" in capsys.readouterr().out


@pytest.mark.parametrize("objective", ["throughput", "energy", "cost"])
def test_other_objectives(capsys, objective):
    data = answer(capsys, *NARROW, *PRICED, "--objective", objective)
    key = {"throughput": "tokens_per_s", "energy": "energy_kwh", "cost": "cost_usd"}[objective]
    figures = [one[key] for one in data["pareto"]]
    assert figures == [max(figures) if objective == "throughput" else min(figures)]


def test_csv(capsys):
    assert main(["plan", *NARROW, "--format", "csv", "--top", "3"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["list"] for row in rows] == ["plans", "plans", "plans", "pareto"]
    assert rows[0]["plan.sharding"] == "fsdp"


def test_nothing_fits(capsys):
    options = ["--model", "llama-3.1-70b", "--gpus", "2xH100-SXM5-80GB", "--global-batch", "16"]
    data = answer(capsys, *options, code=1)
    assert data["plans"] == []
    assert data["nearest_miss"]["memory_peak_gib"] > data["nearest_miss"]["memory_limit_gib"]
    assert data["way_out"]
    assert all(one["fits"] for one in data["way_out"])
    assert main(["plan", *options]) == 1
    page = capsys.readouterr().out
    assert "What comes nearest" in page
    assert "What would do" in page


def test_a_deadline_and_a_budget_that_nothing_keeps(capsys):
    data = answer(capsys, *NARROW, *PRICED, "--deadline", "1 h", "--budget", "$100", code=1)
    assert data["plans"] == []
    miss = data["nearest_miss"]
    assert miss["wall_clock_s"] > 3600.0
    said = {text.partition("=")[0] for one in data["way_out"] for text in one["set"]}
    assert {"run.deadline", "run.budget", "run.tokens"} <= said
    for one in data["way_out"][:2]:
        keeps = [f"--set={text}" for text in one["set"]]
        other = ["--budget", "$1M"] if "deadline" in one["set"][0] else ["--deadline", "1000 d"]
        assert main(["plan", *NARROW, *PRICED, *other, *keeps]) == 0
    capsys.readouterr()


def test_plan_auto_anywhere(capsys):
    options = [
        "--model",
        "llama-3.1-8b",
        "--gpus",
        "8xH100-SXM5-80GB",
        "--global-batch",
        "64",
        "--plan",
        "auto,pp=1,cp=1",
    ]
    best = answer(capsys, *options)["plans"][0]
    for command in ("predict", "explain"):
        assert main([command, *options, "--format", "json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found.get("step_time_s", best["step_time_s"]) == best["step_time_s"]
        assert any(text.startswith("plan auto: ") for text in found["assumptions"])
    said = shardmeter.predict(model="llama-3.1-8b", gpus="8xH100-SXM5-80GB", global_batch=64, plan="auto,pp=1,cp=1")
    assert said.step_time == best["step_time_s"]
    record = shardmeter.load(
        None,
        options={"model": "llama-3.1-8b", "gpus": "8xH100-SXM5-80GB", "global_batch": 64, "plan": "auto,pp=1,cp=1"},
    )
    assert shardmeter.predict(record).step_time == best["step_time_s"]
    assert main(["solve", "seq", *options]) == 0
    none = ["--model", "llama-3.1-70b", "--gpus", "1xH100-SXM5-80GB", "--plan", "auto"]
    assert main(["predict", *none]) == 1
    assert "none is feasible" in capsys.readouterr().out


def test_in_python():
    found = shardmeter.plan(
        model="llama-3.1-8b", gpus="8xH100-SXM5-80GB", global_batch=64, overrides=["plan.pp=1", "plan.cp=1"], top=3
    )
    assert found.best is not None
    assert shardmeter.predict(found.best.scenario).step_time == found.best.prediction.step_time
    assert "The best plans" in str(found)
    assert "plans" in found.to_dict()
    assert repr(found).count("\n") == 0
    record = shardmeter.load(
        None, options={"model": "llama-3.1-8b", "gpus": "8xH100-SXM5-80GB", "plan": "fsdp", "global_batch": 64}
    )
    assert shardmeter.plan(record, top=1).compared is not None
    with pytest.raises(TypeError, match="takes no options"):
        shardmeter.plan(record, gpus="8xH100-SXM5-80GB")


BAD = {
    "contradictory pins": (["--set", "plan.tp=8", "--set", "plan.pp=8"], ["no legal plan", "drop or widen", "tp=8", "tp 8 · pp 8 = 64 on 8 GPUs"]),
    "tp of nothing": (["--set", "plan.tp=3"], ["no legal plan with tp=3", "tp 3 does not divide 8 GPUs", "tp=2 or tp=4"]),
    "two of nothing": (["--set", "plan.tp=3", "--set", "plan.pp=5,7"], ["tp 3 does not divide 8", "pp 5 | 7 does not divide 8"]),
    "lists of nothing": (["--set", "plan.tp=4,8", "--set", "plan.pp=4,8"], ["tp 4 · pp 4 = 16 on 8 GPUs", "tp=[4, 8] or pp=[4, 8]"]),
    "speed": (["--objective", "speed"], ["speed", "did you mean 'throughput'?"]),
    "tokens/s": (["--objective", "time,tokens/s"], ["did you mean 'throughput'?"]),
    "price": (["--objective", "price"], ["did you mean 'cost'?"]),
    "unknown field": (["--set", "plan.tensor_paralel=8"], ["tensor_paralel"]),
    "unknown word": (["--set", "plan.recompute=nnone,full"], ["nnone", "none"]),
    "log from zero": (["--set", "run.global_batch=0..64:log5"], ["log range has no 0"]),
    "unknown objective": (["--objective", "tim"], ["tim", "time"]),
    "cost without a price": (["--objective", "cost"], ["no price", "--price"]),
    "deadline without a length": (["--deadline", "3 d"], ["no length of the run", "--tokens"]),
    "deadline without a unit": (["--deadline", "3"], ["deadline"]),
    "an endless range": (["--set", "run.global_batch=1..1000000000000"], ["1,000,000,000,000 points", "at most"]),
    "a large product": (
        ["--set", "run.seq_len=128..16384:+128", "--set", "run.global_batch=1..20000", "--set", "plan.micro_batch=1..64"],
        ["plans would take", "at most", "global_batch has 20,000 values"],
    ),
    "an empty list": (["--set", "plan.tp=[]"], ["has no values"]),
    "no such top": (["--top", "0"], ["--top"]),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_is_refused(capsys, name):
    arguments, words = BAD[name]
    given = MODEL if name not in ("log from zero", "an endless range", "a large product") else MODEL[:4]
    said = refused(capsys, *given, *arguments)
    for word in words:
        assert word in said


def test_all_that_is_wrong_is_said_at_once(capsys):
    said = refused(
        capsys, *MODEL, "--set", "plan.tp=0", "--set", "plan.recompute=sometimes", "--set", "plan.pp=0..8:log3"
    )
    assert "plan.tp" in said
    assert "sometimes" in said
    assert "log range has no 0" in said


def test_an_interrupt_shows_what_was_found(capsys, monkeypatch):
    """The handler asks the search to end; it ends after the block that it is at."""
    original = search._part
    calls = []

    def part(*arguments):
        calls.append(arguments)
        if len(calls) == 3:
            signal.raise_signal(signal.SIGINT)
        return original(*arguments)

    monkeypatch.setattr(search, "_part", part)
    data = answer(capsys, *MODEL, "--processes", "1", code=130)
    assert not data["space"]["optimal"]
    assert data["plans"]
    assert len(calls) == 3
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_workers_that_are_busy_are_ended_at_once():
    pool = ProcessPoolExecutor(2, mp_context=get_context("spawn"))
    for _ in range(8):
        pool.submit(time.sleep, 60.0)
    workers = list(pool._processes.values())
    begun = time.monotonic()
    search._end(pool)
    assert time.monotonic() - begun < 20.0
    assert not any(worker.is_alive() for worker in workers)


@pytest.mark.skipif(os.name == "nt", reason="signals of a terminal")
def test_an_interrupt_of_two_processes():
    """As a terminal sends it, to the whole group, once the search has said how far it is."""
    options = ["--model", "deepseek-v3", "--gpus", "2048xH100-SXM5-80GB", "--global-batch", "15360", "--processes", "2"]
    running = subprocess.Popen(
        [sys.executable, "-m", "shardmeter", "plan", *options, "--format", "json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    killer = threading.Timer(300, running.kill)
    killer.start()
    assert running.stderr is not None
    assert running.stderr.readline().startswith("points: ")
    os.killpg(running.pid, signal.SIGINT)
    out, said = running.communicate()
    killer.cancel()
    assert running.returncode == 130
    assert "Traceback" not in said
    assert "interrupted: the best of the first" in said
    assert not json.loads(out)["space"]["optimal"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no full device")
def test_a_full_disk():
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "shardmeter", "plan", *NARROW],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 74
    assert "cannot be written" in done.stderr
    assert "Traceback" not in done.stderr


SIZES = [
    "plan", "--model", "llama-3.1-8b", "--gpus", "48xH100-SXM5-80GB,56xH100-SXM5-80GB,64xH100-SXM5-80GB", "--set", "plan.tp=1",
    "--set", "plan.pp=1", "--set", "plan.cp=1", "--set", "plan.sharding=fsdp", "--top", "200", "--format", "json",
]  # fmt: skip


def test_a_batch_in_tokens_is_moved_for_every_size_by_itself(capsys):
    assert main([*SIZES, "--global-batch", "4M tokens"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert {(one["gpus"], one["global_batch"]) for one in data["plans"]} == {
        (48.0, 480.0),
        (56.0, 504.0),
        (64.0, 512.0),
    }
    assert data["space"]["shut_out"] == []
    alone = [*SIZES[:4], "48xH100-SXM5-80GB", *SIZES[5:]]
    assert main([*alone, "--global-batch", "4M tokens"]) == 0
    best = json.loads(capsys.readouterr().out)["plans"][0]
    same = next(one for one in data["plans"] if one["gpus"] == 48.0)
    assert (same["line"], same["step_time_s"]) == (best["line"], best["step_time_s"])


@pytest.mark.parametrize(
    "batch", [["--global-batch", "512"], ["--global-batch", "4M tokens", "--set", "run.steps=1000"]]
)
def test_sizes_of_which_no_plan_is_legal_are_named(capsys, batch):
    assert main([*SIZES, *batch]) == 0
    seen = capsys.readouterr()
    data = json.loads(seen.out)
    assert [one["gpus"] for one in data["space"]["shut_out"]] == [48.0, 56.0]
    says = data["space"]["shut_out"][0]["says"]
    assert says.startswith("no plan of 48 GPUs takes a batch of 512: every replica takes whole micro-batches (")
    assert says in data["warnings"]
    assert says in seen.err
    assert main([*SIZES[:-2], *batch]) == 0
    assert "Of 48 and 56 GPUs no plan is legal." in capsys.readouterr().out


def test_entries_have_the_chance_of_a_deadline_and_a_budget_as_predict_has_it(capsys, tmp_path):
    limits = ["--tokens", "20B", "--deadline", "11 h", "--price", "$2/gpu/h", "--budget", "$2000"]
    assert main([*SIZES[:4], "64xH100-SXM5-80GB", *SIZES[5:], *limits, "--global-batch", "512"]) == 0
    for one in json.loads(capsys.readouterr().out)["plans"][:2]:
        run = shardmeter.predict(one, overrides=["run.deadline=11 h", "run.budget=$2000"]).to_dict()["run"]
        assert 0.0 < one["deadline"]["probability"] < 1.0
        assert (one["deadline"], one["budget"]) == (run["deadline"], run["budget"])
    assert main([*SIZES[:4], "64xH100-SXM5-80GB", *SIZES[5:], "--global-batch", "512"]) == 0
    first = json.loads(capsys.readouterr().out)["plans"][0]
    assert (first["deadline"], first["budget"]) == (None, None)
