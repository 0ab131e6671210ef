"""What cannot be a run is refused with the numbers and the way out, everything at once; a price that is not known is asked for."""

import json

import pytest

from shardmeter.cli import main

BASE = ["--model", "llama-3.1-8b", "--gpus", "64xH100-SXM5-80GB", "--plan", "fsdp"]
LAW = ["run.law=chinchilla"]


def sets(*overrides):
    return [word for text in overrides for word in ("--set", text)]


def refusal(capsys, *overrides, base=BASE):
    """What is said of a scenario that is refused."""
    code = main(["predict", *base, *sets(*overrides)])
    seen = capsys.readouterr()
    assert (code, seen.out) == (2, "")
    assert "Traceback" not in seen.err
    return seen.err


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        ([*LAW, "run.target_loss=1.5"], ["1.5 is not reached", "E + A/N^α = 1.69 + 0.178", "above 1.868"]),
        ([*LAW, "run.target_loss=1.69"], ["1.69 is not reached", "above its irreducible term"]),
        ([*LAW, "run.target_loss=1.867"], ["1.867 is not reached", "above 1.868"]),
        ([*LAW, "run.target_loss=0"], ["0 makes no sense", "at least"]),
        ([*LAW, "run.target_loss=-2"], ["-2", "negative"]),
        ([*LAW, "run.target_loss=.nan"], ["not finite"]),
        ([*LAW, "run.target_loss=.inf"], ["not finite"]),
        ([*LAW, "run.target_loss=2.2", "run.tokens=1T"], ["tokens say the length", "keep one"]),
        ([*LAW, "run.target_loss=2.2", "run.steps=1000"], ["steps say the length", "keep one"]),
        (["run.law=chinchila", "run.target_loss=2.2"], ["unknown law", "hoffmann-2022"]),
        (["run.budget=$0"], ["0 makes no sense", "$2M"]),
        (["run.budget=0"], ["no unit", "$2M"]),
        (["run.budget=-$5"], ["run.budget=-$5"]),
        (["run.deadline=-1 d"], ["negative"]),
        (["run.tokens=0"], ["0 tokens is too small; at least 1"]),
        (["run.tokens=.nan"], ["not finite"]),
        (["run.tokens=inf"], ["finite"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_loss_a_budget_a_length(capsys, overrides, says):
    said = refusal(capsys, *overrides)
    assert [text for text in says if text not in said] == []


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["run.failures={mtbf: -3 h, per: gpu}"], ["'-3 h' is negative"]),
        (["run.failures={mtbf: 0 h, per: gpu}"], ["0 makes no sense", "2 h or 30 d"]),
        (["run.failures={mtbf: .nan, per: gpu}"], ["no unit"]),
        (["run.failures={mtbf: inf h, per: gpu}"], ["finite"]),
        (["run.failures={mtbf: 3 h, per: rack}"], ["gpu", "node", "island"]),
        (["run.failures={per: gpu}"], ["mtbf"]),
        (["run.failures=llama4"], ["unknown failures", "llama-3-405b, aws-spot", "nearest"]),
        (["fleet.islands.0.preemption=gcp-spt"], ["unknown failures", "gcp-spot-cpu-2023"]),
        (["run.failures={mtbf: 1 min, per: gpu}", "run.tokens=1T"], ["does not end", "a shorter restart"]),
        (["run.checkpoint={every: 1 h, bandwidth: 0 GB/s}"], ["0 makes no sense", "50 GB/s"]),
        (["run.checkpoint={every: 1 h, bandwidth: -1 GB/s}"], ["negative"]),
        (["run.checkpoint={every: 0 steps}"], ["steps"]),
        (["run.checkpoint={every: auto}"], ["how often something fails"]),
        (["run.storage={checkpoints: 0}"], ["0 makes no sense", "at least 1"]),
        (["run.storage={kind: tape, checkpoints: 3}"], ["unknown key", "did you mean"]),
        (["run.storage={checkpoints: 3, region: mars:north}"], ["unknown region", "aws:eu-north-1"]),
        (["run.storage={region: aws:us-east-1}"], ["how many checkpoints are kept", "storage: {checkpoints: 3}"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_failures_checkpoints_stores(capsys, overrides, says):
    said = refusal(capsys, *overrides)
    assert [text for text in says if text not in said] == []


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["fleet.islands.0.price=$-2/gpu/h"], ["negative"]),
        (["fleet.islands.0.price=$inf/gpu/h"], ["finite"]),
        (["fleet.islands.0.price=2.10"], ["$2.10/gpu/h"]),
        (["fleet.islands.0.spot=true"], ["spot prices belong to an instance"]),
        (["run.storage={checkpoints: 3, price: 0.023}"], ["no unit", "/GB/month"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_prices(capsys, overrides, says):
    said = refusal(capsys, *overrides)
    assert [text for text in says if text not in said] == []


def test_everything_that_is_wrong_is_said_at_once(capsys):
    wrong = (
        "run.failures={mtbf: -3 h, per: rack}", "run.checkpoint={bandwidth: 0 GB/s, every: 0 steps}", "run.budget=$0",
        "run.storage={checkpoints: 0}", "run.target_loss=.nan", "fleet.islands.0.price=$-2/gpu/h", "fleet.islands.0.preemption=gcp-spt",
    )  # fmt: skip
    said = refusal(capsys, *wrong)
    fields = ("mtbf", "per", "bandwidth", "every", "budget", "checkpoints", "target_loss", "price", "preemption")
    assert [field for field in fields if f"{field}" not in said] == []
    assert f"{len(fields)} problems" in said


@pytest.mark.parametrize(
    ("base", "overrides", "says"),
    [
        (BASE, [], "say price: $2.10/gpu/h"),
        (["--model", "llama-3.1-8b", "--instance", "8xp6e-gb200.36xlarge"], [], "say price"),
        (["--model", "llama-3.1-8b", "--instance", "8xp6e-gb200.36xlarge"], ["fleet.islands.0.spot=true"], "spot"),
        ([*BASE, "--price", "$2/gpu/h"], ["run.storage={checkpoints: 3}"], "say run.storage.price: $0.023/GB/month"),
        ([*BASE, "--price", "$2/gpu/h"], ["run.dataset={region: aws:us-east-1}"], "cost is null"),
    ],
    ids=["rent", "an instance's", "on the spot market", "a store's", "traffic"],
)
def test_a_price_that_is_not_known_is_asked_for_and_never_zero(capsys, base, overrides, says):
    main(["predict", *base, "--tokens", "1T", *sets(*overrides), "--format", "json"])
    seen = capsys.readouterr()
    found = json.loads(seen.out)
    assert found["run"]["cost_usd"] is None
    assert all(one["usd"] is not None for one in found["run"]["cost_terms"])
    assert any("the cost is null" in text and says in text for text in found["warnings"]), found["warnings"]
    assert says in seen.err


def predicted(capsys, *overrides):
    assert main(["predict", *BASE, "--tokens", "100B", *sets(*overrides), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    return found["run"], found["assumptions"]


CHECKPOINT, STORE = (
    "run.checkpoint={every: 1 h, bytes_per_parameter: %g}",
    "run.storage={checkpoints: 2, price: $0.023/GB/month%s}",
)


def stored(run):
    return (
        next(one["usd"] for one in run["cost_terms"] if one["term"] == "storage of checkpoints") / run["wall_clock_s"]
    )


def test_the_bytes_of_a_state_are_said_once(capsys):
    both, _ = predicted(capsys, CHECKPOINT % 8, STORE % ", bytes_per_parameter: 8")
    written, _ = predicted(capsys, CHECKPOINT % 8, STORE % "")
    kept, said = predicted(capsys, "run.checkpoint={every: 1 h}", STORE % ", bytes_per_parameter: 8")
    neither, left_out = predicted(capsys, "run.checkpoint={every: 1 h}", STORE % "")
    for one in (written, kept):
        assert one["checkpoints"] == both["checkpoints"]
        assert stored(one) == stored(both)
    assert neither["checkpoints"]["write_s"] == pytest.approx(both["checkpoints"]["write_s"] * 14 / 8)
    assert stored(neither) == pytest.approx(stored(both) * 14 / 8)
    assert "run.checkpoint.bytes_per_parameter = 8 (run.storage)" in said
    assert [text for text in left_out if "bytes_per_parameter" in text] == [
        "run.checkpoint.bytes_per_parameter = 14 (left out)"
    ]


def test_where_something_fails_the_store_says_how_large_a_checkpoint_is(capsys):
    run, _ = predicted(capsys, "run.failures=llama-3-405b", STORE % ", bytes_per_parameter: 7")
    other, _ = predicted(capsys, "run.failures=llama-3-405b")
    assert run["checkpoints"]["write_s"] == pytest.approx(other["checkpoints"]["write_s"] / 2)


def test_a_store_and_checkpoints_that_contradict_each_other(capsys):
    said = refusal(
        capsys, "run.checkpoint={every: 1 h, bytes_per_parameter: 14, keep: 3}", STORE % ", bytes_per_parameter: 8"
    )
    for text in (
        "2 problems",
        "14, but run.storage.bytes_per_parameter = 8",
        "3, but run.storage.checkpoints = 2",
        "keep one of the two",
    ):
        assert text in said


def test_a_run_that_never_gets_on_names_what_stops_it(capsys):
    said = refusal(capsys, "run.tokens=1T", "run.failures={mtbf: 1 s, per: island}")
    assert "the run does not end" in said
    assert "run.failures: one interruption every 1 s" in said


def test_long_pauses_end_and_so_does_a_run_of_them(capsys):
    """Pauses that are asked for are no interruptions, however much of the time they take."""
    for asked in ("run.evaluation={every: 1 steps, lasts: 10 h}", "run.checkpoint={every: 1 h, bandwidth: 1 MB/s}"):
        code = main(["predict", *BASE, *sets("run.tokens=1M", asked), "--format", "json"])
        run = json.loads(capsys.readouterr().out)["run"]
        assert code == 0
        assert run["wall_clock_s"] == pytest.approx(sum(one["seconds"] for one in run["hours"]))


def test_a_phase_of_one_token_does_not_stop_the_run(capsys):
    phases = "run.phases=[{tokens: 1}, {tokens: 100B}]"
    assert main(["predict", *BASE, *sets(phases, "run.failures={mtbf: 2000 h, per: gpu}"), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["run"]["goodput"] > 0.9
