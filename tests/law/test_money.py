"""Laws of what a run costs and draws: terms sum to the whole, nothing is paid twice, all of it is linear in tokens, ratings bound it."""

from __future__ import annotations

from typing import Any

import pytest

import shardmeter
from shardmeter.physics import energy, money
from shardmeter.physics.energy import EXPECTED, LEAST, RATED
from shardmeter.scenario.catalog import load_catalog
from shardmeter.study.course import dollars

ISLANDS = [
    {"name": "oregon", "instance": "p5.48xlarge", "nodes": 2, "region": "aws:us-west-2"},
    {"name": "iowa", "instance": "a3-ultragpu-8g", "nodes": 2, "region": "gcp:us-central1"},
    {"name": "virginia", "accelerator": "A100-SXM4-80GB", "nodes": 2, "region": "azure:eastus", "price": "$1.80/gpu/h"},
]
STORES = {
    "storage": {"checkpoints": 3},
    "dataset": {"region": "aws:us-east-1"},
}
SYNC = {"method": "diloco", "sync_every": 50}


def asked(islands: Any = None, run: Any = None, **more: Any) -> dict[str, Any]:
    """Three clouds, 10B tokens."""
    return {
        "model": "llama-3.1-8b",
        "fleet": {"islands": ISLANDS if islands is None else islands, **more},
        "plan": {"sharding": "fsdp", "recompute": "full", **({"sync": SYNC} if islands is None else {})},
        "run": {"seq_len": 4096, "global_batch": 192, "tokens": "10B", **(run or {})},
    }


def course(question: Any) -> dict[str, Any]:
    """`run` of the answer."""
    found: dict[str, Any] = shardmeter.predict(question).to_dict()["run"]
    return found


def one(**island: Any) -> dict[str, Any]:
    """One island with some fields."""
    return asked([{"name": "oregon", "instance": "p5.48xlarge", "nodes": 2, **island}])


def named(run: dict[str, Any], term: str) -> float:
    """Dollars of one term."""
    return sum(float(entry["usd"]) for entry in run["cost_terms"] if entry["term"] == term)


def test_terms_sum_to_the_whole_and_each_says_what_it_rests_on():
    run = course(asked(run=STORES))
    assert run["cost_usd"] == sum(one["usd"] for one in run["cost_terms"])
    assert run["energy_kwh"] == pytest.approx(sum(one["kwh"] for one in run["energy"]), rel=1e-12)
    assert all(one["basis"] for one in (*run["cost_terms"], *run["energy"]))
    terms = [one["term"] for one in run["cost_terms"]]
    assert len(set(terms)) == len(terms)  # copies of the data set are told by their islands
    for word in ("accelerators of", "traffic from", "data set to", "storage of checkpoints", "storage of the data set"):
        assert any(term.startswith(word) for term in terms), word


def test_every_price_of_the_catalog_is_dated():
    run = course(asked(run=STORES))
    for one in run["cost_terms"]:
        assert "20" in one["basis"] or "given" in one["basis"], one


def test_what_is_linear_in_tokens():
    once, twice = course(asked(run=STORES)), course(asked(run=STORES | {"tokens": "20B"}))
    assert twice["energy_kwh"] == pytest.approx(2.0 * once["energy_kwh"])
    assert twice["carbon_kg"] == pytest.approx(2.0 * once["carbon_kg"])
    for first, second in zip(once["cost_terms"], twice["cost_terms"], strict=True):
        square = first["term"].startswith("storage of the data set")  # twice the bytes for twice as long
        assert second["usd"] == pytest.approx((4.0 if square else 2.0) * first["usd"]), first["term"]


def test_spot_is_no_dearer_than_on_demand_and_a_discount_is_one():
    dear, spot, reserved = (course(one(**said)) for said in ({}, {"spot": True}, {"reserved": "40%"}))
    assert spot["cost_usd"] <= dear["cost_usd"]
    assert reserved["cost_usd"] == pytest.approx(0.6 * dear["cost_usd"])
    assert "spot" in spot["cost_terms"][0]["basis"]
    assert "40 % off" in reserved["cost_terms"][0]["basis"]
    assert course(one(reserved="$2/gpu/h"))["cost_usd"] == pytest.approx(2.0 * dear["gpu_hours"])


def test_what_is_owned_pays_no_rent_but_its_electricity():
    run = course(one(owned={"power_price": "$0.10/kWh", "value": "$36,000", "life": "1500 d"}))
    assert [entry["term"] for entry in run["cost_terms"]] == ["depreciation", "electricity"]
    assert named(run, "electricity") == pytest.approx(0.10 * run["energy_kwh"])
    assert named(run, "depreciation") == pytest.approx(run["gpu_hours"] * 36_000.0 / (1500.0 * 24.0))
    bare = course(one(owned={"power_price": "$0.10/kWh"}))
    assert [entry["term"] for entry in bare["cost_terms"]] == ["electricity"]
    assert bare["cost_usd"] == pytest.approx(named(run, "electricity"))


def test_energy_lies_between_its_bounds_and_below_the_rating():
    run = course(asked())
    low, high = run["energy_range_kwh"]
    assert low < run["energy_kwh"] < high
    rated = sum(gpus * watts * pue for gpus, watts, pue in ((16, 700, 1.135), (16, 700, 1.1), (16, 400, 1.185)))
    assert high == pytest.approx(rated * 1.82 * run["wall_clock_s"] / 3.6e6)


def test_a_hall_multiplies_and_a_grid_weighs():
    plain, worse = course(one(pue=1.0, carbon="100 g/kWh")), course(one(pue=2.0, carbon="300 g/kWh"))
    assert worse["energy_kwh"] == pytest.approx(2.0 * plain["energy_kwh"])
    assert plain["carbon_kg"] == pytest.approx(0.1 * plain["energy_kwh"])
    assert worse["carbon_kg"] == pytest.approx(6.0 * plain["carbon_kg"])
    assert course(one(carbon="0 g/kWh"))["carbon_kg"] == 0.0


def test_carbon_that_is_not_known_is_null_and_says_why():
    run = course(asked([{"accelerator": "H100-SXM5-80GB", "nodes": 2, "price": "$2/gpu/h"}]))
    assert run["carbon_kg"] is None
    assert "not known of island" in run["carbon_basis"]


def test_waiting_draws_less_than_computing():
    for draw in (LEAST, EXPECTED, RATED):
        assert draw.waiting <= draw.computing <= 1.0
        assert draw.stopped <= draw.waiting
        shares = (draw.computing, draw.waiting, draw.stopped)
        assert energy.drawn_share(0.0, 0.0, *shares) == draw.waiting
        assert energy.drawn_share(1.0, 0.0, *shares) == draw.computing
        assert energy.drawn_share(0.0, 1.0, *shares) == pytest.approx(draw.stopped)
    assert LEAST.computing <= EXPECTED.computing <= RATED.computing
    assert LEAST.waiting <= EXPECTED.waiting <= RATED.waiting
    assert LEAST.beside <= EXPECTED.beside <= RATED.beside


def test_a_cap_is_of_the_accelerators_and_not_of_the_rest_of_their_nodes():
    plain = asked([{"accelerator": "H100-SXM5-80GB", "nodes": 2}])
    capped = asked([{"accelerator": {"base": "H100-SXM5-80GB", "power_limit": "350 W"}, "nodes": 2}])
    above = asked([{"accelerator": {"base": "H100-SXM5-80GB", "power_limit": "900 W"}, "nodes": 2}])
    free, bound, loose = course(plain), course(capped), course(above)
    hours = bound["gpu_hours"] / 1e3
    own, rest, _ = (one["kwh"] for one in bound["energy"])
    assert own <= hours * 350.0
    assert rest == pytest.approx(EXPECTED.beside * hours * 700.0)
    assert bound["energy_range_kwh"][1] == pytest.approx(hours * (350.0 + RATED.beside * 700.0) * 1.58)
    assert loose["energy_kwh"] / loose["gpu_hours"] == pytest.approx(free["energy_kwh"] / free["gpu_hours"])


def test_a_run_that_waits_for_machines_is_at_rest_and_one_that_is_evaluated_computes():
    plain = course(one())
    taken = course(one(preemption={"mtbf": "4 h", "per": "node", "wait": "1 h", "notice": "10 min"}))
    own, before = taken["energy"][0]["kwh"], plain["energy"][0]["kwh"]
    stands = sum(one["seconds"] for one in taken["hours"] if one["term"] == "waits for capacity")
    else_ = taken["wall_clock_s"] - plain["wall_clock_s"] - stands
    drawn = (EXPECTED.stopped * stands + EXPECTED.waiting * else_) * 16.0 * 700.0 / 3.6e6
    assert own - before == pytest.approx(drawn, rel=1e-6)
    assert stands > 3600.0
    read = course(one() | {"run": {"seq_len": 4096, "global_batch": 192, "tokens": "10B", "evaluation": {
        "every": "100 steps", "lasts": "5 min"}}})  # fmt: skip
    assert read["energy_kwh"] / read["wall_clock_s"] == pytest.approx(plain["energy_kwh"] / plain["wall_clock_s"])
    for run in (taken, read):
        assert run["energy_range_kwh"][0] < run["energy_kwh"] < run["energy_range_kwh"][1]


def test_a_machine_that_was_taken_away_is_not_paid():
    """Of a node that stays 3 h and is away for 1 h three quarters of the hours, whatever the run waits for; of one that never goes, all."""
    for wait, share in (("1 h", 0.75), ("9 h", 0.25), ("0 s", 1.0)):
        run = course(one(price="$2/gpu/h", preemption={"mtbf": "3 h", "per": "node", "wait": wait}))
        assert run["cost_usd"] == pytest.approx(2.0 * share * run["gpu_hours"])
        assert ("not paid" in run["cost_terms"][0]["basis"]) == (share < 1.0)
    failing = course(one(price="$2/gpu/h") | {"run": {"seq_len": 4096, "global_batch": 192, "tokens": "10B", "failures": {
        "mtbf": "3 h", "per": "node"}}})  # fmt: skip
    assert failing["cost_usd"] == pytest.approx(2.0 * failing["gpu_hours"])


def test_what_the_planner_bounds_a_cost_by_is_no_more_than_the_cost():
    """An island on the spot market of a few of the tokens, of a fleet that goes on without it: it is paid for less than the run."""
    spot = {**ISLANDS[1], "preemption": {"mtbf": "3 h", "per": "node", "wait": "9 h"}, "price": "$2/gpu/h"}
    scenario = shardmeter.load(
        asked([ISLANDS[0], ISLANDS[2], spot]) | {"plan": {"sharding": "fsdp", "recompute": "full", "sync": SYNC}}
    )
    run = shardmeter.predict(scenario).to_dict()["run"]
    productive = next(one["seconds"] for one in run["hours"] if one["term"] == "productive")
    least = [float(dollars.cost(island, productive, 0.0) or 0.0) for island in scenario.fleet.islands]
    for island, bound in zip(scenario.fleet.islands, least, strict=True):
        assert bound <= named(run, f"accelerators of {island.name}")


def test_stores_of_the_catalog_are_billed_as_their_providers_say():
    """AWS and Google call 2^30 bytes a GB."""
    for name, price, size in (("aws", 0.023, 2.0**30), ("gcp", 0.02, 2.0**30), ("azure", 0.018, 1e9)):
        month = money.storage(size, 730.0 * 3600.0, load_catalog().storage(name).price)
        assert month == pytest.approx(price)


def test_units():
    month = 730.0 * 3600.0
    assert money.storage(1e9, month, 0.023 / 1e9 / month) == pytest.approx(0.023)
    assert money.checkpoint_size(8e9, 14.0, 3.0) == 336e9
    assert money.electricity(3.6e6, 0.08 / 3.6e6) == pytest.approx(0.08)
    assert money.depreciation(31_536.0, 31_536_000.0) == pytest.approx(1e-3)
    assert energy.hall_energy(100.0, 1.2) == pytest.approx(20.0)


def test_storage_of_checkpoints_by_hand():
    run = course(one(region="aws:us-west-2") | {"run": {"seq_len": 4096, "global_batch": 192, "tokens": "10B", "storage": {
        "checkpoints": 2, "bytes_per_parameter": 10, "price": "$0.02/GB/month"}}})  # fmt: skip
    months = run["wall_clock_s"] / (730.0 * 3600.0)
    size = 8.03e9 * 10 * 2 / 1e9
    assert named(run, "storage of checkpoints") == pytest.approx(size * 0.02 * months, rel=1e-3)


def test_the_data_set_is_brought_to_every_island_but_the_one_where_it_lies():
    run = course(asked(run={"dataset": {"region": "aws:us-west-2", "bytes_per_token": 4}}))
    brought = [entry for entry in run["cost_terms"] if entry["term"].startswith("data set to")]
    assert [entry["term"] for entry in brought] == ["data set to iowa", "data set to virginia"]
    assert all(entry["usd"] == pytest.approx(40.0 * 0.09) for entry in brought)


def test_traffic_is_paid_by_the_sender_at_its_own_price():
    run = course(asked())
    paid = {entry["term"]: entry["usd"] for entry in run["cost_terms"] if entry["term"].startswith("traffic")}
    assert paid["traffic from iowa"] / paid["traffic from oregon"] == pytest.approx(0.12 / 0.09)
    assert paid["traffic from virginia"] / paid["traffic from oregon"] == pytest.approx(0.0875 / 0.09)


def test_the_planner_and_a_sweep_count_as_predict_does():
    question = one(owned={"power_price": "$0.10/kWh", "value": "$36,000"})
    alone = shardmeter.predict(question).to_dict()["run"]
    row = shardmeter.sweep(
        question, {"plan.micro_batch": [1]}, columns=("run.cost_usd", "run.energy_kwh", "run.carbon_kg")
    ).columns
    assert row["run.cost_usd"][0] == pytest.approx(alone["cost_usd"])
    assert row["run.energy_kwh"][0] == pytest.approx(alone["energy_kwh"])
    assert row["run.carbon_kg"][0] == pytest.approx(alone["carbon_kg"])
    found = shardmeter.plan(question | {"plan": {"sharding": "fsdp", "tp": 1, "pp": 1, "cp": 1, "recompute": "full",
                                                 "micro_batch": "1,2"}}, objective="cost")  # fmt: skip
    best = found.to_dict()["plans"][0]
    own = shardmeter.predict(best).to_dict()["run"]
    assert best["cost_usd"] == pytest.approx(own["cost_usd"])
    assert best["energy_kwh"] == pytest.approx(own["energy_kwh"])


def test_what_is_owned_stands_in_no_providers_hall():
    own = {
        "accelerator": "H100-SXM5-80GB",
        "nodes": 8,
        "owned": {"power_price": "$0.08/kWh"},
        "region": "aws:us-west-2",
    }

    def run_of(**said):
        found = shardmeter.predict({
            "model": "llama-3.1-8b", "plan": "fsdp", "fleet": {"islands": [{**own, **said}]}, "run": {"tokens": "10B"},
        }).to_dict()  # fmt: skip
        basis = next(one["basis"] for one in found["run"]["energy"] if one["term"] == "halls")
        return basis, [one for one in found["assumptions"] if one.startswith(("pue", "carbon"))]

    basis, said = run_of()
    assert basis.startswith("PUE 1.58 of halls of all kinds")
    assert "pue = 1.58 (left out, and owned" in said[0]
    assert "the grid of aws:us-west-2" in said[1]
    assert run_of(pue=1.1, carbon="50 g/kWh") == ("PUE 1.1 as said", [])
    rented, said = run_of(owned=None, price="$2/gpu/h")
    assert rented.startswith("PUE 1.135 of aws")
    assert not said
