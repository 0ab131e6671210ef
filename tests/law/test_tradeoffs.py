"""Trade-offs: every entry is what predict says of that value; tokens to the same loss reach it; nothing beats the front."""

import functools
import math
from pathlib import Path

import pytest

import shardmeter
from shardmeter.core.errors import BadScenario
from shardmeter.scenario import opened
from shardmeter.study.tradeoffs import tradeoffs
from shardmeter.study.tradeoffs.knobs import usual

EXAMPLES = Path(__file__).parents[2] / "examples"
FLEET, ONE = str(EXAMPLES / "intellect-1.yaml"), str(EXAMPLES / "llama-8b-64xh100.yaml")
LAW = {"run.law": "hoffmann-2022", "run.critical_batch": "zhang-2024"}
OVER = {"plan.sync.sync_every": [20, 100, 500], "plan.sync.bits": [4, 8], "run.global_batch": [896, 1792]}


@functools.cache
def told():
    return tradeoffs(*opened(FLEET, overrides=LAW), OVER).to_dict()


def points(answer, field):
    return {point["value"]: point for point in next(one for one in answer["knobs"] if one["field"] == field)["points"]}


def test_every_entry_is_what_predict_says():
    base = shardmeter.predict(FLEET, overrides=LAW).to_dict()
    for field, value in (("plan.sync.sync_every", 500), ("plan.sync.bits", 4), ("run.global_batch", 896)):
        point = points(told(), field)[value]
        own = shardmeter.predict(FLEET, overrides={**LAW, field: value}).to_dict()
        assert point["tokens_per_s"] == own["tokens_per_s"]
        assert point["memory_peak_gib"] == own["memory"]["peak_gib"]
        assert point["loss"] == own["run"]["loss"]
        assert point["loss_change"] == pytest.approx(own["run"]["loss"] - base["run"]["loss"], abs=1e-8)
        assert point["cost_usd"] == own["run"]["cost_usd"]
        assert point["speed"] == pytest.approx(own["tokens_per_s"] / base["tokens_per_s"])
        assert point["sent_bytes_per_day"] == pytest.approx(
            own["sync"]["sent_bytes"] / own["sync"]["round_s"] * 86400.0
        )
        traffic = sum(
            one["usd"] for one in own["run"]["cost_terms"] if "traffic" in one["term"] or "egress" in one["term"]
        )
        days = own["run"]["wall_clock_s"] / 86400.0
        assert point["egress_usd_per_day"] == pytest.approx(traffic / days, rel=1e-6)


def test_tokens_to_the_same_loss_reach_it():
    """A run of so many times the tokens, as it is turned, ends where the scenario does; and is as much faster as is said."""
    base = shardmeter.predict(FLEET, overrides=LAW).to_dict()
    for field, value in (("plan.sync.sync_every", 500), ("run.global_batch", 896)):
        point = points(told(), field)[value]
        tokens = base["run"]["tokens"] * point["tokens_ratio"]
        own = shardmeter.predict(FLEET, overrides={**LAW, field: value, "run.tokens": tokens}).to_dict()
        assert own["run"]["loss"] == pytest.approx(base["run"]["loss"], abs=1e-6)
        assert base["run"]["wall_clock_s"] / own["run"]["wall_clock_s"] == pytest.approx(
            point["speed_to_loss"], rel=1e-6
        )


def test_the_same_loss_is_reached_with_interruptions():
    """Nodes that are taken away cost a round each: four times as long ones are as fast a step and much later at the same loss, by
    whole runs to that loss."""
    path, field = str(EXAMPLES / "unreliable-diloco.yaml"), "plan.sync.sync_every"
    law = LAW
    found = shardmeter.tradeoffs(path, {field: [100, 500, 2000]}, overrides=law).to_dict()
    loss, points = found["base"]["loss"], {point["value"]: point for point in found["knobs"][0]["points"]}
    target = {**law, "run.tokens": None, "run.target_loss": loss}
    hours = {
        every: shardmeter.predict(path, overrides=target | {field: every}).to_dict()["run"]["wall_clock_s"]
        for every in points
    }
    for every, point in points.items():
        assert point["speed"] == pytest.approx(1.0, rel=1e-3)
        assert point["speed_to_loss"] == pytest.approx(hours[500] / hours[every], rel=1e-6)
    assert points[2000]["speed_to_loss"] < 0.75 * points[2000]["speed"] / points[2000]["tokens_ratio"]
    both = {field: [500, 2000], "plan.recompute": ["full", "selective"]}
    front = shardmeter.tradeoffs(path, both, overrides=law).to_dict()["joint"]["front"]
    assert {one["values"][field] for one in front} == {
        500
    }  # longer rounds are a hair faster a step, and lose more of them


def test_the_value_now_changes_nothing():
    for knob in told()["knobs"]:
        now = next(point for point in knob["points"] if point["now"])
        assert now["loss_change"] == 0.0
        assert now["speed"] == pytest.approx(1.0)
        assert now["tokens_ratio"] == pytest.approx(1.0)


def test_nothing_beats_the_front():
    joint = told()["joint"]
    assert joint["points"] == 12
    assert joint["against"] == "loss"
    front = [(point["loss"], point["tokens_per_s"]) for point in joint["front"]]
    cloud = [tuple(one) for one in joint["cloud"]]
    assert len(cloud) == joint["fitting"]
    for loss, speed in front:
        assert (loss, speed) in cloud
        assert not any(other <= loss and fast >= speed and (other, fast) != (loss, speed) for other, fast in cloud)
    for loss, speed in cloud:
        assert any(other <= loss and fast >= speed for other, fast in front)
    values = joint["front"][0]["values"]
    best = shardmeter.predict(FLEET, overrides={**LAW, **values})
    assert best.tokens_per_s == pytest.approx(joint["front"][0]["tokens_per_s"])


def test_sentences_say_what_numbers_say():
    said = {knob["field"]: knob["says"] for knob in told()["knobs"]}
    faster = points(told(), "plan.sync.sync_every")[500]
    assert faster["speed"] > 1.0 > faster["speed_to_loss"]  # so it is not worth it
    assert said["plan.sync.sync_every"][0].startswith("from H = 100 to 500: +")
    assert said["plan.sync.sync_every"][0].endswith("not worth it")
    assert "the same loss as far as is known" in said["plan.sync.bits"][0]


def test_a_loss_that_is_not_known_is_null_with_the_reason():
    answer = shardmeter.tradeoffs(FLEET, {"plan.sync.sync_every": [50, 200]}).to_dict()
    assert answer["base"]["loss"] is None
    assert "run.law" in answer["base"]["why_no_loss"]
    assert answer["joint"] is None
    for point in answer["knobs"][0]["points"]:
        assert point["loss"] is point["loss_change"] is point["tokens_ratio"] is point["speed_to_loss"] is None
        assert point["loss_factor"] > 1.0  # what the method is known to cost is told all the same
    assert "what that costs in tokens is not known" in answer["knobs"][0]["says"][0]


def test_a_target_takes_other_tokens():
    file = str(EXAMPLES / "target-loss.yaml")
    answer = shardmeter.tradeoffs(file, {"plan.sync.sync_every": [25]}).to_dict()
    point = points(answer, "plan.sync.sync_every")[25]
    tokens = [
        shardmeter.predict(file, overrides=over).to_dict()["run"]["tokens"]
        for over in ({}, {"plan.sync.sync_every": 25})
    ]
    assert point["tokens_ratio"] == pytest.approx(tokens[1] / tokens[0])


def test_a_target_out_of_reach_is_illegal_and_no_data_makes_it_up():
    """A period whose loss no data reaches: the ratio is infinite, and it is not worth it."""
    over = {**LAW, "run.tokens": "200T"}
    answer = tradeoffs(*opened(FLEET, overrides=over), {"plan.sync.sync_every": [100_000]})
    point = points(answer.to_dict(), "plan.sync.sync_every")[100_000]
    assert math.isinf(point["tokens_ratio"])
    assert point["speed_to_loss"] == 0.0


def test_the_usual_knobs_are_those_that_the_scenario_has():
    one = [knob.field for knob in usual(shardmeter.load(ONE))]
    assert one == ["plan.micro_batch", "run.global_batch", "run.seq_len", "plan.recompute"]
    fleet = [knob.field for knob in usual(shardmeter.load(FLEET))]
    assert fleet == ["plan.sync.sync_every", "plan.sync.bits", *one]  # DiLoCo has no fragments
    for knob in usual(shardmeter.load(FLEET)):
        assert knob.now in knob.values
        assert len(set(knob.values)) == len(knob.values)


def test_memory_says_what_fits():
    answer = shardmeter.tradeoffs(ONE, {"plan.micro_batch": [1, 2, 8]}, overrides={"run.global_batch": 512}).to_dict()
    assert {point["status"] for point in answer["knobs"][0]["points"]} == {"ok", "does not fit"}
    for point in answer["knobs"][0]["points"]:
        assert point["fits"] == (point["memory_peak_gib"] <= point["memory_limit_gib"])
        assert point["status"] == ("ok" if point["fits"] else "does not fit")


@pytest.mark.parametrize(
    ("over", "says"),
    [
        ({"plan.sync.sync_every": "1..400", "plan.sync.bits": "4,8,16", "run.global_batch": "1792..1792000:+1792"}, "at most 100,000"),
        ({"plan.tp,plan.dp_shard": [(1, 8)]}, "one field at a time"),
        ({"plan.nothing": [1, 2]}, "unknown key"),
    ],
)  # fmt: skip
def test_what_is_refused(over, says):
    with pytest.raises(BadScenario, match=says):
        shardmeter.tradeoffs(FLEET, over)
