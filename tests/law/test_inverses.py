"""An inverse answer fits and the next legal value does not; more memory never gives less; one value alone says the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shardmeter
from shardmeter.core.record import changed
from shardmeter.engine.constraints import violations
from shardmeter.engine.evaluate import evaluate
from shardmeter.specs import Fleet, Scenario
from shardmeter.study import inverse, moves
from shardmeter.study.solve import CHANCES, Solution, solve
from shardmeter.study.trust import fits_probability

SCENARIOS: dict[str, dict[str, Any]] = {
    "accumulating": {"plan": "fsdp", "global_batch": 384},
    "batch unsaid": {"plan": "fsdp,recompute=full"},
    "batch in tokens": {"plan": "fsdp,recompute=full", "global_batch": "4M tokens"},
    "hsdp": {"plan": "hsdp,recompute=selective", "global_batch": 256},
    "one node": {"gpus": "8xH100-SXM5-80GB", "plan": "fsdp", "global_batch": 48},
    "one GPU": {"model": "llama-3.2-1b", "gpus": "1xH100-SXM5-80GB", "plan": "none"},
    "an instance": {"gpus": None, "instance": "4xp5.48xlarge", "plan": "zero1,recompute=full"},
    "a rack": {"model": "llama-3.1-405b", "gpus": "288xGB200-NVL72", "plan": "fsdp,tp=8", "fabric": "ib-ndr400"},
    "tp and pp": {"model": "llama-3.1-70b", "plan": "fsdp,tp=8,pp=4", "global_batch": 48},
    "interleaved": {
        "model": "llama-3.1-70b", "plan": "zero1,tp=8,pp=4,schedule=interleaved,virtual_stages=2", "global_batch": 96,
    },
    "zero bubble": {"plan": "zero1,pp=8,schedule=zb-v,virtual_stages=2", "global_batch": 128},
    "cp": {"plan": "fsdp,cp=4,tp=2", "seq": 32768, "global_batch": 64},
    "experts": {"model": "mixtral-8x7b", "plan": "fsdp,ep=8,recompute=full", "global_batch": 256},
    "learned positions": {"model": "gpt2-124m", "gpus": "8xA100-SXM4-80GB", "plan": "ddp"},
    "nothing fits": {"model": "llama-3.1-405b", "gpus": "16xH100-SXM5-80GB", "plan": "ddp,tp=8"},
}  # fmt: skip
QUESTIONS = tuple(inverse.QUESTIONS)


def options(name: str) -> dict[str, Any]:
    return {"model": "llama-3.1-8b", "gpus": "64xH100-SXM5-80GB"} | SCENARIOS[name]


def asked(name: str) -> Scenario:
    return shardmeter.load(None, options=options(name))


def next_legal(found: Solution, value: float) -> float | None:
    """One step further from fitting, found without the search: the next number that keeps every rule and can be built."""
    if found.question.name == "seq":
        step = value + found.legal.unit
        return step if step <= found.legal.most else None
    most = int(found.legal.values[-1]) if found.legal.values else int(value) + 1
    tries = range(int(value) - 1, 0, -1) if found.question.fewest else range(int(value) + 1, most + 1)
    for one in tries:
        laid = found.question.laid(found.scenario, float(one))
        island = moves.resized(found.scenario.fleet.islands[0], float(laid.fleet.islands[0].gpus))
        if island and not violations(laid.model, island, laid.plan, laid.run, laid.stack):
            return float(one)
    return None


def alone(found: Solution, value: float) -> Any:
    at = inverse.placed(found.question, found.scenario, value)
    assert not violations(at.model, at.fleet.islands[0], at.plan, at.run, at.stack)
    return evaluate(at.model, at.fleet.islands[0], at.plan, at.run, at.stack)


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("name", SCENARIOS)
def test_the_answer_fits_and_the_next_legal_value_does_not(name, question):
    found = solve(question, asked(name))
    here = alone(found, found.value)
    assert (found.answer is not None) == bool(here.memory_peak <= here.memory_limit)
    further = next_legal(found, found.value)
    if found.answer is None:
        for other in (found.legal.values or tuple(found.legal.unit * factor for factor in (1.0, 2.0, 1024.0)))[:8]:
            there = alone(found, other)
            assert there.memory_peak > there.memory_limit
            assert there.memory_peak >= here.memory_peak, "the mildest value is told of"
    elif further is not None:
        there = alone(found, further)
        assert there.memory_peak > there.memory_limit, f"{further} fits too"
    else:
        assert found.further is None


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("name", SCENARIOS)
def test_the_command_that_is_shown_is_the_answer(name, question):
    found = solve(question, asked(name))
    assert found.sets
    again = shardmeter.predict(shardmeter.load(None, options=options(name), overrides=found.sets))
    assert again.memory_peak_gib == found.prediction.memory_peak_gib
    assert again.step_time == found.prediction.step_time
    assert again.fits == (found.answer is not None)


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("name", SCENARIOS)
def test_neighbours_are_what_each_value_gives_alone(name, question):
    found = solve(question, asked(name))
    assert found.value in [value for value, _, _ in found.neighbours]
    for value, _, together in found.neighbours:
        one = alone(found, value)
        assert float(one.step_time) == together.step_time
        assert float(one.memory_peak) == together.memory_peak
        assert [float(term.size) for term in one.memory] == [term.size for term in together.memory]


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("name", ["accumulating", "batch unsaid", "tp and pp", "experts"])
def test_more_memory_never_gives_less(name, question):
    scenario = asked(name)
    island = scenario.fleet.islands[0]
    answers: list[float | None] = []
    for factor in (0.3, 0.6, 0.9, 1.0, 1.3, 2.0, 5.0):
        device = changed(island.accelerator, memory=island.accelerator.memory * factor)
        larger = changed(scenario, fleet=Fleet(islands=(changed(island, accelerator=device),)))
        answers.append(solve(question, larger).answer)
    fewest = inverse.QUESTIONS[question].fewest
    worth = [(-np.inf if one is None else -one if fewest else one) for one in answers]
    assert worth == sorted(worth)
    assert len(set(worth)) > 1


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("name", ["accumulating", "batch unsaid", "experts", "tp and pp"])
def test_a_chance_is_kept(name, question):
    found = solve(question, asked(name))

    def chance_of(value: float) -> float:
        estimate = alone(found, value)
        peak, limit = float(estimate.memory_peak), float(estimate.memory_limit)
        return fits_probability(found.scenario, peak, limit, float(estimate.memory_exact)) or 0.0

    for chance, answer in zip(CHANCES, found.likely, strict=True):
        if answer is None:
            assert chance_of(inverse.mildest(found.question, found.legal)) < chance
            continue
        assert chance_of(answer) >= chance * (1 - 1e-9)
        further = next_legal(found, answer)
        assert further is None or chance_of(further) < chance


@pytest.mark.parametrize("name", ["accumulating", "batch unsaid", "tp and pp", "learned positions"])
def test_the_fastest_is_no_slower_than_any_that_fits(name):
    found = solve("micro-batch", asked(name))
    assert found.fastest is not None
    value, step, rate = found.fastest
    assert float(alone(found, value).step_time) == step
    for other in found.legal.values or range(1, int(found.answer or 0) + 1):
        one = alone(found, float(other))
        if one.memory_peak <= one.memory_limit:
            assert float(one.tokens) / float(one.step_time) <= rate


@settings(max_examples=60, deadline=None)
@given(
    slope=st.floats(1e-3, 1e3), start=st.floats(0.0, 1e6), most=st.integers(1, 2**40),
    limits=st.lists(st.floats(0.0, 1e9), min_size=1, max_size=4),
)  # fmt: skip
def test_the_search_finds_the_boundary_of_anything_that_rises(slope, start, most, limits):
    def peak(value: Any) -> Any:
        return start + slope * value

    found = inverse.boundary(peak, np.array(limits), float(most))
    for last, limit in zip(found, limits, strict=True):
        assert 0 <= last <= most
        assert last == 0 or peak(last) <= limit
        assert last == most or peak(last + 1.0) > limit


@pytest.mark.parametrize("start", [1, 4, 8, 16, 64, 256])
@pytest.mark.parametrize("gpus", [1, 2, 4, 8, 16, 64, 512])
def test_a_resized_island_is_the_one_that_a_scenario_names(start, gpus):
    def island(count):
        return shardmeter.load(
            None, options={"model": "llama-3.1-8b", "gpus": f"{count}xH100-SXM5-80GB"}
        ).fleet.islands[0]

    assert moves.resized(island(start), float(gpus)) == island(gpus)


def test_what_is_no_number_of_nodes_is_no_island():
    tiers = [{"name": "pod", "nodes": 4, "oversubscription": 3}]
    fleet = {"islands": [{"accelerator": "H100-SXM5-80GB", "nodes": 16, "tiers": tiers}]}
    island = shardmeter.load({"model": "llama-3.1-8b", "fleet": fleet}).fleet.islands[0]
    assert moves.resized(island, 12.0) is None
    assert moves.resized(island, 48.0) is None, "six nodes are no number of pods of four"
    half = moves.resized(island, 64.0)
    assert half is not None
    assert [tier.size for tier in half.tiers] == [8, 32, 64]
    for gpus in (2.0, 16.0, 32.0):
        small = moves.resized(island, gpus)
        assert small is not None
        assert small.tiers[-1].size == small.gpus == gpus
