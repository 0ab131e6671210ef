"""Laws of the joint search over placement, schedule and network: parts of one space are never ahead of the whole, and what is said is what
`predict` says."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from shardmeter.core.record import changed
from shardmeter.scenario import load, opened
from shardmeter.schedules import Boundary, Slot
from shardmeter.schedules._long import one_f_one_b
from shardmeter.study.predict import predict
from shardmeter.study.scale_across import intervals, networks, schedules, search
from shardmeter.study.scale_across.answer import scale_across
from shardmeter.study.scale_across.cluster import Cluster
from shardmeter.study.scale_across.crossings import crossings
from shardmeter.study.scale_across.degrees import degrees_of, plan_said, sets
from shardmeter.study.scale_across.networks import networked
from shardmeter.study.scale_across.placements import placed, placements, steps_of
from shardmeter.study.scale_across.published import published
from shardmeter.study.scale_across.question import question
from shardmeter.study.scale_across.steps import fits, legal, whole_of

KEYS = ("placement", "schedule", "network", "placement+schedule", "placement+network", "schedule+network")


def document(**fleet: Any) -> dict[str, Any]:
    """Two halls of 16 GPUs."""
    island = {"name": "hall", "count": 2, "accelerator": "H100-SXM5-80GB", "nodes": 2, "price": "$2/gpu/h"} | fleet
    line = {"bandwidth": "100 Gbit/s", "distance": "400 km", "shared": "gpu"}
    return {
        "model": "llama-3.1-8b", "stack": "mcore-2024", "fleet": {"islands": [island], "wan": {"default": line}},
        "plan": {"sharding": "zero1", "tp": 2, "pp": 2}, "run": {"seq_len": 4096, "global_batch": 32},
    }  # fmt: skip


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer words, so that every combination can be predicted one by one."""
    monkeypatch.setattr(schedules, "WORDS", ("1f1b", "interleaved", "zb-h1"))
    monkeypatch.setattr(schedules, "MICRO_BATCHES", (1.0,))
    monkeypatch.setattr(schedules, "AHEAD", (0.0, 1.0))
    monkeypatch.setattr(schedules, "MOST_AHEAD", 1.0)
    monkeypatch.setattr(networks, "BALANCES", (("ecmp", 16.0), ("planned", 16.0)))
    monkeypatch.setattr(networks, "TRANSPORTS", ("rdma",))
    monkeypatch.setattr(networks, "WINDOWS", (networks.WINDOWS[0], networks.WINDOWS[2]))


def answer(said: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    opened_, rows = opened(said)
    return scale_across(opened_, rows, question(opened_, rows, over)).to_dict()


def combinations(found: search.Search, row: int) -> Iterator[tuple[Any, Any, Any, float]]:
    """(placement, schedule, network, step) of every legal combination that fits, each predicted alone."""
    base = found.degrees.scenario
    islands = base.fleet.islands
    for placement in placements(islands, base.plan, base.plans, steps_of(islands, int(base.plan.pp))):
        for order in schedules.orders(base.plan, float(base.model.layers)):
            for one in schedules.crossings(order, placement):
                made = schedules.scheduled(placed(base, placement), one)
                if not legal(made):
                    continue
                for network in networks.networks():
                    whole = whole_of(made, networked(found.rows[row].wan, network))
                    if fits(whole.estimate):
                        yield placement, one, network, float(whole.estimate.step_time)


def test_search_equals_every_combination_predicted_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The joint optimum and every part of the space, on a far line."""
    monkeypatch.setattr(schedules, "MICRO_BATCHES", (1.0, 2.0))
    monkeypatch.setattr(schedules, "WORDS", ("1f1b", "interleaved"))
    monkeypatch.setattr(networks, "BALANCES", (("ecmp", 16.0),))
    said, rows = opened(document())
    own, _ = degrees_of(said, rows, lambda wan, _: wan)
    wan = own[0].scenario.fleet.wan
    assert wan is not None
    far = search.Row(wan=networks.lined(wan, 16 * 6.25e9, 0.02), networks=networks.networks())
    found = search.Search(own[0], (far,))
    found.run()
    every = list(combinations(found, 0))
    usual = found.production.placement, own[0].schedule, networks.PRODUCTION
    assert found.optimal
    assert len(every) == len(found.candidates) * len(networks.networks())
    for count, key in ((n, key) for n in range(4) for key in itertools.combinations(search.DIMENSIONS, n)):
        free = [name in key for name in search.DIMENSIONS]
        inside = [
            step for *choice, step in every
            if all(open_ or one == own_ for open_, one, own_ in zip(free, choice, usual, strict=True))
        ]  # fmt: skip
        assert float(found.best[key].step[0]) == pytest.approx(min(inside), rel=1e-12), (count, key)


def test_no_part_of_the_space_is_ahead_of_the_whole_on_random_questions() -> None:
    """Joint ≥ two dimensions ≥ one dimension ≥ production, and the answer is plain."""
    dice = random.Random(5)
    for _ in range(2):
        said = document(nodes=dice.choice((1, 2)))
        said["plan"] = {"sharding": "zero1", "tp": dice.choice((2, 4)), "pp": 2}
        over = {"oversubscription": [dice.uniform(1.0, 8.0)], "distance": [f"{dice.uniform(5.0, 3000.0):.0f} km"]}
        told = json.loads(json.dumps(answer(said, over)))
        for point in told["cases"][0]["points"]:
            steps = {name: point["one"][name]["step_s"] for name in KEYS[:3]} | {
                name: point["two"][name]["step_s"] for name in KEYS[3:]
            }
            assert all(point["joint"]["step_s"] <= step * (1.0 + 1e-9) for step in steps.values())
            assert all(steps[pair] <= min(steps[one] for one in pair.split("+")) * (1.0 + 1e-9) for pair in KEYS[3:])
            assert all(step <= point["default"]["step_s"] * (1.0 + 1e-9) for step in steps.values())
            assert min(step for step in point["placements"].values() if step) == pytest.approx(
                point["joint"]["step_s"], rel=1e-9
            )
            for name, ratio in point["speedup"].items():
                assert 0.0 < ratio["low"] <= ratio["value"] <= ratio["high"], name


def test_joint_plan_is_a_scenario_that_predict_answers_with_the_same_step() -> None:
    """Also where pipelines cross, send in turn and hold micro-batches ahead; nothing that is bought makes a step longer but planes."""
    told = answer(document(), {"distance": ["400 km"]})["cases"][0]
    for plan in told["plans"]:
        made = predict(load(plan["scenario"]))
        assert made.step_time == pytest.approx(plan["step_s"], rel=1e-9)
        assert made.fits
    for one in told["purchases"]:
        assert one["speedup"]["value"] >= 1.0 - 1e-9 or one["what"] == "planes"
        assert one["worth_usd_per_gpu_h"] is None or one["worth_usd_per_gpu_h"] == pytest.approx(
            2.0 * (one["speedup"]["value"] - 1.0)
        )
    assert told["sensitivity"]["rtt"]["default"] >= told["sensitivity"]["rtt"]["joint"] >= 0.0
    (plan,) = told["plans"]
    line = plan["scenario"]["fleet"]["wan"]["default"]
    line["rtt"] = f"{2.0 * float(line['rtt'].split()[0])} s"
    twice = predict(load(plan["scenario"])).step_time
    assert twice == pytest.approx(plan["step_s"] * 2.0 ** told["sensitivity"]["rtt"]["joint"], rel=1e-9)
    assert told["open_degrees"]["choice"]["step_s"] <= told["points"][told["own"]]["joint"]["step_s"]


def test_unlike_buildings_and_lines_are_said_pair_by_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two kinds of accelerators, a line that is narrower one way, buffers of its ends: `predict` answers the joint plan with the same step."""
    monkeypatch.setattr(schedules, "WORDS", ("1f1b",))
    said = document()
    kinds = {"east": "H100-SXM5-80GB", "west": "H200-SXM-141GB"}
    said["fleet"]["islands"] = [{"name": name, "accelerator": kind, "nodes": 2} for name, kind in kinds.items()]
    line = {"rtt": "5 ms", "shared": "node"}
    said["fleet"]["wan"] = {
        "default": line | {"bandwidth": "20 Gbit/s", "buffer": "10 MB"},
        "links": [line | {"from": "east", "to": "west", "bandwidth": "10 Gbit/s"}],
    }
    (plan,) = answer(said, {"oversubscription": [40]})["cases"][0]["plans"]
    assert len(plan["scenario"]["fleet"]["wan"]["links"]) == 2
    assert predict(load(plan["scenario"])).step_time == pytest.approx(plan["step_s"], rel=1e-9)


@pytest.mark.parametrize(("wire", "delay"), [(0.1, 0.5), (0.1, 7.0), (2.5, 7.0), (6.0, 20.0)])
def test_nothing_is_gained_by_more_ahead_than_is_tried(
    monkeypatch: pytest.MonkeyPatch, wire: float, delay: float
) -> None:
    """Of two stages that compute 3 s a micro-batch, whatever their line is busy; half of it may be too little."""
    monkeypatch.undo()
    slot = Slot(first=0, count=2, forward=1.0, input_grad=1.0, weight_grad=1.0)

    def each(ahead: float) -> float:
        far = Boundary(wire=wire, delay=delay, ahead=ahead)
        return (one_f_one_b([slot], 480, (far,)) - one_f_one_b([slot], 240, (far,))) / 240  # type: ignore[return-value]

    most = max(schedules.aheads(2.0 * delay, 3.0))
    assert each(most) == pytest.approx(max(3.0, wire), rel=5e-3)
    assert each(2.0 * most) == pytest.approx(each(most), rel=5e-3)
    assert max(schedules.aheads(0.02, 5e-3)) == 8.0


def test_a_search_that_is_stopped_says_so() -> None:
    """It ends at the next plan, and keeps no case of which a point has no answer."""
    said, rows = opened(document())
    asked = iter([False] * 12)
    found = scale_across(said, rows, question(said, rows, {"distance": ["400 km"]}), stop=lambda: next(asked, True))
    assert found.stopped
    assert not found.to_dict()["space"]["optimal"]
    halfway: Any = SimpleNamespace(optimal=False)
    case: Any = None
    for search_, beside in ((halfway, ()), (SimpleNamespace(optimal=True), ((None, halfway),))):
        assert Cluster(case, rows, search=search_, beside=beside).stopped  # type: ignore[arg-type]


def test_open_degrees_are_powers_of_two_inside_the_domain_and_the_memory() -> None:
    """What a plan says of its degrees is kept; what a search chooses is not."""
    made = load(document())
    island = made.fleet.islands[0]
    every = list(sets({}, made.model, island))
    assert {one["tp"] for one in every} == {1, 2, 4, 8}
    assert max(one["pp"] for one in every) <= made.model.layers
    assert list(sets({"tp": 4, "pp": 2}, made.model, island)) == [{}]
    large = changed(made.model, layers=126, hidden=16384.0, ffn=53248.0, heads=128.0)
    assert all(one["tp"] * one["pp"] >= 16 for one in sets({}, large, island))
    assert plan_said("zero1,tp=2,micro_batch=4,schedule=zb-h1") == {"sharding": "zero1", "tp": 2}


def test_interval_of_a_speed_up_is_wider_for_unlike_plans() -> None:
    """The same plan on two networks has the worlds alone; equal choices have none."""
    each = np.array([1.1, 1.3])
    same, unlike = (intervals.ratio(1.2, each, unlike=one) for one in (False, True))
    assert (same["low"], same["high"]) == pytest.approx((1.1, 1.3))
    assert unlike["low"] < same["low"]
    assert same["high"] < unlike["high"]
    assert intervals.ratio(1.0, np.ones(4), unlike=False) == {"value": 1.0, "low": 1.0, "high": 1.0}


def test_crossings_lie_where_both_placements_are_as_fast() -> None:
    """Steps that are powers of the distance cross where the straight lines of their logarithms do."""
    points = [
        {"distance_km": d, "oversubscription": 4.0, "winner": "dp" if d < 100.0 else "pp", "placements": {"dp": d / 50.0, "pp": 2.0}}
        for d in (10.0, 1000.0)
    ]  # fmt: skip
    (found,) = crossings(points)
    assert found["at"] == pytest.approx(100.0)
    assert (found["from"], found["to"]) == ("dp", "pp")


def test_published_maxima_are_set_beside_ours() -> None:
    """Counted point by point, with the term that the joint choice removes."""
    choice = {"step_s": 1.0, "placement_says": "pipelines", "schedule_says": "1f1b", "network_says": "planned"}
    point = {
        "distance_km": 400.0, "oversubscription": 4.0, "speedup": {"joint": {"value": 1.7, "low": 1.4, "high": 2.0}}, "over_best_single": 1.2,
        "removed": {"term": "gradients across islands", "seconds": 0.6}, "joint": choice, "default": choice | {"step_s": 1.7},
    }  # fmt: skip
    told = published([{"model": "m", "gpus": 64, "buildings": 2, "points": [point]}])
    assert told["ours"]["reached"] == {"over_production": 1, "over_best_baseline": 0, "points": 1}
    assert "reached at 1 of 1; most here 70 %" in told["says"][0]
    assert "37.59 % over the best baseline: not reached; most here 20 %" in told["says"][1]
    assert "gradients across islands; 0.6 s less of it" in told["says"][2]
    assert "every network gains" in told["says"][3]


def test_little_is_to_be_had_where_no_line_holds_production_up() -> None:
    """The terms that do are counted, and that no line changes them is said only where that is so."""

    def told(cause: str) -> str:
        point = {
            "distance_km": 10.0, "oversubscription": 1.0, "speedup": {"joint": {"value": 1.001}}, "over_best_single": 1.0,
            "removed": {"term": "gradients across islands", "seconds": 0.1}, "joint": {"step_s": 1.0}, "default": {"step_s": 1.001},
            "bottleneck": {"default": {"term": "pipeline bubble", "cause": cause}},
        }  # fmt: skip
        *_, why, little = published([{"model": "m", "gpus": 64, "buildings": 2, "points": [point, point]}])["says"]
        assert "nothing to gain" in why
        return str(little)

    assert "2 of 2 below 2 %; production waits there most for pipeline bubble (2), which no line" in told("pipeline")
    assert "which no line" not in told("wide-area link")
