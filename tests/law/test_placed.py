"""Axes that cross islands: what they are when the network is no obstacle, and what never gets slower."""

import copy
from typing import Any

import numpy as np
import pytest

import shardmeter
from shardmeter.scenario import load

WAN = {"bandwidth": "100 Gbps", "rtt": "10 ms", "streams": 256}
GOOD: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "fleet": {
        "islands": [{"name": name, "accelerator": "H100-SXM5-80GB", "nodes": 2} for name in ("a", "b")],
        "wan": {"default": WAN},
    },
    "plan": {"sharding": "zero1", "tp": 4, "dp_shard": 2, "recompute": "full"},
    "run": {"seq_len": 8192, "global_batch": 32},
}


def scenario(plan=None, wan=None, **run):
    made = copy.deepcopy(GOOD)
    made["plan"] |= plan or {}
    made["fleet"]["wan"]["default"] = WAN | (wan or {})
    made["run"] |= run
    return made


def step(plan, wan=None, **run):
    return shardmeter.predict(scenario(plan, wan, **run)).step_time


PIPELINE = {"placement": {"pp": ["a", "b"]}}


def test_a_pipeline_over_a_perfect_network_is_one_over_one_island():
    for schedule in ("gpipe", "1f1b"):
        free = step(PIPELINE | {"schedule": schedule}, {"bandwidth": "400 Tbps", "rtt": "0 s", "transport": "lossless"})
        one = {
            "model": GOOD["model"], "gpus": "32xH100-SXM5-80GB", "run": GOOD["run"],
            "plan": GOOD["plan"] | {"pp": 4, "schedule": schedule},
        }  # fmt: skip
        whole = shardmeter.predict(one)
        sends = next(term.seconds for term in whole.estimate.terms if term.label == "stage sends")
        assert whole.step_time - float(sends) * 1.01 <= free <= whole.step_time


def test_an_island_listed_once_is_filled():
    once, often = (load(scenario({"placement": {"pp": cell}})) for cell in (["a", "b"], ["a", "a", "b", "b"]))
    assert once.plan == often.plan
    assert once.plan.pp == 4
    assert [plan.pp for plan in once.plans] == [2, 2]


def test_the_order_of_islands_in_a_pipeline_is_that_of_its_stages():
    unlike = scenario({"placement": {"pp": ["a", "a", "b", "b"]}})
    unlike["fleet"]["islands"][1]["accelerator"] = "A100-SXM4-80GB"
    there = shardmeter.predict(unlike).to_dict()
    unlike["plan"]["placement"] = {"pp": ["b", "b", "a", "a"]}
    back = shardmeter.predict(unlike).to_dict()
    assert there["islands"][0]["memory_peak_gib"] != back["islands"][0]["memory_peak_gib"]
    turns = scenario({"placement": {"pp": ["a", "b", "a", "b"]}})
    assert shardmeter.predict(turns).step_time > shardmeter.predict(scenario(PIPELINE)).step_time


@pytest.mark.parametrize("plan", [
    PIPELINE,
    PIPELINE | {"schedule": "gpipe"},
    PIPELINE | {"schedule": "interleaved", "virtual_stages": 2},
    PIPELINE | {"schedule": "zb-h1"},
    {"placement": {"dp_shard": ["a", "b"]}, "sharding": "fsdp", "dp_shard": "auto"},
    {"placement": {"tp": ["a", "b"]}, "tp": 8, "dp_shard": 4},
    {"placement": {"cp": ["a", "b"]}, "dp_shard": 4},
], ids=str)  # fmt: skip
def test_a_better_network_is_never_slower(plan):
    rates = [step(plan, {"bandwidth": rate}) for rate in ("1 Gbps", "10 Gbps", "100 Gbps", "1 Tbps")]
    assert all(np.diff(rates) <= 1e-9)
    trips = [step(plan, {"rtt": rtt}) for rtt in ("0 s", "1 ms", "10 ms", "100 ms")]
    assert all(np.diff(trips) >= -1e-9)
    assert trips[-1] > trips[0]


def test_what_a_pipeline_sends_is_its_activations():
    sync = shardmeter.predict(scenario(PIPELINE)).to_dict()["sync"]
    tokens, width, hidden = 32 * 8192, 2, 4096
    assert sync["sent_bytes"] == pytest.approx(2 * tokens * hidden * width)


def test_two_pipelines_are_kept_together_by_the_method():
    made = scenario({"placement": {"pp": [["a", "b"], ["c", "d"]]}, "sync": {"method": "diloco", "sync_every": 50}})
    made["fleet"]["islands"] += [{"name": name, "accelerator": "H100-SXM5-80GB", "nodes": 2} for name in ("c", "d")]
    answer = shardmeter.predict(made).to_dict()
    assert answer["sync"]["progress"]["replicas"] == 2
    assert [one["global_batch"] for one in answer["islands"]] == [16.0] * 4
    assert sum(one["tokens_per_s"] for one in answer["islands"]) == pytest.approx(answer["tokens_per_s"])
