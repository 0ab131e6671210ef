"""What `load` makes of several islands: islands and their plans, and the network between them as tables of pairs."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from shardmeter.core.record import changed
from shardmeter.physics.wan import ROUTE
from shardmeter.scenario import load
from shardmeter.scenario.catalog import load_catalog

GIGABIT = 1e9 / 8
A = {"name": "a", "accelerator": "H100-SXM5-80GB", "nodes": 2, "price": "$2/gpu/h"}
B = {**A, "name": "b", "nodes": 4}
BASE: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "plan": {"sharding": "fsdp", "tp": 8},
    "run": {"seq_len": 8192, "global_batch": 64},
}


def fleet(*islands: dict[str, Any], wan: dict[str, Any] | None = None, **more: Any) -> Any:
    given: dict[str, Any] = {"islands": list(islands)} | ({} if wan is None else {"wan": wan})
    return load(copy.deepcopy(BASE) | {"fleet": given} | more)


def wan(*islands: dict[str, Any], **said: Any) -> Any:
    return fleet(*islands, wan=said).fleet.wan


DEFAULT = {"bandwidth": "10 Gbps", "rtt": "40 ms"}


def test_a_count_makes_islands_that_differ_in_their_names_alone():
    made = fleet(A, {**B, "count": 3}, wan={"default": DEFAULT})
    assert [one.name for one in made.fleet.islands] == ["a", "b-1", "b-2", "b-3"]
    assert len({repr(changed(one, name="")) for one in made.fleet.islands[1:]}) == 1
    assert made.fleet.gpus == 16 + 3 * 32


def test_islands_without_names_are_numbered():
    bare = {"gpus": "8xH100-SXM5-80GB"}
    assert [one.name for one in fleet(bare, bare, wan={"default": DEFAULT}).fleet.islands] == ["island-1", "island-2"]
    assert [one.name for one in fleet({**bare, "count": 2}, wan={"default": DEFAULT}).fleet.islands] == [
        "island-1", "island-2",
    ]  # fmt: skip


def test_each_island_has_its_own_plan():
    made = fleet(A, {**B, "plan": {"micro_batch": 2, "tp": 4}}, wan={"default": DEFAULT})
    assert [(one.tp, one.dp_shard, one.micro_batch) for one in made.plans] == [(8.0, 2.0, 1.0), (4.0, 8.0, 2.0)]
    assert [one.gpus for one in made.plans] == [one.gpus for one in made.fleet.islands]
    assert made.plan == made.plans[0]


@pytest.mark.parametrize(
    ("placement", "own", "whole"),
    [
        ({"pp": ["a", "c"]}, (1, 1), 2),
        ({"pp": ["a", "b", "b", "c"]}, (1, 2, 1), 4),
        ({"pp": [["a", "b"], ["c", "d"]]}, (1, 1, 1, 1), 2),
        ({"dp_replicate": ["a", "b"]}, (1.0, 1.0), 2.0),
        ({"dp_shard": ["a", "b"]}, (1.0, 1.0), 2.0),
    ],
)
def test_an_axis_across_islands_counts_those_that_are_listed(placement, own, whole):
    (axis,) = placement
    cells = placement[axis] if isinstance(placement[axis][0], list) else [placement[axis]]
    listed = list(dict.fromkeys(name for cell in cells for name in cell))
    each = [{**A, "name": name, "nodes": 2 * listed_times(name, cells)} for name in listed]
    if axis == "dp_shard":
        each = [{**one, "nodes": 1} for one in each]
    plan = {"sharding": "fsdp", "tp": 8, "placement": placement}
    made = fleet(*each, wan={"default": DEFAULT}, plan=plan)
    assert tuple(getattr(one, axis) for one in made.plans) == own
    assert getattr(made.plan, axis) == whole
    assert all(one.gpus == island.gpus for one, island in zip(made.plans, made.fleet.islands, strict=True))
    assert made.plan.placement == ((axis, tuple(map(tuple, cells))),)


def listed_times(name, cells):
    return sum(cell.count(name) for cell in cells)


def test_a_counted_name_stands_for_its_islands_in_a_placement():
    made = fleet({**A, "count": 2}, wan={"default": DEFAULT}, plan={"tp": 8, "placement": {"pp": ["a"]}})
    assert made.plan.placement == (("pp", (("a-1", "a-2"),)),)
    assert made.plan.pp == 2


def test_the_batch_left_out_is_one_micro_batch_for_every_replica():
    run = {"seq_len": 8192}
    made = fleet(A, {**B, "plan": {"micro_batch": 3}}, wan={"default": DEFAULT}, run=run)
    assert made.run.global_batch == 2 * 1 + 4 * 3
    tokens = fleet(
        A, {**B, "plan": {"micro_batch": 3}}, wan={"default": DEFAULT}, run=run | {"global_batch": "1M tokens"}
    )
    assert tokens.run.global_batch == 122.0  # 122.07 sequences, in units of 2 and 12


def test_the_rules_of_one_numbers_place():
    links = [
        {"between": ["a", "b"], "bandwidth": "25 Gbps"},
        {"from": "a", "to": "b-1", "rtt": "5 ms"},
        {"between": ["b", "b"], "bandwidth": "50 Gbps"},
    ]
    made = wan(A, {**B, "count": 2}, default=DEFAULT, links=links, self={"bandwidth": "1 Gbps", "rtt": "1 ms"})
    gbps = made.bandwidth / GIGABIT
    assert (gbps[0, 1], gbps[1, 0], gbps[0, 2]) == (25.0, 25.0, 25.0)
    assert (made.rtt[0, 1], made.rtt[1, 0], made.rtt[0, 2]) == (5e-3, 40e-3, 40e-3)
    assert (gbps[1, 2], made.rtt[1, 2]) == (50.0, 1e-3)
    assert np.all(made.lanes == 1.0)
    assert np.isinf(made.up).all()


def test_a_site_of_a_count_is_a_row_for_each():
    made = wan(
        A, {**B, "count": 2}, default=DEFAULT, sites={"b": {"up": "5 Gbps", "down": "8 Gbps"}, "b-2": {"up": "1 Gbps"}}
    )
    assert (made.up / GIGABIT).tolist() == [np.inf, 5.0, 1.0]
    assert (made.down / GIGABIT).tolist() == [np.inf, 8.0, 8.0]


@pytest.mark.parametrize(("shared", "lanes"), [("island", 1.0), ("node", 2.0), ("gpu", 16.0)])
def test_a_rate_of_nodes_or_gpus_is_so_many_lanes_of_the_smaller_island(shared, lanes):
    made = wan(A, B, default=DEFAULT | {"shared": shared})
    assert made.bandwidth[0, 1] == made.bandwidth[1, 0] == 10 * GIGABIT * lanes
    assert made.lanes[0, 1] == lanes


def test_lanes_are_those_of_what_binds():
    sites = {"a": {"up": "1 Gbps", "down": "1 Gbps", "shared": "node"}}
    made = wan(A, B, default=DEFAULT | {"bandwidth": "100 Gbps"}, sites=sites)
    assert made.up[0] == 2 * GIGABIT
    assert (made.lanes[0, 1], made.lanes[1, 0]) == (2.0, 2.0)
    assert wan(A, B, default=DEFAULT | {"bandwidth": "1 Gbps"}, sites=sites).lanes[0, 1] == 1.0


def test_two_sites_make_a_link_where_none_is_said():
    made = wan(A, B, sites={"a": {"preset": "home-cable"}, "b": {"preset": "university"}})
    assert made.bandwidth[0, 1] == pytest.approx(110e6 / 8)
    assert made.bandwidth[1, 0] == pytest.approx(500e6 / 8)
    assert made.rtt[0, 1] == made.rtt[1, 0] == pytest.approx((30e-3 + 20e-3) / 2)
    assert made.loss[0, 1] == 1e-4
    assert made.egress[0, 1] == 0.0


def test_a_preset_of_sites_as_default_is_every_sites():
    made = wan({**A, "count": 3}, default={"preset": "home-fibre"})
    assert made.up.tolist() == made.down.tolist() == [500e6 / 8] * 3
    assert made.rtt[0, 2] == 25e-3


def test_a_preset_fills_what_a_link_leaves_out():
    made = wan(A, B, default={"preset": "dci-4to1", "rtt": "3 ms"})
    assert made.bandwidth[0, 1] == 100 * GIGABIT * 16
    assert made.rtt[0, 1] == 3e-3
    assert made.transport == ("lossless", "lossless")


def test_distance_gives_the_round_trip():
    made = wan(A, B, default={"bandwidth": "10 Gbps", "distance": "1000 km"})
    assert made.rtt[0, 1] == pytest.approx(123e-6 + 10.09e-6 * 1000 * ROUTE)


def test_regions_tell_what_nobody_said():
    made = fleet({**A, "region": "aws:us-east-1"}, {**B, "region": "gcp:us-central1"})
    row = load_catalog().pair("aws:us-east-1/gcp:us-central1")
    net = made.fleet.wan
    assert (net.bandwidth[0, 1], net.bandwidth[1, 0]) == (2 * row.bandwidth, 2 * row.bandwidth_back)
    assert net.rtt[0, 1] == row.rtt
    assert net.streams[0, 1] == 64.0
    assert (net.window[0, 1], net.window[1, 0]) == (3.46e6, 1.06e6)
    assert net.egress[0, 1] == pytest.approx(0.09e-9)
    assert net.egress[1, 0] == pytest.approx(0.12e-9)
    assert [one[:2] for one in net.basis] == [("a", "b"), ("b", "a")]
    assert any("measured 2022-01" in text for text in made.assumptions)


def test_what_a_link_says_wins_over_regions():
    regions = ({**A, "region": "aws:us-east-1"}, {**B, "region": "gcp:us-central1"})
    said = wan(*regions, default={"bandwidth": "1 Gbps", "rtt": "50 ms", "egress": "$0.01/GB"})
    assert said.bandwidth[0, 1] == GIGABIT
    assert said.rtt[0, 1] == 50e-3
    assert said.egress[0, 1] == pytest.approx(0.01e-9)
    assert said.basis == ()


def test_a_price_of_traffic_that_nobody_knows_is_nan():
    made = wan(A, B, default=DEFAULT)
    assert np.isnan(made.egress[0, 1])


def test_an_instance_brings_its_region():
    made = fleet({"name": "a", "instance": "p5.48xlarge"}, {**A, "name": "b", "region": "aws:us-west-2"})
    assert any(text.startswith("fleet.wan: aws:us-east-2 → aws:us-west-2 measured") for text in made.assumptions)


def test_assumptions_of_all_islands_are_said_once_and_of_some_with_their_names():
    made = fleet(A, B, {**A, "name": "c", "accelerator": "A100-SXM4-80GB"}, wan={"default": DEFAULT})
    assert made.assumptions.count("micro_batch = 1 (left out)") == 1
    assert "a, c: dp_shard = 2 (what is left of 16 GPUs)" in made.assumptions
    assert "b: dp_shard = 4 (what is left of 32 GPUs)" in made.assumptions


def test_tiers_reach_from_the_scale_up_domain_to_buildings():
    tiers = [
        {"name": "leaf", "nodes": 4, "latency": "10 us"},
        {"name": "spine", "nodes": 32, "oversubscription": 3},
        {"name": "building", "nodes": 128, "oversubscription": 2, "latency": "90 us"},
    ]
    run = {"seq_len": 8192, "global_batch": 516}
    made = fleet({**A, "nodes": 512, "tiers": tiers}, B, wan={"default": DEFAULT}, run=run).fleet.islands[0]
    assert [(tier.name, tier.size) for tier in made.tiers] == [
        ("NVLink4 switched", 8.0), ("ib-ndr400", 32.0), ("between leaf units", 256.0), ("between spine units", 1024.0),
        ("between building units", 4096.0),
    ]  # fmt: skip
    rates = [tier.bandwidth for tier in made.tiers[1:]]
    assert rates == [50e9, 50e9, 50e9 / 3, 50e9 / 6]


@pytest.mark.parametrize(
    ("word", "method"),
    [("fedavg", "local_sgd"), ("streaming", "streaming_diloco"), ("Streaming-DiLoCo", "streaming_diloco")],
)
def test_other_words_for_a_method(word, method):
    plan = {"tp": 8, "sync": {"method": word, "H": 50}}
    assert fleet(A, B, wan={"default": DEFAULT}, plan=plan).plan.sync.method == method


def test_a_methods_defaults_are_said_and_fit_the_model():
    plan = {"tp": 8, "sync": {"method": "decoupled_diloco"}}
    made = fleet(A, B, wan={"default": DEFAULT}, plan=plan, model="llama-3.2-1b")
    assert made.plan.sync.num_fragments == 16
    assert "sync num_fragments = 16 (of decoupled_diloco; left out)" in made.assumptions
    assert all(one.sync == made.plan.sync for one in made.plans)


def test_every_letter_of_the_papers_is_a_field():
    sync = {"method": "streaming_diloco", "H": 60, "P": 4, "tau": 2, "alpha": 0.25, "should_quantize": True}
    made = fleet(A, B, wan={"default": DEFAULT}, plan={"tp": 8, "sync": sync}).plan.sync
    assert (made.sync_every, made.num_fragments, made.fragment_sync_delay) == (60.0, 4, 2.0)
    assert (made.fragment_update_alpha, made.bits) == (0.25, 8.0)
