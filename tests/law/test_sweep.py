"""A sweep says of every point what `predict` says of it alone: figures bit for bit, statuses and reasons too."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shardmeter
from shardmeter.scenario import opened
from shardmeter.scenario.together import reason
from shardmeter.study import predict as one_prediction
from shardmeter.study.sweep.figures import FIGURES
from shardmeter.study.sweep.points import Evaluator
from shardmeter.study.sweep.space import space_of

H100 = {"islands": [{"accelerator": "H100-SXM5-80GB", "nodes": 8, "price": "$2/gpu/h"}]}
CASES = {
    "degrees": (
        {"model": "llama-3.1-8b", "fleet": H100, "run": {"global_batch": 256, "tokens": "1T"}},
        {
            "plan.tp": [1, 2, 3, 8], "plan.pp": [1, 2, 5], "plan.cp": [1, 2], "plan.dp_shard": ["auto", 4, 8],
            "plan.dp_replicate": [1, 2, 3], "plan.micro_batch": [1, 2, 7, 64], "run.seq_len": [1024, 8192, 1000],
            "plan.recompute": ["none", "full", "every-2", "every-40"],
        },
    ),
    "names": (
        {"model": "llama-3.1-70b", "fleet": H100, "plan": {"tp": 8}},
        {
            "plan.sharding": ["fsdp", "zero1", "ddp", "none", "hsdp"], "plan.tp": [1, 8], "plan.pp": [1, 4],
            "plan.schedule": ["1f1b", "interleaved", "dualpipe"], "plan.virtual_stages": [1, 2],
            "stack": ["titan-compile", "mcore-2024"], "plan.precision": ["bf16", "fp8"], "run.global_batch": [64, 96],
            "plan.reshard": [True, False],
        },
    ),
    "fleet": (
        {"model": "llama-3.1-8b", "fleet": H100, "plan": "fsdp,micro_batch=2", "run": {"steps": 1000}},
        {
            "fleet.islands.0.nodes": [1, 3, 8, 16], "fleet.islands.0.accelerator": ["H100-SXM5-80GB", "A100-SXM4-80GB"],
            "fleet.islands.0.fabric.bandwidth": ["100 Gbps", "400 Gbps", "17.3 GB/s"],
            "fleet.islands.0.fabric.latency": ["10 us", "1 ms"], "plan.tp": [1, 4, 16],
            "fleet.islands.0.tiers": [None, [{"nodes": 4, "oversubscription": 3}]],
            "fleet.islands.0.accelerator.memory_bandwidth": ["2 TB/s", "3.35 TB/s"],
        },
    ),
    "links": (
        {"model": "llama-3.1-8b", "fleet": H100, "plan": "fsdp", "run": {"steps": 1000}},
        {
            "fleet.islands.0.nics": [None, 4, 6, 8], "fleet.islands.0.fabric": ["ib-ndr400", "ethernet-100g-tcp"],
            "fleet.islands.0.fabric.bandwidth": ["100 Gbps", "33.3 Gbps", "17.3 GB/s", "7 Gbps"],
            "fleet.islands.0.fabric.latency,fleet.islands.0.fabric.latency_step": [("10 us", "1 us"), ("1 ms", "7 us")],
            "fleet.islands.0.fabric.share": [0.5, 0.93], "fleet.islands.0.nodes": [1, 8],
            "fleet.islands.0.price": ["$1/gpu/h", "$2.22/gpu/h"], "plan.micro_batch": [1, 2],
            "fleet.islands.0.tiers": [None, [{"nodes": 4, "oversubscription": 3, "latency": "9 us"}]],
        },
    ),
    "launches": (
        {
            "model": "bart-base", "stack": "mlm-2021", "run": {"seq_len": 256},
            "fleet": {"islands": [{"accelerator": "V100-SXM2-16GB", "gpus_per_node": 1, "price": "$1/gpu/h"}]},
            "plan": {"sharding": "none", "precision": "fp16"},
        },
        {"plan.tp,fleet.islands.0.nodes": [(1, 1), (2, 2), (4, 4)], "plan.micro_batch": [1, 2]},
    ),
    "prices": (
        {"model": "llama-3.1-8b", "fleet": H100, "plan": "fsdp", "run": {"tokens": "1B"}},
        {
            "fleet.islands.0.price": ["$1/gpu/h", "$8.8/node/h", None], "plan.tp": [1, 2, 3],
            "fleet.islands.0.fabric": ["ib-ndr400", "roce-100"], "fleet.islands.0.fabric.latency_base": ["1 us", "30 us"],
        },
    ),
    "experts": (
        {"model": "mixtral-8x7b", "fleet": H100, "plan": {"sharding": "fsdp"}, "run": {"global_batch": "2M tokens"}},
        {
            "plan.tp": [1, 2, 4], "plan.ep": [1, 2, 8, 16], "plan.etp": [1, 2], "plan.expert_skew": [1, 1.5, 20],
            "plan.micro_batch": [1, 4, 32], "run.seq_len": [4096, 6000], "plan.trainable": ["all", "lora(r=16)"],
        },
    ),
    "tied": (
        {"model": {"base": "llama-3.1-8b"}, "fleet": H100, "run": {"global_batch": 128, "seq_len": 4096}},
        {
            "plan.tp,plan.dp_shard": [(1, 64), (2, 32), (4, 32), (8, "auto")], "plan.offload": [[], ["optimizer"]],
            "model.layers": [16, 32], "model.hidden": [4096, 5120], "run.document_len": [None, 512, 9000],
            "plan": ["fsdp", "zero1,recompute=full"], "run.tokens": ["1B", "8B tokens"],
        },
    ),
}  # fmt: skip
IN_JSON = {name: name.split(".") for name in FIGURES if name != "compute_utilization"}


@pytest.fixture(scope="module", autouse=True)
def no_relief():
    """What would relieve a plan takes twenty evaluations and is no column."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(one_prediction, "relief", lambda *_: ())
        patch.setattr(one_prediction, "ways_out", lambda *_: ())
        yield


@pytest.fixture(scope="module")
def evaluators():
    made = {}
    for name, (scenario, axes) in CASES.items():
        # `plan` replaces all that was said of the plan, so it goes first
        over = {"plan": axes["plan"], **axes} if "plan" in axes else axes
        document, rows = opened(scenario)
        made[name] = Evaluator(space_of(document, rows, over, [one for one in FIGURES if one not in over]))
    return made


def inside(answer: Any, path: Iterable[str]) -> Any:
    """What stands in an answer under a path; None where a part of it was not asked for."""
    for step in path:
        answer = answer and answer.get(step)
    return answer


def alone(scenario, overrides):
    """Status and figures of one point through `predict`."""
    try:
        answer = shardmeter.predict(scenario, overrides=overrides).to_dict()
    except shardmeter.ShardMeterError as error:
        return f"illegal: {reason(error)}", dict.fromkeys(FIGURES)
    figures = {"compute_utilization": answer["islands"][0]["compute_utilization"]}
    for name, path in IN_JSON.items():
        figures[name] = inside(answer, path)
    return "ok" if answer["fits"] else "does not fit", figures


@pytest.mark.parametrize("case", CASES)
@settings(max_examples=24)
@given(data=st.data())
def test_a_row_is_the_prediction_of_its_point(evaluators, case, data):
    evaluator = evaluators[case]
    made = evaluator.space
    row = data.draw(st.integers(0, made.points - 1))
    number, at = divmod(row, made.chunk)
    columns = chunk_of(evaluator, number)
    places = [int(place[at]) for place in evaluator.places(number)]
    overrides = {
        field: value
        for axis, place in zip(made.axes, places, strict=True)
        for field, value in zip(axis.fields, axis.points[place], strict=True)
    }
    status, figures = alone(CASES[case][0], overrides)
    assert columns["status"][at] == status, overrides
    for name, wanted in figures.items():
        if name in made.fields:
            continue
        found = columns[name][at]
        null = found is None or (isinstance(found, float) and math.isnan(found))
        assert (wanted is None) == null, (name, overrides)
        assert null or found == wanted, (name, overrides)


def test_numbers_of_links_are_arrays_whose_parts_are_read_once():
    over = {
        "fleet.islands.0.fabric.bandwidth": "100Gbps..400Gbps:log30", "fleet.islands.0.price": "$1/gpu/h..$2/gpu/h:lin20",
    }  # fmt: skip
    evaluator = Evaluator(space_of(*opened(CASES["links"][0]), over))
    status = evaluator.chunk(0)["status"]
    assert len(status) == 600
    assert set(status) == {"ok"}
    assert len(evaluator.resolved) == 1


@functools.cache
def chunk_of(evaluator, number):
    """A chunk's columns, evaluated once."""
    return evaluator.chunk(number)
