"""The search over several islands finds what predicting every joint plan alone finds, and its bounds are none."""

from __future__ import annotations

import copy
import itertools
import math
import random
import time
from typing import Any

import numpy as np
import pytest

from shardmeter.core.errors import BadScenario
from shardmeter.engine.sharing import IndivisibleBatch
from shardmeter.scenario import load
from shardmeter.specs import Inner
from shardmeter.study.course import course
from shardmeter.study.planning import assignments, subsets
from shardmeter.study.planning.fleet_plans import FleetPlans, plan_fleet
from shardmeter.study.planning.team import Bound
from shardmeter.study.predict import predict
from shardmeter.sync import defaults, faults, inner_of, method, names

DEVICES = ("H100-SXM5-80GB", "A100-SXM4-80GB", "H200-SXM5-141GB", "A100-SXM4-40GB")
METHODS = (
    ["every_step"], ["diloco"], ["streaming_diloco", "every_step"], ["decoupled_diloco"], ["async_local_sgd", "diloco"],
    ["eager_diloco"], ["sparse_loco", "local_sgd"], ["block_train", "diloco"], ["mezo", "every_step"], ["block_train"],
    ["branch_train_merge", "diloco"], ["branch_train_merge"], ["noloco", "demo", "powersgd"], ["soma"],
)  # fmt: skip
JOINT = (0, 1, 2, 5, 6, 7, 9, 13, 14, 15, 16, 17, 20, 21)
"""Of the drawn fleets those with every group of methods, two islands and three, all of them and any, under each objective."""


def drawn(seed: int) -> dict[str, Any]:
    """A small fleet with at most four plans an island, and several ways to keep it together."""
    rng = random.Random(seed)
    islands = [
        {
            "name": name,
            "accelerator": rng.choice(DEVICES),
            "nodes": rng.choice((1, 1, 2)),
            "price": f"${rng.choice((1, 2, 3))}/gpu/h",
        }
        for name in "abc"[: rng.choice((2, 3))]
    ]
    line = {"bandwidth": rng.choice(("1 Gbps", "10 Gbps", "100 Gbps")), "rtt": rng.choice(("1 ms", "40 ms"))}
    links = [{"between": ["a", "b"], "bandwidth": "3 Gbps", "rtt": "9 ms"}] if rng.random() < 0.5 else []
    return {
        "model": "llama-3.2-1b",
        "fleet": {"islands": islands, "wan": {"default": {**line, "egress": "$0.02/GB"}, "links": links}, "use": "any" if len(islands) == 2 else rng.choice(("all", "all", "any"))},
        "run": {"seq_len": 2048, "global_batch": rng.choice((96, 128, 192)), "tokens": "10B"},
        "plan": {
            "tp": [1, 2], "pp": 1, "cp": 1, "dp_replicate": 1, "sharding": "fsdp", "reshard": True, "recompute": "none",
            "micro_batch": [1, 2] if len(islands) == 2 else [rng.choice((1, 2))], "sync": {"method": rng.choice(METHODS), "bits": [8, 16], "blocks": 2},
        },
    }  # fmt: skip


def found(document: dict[str, Any], *objectives: str, top: int = 3) -> FleetPlans:
    return plan_fleet(load(copy.deepcopy(document), planning=True), objectives=objectives, top=top)


def every(document: dict[str, Any]) -> list[tuple[float, float]]:
    """(seconds, dollars) of every joint plan that fits, each predicted alone; islands of one kind have one plan."""
    plan, islands = document["plan"], document["fleet"]["islands"]
    own = [{"tp": tp, "micro_batch": size} for tp in plan["tp"] for size in plan["micro_batch"]]
    fewest = len(islands) if document["fleet"]["use"] == "all" else 1
    made = []
    for count in range(fewest, len(islands) + 1):
        for team in itertools.combinations(islands, count):
            kinds = list(dict.fromkeys((one["accelerator"], one["nodes"]) for one in team))
            for chosen in itertools.product(own, repeat=len(kinds)):
                laid = [{**one, "plan": chosen[kinds.index((one["accelerator"], one["nodes"]))]} for one in team]
                made += [figures for way in ways(plan["sync"], count) if (figures := alone(document, laid, way))]
    return made


def ways(sync: dict[str, Any], islands: int) -> list[dict[str, Any]]:
    if islands == 1:  # it trains the whole model by itself, which those with another inner step do not compare with
        return [{}] if any(inner_of(defaults(name)) == Inner() for name in sync["method"]) else []
    return [
        {"sync": {"method": name} | {field: value for field, value in fields.items() if field in method(name).FIELDS}}
        for name in sync["method"]
        for bits in (sync["bits"] if "bits" in method(name).FIELDS else sync["bits"][:1])
        for fields in ({"bits": bits, "blocks": sync["blocks"]},)
    ]


def alone(document: dict[str, Any], islands: list[dict[str, Any]], way: dict[str, Any]) -> tuple[float, float] | None:
    said = {name: document["plan"][name] for name in ("sharding", "pp", "cp", "reshard", "recompute")}
    there = {one["name"] for one in islands}
    wan = document["fleet"]["wan"]
    links = [one for one in wan["links"] if there >= set(one["between"])]
    scenario = {**document, "fleet": {"islands": islands, "wan": {**wan, "links": links}}, "plan": said | way}
    try:
        one = predict(load(scenario))
    except IndivisibleBatch:
        return None
    except BadScenario as error:  # equal parts that no whole micro-batches make up
        if {each.field for each in error.violations} == {"run.global_batch"}:
            return None
        raise
    spent = course(one.scenario, one.whole)
    return (spent["wall_clock_s"], spent["cost_usd"]) if one.fits and spent else None


@pytest.mark.parametrize("seed", JOINT)
def test_the_best_of_a_small_fleet_is_that_of_every_joint_plan(seed: int) -> None:
    document = drawn(seed)
    objectives = (("time",), ("cost",), ("time", "cost"))[seed % 3]
    answer, alone_ = found(document, *objectives), every(document)
    place = ("time", "cost").index(objectives[0])
    if not alone_:
        assert answer.best is None
        return
    assert answer.best is not None
    assert answer.optimal
    assert answer.best.value == pytest.approx(min(one[place] for one in alone_), rel=1e-9)
    if len(objectives) > 1:
        front = [
            one
            for one in sorted(set(alone_))
            if not any(o[0] <= one[0] and o[1] <= one[1] and o != one for o in alone_)
        ]
        rows = [one.to_dict(answer.found.goal) for one in answer.front]
        assert np.allclose([(row["wall_clock_s"], row["cost_usd"]) for row in rows], front, rtol=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_every_listed_plan_has_the_same_figures_in_predict(seed: int) -> None:
    answer = found(drawn(seed), "time", "cost", top=6)
    for row in (*answer.to_dict()["plans"], *answer.to_dict()["pareto"]):
        one = predict(load(copy.deepcopy(row["scenario"]))).to_dict()
        assert one["fits"]
        for name in ("step_time_s", "tokens_per_s", "mfu", "gpus"):
            assert one[name] == row[name]
        for name in ("wall_clock_s", "cost_usd"):
            assert one["run"][name] == row[name]
        shown = {island["name"]: island for island in row["islands"]}
        assert [shown[island["name"]]["tokens_per_s"] for island in one["islands"]] == [
            island["tokens_per_s"] for island in one["islands"]
        ]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("objective", ["time", "cost"])
def test_an_island_more_to_choose_from_never_lowers_the_best(seed: int, objective: str) -> None:
    document = drawn(100 + seed)
    document["fleet"]["use"] = "any"
    before = found(document, objective)
    document["fleet"]["islands"].append(
        {"name": "d", "accelerator": DEVICES[seed % 4], "nodes": 2, "price": "$1/gpu/h"}
    )
    after = found(document, objective)
    assert before.best is not None
    assert after.best is not None
    assert after.best.value <= before.best.value * (1.0 + 1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_the_order_and_the_names_of_islands_change_nothing(seed: int) -> None:
    document = drawn(200 + seed)
    other = copy.deepcopy(document)
    other["fleet"]["islands"].reverse()
    text = {"a": "x", "b": "y", "c": "z"}
    for island in other["fleet"]["islands"]:
        island["name"] = text[island["name"]]
    for link in other["fleet"]["wan"]["links"]:
        link["between"] = [text[name] for name in link["between"]]
    one, two = found(document).best, found(other).best
    assert one is not None
    assert two is not None
    assert two.value == pytest.approx(one.value, rel=1e-9)


def test_pins_hold_of_all_islands_and_of_one() -> None:
    document = drawn(5)
    document["plan"] = {"pp": 1, "cp": 1, "tp": [1, 2], "sync": {"method": "diloco", "sync_every": [20, 40], "bits": 4}}
    document["fleet"]["islands"][0]["plan"] = {"tp": 4, "recompute": "full"}
    for ranked in found(document, top=4).ranked:
        sync = ranked.scenario.plan.sync
        assert (sync.method, sync.bits) == ("diloco", 4.0)
        assert sync.sync_every in (20.0, 40.0)
        for island, plan in zip(ranked.scenario.fleet.islands, ranked.scenario.plans, strict=True):
            assert (plan.pp, plan.cp) == (1, 1.0)
            if island.name == "a":
                assert (plan.tp, plan.recompute) == (4.0, "full")
            else:
                assert plan.tp in (1.0, 2.0)


@pytest.mark.parametrize("name", names())
def test_no_choice_of_plans_is_below_its_bound(name: str) -> None:
    document = drawn(7)
    document["fleet"]["use"] = "all"
    document["plan"]["sync"] = {"method": name} | ({"perturbations": 192} if name == "eggroll" else {})
    document["run"]["global_batch"] = 192
    for field, *_ in faults(defaults(name), len(document["fleet"]["islands"])):
        document["plan"]["sync"][field] = 1  # part, where there are too few islands for those that it would deal out
    answer = found(document)
    team, goal, (way,) = answer.found.joined.rows[0].team, answer.found.goal, answer.found.ways
    bound = Bound(team, way)
    for chosen in itertools.product(*(range(len(one.tables)) for one in team.insides)):
        whole = team.whole(chosen, way)
        if whole is None:
            continue
        value = assignments.figures(goal, team.islands, 1e10, *assignments.spent(whole), 0.0).columns[0]
        for depth in range(len(chosen) + 1):
            assert assignments.floor(bound, goal, chosen[:depth]) <= value * (1.0 + 1e-12)
    steps = [float(bound.step(key)) for key in np.geomspace(1e-3, 1e3, 60)]
    assert all(later >= earlier * (1.0 - 1e-12) for earlier, later in itertools.pairwise(steps))


def test_too_many_teams_are_climbed_and_the_gap_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    document = drawn(9)
    document["fleet"]["use"] = "any"
    exact = found(document, "cost")
    monkeypatch.setattr(subsets, "MOST", 0)
    climbed = found(document, "cost")
    assert exact.best is not None
    assert climbed.best is not None
    assert exact.optimal
    assert exact.best.value <= climbed.best.value <= exact.best.value * (1.0 + climbed.gap + 1e-9)


def test_equal_islands_are_counted() -> None:
    document = drawn(3)
    document["fleet"] = {"islands": [{"name": "home", "gpus": "1xH100-SXM5-80GB", "count": 6}], "use": "any",
                         "wan": {"default": {"bandwidth": "100 Mbps", "rtt": "30 ms"}}}  # fmt: skip
    document["plan"] = {"tp": 1, "sync": {"method": "diloco", "sync_every": 50}}
    answer = found(document)
    assert answer.found.teams <= 6
    assert len(answer.found.insides) == 1
    sizes = {len(one.scenario.fleet.islands): one.value for one in answer.ranked}
    assert min(sizes.values()) == answer.ranked[0].value


def test_twenty_four_unlike_islands_take_less_than_twenty_seconds() -> None:
    islands = [
        {"name": f"i{at}", "accelerator": DEVICES[at % 4], "nodes": 1 + at // 4, "price": f"${1 + at % 3}/gpu/h"}
        for at in range(24)
    ]
    document = {
        "model": "llama-3.2-1b", "fleet": {"islands": islands, "wan": {"default": {"bandwidth": "10 Gbps", "rtt": "40 ms"}}},
        "run": {"seq_len": 2048, "global_batch": 4096},
        "plan": {
            "pp": 1, "cp": 1, "sharding": "fsdp", "tp": [1, 2], "dp_replicate": 1, "reshard": True, "recompute": "none",
            "micro_batch": [1, 2], "sync": {"method": "diloco"},
        },
    }  # fmt: skip
    began = time.process_time()
    answer = found(document)
    assert time.process_time() - began < 20.0
    assert answer.best is not None
    assert math.isfinite(answer.gap)
    assert answer.gap < 0.25


def test_leaving_out_an_island_that_only_slows_is_said() -> None:
    document = drawn(11)
    document["fleet"]["use"] = "all"
    document["plan"]["sync"] = {"method": "every_step"}
    document["fleet"]["wan"] = {
        "default": {"bandwidth": "100 Gbps", "rtt": "1 ms"},
        "sites": {"b": {"up": "20 Mbps", "down": "20 Mbps"}},
    }
    answer = found(document)
    assert "b" in [name for name, _ in answer.without]
    document["fleet"]["use"] = "any"
    assert "b" not in [island.name for island in found(document).best.scenario.fleet.islands]  # type: ignore[union-attr]


def test_a_stop_gives_what_was_found() -> None:
    scenario = load(drawn(1), planning=True)
    answer = plan_fleet(scenario, top=3, stop=lambda: True)
    assert answer.stopped
    assert not answer.optimal


def test_large_micro_batches_do_not_hide_finer_ones_that_share_the_batch_by_speed() -> None:
    document = drawn(3)
    document["fleet"] = {
        "islands": [{"name": "a", "gpus": "8xH100-SXM5-80GB"}, {"name": "b", "gpus": "8xA100-SXM4-80GB"}], "use": "all",
        "wan": {"default": {"bandwidth": "1 Gbps", "rtt": "10 ms"}},
    }  # fmt: skip
    document["run"] = {"seq_len": 2048, "global_batch": 512}
    open_: dict[str, Any] = {
        "tp": [1, 2],
        "pp": 1,
        "cp": 1,
        "micro_batch": [4, 8, 16, 32],
        "sync": {"method": "eggroll", "perturbations": 512},
    }
    document["plan"] = open_
    best = found(document).best
    assert best is not None
    for size in open_["micro_batch"]:
        document["plan"] = {**open_, "micro_batch": size}
        pinned = found(document).best
        assert pinned is not None
        assert best.value <= pinned.value * (1.0 + 1e-9)


def test_the_best_of_every_method_is_listed() -> None:
    document = drawn(3)
    document["fleet"]["use"] = "all"
    asked = ["mezo", "diloco", "demo", "noloco"]
    document["plan"]["sync"] = {"method": asked}
    several = found(document, top=5)
    assert {one.scenario.plan.sync.method for one in several.ranked} == set(asked)
    assert [one.value for one in several.ranked] == sorted(one.value for one in several.ranked)
    for name in asked:
        document["plan"]["sync"] = {"method": name}
        alone_ = found(document).best
        assert alone_ is not None
        best = min(one.value for one in several.ranked if one.scenario.plan.sync.method == name)
        assert best == pytest.approx(alone_.value, rel=1e-12)
