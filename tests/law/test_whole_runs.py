"""Laws of whole runs under search: what a plan is compared by is what `predict` says of it, intervals hold the figure, limits are answered."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import shardmeter
from shardmeter.engine.fleet import stretched
from shardmeter.specs import Scenario
from shardmeter.study import trust
from shardmeter.study.course import course, legs_of, slowed, totals
from shardmeter.study.planning import block
from shardmeter.study.planning.objective import spent_of
from shardmeter.study.predict import predict

JOULES = 3.6e6
HALL = {"name": "oregon", "instance": "p5.48xlarge", "nodes": 2, "region": "aws:us-west-2"}
FAR = {"name": "iowa", "instance": "a3-ultragpu-8g", "nodes": 2, "region": "gcp:us-central1"}
SPOT = {"mtbf": "30 h", "wait": "20 min", "notice": "2 min"}


def question(seed: int, islands: int = 1) -> dict[str, Any]:
    """A random run: of a length, a loss or phases, that fails, is evaluated, is written, kept and fed, or not."""
    rng = random.Random(seed)
    run: dict[str, Any] = {"seq_len": 4096, "global_batch": rng.choice([256, 512])}
    kind = rng.choice(("tokens", "target", "phases") if islands == 1 else ("tokens", "target"))
    if kind == "phases":
        run["phases"] = [{"tokens": "5B", "global_batch": 128, "seq_len": rng.choice([2048, 4096])}, {"tokens": "20B"}]
    else:
        run |= {"tokens": "30B"} if kind == "tokens" else {"target_loss": rng.choice([2.25, 2.4])}
    if rng.random() < 0.6:
        run["failures"] = rng.choice(["llama-3-405b", {"mtbf": f"{rng.choice([500, 20_000])} h", "per": "gpu"}])
        run["checkpoint"] = {
            "every": rng.choice(["auto", "2 h", "300 steps"]), "blocking": rng.random() < 0.5, "bandwidth": "2 GB/s",
        }  # fmt: skip
    if rng.random() < 0.5:
        run["evaluation"] = {"every": rng.choice(["500 steps", "3 h"]), "lasts": "4 min"}
    if rng.random() < 0.5:
        run["storage"] = {"checkpoints": rng.choice([2, 10])}
    if rng.random() < 0.5:
        run["dataset"] = {"region": "gcp:europe-west4"}
    here = [{**HALL, **({"preemption": SPOT} if rng.random() < 0.4 else {})}, dict(FAR)][:islands]
    sync = {"sync": {"method": "diloco", "sync_every": [20, 100]}} if islands > 1 else {}
    if islands > 1 and rng.random() < 0.4:
        sync = {"sync": {"method": "every_step"}}
    pins = {"auto": True, "pp": 1, "cp": 1, "tp": [1, 2], "micro_batch": [1, 2], "recompute": "full", "reshard": True}
    return {"model": "llama-3.1-8b", "fleet": {"islands": here}, "plan": {**pins, **sync}, "run": run}


def run_of(scenario: Scenario, *, sure: bool = False) -> dict[str, Any]:
    """`run` of the answer."""
    found = course(scenario, predict(scenario).whole, trust.paces(scenario) if sure else None)
    assert found is not None
    return found


def figures(scenario: Scenario) -> dict[str, float]:
    """What `predict` says of the run, by objective."""
    found = run_of(scenario)
    return {"time": found["wall_clock_s"], "cost": found["cost_usd"], "energy": JOULES * found["energy_kwh"]}


@pytest.mark.parametrize("seed", range(20))
def test_a_plan_is_compared_by_what_predict_says(seed):
    words = ["time", "cost", "energy"]
    random.Random(seed).shuffle(words)
    found = shardmeter.plan(question(seed), objective=words[: 1 + seed % 3], top=4)
    for row in (*found.ranked, *found.front):
        assert row.value == pytest.approx(figures(row.scenario)[words[0]], rel=1e-9)
    best = min(figures(row.scenario)[words[0]] for row in found.ranked)
    assert found.best is not None
    assert found.best.value <= best * 1.01  # the simplest of the first band of 1 %


@pytest.mark.parametrize("seed", range(100, 108))
def test_a_plan_of_islands_is_compared_by_what_predict_says(seed):
    word = ("time", "cost")[seed % 2]
    found = shardmeter.plan(question(seed, islands=2), objective=word, top=3)
    assert found.ranked
    for row in found.ranked:
        assert row.value == pytest.approx(figures(row.scenario)[word], rel=1e-9)


@pytest.mark.parametrize("seed", [2, 5, 104])
def test_an_entry_is_predicted_with_its_figures(seed):
    answer = shardmeter.plan(question(seed, islands=2 if seed >= 100 else 1), objective="cost", top=1).to_dict()
    (entry,) = answer["plans"]
    run = shardmeter.predict(entry["scenario"]).to_dict()["run"]
    for key in ("wall_clock_s", "gpu_hours", "cost_usd", "energy_kwh"):
        assert entry[key] == pytest.approx(run[key], rel=1e-9), key


@pytest.mark.parametrize("seed", [3, 8, 14])
def test_no_plan_of_the_space_is_better(monkeypatch, seed):
    """With every plan priced to the end, and none left out by a bound, the first is the same."""
    found = shardmeter.plan(question(seed), objective="cost", top=1)
    monkeypatch.setattr(block, "_promising", block._pricing)
    whole = shardmeter.plan(question(seed), objective="cost", top=1)
    assert found.best is not None
    assert whole.best is not None
    assert found.best.value == whole.best.value


def test_one_plan_in_which_a_phase_does_not_fit_is_out():
    asked = question(0) | {"run": {"seq_len": 4096, "global_batch": 256, "tokens": "10B"}}
    asked["plan"] = {**asked["plan"], "recompute": "none", "micro_batch": [1, 2, 4]}
    plain = shardmeter.plan(asked, top=20)
    longer = {"phases": [{"tokens": "9B"}, {"tokens": "1B", "seq_len": 16384, "global_batch": 64}]}
    asked["run"] = {"seq_len": 4096, "global_batch": 256, **longer}
    phased = shardmeter.plan(asked, top=20)
    feasible = [one.to_dict()["space"]["feasible"] for one in (phased, plain)]
    assert 0 < feasible[0] < feasible[1]
    assert all(one["fits"] for row in phased.ranked for one in run_of(row.scenario)["phases"])


# ---- intervals -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(200, 212))
def test_a_longer_step_never_makes_a_run_shorter_or_cheaper(seed):
    asked = question(seed, islands=1 + seed % 2)
    asked["plan"] = {"sharding": "fsdp", "recompute": "full", "sync": {"method": "diloco", "sync_every": 50}}
    scenario = shardmeter.predict(asked).scenario
    whole = predict(scenario).whole
    legs = legs_of(scenario, whole) or ()
    rows = [totals(scenario.run, slowed(scenario, legs, one, one) or ()) for one in np.linspace(0.5, 3.0, 26)]
    for name in ("seconds", "held", "paid", "drawn"):
        values = np.array([float(getattr(one, name)) for one in rows])
        assert np.all(np.diff(values) > 0.0), name


@pytest.mark.parametrize("seed", range(300, 310))
def test_an_interval_holds_its_figure(seed):
    asked = question(seed, islands=1 + seed % 2)
    asked["plan"] = {"sharding": "fsdp", "recompute": "full", "sync": {"method": "diloco", "sync_every": 50}}
    scenario = shardmeter.predict(asked).scenario
    run = run_of(scenario, sure=True)
    for key in ("wall_clock_s", "gpu_hours", "cost_usd", "energy_kwh"):
        low, high = run["intervals"][key]
        assert low < run[key] < high, key
    assert (run["goodput"] is None) == (run["intervals"]["goodput"] is None)


def test_what_does_not_depend_on_the_step_is_the_same_at_both_ends():
    asked = question(0)
    asked["plan"] = {"sharding": "fsdp", "recompute": "full"}
    asked["run"] = {"seq_len": 4096, "global_batch": 256, "tokens": "30B"}
    alone, fed = (
        shardmeter.predict({**asked, "run": {**asked["run"], **more}}).to_dict()
        for more in ({}, {"dataset": {"egress": "$0.09/GB", "price": "$0/GB/month", "bytes_per_token": 4}})
    )
    way = 30e9 * 4 * 0.09 / 1e9
    for low_or_high in (0, 1):
        ends = [one["intervals"]["cost_usd"][low_or_high] for one in (alone, fed)]
        assert ends[1] - ends[0] == pytest.approx(way, rel=1e-6)


def test_a_step_that_is_as_long_changes_nothing():
    scenario = shardmeter.predict(
        {**question(101, islands=2), "plan": {"sharding": "fsdp", "recompute": "full", "sync": {"method": "diloco"}}}
    ).scenario
    whole = predict(scenario).whole
    same = stretched(whole, scenario.plan, 1.0, 1.0)
    assert float(same.estimate.step_time) == pytest.approx(float(whole.estimate.step_time), rel=1e-12)
    assert [float(one) for one in same.paid] == pytest.approx([float(one) for one in whole.paid], rel=1e-12)


# ---- limits ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(400, 406))
def test_a_limit_is_kept_up_to_the_figure_itself(seed):
    asked = question(seed)
    asked["plan"] = {"sharding": "fsdp", "recompute": "full"}
    scenario = shardmeter.predict(asked).scenario
    spent = spent_of(scenario, predict(scenario).whole)
    lasts, paid = float(spent.lasts), float(spent.paid or 0.0)
    for factor, met in ((0.999, False), (1.001, True)):
        overrides = [f"run.deadline={factor * lasts!r} s", f"run.budget=${factor * paid:.6f}"]
        run = shardmeter.predict(asked, overrides=overrides).to_dict()["run"]
        assert (run["deadline"]["met"], run["budget"]["met"]) == (met, met)
        assert run["deadline"]["margin_s"] == pytest.approx((factor - 1.0) * lasts, rel=1e-3)
        chance = run["deadline"]["probability"]
        assert chance is None if scenario.run.target_loss is not None else 0.0 < chance < 1.0


def test_more_time_is_never_less_likely_to_do():
    asked = {**question(0), "plan": {"sharding": "fsdp", "recompute": "full"}}
    asked["run"] = {"seq_len": 4096, "global_batch": 256, "tokens": "30B"}
    wall = shardmeter.predict(asked).to_dict()["intervals"]["wall_clock_s"]
    chances = [
        shardmeter.predict(asked, overrides=[f"run.deadline={one!r} s"]).to_dict()["run"]["deadline"]["probability"]
        for one in (0.8 * wall[0], *wall, 1.2 * wall[1])
    ]
    assert chances == sorted(chances)
    assert chances[1:3] == pytest.approx([0.05, 0.95], abs=1e-3)
