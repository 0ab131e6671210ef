"""The figures of the page on islands are what the product says."""

import re
from pathlib import Path

import pytest

import shardmeter

PAGE = (Path(__file__).parents[2] / "docs" / "islands.md").read_text(encoding="utf-8")
FLEET = {
    "islands": [{"name": name, "accelerator": "H100-SXM5-80GB", "nodes": 1} for name in ("a", "b")],
    "wan": {"default": {"bandwidth": "10 Gbps", "rtt": "20 ms", "streams": 16}},
}
PLANS = {
    "gradients across every step": {},
    "the same with `diloco`": {"sync": {"method": "diloco", "sync_every": 100, "bits": 8}},
    "`placement: {pp: [a, b]}`": {"dp_shard": 8, "placement": {"pp": ["a", "b"]}},
    "`placement: {dp_shard: [a, b]}`": {"placement": {"dp_shard": ["a", "b"]}},
    "`placement: {tp: [a, b]}`": {"dp_shard": 8, "placement": {"tp": ["a", "b"]}},
}


def answer(plan):
    plan = {"sharding": "fsdp", "recompute": "full", **plan}
    scenario = {"model": "llama-3.1-8b", "fleet": FLEET, "plan": plan, "run": {"seq_len": 8192, "global_batch": 64}}
    return shardmeter.predict(scenario).to_dict()


@pytest.mark.parametrize("text", PLANS)
def test_steps_of_the_table(text):
    printed = re.search(rf"^\| .*{re.escape(text)}.*? \| ([\d.]+) s \|", PAGE, re.MULTILINE)
    assert printed is not None
    assert float(f"{answer(PLANS[text])['step_time_s']:.3g}") == float(printed[1])


@pytest.mark.parametrize("text", [text for text in PLANS if "pp" in text or "dp_shard" in text])
def test_bytes_of_the_table(text):
    printed = re.search(rf"^\| .*{re.escape(text)}.*? ([\d.]+) GB a step", PAGE, re.MULTILINE)
    assert printed is not None
    sent = sum(island["sent_bytes"] for island in answer(PLANS[text])["islands"]) / 1e9
    assert sent == pytest.approx(float(printed[1]), rel=0.006)


def test_every_method_of_waiting_is_on_the_page():
    for word in ("barrier", "deadline", "own"):
        assert f"* `{word}`:" in PAGE
