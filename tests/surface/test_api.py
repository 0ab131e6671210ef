"""The Python face gives what the command gives."""

from pathlib import Path
from typing import Any

import numpy as np
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


@pytest.mark.parametrize(
    ("part", "field", "value"),
    [
        ("plan", "micro_batch", -1.0),
        ("plan", "tp", 3.0),
        ("plan", "tp", float("nan")),
        ("plan", "dp_shard", 1e30),
        ("run", "global_batch", 0.0),
        ("run", "tokens", float("nan")),
        ("run", "seq_len", float("inf")),
        ("model", "kv_heads", 3.0),
        ("model", "hidden", 0.0),
        ("stack", "launch_overhead", float("nan")),
    ],
)
def test_a_record_is_checked_like_a_file(part, field, value):
    scenario = shardmeter.load(EXAMPLE)
    wrong = changed(scenario, **{part: changed(getattr(scenario, part), **{field: value})})
    for question in (shardmeter.predict, shardmeter.explain):
        with pytest.raises(shardmeter.BadScenario) as caught:
            question(wrong)
        assert caught.value.violations
    with pytest.raises(TypeError, match="array"):
        shardmeter.predict(changed(scenario, plan=changed(scenario.plan, tp=np.array([1.0, 2.0]))))


def test_overrides_may_be_a_mapping_and_a_catalog_a_path(tmp_path):
    (tmp_path / "stacks.csv").write_text("name,launch_overhead\nours,6 us\n")
    answer = shardmeter.predict(EXAMPLE, overrides={"plan.tp": 8, "stack": "ours"}, catalog=tmp_path)
    assert (answer.scenario.plan.tp, answer.scenario.stack.launch_overhead) == (8, 6e-6)
    shardmeter.explain(EXAMPLE, overrides={"stack": "ours"}, catalog=[str(tmp_path)])


@pytest.mark.parametrize(
    ("question", "source", "more"),
    [
        (shardmeter.predict, 5, {}),
        (shardmeter.predict, b"x", {}),
        (shardmeter.predict, None, {"overrides": 5}),
        (shardmeter.predict, None, {"overrides": [5]}),
        (shardmeter.predict, None, {"catalog": 5}),
        (shardmeter.scale_across, 5, {}),
        (shardmeter.scale_across, EXAMPLE, {"over": 5}),
        (shardmeter.scale_across, EXAMPLE, {"over": {"gpus": 5.5}, "buildings": 2}),
        (shardmeter.scale_across, EXAMPLE, {"buildings": "two"}),
        (shardmeter.validate, 5, {}),
        (shardmeter.validate, "", {}),
        (shardmeter.validate, None, {"bars": 5}),
        (shardmeter.validate, None, {"catalog": 5}),
        (shardmeter.load, 5, {}),
        (shardmeter.load, None, {"options": 5}),
    ],
)
def test_wrong_types_get_a_sentence(question: Any, source: Any, more: dict[str, Any]) -> None:
    with pytest.raises((shardmeter.ShardMeterError, TypeError)) as caught:
        question(source, **more)
    assert " " in str(caught.value)
    assert "object has no" not in str(caught.value)
    assert "not iterable" not in str(caught.value)
