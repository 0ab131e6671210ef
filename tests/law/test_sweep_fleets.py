"""Sweeps over several islands: every row is what predict says of that point, to the bit, and why a point is illegal too."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import shardmeter
from shardmeter.scenario.together import reason
from shardmeter.study import relief_islands
from shardmeter.study.sweep import FIGURES, Sweep, fleets

FLEET: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "stack": "titan-compile",
    "fleet": {
        "islands": [
            {"name": "oregon", "accelerator": "H100-SXM5-80GB", "nodes": 2, "price": "$3/gpu/h", "region": "aws:us-west-2"},
            {"name": "iowa", "accelerator": "A100-SXM4-80GB", "nodes": 4, "price": "$1.8/gpu/h", "region": "gcp:us-central1"},
            {"name": "home", "accelerator": "L40S", "nodes": 1, "price": "$1/gpu/h", "plan": {"recompute": "full"}},
        ],
        "wan": {
            "default": {"bandwidth": "10 Gbps", "rtt": "40 ms", "egress": "$0.02/GB"},
            "links": [{"between": ["oregon", "iowa"], "bandwidth": "25 Gbps", "rtt": "35 ms"}],
        },
    },
    "plan": {"sharding": "fsdp", "recompute": "selective", "sync": {"method": "diloco", "sync_every": 50}},
    "run": {"seq_len": 4096, "global_batch": 280, "tokens": "100B"},
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def no_relief():
    """What would relieve a fleet takes ten evaluations and is no column."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(relief_islands, "relief", lambda *_: ())
        patch.setattr(relief_islands, "ways_out", lambda *_: ())
        yield


def at(answer: dict[str, Any], name: str) -> Any:
    """A figure of the JSON by its dotted name; None where it has none."""
    found: Any = answer
    for step in name.split("."):
        found = None if found is None else found.get(step)
    return found


def predicted(base: dict[str, Any], overrides: dict[str, Any]) -> dict[str, Any] | str:
    """The JSON of predict, or why a point is illegal."""
    try:
        return shardmeter.predict(base, overrides=overrides).to_dict()
    except shardmeter.ShardMeterError as error:
        return reason(error)


def same(axes: dict[str, Any], base: dict[str, Any] = FLEET, method: str | None = None) -> Sweep:
    """The sweep, after comparing every figure of every row with predict."""
    base = base if method is None else {**base, "plan": {**base["plan"], "sync": {"method": method}}}
    names = [name for name in FIGURES if name != "compute_utilization"]
    swept = shardmeter.sweep(base, axes, columns=names)
    points = list(itertools.product(*axes.values()))
    assert len(swept) == len(points)
    for row, point in zip(swept.rows(), points, strict=True):
        overrides = dict(zip(axes, point, strict=True))
        answer = predicted(base, overrides)
        if isinstance(answer, str):
            assert row["status"] == f"illegal: {answer}"
            continue
        assert row["status"] == ("ok" if answer["fits"] else "does not fit")
        for name in names:
            assert row[name] == at(answer, name), (name, overrides)
    return swept


@pytest.mark.parametrize("method", [
    "diloco", "streaming_diloco", "eager_diloco", "local_sgd", "async_local_sgd", "decoupled_diloco", "sparse_loco",
])  # fmt: skip
def test_numbers_of_a_method(method: str) -> None:
    same({"plan.sync.sync_every": [1, 7, 100], "plan.sync.bits": [4, 8, 16]}, method=method)


def test_numbers_of_the_streaming_method() -> None:
    """Fragments set how many messages there are; a delay longer than the round is illegal, and said."""
    swept = same(
        {"plan.sync.P": [1, 2, 4, 33], "plan.sync.H": [8, 32], "plan.sync.tau": [0, 1, 9]}, method="streaming_diloco"
    )
    assert 0 < swept.counts[2] < len(swept)
    assert any("33" in text for text in swept.reasons)


def test_methods_topologies_and_what_contradicts_them() -> None:
    swept = same({
        "plan.sync.method": ["every_step", "diloco", "async_local_sgd", "decoupled_diloco", "no_such"],
        "plan.sync.sync_every": [1, 20], "plan.sync.topology": ["auto", "star", "tree"],
    })  # fmt: skip
    assert {"illegal"} & {str(status).partition(":")[0] for status in swept.columns["status"]}


def test_a_star_chooses_its_server_by_the_size_of_the_message() -> None:
    same({"plan.sync.bits": [1, 2, 4, 8, 16, 32], "plan.sync.topology": ["star", "sharded_star"]})


def test_the_network() -> None:
    same({
        "fleet.wan.default.bandwidth": ["100 Mbps", "10 Gbps"], "fleet.wan.links.0.rtt": ["1 ms", "300 ms"],
        "plan.sync.sync_every": [2, 50],
    })  # fmt: skip
    same(
        {"fleet.wan.sites": [{"home": {"up": "20 Mbps", "down": "200 Mbps"}}, {}], "fleet.wan.default.loss": [0, 0.001]}
    )


def test_numbers_of_a_network_that_are_resolved_alone() -> None:
    """Sites, distances in the place of round trips, a network under a star, and one that a placed axis crosses."""
    base = {
        **FLEET,
        "fleet": {**FLEET["fleet"], "wan": {**FLEET["fleet"]["wan"], "sites": {"home": {"up": "20 Mbps"}}}},
    }
    same({"fleet.wan.sites.home.up": ["20 Mbps", "5 Gbps"], "fleet.wan.default.egress": ["$0.01/GB", "$0.05/GB"]}, base)
    same({"fleet.wan.links.0.distance": ["10 km", "5000 km"], "plan.sync.bits": [8, 16]})
    same({"fleet.wan.default.loss": [0, 0.01], "plan.sync.topology": ["star", "auto"], "plan.sync.bits": [2, 32]})
    pipe = {**FLEET, "fleet": {**FLEET["fleet"], "islands": [
        {"name": name, "accelerator": "H100-SXM5-80GB", "nodes": 1} for name in ("oregon", "iowa")
    ]}, "plan": {"sharding": "fsdp", "placement": {"pp": ["oregon", "iowa"]}}, "run": {"seq_len": 4096, "global_batch": 64}}  # fmt: skip
    same({"fleet.wan.links.0.bandwidth": ["1 Gbps", "50 Gbps"], "fleet.wan.links.0.rtt": ["1 ms", "99 ms"]}, pipe)


@pytest.mark.parametrize("plan", [
    {"placement": {"pp": ["oregon", "oregon", "iowa", "iowa"]}, "schedule": "interleaved", "virtual_stages": 2, "sharding": "zero1"},
    {"placement": {"dp_shard": ["oregon", "iowa"]}, "sharding": "fsdp"},
])  # fmt: skip
def test_networks_under_a_placed_axis_are_evaluated_at_once(
    plan: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    islands = [{"name": name, "accelerator": "H100-SXM5-80GB", "nodes": 1} for name in ("oregon", "iowa")]
    base = {**FLEET, "fleet": {**FLEET["fleet"], "islands": islands}, "plan": {"recompute": "full", **plan}}
    base |= {"model": "llama-3.2-1b", "run": {"seq_len": 4096, "global_batch": 64}}
    axes = {"fleet.wan.links.0.bandwidth": ["1 Gbps", "50 Gbps"], "fleet.wan.links.0.rtt": ["1 ms", "99 ms"]}
    same(axes, base)
    monkeypatch.setattr(fleets, "evaluate_fleet", None)
    assert len(shardmeter.sweep(base, axes)) == 4


def test_islands_and_batch() -> None:
    swept = same({"fleet.islands.iowa.nodes": [2, 4], "run.global_batch": [56, 280, 281], "plan.sync.bits": [8, 16]})
    assert swept.counts[2] == 4
    same({"fleet.islands.home.count": [1, 3], "plan.micro_batch": [1, 2], "run.global_batch": [560]})


def test_one_island_and_several_in_one_sweep() -> None:
    one = {**FLEET, "fleet": {"islands": [FLEET["fleet"]["islands"][0]], "wan": FLEET["fleet"]["wan"]}}
    one["fleet"]["wan"] = {"default": FLEET["fleet"]["wan"]["default"]}
    swept = same(
        {"fleet.islands.oregon.count": [1, 2], "plan.micro_batch": [1, 2]},
        {**one, "run": {"seq_len": 4096, "global_batch": 64}},
    )
    assert np.isnan(swept.columns["sync.round_s"]).tolist() == [True, True, False, False]
