"""Whatever comes in, a scenario or a ShardMeterError comes out: mappings, files, YAML text, plan lines, overrides."""

from __future__ import annotations

import copy
import dataclasses
import warnings
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import shardmeter
from shardmeter.core.errors import BadScenario, ShardMeterError
from shardmeter.core.quantity import BOUNDS
from shardmeter.scenario import load
from shardmeter.scenario.bounds import bound
from shardmeter.scenario.grammar import NAMES, parse_plan
from shardmeter.scenario.read import read
from shardmeter.scenario.rows import DIMENSIONS
from shardmeter.specs import Accelerator, Fabric, Model, Stack

GOOD: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "stack": {"base": "titan-compile"},
    "fleet": {"islands": [{"name": "oregon", "accelerator": "H100-SXM5-80GB", "nodes": 8, "gpus_per_node": 8}]},
    "plan": {"tp": 2},
    "run": {"seq_len": 8192},
}
NUMBERS = ["plan.tp", "plan.pp", "plan.micro_batch", "plan.dp_shard", "plan.dp_replicate", "plan.virtual_stages",
           "run.seq_len", "run.global_batch", "run.tokens", "fleet.islands.0.nodes",
           "fleet.islands.0.gpus_per_node"]  # fmt: skip


def changed(path: str, value: Any) -> dict[str, Any]:
    data = copy.deepcopy(GOOD)
    inner: Any = data
    *steps, last = path.split(".")
    for step in steps:
        inner = inner[int(step) if step.isdigit() else step]
    inner[last] = value
    return data


_KEYS = st.sampled_from(
    [
        "model",
        "stack",
        "gpus",
        "fleet",
        "islands",
        "plan",
        "run",
        "base",
        "tp",
        "name",
        "nodes",
        "accelerator",
        "sync",
        "H",
    ]
) | st.text(max_size=8)
_LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=12)
    | st.sampled_from(["llama-3.1-8b", "titan-compile", "8xH100-SXM5-80GB", "fsdp,tp=2", "4M", "400 Gbps", "auto"])
)
_TREES = st.recursive(_LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=4))
_FUZZ = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@_FUZZ
@given(st.dictionaries(_KEYS, _TREES, max_size=5))
def test_fuzz_mappings(data: dict[str, Any]) -> None:
    try:
        load(data)
    except ShardMeterError as error:
        assert str(error)  # noqa: PT017  (that nothing else escapes is the test)


@_FUZZ
@given(st.sampled_from([*NUMBERS, "plan", "run", "fleet", "fleet.islands", "model", "stack"]), _TREES)
def test_fuzz_one_field_of_a_good_scenario(path: str, value: Any) -> None:
    try:
        load(changed(path, value))
    except ShardMeterError as error:
        assert str(error)  # noqa: PT017


@_FUZZ
@given(
    st.binary(max_size=200) | st.text(max_size=200).map(str.encode), st.sampled_from([".yaml", ".json", ".toml", ""])
)
def test_fuzz_files(tmp_path_factory: pytest.TempPathFactory, raw: bytes, suffix: str) -> None:
    file = tmp_path_factory.getbasetemp() / f"fuzz{suffix}"
    file.write_bytes(raw)
    try:
        load(file)
    except ShardMeterError as error:
        assert str(error)  # noqa: PT017


@_FUZZ
@given(st.text(alphabet="{}[]:,-&*!|>'\"#%@`?\n \tab01~.", max_size=80))
def test_fuzz_yaml_text(text: str) -> None:
    try:
        read("\n" + text)
    except BadScenario as error:
        assert str(error)  # noqa: PT017


@_FUZZ
@given(
    st.text(max_size=60)
    | st.builds("{},{}".format, st.sampled_from(NAMES), st.text("tpcps=,.[]()0123Hτ ", max_size=40))
)
def test_fuzz_the_plan_grammar(text: str) -> None:
    try:
        made = parse_plan(text)
    except BadScenario:
        return
    assert made["sharding"] in NAMES


@_FUZZ
@given(st.text(max_size=60) | st.builds("{}={}".format, st.sampled_from(NUMBERS), st.text(max_size=12)))
def test_fuzz_overrides(text: str) -> None:
    try:
        load(GOOD, overrides=[text])
    except ShardMeterError as error:
        assert str(error)  # noqa: PT017


def _numeric_fields() -> list[tuple[str, str, str]]:
    """(path, field, dimension) of every number of a part that a scenario may change."""
    parts = {
        "model": Model,
        "stack": Stack,
        "fleet.islands.0.accelerator": Accelerator,
        "fleet.islands.0.fabric": Fabric,
    }
    found = []
    for path, part in parts.items():
        for field in dataclasses.fields(part):
            kind = str(field.type).removesuffix(" | None")
            if kind in DIMENSIONS or kind == "int":
                found.append((f"{path}.{field.name}", field.name, DIMENSIONS.get(kind, "count")))
    return found


_SI = {"bandwidth": " B/s", "size": " B", "time": " s", "flops_rate": " FLOP/s", "power": " W"}
_BASED: dict[str, Any] = {
    "model": {"base": "llama-3.1-8b"},
    "fleet": {"islands": [{"accelerator": "H100-SXM5-80GB", "fabric": "ib-ndr400", "nodes": 8, "gpus_per_node": 8}]},
}


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(_numeric_fields()), st.booleans()), min_size=1, max_size=4))
def test_the_ends_of_every_bound_are_answered(chosen: list[tuple[tuple[str, str, str], bool]]) -> None:
    overrides = {}
    for (path, field, dimension), most in chosen:
        limits = bound(field, dimension)
        value = limits.most if most else limits.least or BOUNDS[dimension][0] or 1.0
        overrides[path] = f"{value!r}{_SI[dimension]}" if dimension in _SI else value
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            answer = shardmeter.predict(copy.deepcopy(_BASED), overrides=overrides)
        except ShardMeterError as error:
            assert str(error)  # noqa: PT017
        else:
            assert answer.to_dict()["step_time_s"] > 0
