"""A deadline and a budget of a run: answered yes or no with what is left, refused where they cannot be."""

from __future__ import annotations

import json

import pytest

from shardmeter.cli import main
from shardmeter.study import practice
from shardmeter.study.course import beside

RUN = ["--model", "llama-3.1-8b", "--gpus", "64xH100-SXM5-80GB", "--plan", "fsdp"]
LONG = [*RUN, "--tokens", "1T", "--price", "$2/gpu/h"]


@pytest.mark.parametrize(
    ("limits", "code", "said"),
    [
        (["--deadline", "30 d", "--budget", "$2M"], 0, ("yes: 7.85 d to spare (26.2 %)", "yes: $1.93M to spare (96.6 %)")),
        (["--deadline", "20 d"], 1, ("no: 2.15 d late (10.7 %)", "The run is 2.15 d past the deadline.", "90 % interval 19.8 to")),
        (["--budget", "$60,000"], 1, ("no: $8,038 over (13.4 %)", "The run is $8,038 over the budget.")),
    ],
)  # fmt: skip
def test_a_limit_is_a_line_and_a_code(capsys, limits, code, said):
    assert main(["predict", *LONG, *limits]) == code
    page = capsys.readouterr().out
    for text in said:
        assert text in page


def test_the_json_has_the_margin(capsys):
    assert main(["predict", *LONG, "--deadline", "20 d", "--budget", "$2M", "--format", "json"]) == 1
    run = json.loads(capsys.readouterr().out)["run"]
    assert set(run["deadline"]) == {"s", "margin_s", "margin", "met", "probability", "practice"}
    assert set(run["budget"]) == {"usd", "margin_usd", "margin", "met", "probability", "practice"}
    assert run["deadline"]["margin_s"] == pytest.approx(20 * 86400.0 - run["wall_clock_s"])
    assert run["budget"]["margin"] == pytest.approx(1.0 - run["cost_usd"] / 2e6)
    assert (run["deadline"]["met"], run["budget"]["met"]) == (False, True)


def test_a_run_without_limits_has_none(capsys):
    assert main(["predict", *LONG, "--format", "json"]) == 0
    assert not {"deadline", "budget"} & set(json.loads(capsys.readouterr().out)["run"])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([*LONG, "--budget", "$0"], ("0 makes no sense here", "$2M")),
        ([*LONG, "--budget", "-$5"], ("a sum of money",)),
        ([*LONG, "--deadline", "0 d"], ("0 makes no sense here",)),
        ([*LONG, "--deadline", "-3 d"], ("negative",)),
        ([*RUN, "--deadline", "30 d"], ("no length of the run", "--tokens")),
        ([*RUN, "--tokens", "1T", "--budget", "$1M"], ("no price of H100-SXM5-80GB is known", "--price")),
        ([*LONG, "--budget", "$1M", "--set", "run.storage.checkpoints=3"], ("no price of storage of checkpoints", "run.storage.price")),
        ([*LONG, "--budget", "$1M", "--set", "run.dataset.bytes_per_token=4"], ("no price of storage of the data set", "data set to")),
        ([*RUN, "--deadline", "0 d", "--budget", "$0", "--set", "run.storage.checkpoints=3"],
         ("6 problems", "no length", "no price of H100-SXM5-80GB", "no price of storage of checkpoints")),
    ],
)  # fmt: skip
def test_what_cannot_be_held_is_refused_with_the_way_out(capsys, options, said):
    assert main(["predict", *options]) == 2
    error = capsys.readouterr().err
    for text in said:
        assert text in error


def test_traffic_without_a_price_is_asked_for(capsys, tmp_path):
    file = tmp_path / "two.yaml"
    file.write_text(
        """
model: llama-3.1-8b
plan: {sharding: fsdp, recompute: full, sync: {method: diloco}}
fleet:
  islands: [{name: a, gpus: 16xH100-SXM5-80GB, price: $2/gpu/h}, {name: b, gpus: 16xH100-SXM5-80GB, price: $2/gpu/h}]
  wan: {default: {bandwidth: 10 Gbps, rtt: 40 ms}}
run: {seq_len: 4096, global_batch: 64, tokens: 1B, budget: $10}
"""
    )
    assert main(["predict", str(file)]) == 2
    error = capsys.readouterr().err
    assert "no price of traffic from a is known" in error
    assert "fleet.wan.default.egress" in error
    assert main(["predict", str(file), "--set", "fleet.wan.default.egress=$0.02/GB"]) == 1


def test_a_plan_that_is_chosen_answers_for_its_limits(capsys):
    options = [
        "--model",
        "llama-3.1-8b",
        "--gpus",
        "16xH100-SXM5-80GB",
        "--plan",
        "auto",
        "--set",
        "plan.pp=1",
        "--set",
        "plan.cp=1",
    ]
    options += ["--tokens", "10B", "--price", "$2/gpu/h", "--format", "json"]
    assert main(["predict", *options, "--deadline", "30 d"]) == 0
    assert json.loads(capsys.readouterr().out)["run"]["deadline"]["met"]
    assert main(["predict", *options, "--deadline", "1 h"]) == 1
    assert not json.loads(capsys.readouterr().out)["run"]["deadline"]["met"]


# steps alone, and what whole runs took


def answer(capsys, *options):
    main(["predict", *options, "--format", "json"])
    return json.loads(capsys.readouterr().out)["run"]


def test_steps_that_nothing_interrupts_are_set_beside_whole_runs(capsys):
    run = answer(capsys, *LONG, "--deadline", "30 d", "--budget", "$80,000")
    seen, paid = run["deadline"]["practice"], run["budget"]["practice"]
    assert seen["factor"] == practice.factor(practice.HOPPER)
    assert seen["factor"] > 1.2
    assert seen["low"] < seen["factor"] < seen["high"]
    assert seen["s"] == pytest.approx(run["wall_clock_s"] * seen["factor"])
    assert paid["usd"] == pytest.approx(run["cost_usd"] * seen["factor"])
    assert run["deadline"]["probability"] > 0.99
    assert 0.3 < seen["probability"] < 0.9


def test_both_chances_stand_in_the_verdict_and_beside_the_answer(capsys):
    main(["predict", *LONG, "--deadline", "30 d"])
    page = capsys.readouterr().out
    assert "Steps alone keep the deadline with a chance of > 99 %; as whole runs went (1.30× their steps)," in page
    for text in ("steps alone: nothing interrupts this run", "deadline as runs go", "1.30× the hours of their steps"):
        assert text in " ".join(page.split()), text


@pytest.mark.parametrize(
    "said",
    ["run.failures=llama-3-405b", "run.checkpoint={every: 1 h}", "run.evaluation={every: 1000 steps, lasts: 10 min}"],
)
def test_what_is_said_to_interrupt_a_run_is_counted_and_not_guessed(capsys, said):
    assert "practice" not in answer(capsys, *LONG, "--set", said, "--deadline", "30 d")["deadline"]


def test_small_runs_and_older_accelerators_are_classes_of_their_own(capsys):
    small = [*LONG[:2], "--gpus", "8xH100-SXM5-80GB", *LONG[4:], "--deadline", "300 d"]
    older = [*LONG[:2], "--gpus", "64xA100-SXM4-80GB", *LONG[4:], "--deadline", "90 d"]
    assert [answer(capsys, *one)["deadline"]["practice"]["runs"] for one in (small, older)] == [
        practice.CLASSES[practice.TEAM], practice.CLASSES[practice.AMPERE]
    ]  # fmt: skip


def test_what_is_sent_does_not_cost_more_for_waiting():
    terms = [{"term": "accelerators of a", "usd": 100.0}, {"term": "traffic from a", "usd": 7.0}]
    assert (
        beside.hourly([*terms, {"term": "data set to a", "usd": 5.0}, {"term": "storage of checkpoints", "usd": 1.0}])
        == 101.0
    )


def test_of_a_target_no_chance_is_told(capsys):
    run = answer(
        capsys, *RUN, "--price", "$2/gpu/h", "--set", "run.target_loss=2.1", "--deadline", "30 d", "--budget", "$2M"
    )
    for limit in (run["deadline"], run["budget"]):
        assert (limit["met"], limit["probability"], limit["practice"]["probability"]) == (True, None, None)
    main(["predict", *RUN, "--set", "run.target_loss=2.1", "--deadline", "30 d"])
    page = " ".join(capsys.readouterr().out.split())
    assert "laws differ" in page
    assert "> 99 %" not in page
