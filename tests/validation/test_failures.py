"""What is published of interrupted runs, from rows that do not know the answer: Llama 3's share, RSC's table, a spot fleet, islands that go on."""

from __future__ import annotations

from typing import Any

import pytest

import shardmeter
from shardmeter.core.errors import BadScenario
from shardmeter.physics import failures
from shardmeter.scenario.catalog import load_catalog

ROWS = load_catalog()
HOUR = 3600.0
RUN = {"seq_len": 4096, "global_batch": 512, "tokens": "100B"}
SPOT = {"name": "oregon", "instance": "p5.48xlarge", "nodes": 4, "region": "aws:us-west-2", "spot": True, "count": 4}


def run_of(run: dict[str, Any], **more: Any) -> dict[str, Any]:
    """`run` of the answer."""
    asked = {"model": "llama-3.1-8b", "gpus": "64xH100-SXM5-80GB", "plan": "fsdp", "run": {**RUN, **run}, **more}
    if "fleet" in more:
        del asked["gpus"]
    found: dict[str, Any] = shardmeter.predict(asked).to_dict()["run"]
    return found


def spot(method: str, **preemption: Any) -> dict[str, Any]:
    """Four islands on the spot market."""
    islands = [{**SPOT, "preemption": {"base": "aws-spot", **preemption}}]
    plan = {"sharding": "fsdp", "recompute": "full", "sync": {"method": method}}
    return run_of({}, fleet={"islands": islands}, plan=plan)


@pytest.mark.parametrize("name", ["llama-3-405b", "rsc-2"])
def test_llama_3_trains_more_than_90_percent_of_its_time(name):
    asked = {
        "model": "llama-3.1-405b",
        "gpus": "16384xH100-SXM5-80GB",
        "plan": "fsdp,tp=8,pp=16,dp_shard=128",
        "run": {"seq_len": 8192, "global_batch": "16M tokens", "tokens": "3.8T", "failures": name},
    }
    run = shardmeter.predict(asked).to_dict()["run"]
    assert run["goodput"] > 0.90


def test_llama_3_s_row_is_its_own_count():
    row = ROWS.failures("llama-3-405b")
    rate = failures.failure_rate(16384.0, row.mtbf)
    assert rate * 54 * 24 * HOUR == pytest.approx(419, rel=0.005)


@pytest.mark.parametrize(("gpus", "hours", "digits"), [(16384, 1.8, 0.05), (131072, 0.23, 0.005)])
def test_rsc_s_projections_follow_from_its_rate(gpus, hours, digits):
    row = ROWS.failures("rsc-1")
    assert 1.0 / failures.failure_rate(gpus / 8.0, row.mtbf) / HOUR == pytest.approx(hours, abs=digits)


def test_seconds_sum_to_the_wall_clock_and_the_rest_follows_it():
    plain, struck = run_of({}), run_of({"failures": {"mtbf": "500 h", "per": "gpu"}})
    assert plain["goodput"] is None
    assert "hours" not in plain
    assert struck["wall_clock_s"] == pytest.approx(sum(one["seconds"] for one in struck["hours"]), rel=1e-12)
    assert (
        struck["goodput"]
        == struck["hours"][0]["share"]
        == pytest.approx(plain["wall_clock_s"] / struck["wall_clock_s"])
    )
    assert struck["gpu_hours"] == pytest.approx(64 * struck["wall_clock_s"] / HOUR)
    assert struck["energy_kwh"] > plain["energy_kwh"]


def test_a_spot_fleet_that_goes_on_loses_less_than_one_that_stops():
    together, apart = spot("every-step", mtbf="12 h"), spot("diloco", mtbf="12 h")
    assert 0.0 < together["goodput"] < 0.5 * apart["goodput"]
    waits = {one["term"]: one["share"] for one in together["hours"]}
    assert waits["waits for capacity"] > 0.5
    assert spot("diloco", mtbf="24 h")["wall_clock_s"] < apart["wall_clock_s"]
    prompt = spot("diloco", mtbf="12 h", wait="5 min")
    assert apart["goodput"] < prompt["goodput"] < spot("decoupled-diloco", mtbf="12 h", wait="5 min")["goodput"]


def test_a_checkpoint_over_a_long_line_is_dearer_unless_it_is_behind_the_steps():
    fails = {"failures": {"mtbf": "2000 h", "per": "gpu"}}
    near, far = run_of(fails), run_of({**fails, "checkpoint": {"bandwidth": "1 Gbps"}})
    behind = run_of({**fails, "checkpoint": {"bandwidth": "1 Gbps", "blocking": False}})
    assert near["goodput"] > behind["goodput"] > far["goodput"]
    assert behind["checkpoints"]["interval_s"] >= behind["checkpoints"]["write_s"]


def test_what_makes_no_sense_is_refused_all_at_once():
    with pytest.raises(BadScenario) as refused:
        run_of(
            {
                "failures": {"mtbf": "-3 h", "per": "rack"},
                "checkpoint": {"every": "0 steps"},
                "evaluation": {"lasts": "0 s"},
            }
        )
    assert {one.field for one in refused.value.violations} >= {
        "run.failures.mtbf", "run.failures.per", "run.checkpoint.every", "run.evaluation.lasts",
    }  # fmt: skip
    with pytest.raises(BadScenario, match="does not end"):
        run_of({"failures": {"mtbf": "1 h", "per": "gpu"}})
