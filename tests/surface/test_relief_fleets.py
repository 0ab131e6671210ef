"""What would relieve a fleet, or a step without a backward: every option that is named can be said, and gives what it is said to."""

from typing import Any

import pytest

import shardmeter
from shardmeter.study.infer import laid

NARROW = {"default": {"bandwidth": "1 Gbps", "rtt": "40 ms"}}
TWO = {"islands": [{"name": name, "gpus": "8xH100-SXM5-80GB"} for name in ("north", "south")], "wan": NARROW}
HOMES = {"islands": [{"name": "home", "gpus": "1xRTX 4090", "count": 4}], "wan": {"default": {"preset": "home-cable"}}}
ONE = {"islands": [{"name": "box", "gpus": "1xRTX 4090"}]}
SMALL = {"layers": 3, "hidden": 768, "ffn": 3072, "heads": 12, "vocab": 50257}


def asked(
    method: str, fleet: dict[str, Any], batch: int | None = 96, model: Any = "gpt2", **sync: Any
) -> dict[str, Any]:
    plan = {"sharding": "none" if fleet is not TWO else "ddp", "micro_batch": 2, "sync": {"method": method, **sync}}
    return {
        "model": model, "fleet": fleet, "plan": plan, "run": {"seq_len": 512, **({"global_batch": batch} if batch else {})},
    }  # fmt: skip


QUESTIONS = {
    "losses have no bits": asked("mezo", HOMES),
    "nothing crosses": asked("soma", HOMES, perturbations=4),
    "a batch that nobody said": asked("powersgd", TWO, None),
    "a batch that nobody said, without a backward": asked("spsa", TWO, None, perturbations=4),
    "a round of DiLoCo's own length": asked("diloco", TWO, topology="star", hierarchical=False, lead=0.3),
    "fewer layers than fragments": asked("diloco", TWO, model=SMALL),
    "no later than the round": asked("streaming_diloco", TWO, sync_every=1, num_fragments=1, fragment_sync_delay=1),
    "every step": asked("every_step", TWO, split="equal"),
    "side by side": asked("spsa", TWO, perturbations=8, together=4),
    "one island, side by side": asked("spsa", ONE, perturbations=8, together=4),
}
TOO_LARGE = {
    "copies on one island": asked("soma", ONE, perturbations=64, together=128),
    "copies on several": asked("soma", HOMES, perturbations=64, together=128),
    "outer state": asked("diloco", HOMES, model="qwen2.5-1.5b"),
    "nothing that lies on hosts": asked("powersgd", HOMES, model="qwen2.5-1.5b"),
}


@pytest.mark.parametrize("name", [*QUESTIONS, *TOO_LARGE])
def test_a_change_gives_what_it_is_said_to_give(name):
    question = (QUESTIONS | TOO_LARGE)[name]
    answer = shardmeter.predict(question).to_dict()
    offered = [*answer["way_out"], *answer["bottleneck"]["relief"]]
    assert answer["fits"] == (name in QUESTIONS)
    assert any(one["set"] for one in offered)
    for one in offered:
        if one["set"]:
            again = shardmeter.predict(question, overrides=one["set"]).to_dict()
            assert again["tokens_per_s"] == pytest.approx(one["tokens_per_s"], rel=1e-12), one["change"]
            assert again["memory"]["peak_gib"] == pytest.approx(one["memory_peak_gib"], rel=1e-12), one["change"]
            assert again["fits"] == one["fits"]


@pytest.mark.parametrize("method", ["mezo", "spsa", "eggroll", "soma"])
@pytest.mark.parametrize("fleet", [ONE, TWO, HOMES])
def test_a_step_without_a_backward_is_offered_nothing_that_it_has_not(method, fleet):
    answer = shardmeter.predict(asked(method, fleet, 1024, "llama-3.1-8b", perturbations=4)).to_dict()
    said = " ".join(text for one in (*answer["way_out"], *answer["bottleneck"]["relief"]) for text in one["set"])
    assert not [word for word in ("recompute", "optimizer", "reduce_dtype", "reshard", "outer_state") if word in said]


@pytest.mark.parametrize("name", ["copies on one island", "copies on several"])
def test_copies_that_do_not_fit_run_fewer_at_a_time(name):
    answer = shardmeter.predict(TOO_LARGE[name]).to_dict()
    assert "plan.sync.together" in answer["way_out"][0]["set"][0]
    assert "passes side by side" in answer["way_out"][0]["change"]


def test_alike_islands_are_priced_once():
    islands = [{"name": "home", "gpus": "1xRTX 4090", "count": 3}, {"name": "box", "gpus": "2xRTX 4090"}]
    servers, _ = laid(shardmeter.load({"model": "gpt2", "fleet": {"islands": islands, "wan": NARROW}}))
    assert [one.island.name for one in servers] == ["home-1", "home-2", "home-3", "box"]
    assert len({id(one.ledgers) for one in servers}) == 2
