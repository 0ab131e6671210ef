"""`doctor`: the keys that scripts rely on, exit codes, pictures, and everything that may be asked wrongly."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
from pathlib import Path

import pytest

import shardmeter
from shardmeter.cli import main
from shardmeter.core.errors import BadScenario
from shardmeter.render.doctor import MEANING, verdict
from shardmeter.study.doctor import measured
from shardmeter.study.doctor.findings import LIKELY, POSSIBLE

EXAMPLE = "examples/llama-8b-64xh100.yaml"
SLOW = ("--measured", "tokens_per_s_per_gpu=2100")
NOTHING_STANDS_OUT = (
    "--model",
    "llama-3.1-8b",
    "--gpus",
    "8xH100-SXM5-80GB",
    "--plan",
    "fsdp",
    "--measured",
    "tokens_per_s_per_gpu=2500",
)
KEYS = {
    "version", "data_date", "verdict", "readings", "rules", "primary", "causes", "insufficient", "pairs", "next", "contradictions",
    "against", "level", "assumptions", "warnings", "figures", "memory",
}  # fmt: skip
CAUSE = {
    "name", "title", "kind", "field", "unit", "of", "said", "assumed", "implied", "low", "high", "ratio", "value", "factor", "explains", "plausible",
    "plausibility", "unexplained", "rate", "why", "means", "predicted", "others",
}  # fmt: skip


@pytest.fixture
def run(capsys, monkeypatch, request):
    monkeypatch.chdir(request.config.rootpath)

    def call(*arguments: str) -> tuple[int, str, str]:
        code = main(["doctor", *arguments])
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return code, out, err

    return call


def test_the_keys(run):
    code, out, _ = run(EXAMPLE, *SLOW, "--measured", "memory=34GiB", "--format", "json")
    answer = json.loads(out)
    assert code == 0
    assert set(answer) == KEYS
    assert {frozenset(one) for one in (*answer["causes"], *answer["insufficient"])} == {frozenset(CAUSE)}
    first = answer["causes"][0]
    assert first["low"] <= first["implied"] <= first["high"]
    assert first["others"][0]["quantity"] == "memory"
    assert answer["readings"][0]["times_slower"] > 3.0
    assert [figure["slug"] for figure in answer["figures"]] == ["reach", "implied"]
    assert len(answer["figures"][0]["y"]["labels"]) == len(answer["figures"][0]["lines"][0]["x"])


LARGE = (
    "--model",
    "llama-3.1-70b",
    "--gpus",
    "64xH100-SXM5-80GB",
    "--seq",
    "4096",
    "--measured",
    "tokens_per_s_per_gpu=650",
)


def test_a_run_that_was_measured_and_does_not_fit_as_said_is_told_so_first(run):
    """It ran, so that it was another: the change that makes it fit stands before any cause, with what is predicted then."""
    told = json.loads(run(*LARGE, "--plan", "fsdp", "--format", "json")[1])
    memory = told["memory"]
    assert not memory["fits"]
    assert memory["peak_gib"] > memory["limit_gib"]
    assert memory["otherwise"]["set"] == ["plan.recompute=full"]
    says = verdict(told)
    assert says.index("--set plan.recompute=full") < says.index("single cause")
    other = json.loads(run(*LARGE, "--plan", "fsdp,recompute=full", "--format", "json")[1])
    rate = memory["otherwise"]["tokens_per_s"] / memory["otherwise"]["gpus"]
    assert other["readings"][0]["predicted"] == pytest.approx(rate)
    assert other["memory"]["fits"]
    assert other["memory"]["otherwise"] is None
    assert "does not fit" not in verdict(other)
    assert told["figures"][0]["title"] in says
    assert len(told["figures"][0]["title"]) < len(says)


def test_nothing_is_asked_to_be_measured_that_has_no_room(run):
    """70B fits on no single node, and a second sequence of 8B without recomputation on no GPU."""
    told = json.loads(run(*LARGE, "--plan", "fsdp,recompute=full", "--format", "json")[1])
    assert "one-node" not in {one["name"] for one in told["next"]}
    small = (
        "--model",
        "llama-3.1-8b",
        "--gpus",
        "32xH100-SXM5-80GB",
        "--seq",
        "8192",
        "--measured",
        "tokens_per_s_per_gpu=1800",
    )
    plain = json.loads(run(*small, "--plan", "fsdp", "--format", "json")[1])
    assert "twice-the-micro-batch" not in {one["name"] for one in plain["next"]}
    spared = json.loads(run(*small, "--plan", "fsdp,recompute=selective", "--format", "json")[1])
    assert "twice-the-micro-batch" in {one["name"] for one in spared["next"]}


def test_rows_are_causes(run):
    code, out, _ = run(EXAMPLE, *SLOW, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert code == 0
    assert rows[0]["name"] == "fabric-bandwidth"
    assert {row["explains"] for row in rows} == {"true", "false"}


def test_the_page_of_python_is_that_of_the_command(run):
    _, out, _ = run(EXAMPLE, "--measured", "tokens_per_s_per_gpu=7100")
    found = shardmeter.doctor(EXAMPLE, measured={"tokens_per_s_per_gpu": 7100})
    assert str(found).splitlines()[1] == out.splitlines()[1]
    assert "nothing to explain" in repr(found)


def test_another_scenario_may_be_a_file_or_a_change(run, tmp_path):
    other = tmp_path / "one.yaml"
    text = (
        Path(EXAMPLE)
        .read_text(encoding="utf-8")
        .replace("nodes: 8, gpus", "nodes: 1, gpus")
        .replace("global_batch: 128", "global_batch: 16")
    )
    other.write_text(text, encoding="utf-8")
    both = ("--measured", "step_time=7.8s", "--measured-b", "step_time=2.4s")
    _, by_file, _ = run(EXAMPLE, *both, "--against", str(other), "--format", "json")
    _, by_change, _ = run(
        EXAMPLE, *both, "--set-b", "fleet.islands.0.nodes=1", "--set-b", "run.global_batch=16", "--format", "json"
    )
    assert json.loads(by_file)["causes"] == json.loads(by_change)["causes"]
    assert json.loads(by_file)["against"]["field"] == "pace of all kernels"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "nothing was measured"),
        (("--measured", "tokens=3"), "nearest are: tokens_per_s"),
        (("--measured", "step_time=2.46"), "has no unit"),
        (("--measured", "step_time="), "no number is given"),
        (("--measured", "mfu=45.5"), "45.5 % or 4550 %"),
        (("--measured", "memory=80 gb"), "write the one you mean"),
        (("--measured", "mfu=0"), "above 0"),
        (("--measured", "mfu=1%", "--measured", "mfu=2%"), "measured twice"),
        (("--measured", "mfu=1%", "--measured-b", "mfu=2%"), "needs the other scenario"),
        (("--measured", "mfu=1%", "--set-b", "plan.tp=2"), "needs the other scenario"),
        (("--measured", "mfu=1%", "--set-b", "plan.tp=2", "--measured-b", "hfu=2%"), "the same figure of both: mfu"),
        (("--measured", "duration=3 h", "--set", "run.tokens=null"), "how much was trained"),
        (("--measured", "mfu=1%", "--plot", "x.gif"), "a picture is a .png"),
    ],
)
def test_what_is_asked_wrongly_is_refused(run, arguments, says):
    code, out, err = run(EXAMPLE, *arguments)
    assert code == 2
    assert out == ""
    assert says in err


def test_everything_that_is_wrong_is_said_at_once():
    with pytest.raises(BadScenario) as refused:
        measured(["mfu=45.5", "nothing=1", "step_time=3"])
    assert len(refused.value.violations) == 3


def test_how_numbers_are_read():
    read = {one.quantity.name: one.value for one in measured([
        "step_time=8.68 s/it", "it/s=0.25", "tgs=1,786 tok/s".replace(",", ""), "mfu=45.5%", "tflops=150", "memory=26.47GiB", "busbw=2.9GB/s",
    ])}  # fmt: skip
    assert read == {
        "step_time": 8.68, "its_per_s": 0.25, "tokens_per_s_per_gpu": 1786.0, "mfu": 0.455, "tflops_per_gpu": 150e12,
        "memory": pytest.approx(26.47 * 2**30), "busbw": 2.9e9,
    }  # fmt: skip
    for text, amount, unit in (
        ("13.5 h for 500 steps", 500.0, "steps"), ("100h/665k samples", 665e3, "samples"), ("3 d over 1.5T tokens", 1.5e12, "tokens"),
        ("282 h for 3 epochs of 52k samples", 156e3, "samples"),
    ):  # fmt: skip
        (one,) = measured({"duration": text})
        assert one.length is not None
        assert (one.length.amount, one.length.unit) == (amount, unit)
    assert measured({"duration": "282 h for 3 epochs"})[0].length is None


@pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="matplotlib is not installed")
def test_pictures(run, tmp_path):
    code, _, _ = run(EXAMPLE, *SLOW, "--plot", str(tmp_path / "why.svg"))
    assert code == 0
    drawn = (tmp_path / "why-implied.svg").read_text(encoding="utf-8")
    assert "network between nodes" in drawn
    assert (tmp_path / "why-reach.svg").exists()


def _first(plausible: str, plausibility: float, count: int = 2) -> str:
    """The verdict where the best cause has such a plausibility."""
    answer = shardmeter.doctor(EXAMPLE, measured={"tokens_per_s_per_gpu": 2100}).to_dict()
    best = {**answer["causes"][0], "plausible": plausible, "plausibility": plausibility}
    return verdict({**answer, "causes": [best, *answer["causes"][1:]][:count]})


@pytest.mark.parametrize(
    ("word", "number", "count", "says"),
    [
        ("likely", 0.3, 2, "The most plausible single cause: "),
        ("likely", 0.3, 1, "The only single cause: "),
        ("possible", 0.02, 2, "No single cause stands out; the likeliest of the possible ones: "),
        ("possible", 0.02, 1, "The only single cause, and no more than possible: "),
        ("unlikely", 0.002, 2, "No single cause is plausible; the least unlikely is: "),
    ],
)
def test_only_what_is_likely_is_called_most_plausible(monkeypatch, request, word, number, count, says):
    monkeypatch.chdir(request.config.rootpath)
    assert says in _first(word, number, count)


def test_a_cause_of_two_in_a_hundred_is_not_called_most_plausible(run):
    """A real question whose best cause is no more than possible, and what the number beside it means."""
    code, out, _ = run(*NOTHING_STANDS_OUT)
    assert code == 0
    assert "No single cause stands out; the likeliest of the possible ones: " in out
    assert "most plausible" not in out
    assert " ".join(MEANING.split()) in " ".join(out.split())
    first = json.loads(run(*NOTHING_STANDS_OUT, "--format", "json")[1])["causes"][0]
    assert POSSIBLE <= first["plausibility"] < LIKELY


def test_what_the_number_means_is_said_wherever_it_stands(run):
    _, likely, _ = run(EXAMPLE, *SLOW)
    _, in_pairs, _ = run(EXAMPLE, "--measured", "tokens_per_s_per_gpu=12000")
    assert "no probability" in likely
    assert "no probability" in in_pairs
