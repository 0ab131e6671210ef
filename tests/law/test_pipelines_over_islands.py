"""Plans whose pipelines cross islands: what micro-batches ahead and turns cost and save, which schedules go there, which axis is outermost."""

from __future__ import annotations

import copy
from typing import Any

import pytest

import shardmeter
from shardmeter.scenario import load

GOOD: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "fleet": {
        "islands": [{"name": name, "accelerator": "H100-SXM5-80GB", "nodes": 2} for name in ("a", "b")],
        "wan": {"default": {"bandwidth": "100 Gbps", "rtt": "200 ms", "streams": 256}},
    },
    "plan": {"sharding": "zero1", "tp": 4, "dp_shard": 2, "recompute": "full", "placement": {"pp": ["a", "b"]}},
    "run": {"seq_len": 8192, "global_batch": 32},
}


def scenario(wan: dict[str, Any] | None = None, **plan: Any) -> dict[str, Any]:
    made = copy.deepcopy(GOOD)
    made["plan"] |= plan
    made["fleet"]["wan"]["default"] |= wan or {}
    return made


def answer(wan: dict[str, Any] | None = None, **plan: Any) -> dict[str, Any]:
    return shardmeter.predict(scenario(wan, **plan)).to_dict()


def test_micro_batches_ahead_hide_the_round_trip_and_are_held_before_the_boundary() -> None:
    near, far, ahead = answer({"rtt": "0 s"}), answer(), answer(ahead=4)
    assert near["step_time_s"] < ahead["step_time_s"] < far["step_time_s"]
    before, behind = ([one["islands"][at]["memory_peak_gib"] for one in (far, ahead)] for at in (0, 1))
    assert before[1] > before[0]
    assert behind[1] == behind[0]


@pytest.mark.parametrize("said", ["ahead", "stagger"])
def test_fields_that_change_nothing_are_said(said: str) -> None:
    value = 2 if said == "ahead" else True
    one = {"model": "llama-3.1-8b", "gpus": "16xH100-SXM5-80GB", "plan": {"pp": 2, said: value}}
    assert f"plan.{said} changes nothing: no pipeline crosses islands" in load(one).warnings
    there: dict[str, Any] = {"ahead": {"schedule": "gpipe"}, "stagger": {"sharding": "fsdp"}}[said]
    more = there | {said: value}
    (told,) = (text for text in load(scenario(**more)).warnings if f"plan.{said}" in text)
    assert {"ahead": "gpipe holds every micro-batch", "stagger": "cannot send in turn"}[said] in told
    assert answer(**more)["step_time_s"] == answer(**there)["step_time_s"]


def test_a_schedule_without_room_refuses_micro_batches_ahead() -> None:
    with pytest.raises(shardmeter.BadScenario, match=r"ahead = 2 with schedule zb-v .*one of 1f1b, interleaved, zb-h1"):
        load(scenario(schedule="zb-v", virtual_stages=2, ahead=2))


def test_two_copies_of_the_model_lie_on_islands_of_one_kind() -> None:
    unlike = scenario(schedule="dualpipe")
    unlike["fleet"]["islands"][1]["accelerator"] = "A100-SXM4-80GB"
    with pytest.raises(shardmeter.BadScenario, match="dualpipe over islands of A100-SXM4-80GB and H100-SXM5-80GB"):
        load(unlike)


def test_gradients_of_two_copies_pass_the_line_once_a_step() -> None:
    """Every replica sends its part or, each by itself, all of it."""
    wide, narrow = ({"bandwidth": size, "rtt": "0 s", "transport": "lossless"} for size in ("100 Gbps", "50 Gbps"))
    terms = [
        {
            row["term"]: row["seconds"]
            for row in answer(wan, schedule="dualpipe", sync={"hierarchical": whole})["ledger"]
        }
        for wan, whole in ((wide, True), (narrow, True), (wide, False))
    ]
    parts, slow, alone = (one["gradient reduction"] for one in terms)
    assert slow == pytest.approx(2 * parts, rel=0.2)
    assert alone > 1.5 * parts


def test_pipelines_that_take_turns_wait_less_for_one_another() -> None:
    """Two pipelines on a line that is slow and not busy: the first message of each has all of it."""
    line = {"bandwidth": "4 Gbps", "rtt": "1 ms", "transport": "lossless"}
    together, turns = answer(line), answer(line, stagger=True)
    assert turns["step_time_s"] < together["step_time_s"]


def test_the_outermost_axis_pays_for_oversubscription() -> None:
    """Pipelines over buildings whose uplink is narrow send little; replicas over them reduce gradients there."""

    def terms(over: float, *order: str) -> dict[str, float]:
        tiers = [{"name": "building", "nodes": 4, "oversubscription": over}]
        made = shardmeter.predict({
            "model": "llama-3.1-8b",
            "fleet": {"islands": [{"name": "a", "accelerator": "H100-SXM5-80GB", "nodes": 8, "tiers": tiers}]},
            "plan": {"sharding": "zero1", "tp": 8, "pp": 2, "dp_shard": 4, "rank_order": ["tp", *order, "dp_replicate"]},
            "run": {"seq_len": 8192, "global_batch": 64},
        })  # fmt: skip
        return {term.label: float(term.seconds + term.hidden) for term in made.estimate.terms}

    pipelines, replicas = ("cp", "dp_shard", "pp"), ("cp", "pp", "dp_shard")
    for order, dear, same in (
        (pipelines, "stage sends", "gradient reduction"),
        (replicas, "gradient reduction", "stage sends"),
    ):
        wide, narrow = terms(1.0, *order), terms(8.0, *order)
        assert narrow[dear] > 2.0 * wide[dear]
        assert narrow[same] == pytest.approx(wide[same], rel=1e-6)
    grown = [sum(terms(8.0, *order).values()) - sum(terms(1.0, *order).values()) for order in (pipelines, replicas)]
    assert 0.0 < grown[0] < grown[1]
