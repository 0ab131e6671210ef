"""Laws of what a run costs and draws: terms sum to the whole, nothing is paid twice, all of it is linear in tokens, ratings bound it."""

from __future__ import annotations

from typing import Any

import pytest

import shardmeter
from shardmeter.physics import energy, money
from shardmeter.physics.energy import EXPECTED, LEAST, RATED

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
        assert energy.drawn_share(0.0, draw.computing, draw.waiting) == draw.waiting
        assert energy.drawn_share(1.0, draw.computing, draw.waiting) == draw.computing
    assert LEAST.computing <= EXPECTED.computing <= RATED.computing
    assert LEAST.waiting <= EXPECTED.waiting <= RATED.waiting
    assert LEAST.beside <= EXPECTED.beside <= RATED.beside


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
