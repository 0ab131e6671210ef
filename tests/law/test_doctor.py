"""A cause that is planted is found: first or among the first three, with its value; what is as predicted needs no explaining."""

import functools
import math
from pathlib import Path

import numpy as np
import pytest

import shardmeter
from shardmeter.study.doctor import doctor
from shardmeter.study.doctor.measured import NAMED, Measured, spread
from shardmeter.study.doctor.numbers import numeric
from shardmeter.study.doctor.settings import named
from shardmeter.study.doctor.solved import solved
from shardmeter.study.doctor.world import world
from shardmeter.study.roots import zero

EXAMPLES = Path(__file__).parents[2] / "examples"
OURS = {
    "one node": {
        "model": "llama-3.1-8b", "stack": "titan-compile", "gpus": "8xH100-SXM5-80GB",
        "plan": {"sharding": "fsdp", "micro_batch": 2, "recompute": "selective"}, "run": {"seq_len": 4096, "global_batch": 32},
    },
    "ddp": {
        "model": "gpt2", "stack": "titan-compile",
        "fleet": {"islands": [{"accelerator": "A100-SXM4-80GB", "nodes": 4, "gpus_per_node": 8, "fabric": "ethernet-100g-tcp"}]},
        "plan": {"sharding": "ddp", "micro_batch": 8}, "run": {"seq_len": 1024, "global_batch": 512},
    },
}  # fmt: skip
PACE, MEMORY = "tokens_per_s_per_gpu", "memory"


@functools.cache
def of(name):
    return shardmeter.load(OURS[name] if name in OURS else str(EXAMPLES / f"{name}.yaml"))


def planted(scenario, name, factor):
    """(the world with a cause in it, the value of the cause): so many times what is said, or the number itself where nothing is said."""
    base = world(scenario)
    if factor is None:
        return next(one for one in named(scenario) if one.name == name).world(), None
    cause = next(one for one in numeric(scenario, base) if one.name == name)
    value = factor * cause.said if cause.said else factor
    return cause.at(value), value


def implied(found, cause, value):
    """A finding is of a cause, and its value within 2 %."""
    assert found.cause.name == cause
    assert found.solution is not None
    assert found.solution.value == pytest.approx(value, rel=0.02)
    assert found.solution.low <= found.solution.value <= found.solution.high


def taken(made, *figures):
    return [Measured(quantity=NAMED[name], value=float(NAMED[name].of(made, None))) for name in figures]


@pytest.mark.parametrize(
    ("scenario", "cause", "factor", "figures", "place"),
    [
        ("llama-8b-64xh100", "fabric-bandwidth", 0.05, (PACE, "busbw"), 1),
        ("llama-8b-64xh100", "scale-up-bandwidth", 0.05, (PACE, "busbw_node"), 1),
        ("llama-8b-64xh100", "precision-fp32", None, (PACE,), 3),
        ("ddp", "fabric-bandwidth", 0.3, ("its_per_s",), 1),
        ("ddp", "global-batch", 2.0, ("step_time",), 3),
        ("one node", "pointwise-kernels", 3.0, ("step_time",), 3),
        ("one node", "matrix-products", 0.6, ("mfu",), 3),
        ("one node", "matrix-products", 0.6, ("mfu", "matmul"), 1),
        ("one node", "clock", 0.6, ("hfu", "matmul"), 3),
        ("one node", "attention-eager", None, ("samples_per_s",), 3),
        ("one node", "micro-batch", 3.0, ("memory_allocated",), 3),
        ("llama-70b-tp8-pp4", "overlap-lost", 0.8, ("tflops_per_gpu",), 3),
        ("llama-70b-tp8-pp4", "pcie", None, ("tokens_per_s",), 3),
        ("intellect-1", "wan-bandwidth", 0.2, ("compute_utilization",), 1),
    ],
)
def test_a_planted_cause_is_named(scenario, cause, factor, figures, place):
    made, value = planted(of(scenario), cause, factor)
    alone = [one for one in doctor(of(scenario), taken(made, *figures)).findings if one.explains]
    names = [one.cause.name for one in alone]
    assert cause in names[:place], names
    if value is not None:
        implied(alone[names.index(cause)], cause, value)


def test_what_is_as_predicted_needs_no_explaining():
    for name in ("llama-8b-64xh100", "intellect-1"):
        found = doctor(of(name), taken(world(of(name)), PACE, MEMORY))
        answer = found.to_dict()
        assert found.primary is None
        assert found.explained
        assert answer["verdict"] == "inside"
        assert answer["causes"] == answer["insufficient"] == answer["pairs"] == answer["next"] == []
        assert {one["verdict"] for one in answer["readings"]} == {"inside"}


def test_the_ends_of_an_interval_are_where_the_ends_of_the_prediction_are_what_was_measured():
    scenario = of("ddp")
    base = world(scenario)
    (measured,) = taken(planted(scenario, "fabric-bandwidth", 0.2)[0], "step_time")
    cause = next(one for one in numeric(scenario, base) if one.name == "fabric-bandwidth")
    found = solved(cause, measured, spread(scenario), base)
    for value, end in ((found.low, 0), (found.high, 1)):
        assert float(measured.ends(cause.at(value), spread(scenario))[end]) == pytest.approx(measured.value, rel=1e-5)


def test_a_ratio_does_not_hang_on_a_batch_that_nobody_said():
    """One node and two, at a network of a fifth: what the batch really is comes out the same from any guess of it."""
    ours = {**OURS["ddp"], "plan": {"sharding": "ddp"}, "run": {"seq_len": 1024}}
    true = [
        shardmeter.load(ours, overrides={"plan.micro_batch": 24, "fleet.islands.0.nodes": nodes}) for nodes in (4, 1)
    ]
    slow, value = planted(true[0], "fabric-bandwidth", 0.2)
    guessed = [shardmeter.load(ours, overrides={"fleet.islands.0.nodes": nodes}) for nodes in (4, 1)]
    found = doctor(guessed[0], taken(slow, "step_time"), guessed[1], taken(world(true[1]), "step_time"))
    assert found.reference is not None
    assert found.reference.value == pytest.approx(24.0, rel=0.01)
    implied(found.findings[0], "fabric-bandwidth", value)


def test_two_durations_of_unknown_length_tell_the_network_by_their_ratio():
    scenario = of("ddp")
    slow, value = planted(scenario, "fabric-bandwidth", 0.1)
    other = shardmeter.load(OURS["ddp"], overrides={"fleet.islands.0.nodes": 1, "run.global_batch": 128})
    hours = [
        Measured(quantity=NAMED["duration"], value=1e5 * float(one.step / one.estimate.samples))
        for one in (slow, world(other))
    ]
    found = doctor(scenario, hours[:1], other, hours[1:])
    implied(found.findings[0], "fabric-bandwidth", value)


def test_misread_figures_are_called_by_the_count_that_they_are():
    scenario = of("llama-8b-64xh100")
    right = float(NAMED["mfu"].of(world(scenario), None))
    answer = doctor(scenario, [Measured(quantity=NAMED["mfu"], value=64.0 * right)]).to_dict()
    assert answer["verdict"] == "impossible"
    assert "times the dense bf16 peak" in answer["readings"][0]["impossible"]
    assert answer["causes"][0]["name"] == "all-for-one-gpu"
    both = [*taken(world(scenario), "step_time"), Measured(quantity=NAMED["mfu"], value=8.0 * right)]
    (told,) = doctor(scenario, both).to_dict()["contradictions"]
    assert told["ratio"] == pytest.approx(8.0)
    assert "8" in told["is"]


def test_where_no_single_cause_suffices_pairs_are_tried():
    """No kernel is faster than the peak, so that a rate of nearly all of it takes two causes, or cannot be."""
    scenario = of("one node")
    answer = doctor(scenario, [Measured(quantity=NAMED["hfu"], value=0.85)]).to_dict()
    assert all(one["plausible"] == "unlikely" for one in answer["causes"])
    assert answer["insufficient"]
    for one in answer["insufficient"]:
        assert one["unexplained"] < 1.0
        assert not one["explains"]
    for pair in answer["pairs"]:
        assert pair["causes"][1]["explains"]


def test_checks_tell_causes_apart():
    made, _ = planted(of("llama-8b-64xh100"), "fabric-bandwidth", 0.05)
    answer = doctor(of("llama-8b-64xh100"), taken(made, PACE)).to_dict()
    assert answer["causes"][0]["name"] == "fabric-bandwidth"
    assert answer["causes"][0]["ratio"] == pytest.approx(0.05, rel=0.02)
    by_name = {one["name"]: {each["cause"]: each["value"] for each in one["expected"]} for one in answer["next"]}
    rates = by_name["all-reduce-between-nodes"]
    assert rates["fabric-bandwidth"] == pytest.approx(0.05 * rates["as-said"], rel=0.3)
    alone = by_name["one-node"]
    assert alone["fabric-bandwidth"] == pytest.approx(alone["as-said"])
    for one in answer["next"]:
        values = [each["value"] for each in one["expected"]]
        assert max(values) / min(values) >= 1.15


def test_roots_are_found_where_secants_are_poor():
    for power in (1.0, 9.0):

        def function(x: float, power: float = power) -> float:
            return float(x**power - 0.5)

        found = zero(function, 0.0, 2.0, function(0.0), function(2.0), 1e-9)
        assert found == pytest.approx(0.5 ** (1.0 / power), abs=1e-8)
    assert math.isclose(zero(lambda x: x - 1.0, 0.0, 4.0, -1.0, 3.0, 1e-3), 1.0, abs_tol=1e-3)


def test_a_pass_is_within_a_step():
    """A micro-batch that is larger than the step's takes the step with it, so that both ends of its interval are those of scenarios that
    can be; and no global batch is less than a pass of every rank."""
    path = str(EXAMPLES / "llama-8b-64xh100.yaml")
    found = {one["name"]: one for one in shardmeter.doctor(path, measured={"memory": "70GiB"}).to_dict()["causes"]}

    def memory(micro_batch):
        own = {"plan.micro_batch": micro_batch, "run.global_batch": 64 * max(micro_batch, 2)}
        told = shardmeter.predict(path, overrides=own)
        return [told.memory_peak_gib, *told.intervals()["memory_peak_gib"]]

    own = found["micro-batch"]
    for end, place in (("implied", 0), ("low", 2), ("high", 1)):
        below, above = (memory(one)[place] for one in (math.floor(own[end]), math.ceil(own[end])))
        assert below < 70.0 < above
    scenario = of("llama-8b-64xh100")
    batch = next(one for one in numeric(scenario, world(scenario)) if one.name == "global-batch")
    assert batch.least == pytest.approx(64.0)


def test_every_number_is_evaluated_at_many_values_as_at_each():
    scenario = of("llama-8b-64xh100")
    for cause in numeric(scenario, world(scenario)):
        if cause.said:
            values = cause.said * (np.array([1.0, 2.0, 4.0]) if cause.whole else np.array([0.5, 0.9, 1.0]))
            each = [float(cause.at(float(value)).step) for value in values]
            assert np.broadcast_to(cause.at(values).step, 3) == pytest.approx(each, rel=1e-12), cause.name
