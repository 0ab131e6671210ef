"""The Python face gives what the command gives."""

from pathlib import Path
from typing import Any

import pytest

import shardmeter
from shardmeter.core.record import changed

EXAMPLE = Path(__file__).parents[2] / "examples" / "llama-8b-64xh100.yaml"
OPTIONS: dict[str, Any] = {"model": "llama-3.1-8b", "gpus": "64xH100-SXM5-80GB", "plan": "fsdp", "tokens": "1T"}


def test_options_and_mapping_are_one_question():
    by_options = shardmeter.predict(**OPTIONS).to_dict()
    run = {"seq_len": 8192, "tokens": "1T"}
    by_mapping = shardmeter.predict({**{key: OPTIONS[key] for key in ("model", "gpus", "plan")}, "run": run}).to_dict()
    assert by_options["step_time_s"] == by_mapping["step_time_s"]


def test_a_file_a_path_and_a_scenario_are_one_question():
    scenario = shardmeter.load(str(EXAMPLE))
    assert isinstance(scenario, shardmeter.Scenario)
    times = {shardmeter.predict(given).to_dict()["step_time_s"] for given in (str(EXAMPLE), EXAMPLE, scenario)}
    assert len(times) == 1


def test_overrides_change_the_answer():
    one = shardmeter.predict(EXAMPLE).to_dict()
    two = shardmeter.predict(EXAMPLE, overrides=["plan.micro_batch=2"]).to_dict()
    assert two["memory"]["peak_gib"] > one["memory"]["peak_gib"]


def test_a_resolved_scenario_takes_no_options():
    scenario = shardmeter.load(EXAMPLE)
    with pytest.raises(TypeError, match="resolved"):
        shardmeter.predict(scenario, plan="ddp")
    assert shardmeter.predict(changed(scenario, plan=changed(scenario.plan, recompute="full"))).fits


def test_explain_is_the_same_run():
    explanation = shardmeter.explain(**OPTIONS)
    assert explanation.prediction.to_dict() == shardmeter.predict(**OPTIONS).to_dict()
    assert explanation.steps


def test_errors_are_of_one_tree():
    with pytest.raises(shardmeter.ShardMeterError):
        shardmeter.predict(model="no-such-model", gpus="64xH100-SXM5-80GB")
    for name in ("BadData", "BadQuantity", "BadScenario", "UnknownName"):
        assert issubclass(getattr(shardmeter, name), shardmeter.ShardMeterError)
