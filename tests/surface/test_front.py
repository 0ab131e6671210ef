"""The front of days against dollars: complete, each point as `predict` answers it, limits, knee, what the next step buys, errors."""

from __future__ import annotations

import copy
import csv
import io
import itertools
import json
from typing import Any

import pytest

import shardmeter
from shardmeter.cli.main import main
from shardmeter.core.errors import BadScenario, ShardMeterError
from shardmeter.render import front as page
from shardmeter.scenario import opened
from shardmeter.study.course import course
from shardmeter.study.front.front import knee
from shardmeter.study.front.offers import Fleets

CLOUDS: dict[str, Any] = {
    "name": "two-clouds",
    "model": "llama-3.1-8b",
    "stack": "titan-compile",
    "fleet": {
        "islands": [
            {"name": "oregon", "instance": "p5.48xlarge", "nodes": [1, 4], "region": "aws:us-west-2", "price": "$40/node/h"},
            {"name": "iowa", "instance": "a3-ultragpu-8g", "nodes": 2, "region": "gcp:us-central1", "spot": True},
        ]
    },
    "plan": {
        "sharding": "fsdp", "micro_batch": 1, "recompute": "selective",
        "sync": {"method": ["diloco", "streaming_diloco"], "sync_every": [50, 200]},
    },
    "run": {"seq_len": 8192, "global_batch": 384, "tokens": "20B"},
}  # fmt: skip


@pytest.fixture(scope="module")
def found():
    return shardmeter.front(copy.deepcopy(CLOUDS), deadline="30 h", budget="$3,800")


@pytest.fixture(scope="module")
def answer(found):
    return found.to_dict()


def every_fleet():
    """(seconds, dollars) of every fleet and way, each predicted from a document of its own."""
    oregon = [None, {"nodes": 1}, {"nodes": 4}]
    iowa = [None, *({"nodes": nodes, "spot": spot} for nodes in (1, 2) for spot in (True, False))]
    ways = list(itertools.product(("diloco", "streaming_diloco"), (50, 200)))
    for chosen in itertools.product(oregon, iowa):
        pairs = [(one, own) for one, own in zip(CLOUDS["fleet"]["islands"], chosen, strict=True) if own is not None]
        for method, period in ways if len(pairs) > 1 else ways[:1] if pairs else ():
            document = copy.deepcopy(CLOUDS)
            document["fleet"]["islands"] = [{**one, **own} for one, own in pairs]
            document["plan"]["sync"] = {"method": method, "sync_every": period}
            if len(pairs) == 1:
                del document["plan"]["sync"]
            alone = shardmeter.predict(document)
            run = course(alone.scenario, alone.whole) or {}
            yield run["wall_clock_s"], run["cost_usd"]


def test_the_front_is_that_of_all_fleets_predicted_one_by_one(answer):
    everything = list(every_fleet())
    best = [one for one in everything if not any(a <= one[0] and b <= one[1] and (a, b) != one for a, b in everything)]
    got = [(one["wall_clock_s"], one["cost_usd"]) for one in answer["points"]]
    assert len(everything) == answer["space"]["evaluated"] == 38
    assert got == [pytest.approx(one, rel=1e-9) for one in sorted(set(best))]
    assert answer["space"]["optimal"]


def test_every_point_is_a_scenario_that_predict_answers_with_the_same_figures(answer):
    for one in answer["points"]:
        told = shardmeter.predict(one["scenario"]).to_dict()
        assert told["run"]["wall_clock_s"] == one["wall_clock_s"]
        assert told["run"]["cost_usd"] == one["cost_usd"]
        assert told["fits"]
        assert told["intervals"]["cost_usd"] == pytest.approx(one["intervals"]["cost_usd"])
        low, high = one["intervals"]["wall_clock_s"]
        assert low < one["wall_clock_s"] < high


def test_limits_are_kept_by_the_best_in_the_other_figure(found, answer):
    points = answer["points"]
    by_deadline, by_budget = points[answer["deadline"]["point"]], points[answer["budget"]["point"]]
    assert by_deadline["cost_usd"] == min(one["cost_usd"] for one in points if one["wall_clock_s"] <= 30 * 3600)
    assert by_budget["wall_clock_s"] == min(one["wall_clock_s"] for one in points if one["cost_usd"] <= 3800)
    assert "deadline" in by_deadline["chosen"]
    assert found.met
    assert answer["keeps_both"] == []
    assert "None keeps both" in str(found)


def test_what_the_next_step_buys(answer):
    assert answer["points"][0]["next"] is None
    for faster, one in itertools.pairwise(answer["points"]):
        days = (one["wall_clock_s"] - faster["wall_clock_s"]) / 86400
        assert days > 0 < faster["cost_usd"] - one["cost_usd"]
        assert one["next"]["usd_per_day_saved"] == pytest.approx((faster["cost_usd"] - one["cost_usd"]) / days)


def test_the_figure_shows_the_front_the_limits_and_what_was_chosen(answer):
    (figure,) = page.figures(answer)
    line, others, chosen = figure.lines
    assert list(zip(line.x, line.y, strict=True)) == [
        (one["wall_clock_s"], one["cost_usd"]) for one in answer["points"]
    ]
    assert len(others.x) + len(line.x) <= answer["space"]["evaluated"]
    assert len(chosen.x) == len(chosen.low) == len(chosen.left) >= 2
    said = " ".join(mark.says for mark in figure.marks)
    for text in ("deadline 30.0 h", "budget $3,800", "knee", "cheapest for the deadline"):
        assert text in said


@pytest.mark.parametrize(
    ("seconds", "dollars", "at"),
    [
        ((1.0, 2.0, 3.0, 10.0), (10.0, 5.0, 3.0, 1.0), 2),
        ((1.0, 2.0, 3.0, 10.0), (10.0, 3.0, 2.9, 1.0), 1),
        ((1.0, 2.0, 3.0), (3.0, 2.9, 1.0), None),
        ((1.0, 2.0), (2.0, 1.0), None),
        ((), (), None),
    ],
)
def test_the_knee_is_farthest_below_the_line_between_the_ends(seconds, dollars, at):
    assert knee(seconds, dollars) == at


def test_stores_and_ways_of_the_data_set_are_those_of_the_islands_that_take_part():
    found = shardmeter.front(
        "examples/three-clouds-money.yaml", overrides=[f"fleet.islands.{at}.nodes={nodes}" for at, nodes in enumerate(("[4]", "[2]", "[4]"))]
    )  # fmt: skip
    searched = found.found.joined.front.points
    assert [(one.wall_clock, one.cost) for one in found.points] == [
        pytest.approx(tuple(one), rel=1e-9) for one in searched
    ]
    assert {len(one.scenario.fleet.islands) for one in found.points} >= {1, 2}
    assert found.to_dict()["points"][0]["islands"][0]["paid"] == "on demand"


def test_islands_that_may_change_places_are_counted():
    document, rows = opened("examples/home-workers.yaml", overrides=["fleet.islands.0.price=$0.30/gpu/h"])
    fleets = Fleets(document, rows)
    assert len(fleets.teams) == 30
    assert (0, 1, 2) in fleets.teams


def test_the_command(tmp_path, capsys):
    file = tmp_path / "clouds.json"
    file.write_text(json.dumps(CLOUDS))
    assert main(["front", str(file), "--deadline", "12 h", "--budget", "$9k", "--format", "json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["deadline"]["over"] == pytest.approx(told["points"][0]["wall_clock_s"] - 12 * 3600)
    assert told["budget"]["met"]
    assert told["figures"][0]["slug"] == "front"
    assert main(["front", str(file), "--set", "plan.sync={method: diloco}", "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert float(rows[0]["wall_clock_s"]) < float(rows[-1]["wall_clock_s"])
    assert main(["front", str(file), "--plot", "x.gif"]) == 2


def test_the_page_says_by_how_much_a_limit_is_missed():
    found = shardmeter.front(
        copy.deepcopy(CLOUDS) | {"plan": {"sharding": "fsdp", "recompute": "selective"}}, budget="$100"
    )
    assert not found.met
    assert "No fleet keeps $100: the cheapest" in str(found)
    assert "too much" in str(found)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no length": ({"run": {"seq_len": 8192, "global_batch": 384}}, "no length"),
    "no list of islands": ({"fleet": None, "gpus": "8xH100-SXM5-80GB"}, "fleet.islands"),
    "no price": (
        {"plan": {"sharding": "fsdp"}, "fleet": {"islands": [{"name": "a", "gpus": "8xRTX 4090"}]}},
        "no price of RTX 4090",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_asked(name):
    changes, says = WRONG[name]
    document = {key: value for key, value in (copy.deepcopy(CLOUDS) | changes).items() if value is not None}
    with pytest.raises(BadScenario) as error:
        shardmeter.front(document)
    assert says in str(error.value)


def test_too_many_fleets():
    islands = [{**CLOUDS["fleet"]["islands"][0], "name": f"o{at}", "price": f"${40 + at}/node/h"} for at in range(9)]
    with pytest.raises(ShardMeterError, match="say fewer numbers of nodes"):
        shardmeter.front(copy.deepcopy(CLOUDS) | {"fleet": {"islands": islands}})
