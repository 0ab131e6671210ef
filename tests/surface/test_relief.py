"""Advice is evaluated: what a change is said to bring is what the scenario with that change gives."""

import json
import shlex
from typing import Any

import pytest

import shardmeter
from shardmeter.cli import main
from shardmeter.core.record import changed
from shardmeter.study import moves
from shardmeter.study.causes import cause_of
from shardmeter.study.relief import REACH, batch_unsaid, relief, ways_out

QUESTIONS: dict[str, dict[str, Any]] = {
    "accumulating": {"model": "llama-3.1-8b", "gpus": "64xH100-SXM5-80GB", "plan": "fsdp", "global_batch": 256},
    "batch unsaid": {"model": "llama-3.1-8b", "gpus": "64xH100-SXM5-80GB", "plan": "fsdp"},
    "hsdp": {"model": "llama-3.1-8b", "gpus": "64xH100-SXM5-80GB", "plan": "hsdp", "global_batch": 256},
    "tp and pp": {
        "model": "llama-3.1-70b",
        "gpus": "128xH100-SXM5-80GB",
        "plan": "fsdp,tp=8,pp=4",
        "global_batch": 256,
    },
    "interleaved": {
        "model": "llama-3.1-70b",
        "gpus": "128xH100-SXM5-80GB",
        "plan": "zero1,tp=8,pp=4,schedule=interleaved,virtual_stages=2",
        "global_batch": 256,
    },
    "a stack that chunks": {
        "model": "llama-3.1-8b",
        "gpus": "64xH100-SXM5-80GB",
        "plan": "zero1",
        "stack": "bridge-2026",
        "global_batch": 256,
    },
    "a name with commas": {
        "model": "llama-3.1-8b",
        "gpus": "64xGB200-NVL72",
        "plan": "fsdp",
        "fabric": "ib-ndr400",
        "global_batch": 256,
    },
    "one node": {
        "model": "llama-3.1-8b",
        "gpus": "8xH100-SXM5-80GB",
        "plan": "fsdp,recompute=full",
        "global_batch": 64,
    },
}
TOO_LARGE: dict[str, dict[str, Any]] = {
    "activations": {
        "model": "llama-3.1-70b",
        "gpus": "64xH100-SXM5-80GB",
        "plan": "fsdp,micro_batch=4",
        "global_batch": 256,
    },
    "states": {"model": "llama-3.1-70b", "gpus": "32xH100-SXM5-80GB", "plan": "ddp", "global_batch": 32},
    "pairs": {"model": "llama-3.1-8b", "gpus": "8xH100-SXM5-80GB", "plan": "ddp,micro_batch=4", "global_batch": 64},
    "far": {"model": "llama-3.1-405b", "gpus": "16xH100-SXM5-80GB", "plan": "ddp,micro_batch=2"},
}


def asked(options):
    return shardmeter.load(None, options=options)


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_change_gives_what_it_is_said_to_give(name):
    answer = shardmeter.predict(asked(QUESTIONS[name]))
    found = relief(answer.scenario, answer.estimate)
    assert len(found) >= 8
    ranks = [(REACH.index(one.reach), -one.gain) for one in found]
    assert ranks == sorted(ranks)
    for one in found:
        assert one.sets, one.says
        again = shardmeter.predict(shardmeter.load(None, options=QUESTIONS[name], overrides=one.sets))
        assert again.step_time == one.step_time, one.says
        assert float(again.estimate.memory_peak) == one.peak, one.says
        saved = 1 - (answer.tokens_per_s / again.tokens_per_s)
        assert one.gain == pytest.approx(saved, abs=1e-12)


@pytest.mark.parametrize("name", TOO_LARGE)
def test_a_way_out_is_one(name):
    answer = shardmeter.predict(asked(TOO_LARGE[name]))
    assert not answer.fits
    found = ways_out(answer.scenario, answer.estimate)
    assert found
    plans = []
    for one in found:
        again = shardmeter.predict(shardmeter.load(None, options=TOO_LARGE[name], overrides=one.sets))
        assert again.fits, one.says
        assert again.step_time == one.step_time
        plans.append((again.scenario.plan, again.estimate.gpus))
    assert len(plans) == len(set(plans))
    order = [(one.gpus, not one.trains_alike, 1 / one.tokens_per_s) for one in found]
    assert order == sorted(order)
    assert found[0].says in answer.to_dict()["bottleneck"]["advice"]


def test_what_fits_needs_no_way_out():
    data = shardmeter.predict(asked(QUESTIONS["accumulating"])).to_dict()
    assert data["fits"]
    assert data["way_out"] == []
    best = next(one for one in data["bottleneck"]["relief"] if one["kind"] == "plan" and one["fits"])
    assert best["change"] in data["bottleneck"]["advice"]
    assert all(f"--set {shlex.quote(text)}" in data["bottleneck"]["advice"] for text in best["set"])


def test_a_batch_that_was_not_said_follows_the_plan():
    scenario = asked(QUESTIONS["batch unsaid"])
    assert batch_unsaid(scenario)
    assert not batch_unsaid(asked(QUESTIONS["accumulating"]))
    found = relief(scenario, shardmeter.predict(scenario).estimate)
    assert any("micro-batch 2" in one.says and "global batch 128" in one.says for one in found)


def test_terms_of_one_cause_stand_together():
    data = shardmeter.predict(asked(QUESTIONS["accumulating"])).to_dict()
    first = data["bottleneck"]
    seconds = sum(term["seconds"] for term in data["ledger"] if term["cause"] == first["cause"])
    assert first["cause_seconds"] == pytest.approx(seconds)
    assert sum(one["share"] for one in first["cause_terms"]) == pytest.approx(first["cause_share"])


def test_inside_one_domain_there_is_no_fabric():
    data = shardmeter.predict(asked(QUESTIONS["one node"])).to_dict()
    assert "fabric" not in {term["cause"] for term in data["ledger"]}
    assert "fabric" in {
        term["cause"] for term in shardmeter.predict(asked(QUESTIONS["accumulating"])).to_dict()["ledger"]
    }
    scenario = asked(QUESTIONS["hsdp"])
    assert cause_of("gradient reduction", "fabric", scenario.plan, scenario.fleet.islands[0]) == "fabric"


def test_tensor_parallelism_over_nodes_is_the_fabrics():
    scenario = asked({"model": "llama-3.1-70b", "gpus": "64xH100-SXM5-80GB", "plan": "fsdp,tp=16"})
    assert cause_of("tensor parallel", "scale-up link", scenario.plan, scenario.fleet.islands[0]) == "fabric"
    inside = changed(scenario.plan, tp=8.0, dp_shard=8.0)
    assert cause_of("tensor parallel", "scale-up link", inside, scenario.fleet.islands[0]) == "scale-up link"
    assert cause_of("matrix products", "compute", scenario.plan, scenario.fleet.islands[0]) == "compute"


def test_moves_that_mean_nothing_give_none():
    scenario = asked(QUESTIONS["one node"])
    plan, island = scenario.plan, scenario.fleet.islands[0]
    for move in (
        moves.micro_batch(0.5),
        moves.degree("tp", 0.5),
        moves.chunks,
        moves.twice_fabric,
    ):
        assert move(plan, island) is None
    assert moves.sharding("fsdp")(plan, island) is None
    assert moves.sharding("hsdp")(plan, island) is None
    assert moves.narrow_reduction(changed(plan, reduce_dtype="bf16"), island) is None


def test_an_island_that_one_line_cannot_say_has_no_option():
    scenario = shardmeter.load(
        {
            "model": "llama-3.1-8b",
            "plan": "fsdp",
            "fleet": {
                "islands": [
                    {
                        "accelerator": "H100-SXM5-80GB",
                        "nodes": 16,
                        "tiers": [{"name": "pod", "nodes": 4, "oversubscription": 3}],
                    }
                ]
            },
        }
    )
    found = relief(scenario, shardmeter.predict(scenario).estimate)
    assert all(one.sets == () for one in found if one.kind == "hardware")
    assert all(one.sets for one in found if one.kind == "plan")


def test_layers_without_weight_gradients_have_none_that_wait():
    """zb-2p lets weight gradients wait by what they keep: a frozen layer's keep nothing. Advice may raise pp to get there."""
    question = {"model": "llama-3.1-8b", "gpus": "16xH100-SXM5-80GB", "global_batch": 64}
    for trainable, schedule in (("head", "zb-2p"), ("lora(r=16)", "zb-2p"), ("all", "zb-2p")):
        sets = (f"plan.trainable={trainable}",)
        for pp in (1, 4):
            plan = f"zero1,pp={pp},schedule={schedule}"
            answer = shardmeter.predict(shardmeter.load(None, options=question | {"plan": plan}, overrides=sets))
            assert 0 < answer.step_time < float("inf")
            assert relief(answer.scenario, answer.estimate)


def test_what_is_said_of_a_name_with_commas_can_be_said_back():
    island = {"accelerator": "GB200-NVL72", "nodes": 1, "gpus_per_node": 4}
    document = {"model": "llama-3.1-8b", "plan": "fsdp", "fleet": {"islands": [island]}}
    with pytest.raises(shardmeter.BadScenario) as caught:
        shardmeter.load(document, overrides=("plan.offload=optimizer",))
    (found,) = caught.value.violations
    text = found.way_out.removeprefix("say accelerator: ").partition(", or")[0].replace("...", "100")
    again = shardmeter.load(document, overrides=("plan.offload=optimizer", f"fleet.islands.0.accelerator={text}"))
    device = again.fleet.islands[0].accelerator
    assert "," in device.name
    assert 100e9 in (device.host_link, device.host_memory_bandwidth)


def ways(**question):
    answer = shardmeter.predict(shardmeter.load(None, options={"global_batch": 128, "plan": "fsdp"} | question))
    assert not answer.fits
    return answer.to_dict()["way_out"]


@pytest.mark.parametrize(
    ("model", "gpus"),
    [
        ("llama-3.1-70b", "8xH100-SXM5-80GB"),
        ("llama-3.1-70b", "4xH100-SXM5-80GB"),
        ("llama-3.1-70b", "8xA100-SXM4-80GB"),
        ("llama-2-13b", "1xRTX 4090"),
    ],
)
def test_one_box_grows_into_several(model, gpus):
    """What fits on no single box of these fits on more of them, and what is said loads, fits and has the numbers said."""
    question = {"model": model, "gpus": gpus}
    found = ways(**question)
    assert found
    for one in found:
        options = {"global_batch": 128, "plan": "fsdp"} | question
        again = shardmeter.predict(shardmeter.load(None, options=options, overrides=tuple(one["set"])))
        assert again.fits
        assert again.scenario.fleet.gpus == one["gpus"]
        assert again.to_dict()["memory"]["peak_gib"] == pytest.approx(one["memory_peak_gib"], rel=1e-12)
        assert float(again.step_time) == pytest.approx(one["step_time_s"], rel=1e-12)


def test_boxes_are_joined_by_what_was_said_of_them():
    def grown(**island):
        fleet = {"islands": [{"nodes": 1} | island]}
        scenario = shardmeter.load({"model": "llama-3.1-70b", "plan": "fsdp", "fleet": fleet})
        laid = moves.more_nodes(4.0)(scenario.plan, scenario.fleet.islands[0])
        assert laid is not None
        wanted = shardmeter.load(
            {"model": "llama-3.1-70b", "plan": "fsdp", "fleet": {"islands": [island | {"nodes": 4}]}}
        )
        assert laid[1] == wanted.fleet.islands[0]
        return laid[1].tiers[1]

    named = grown(accelerator="H100-SXM5-80GB", fabric="ib-hdr200")
    usual = grown(accelerator="H100-SXM5-80GB")
    rented = grown(instance="p5.48xlarge")
    assert (named.name, usual.name) == ("ib-hdr200", "ib-ndr400")
    assert rented.name.startswith("efa")


def test_a_box_that_nothing_is_known_to_join_stays_alone():
    scenario = asked(QUESTIONS["one node"])
    alone = changed(scenario.fleet.islands[0], outside=None)
    assert moves.more_nodes(2.0)(scenario.plan, alone) is None


def test_what_nobody_sells_comes_last_and_says_so(capsys):
    question = [
        "predict",
        "--model",
        "llama-3.1-8b",
        "--gpus",
        "64xH100-SXM5-80GB",
        "--plan",
        "fsdp,recompute=selective",
    ]
    assert main(question) == 0
    page = capsys.readouterr().out.partition("What would relieve it")[2].partition("\n\n")[0]
    assert "nobody sells it alone" in page.splitlines()[-1]
    assert main([*question, "--format", "json"]) == 0
    reliefs = json.loads(capsys.readouterr().out)["bottleneck"]["relief"]
    assert {one["change"]: one["reach"] for one in reliefs if one["kind"] == "hardware"} == {
        "twice the fabric bandwidth": "bought", "twice the scale-up bandwidth": "supposed", "twice the memory bandwidth": "supposed",
    }  # fmt: skip
    assert all((one["reach"] == "set") is (one["kind"] == "plan") for one in reliefs)
