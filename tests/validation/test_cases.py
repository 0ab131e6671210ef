"""What users reported in public, held against the prediction: `cases.yaml` says what is asked, assumed and tolerated.

A case that cannot be asked is skipped with its reason; one that the model gets wrong is an expected failure, strictly: the day it
comes out right this file says so."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ruamel.yaml import YAML

import shardmeter
from shardmeter.core.record import changed
from shardmeter.engine.evaluate import evaluate
from shardmeter.engine.fleet import alone
from shardmeter.study.predict import Prediction

CASES: dict[str, dict[str, Any]] = YAML(typ="safe").load(Path(__file__).with_name("cases.yaml"))
ASKED = {name: case for name, case in CASES.items() if "skip" not in case}
GIB = 2.0**30


def figure(answer: Prediction, quantity: str) -> Any:
    """A quantity of an answer; of arrays where the estimate has them."""
    e = answer.estimate
    return {
        "step_time_s": lambda: e.step_time,
        "tokens_per_s_per_gpu": lambda: e.tokens / e.step_time / e.gpus,
        "tflops_per_gpu": lambda: e.model_flops / e.step_time / e.gpus / 1e12,
        "mfu": lambda: e.model_flops / (e.step_time * e.peak_flops),
        "peak_gib": lambda: e.memory_peak / GIB,
        "host_s": lambda: next(term.seconds for term in e.terms if term.label == "host offload"),
        "s_per_sample": lambda: e.step_time / e.samples,
        "hours_of_665k": lambda: 665e3 / e.samples * e.step_time / 3600.0,
    }[quantity]()


def answers(case: dict[str, Any]) -> dict[str, Prediction]:
    """The answer to a case, or to each of its variants."""
    base = case.get("set", {})
    return {
        name: shardmeter.predict(shardmeter.load(case["ask"], overrides=base | changes))
        for name, changes in (case.get("of") or {"": {}}).items()
    }


def rate_of(case: dict[str, Any]) -> tuple[float, float]:
    """(rate of one node's network, in bit/s, or of the host's memory for one GPU, in byte/s, at which the prediction is what was
    observed; prediction at the believed rate)."""
    scenario = shardmeter.load(case["ask"])
    island = scenario.fleet.islands[0]
    parts = np.geomspace(1e-4, 10.0, 2001)
    if case["kind"] == "host":
        assert island.accelerator.host_memory_bandwidth is not None
        believed = float(island.accelerator.host_memory_bandwidth)
        wide = changed(island, accelerator=changed(island.accelerator, host_memory_bandwidth=believed * parts))
    else:
        believed = float(island.tiers[1].bandwidth) * float(island.gpus_per_node) * 8.0
        outer = tuple(changed(tier, bandwidth=tier.bandwidth * parts, adapter=None) for tier in island.tiers[1:])
        wide = changed(island, tiers=(island.tiers[0], *outer))
    estimate = evaluate(scenario.model, wide, scenario.plan, scenario.run, scenario.stack)
    seen = np.broadcast_to(
        figure(
            Prediction(
                scenario=scenario, whole=alone(scenario.fleet.islands[0], scenario.plan, scenario.run, estimate)
            ),
            case["quantity"],
        ),
        parts.shape,
    )
    at = int(np.argmin(np.abs(np.log(seen / case["observed"]))))
    assert 0 < at < len(parts) - 1, f"no rate gives {case['observed']}: {seen[0]:.4g} to {seen[-1]:.4g}"
    return float(parts[at]) * believed, float(figure(shardmeter.predict(scenario), case["quantity"]))


def close(value: float, case: dict[str, Any]) -> bool:
    """Whether a value is within a factor of 1 + tolerance of what was observed."""
    observed = float(case["observed"])
    return max(value / observed, observed / value) <= 1.0 + float(case["tolerance"])


def holds(case: dict[str, Any]) -> tuple[bool, str]:
    """Whether a case comes out as it was observed, and what came out."""
    kind, quantity = case["kind"], case.get("quantity", "")
    if kind in ("bandwidth", "host"):
        rate, believed = rate_of(case)
        times = believed / case["observed"]
        faster = times if quantity == "tokens_per_s_per_gpu" else 1.0 / times
        low, high = case["range"]
        unit = "Gbit/s a node" if kind == "bandwidth" else "GB/s a GPU"
        says = f"{rate / 1e9:.1f} {unit}; at the believed rate {believed:.4g}, {faster:.1f} times as fast"
        return bool(low <= rate <= high) and faster >= case.get("faster", 0.0), says
    found = answers(case)
    if kind == "fits":
        return {name: one.fits for name, one in found.items()} == case["observed"], ", ".join(
            f"{name}: {one.memory_peak_gib:.1f} of {float(one.estimate.memory_limit) / GIB:.1f} GiB"
            for name, one in found.items()
        )
    if kind == "mfu_of_step":
        (one,) = found.values()
        value = float(one.estimate.model_flops / (case["step"] * one.estimate.peak_flops))
        return close(value, case), f"{value:.4f}"
    values = {name: float(figure(one, quantity)) for name, one in found.items()}
    says = ", ".join(f"{name} {value:.4g}".strip() for name, value in values.items())
    if kind == "order":
        return all(a < b for a, b in itertools.pairwise(values.values())), says
    if kind == "best":
        value, name = max((value, name) for name, value in values.items() if found[name].fits)
        return close(value, case), f"{name} {value:.4g}"
    first, *others = values.values()
    if kind == "between":
        low, high = case["range"]
        return low <= first <= high, says
    value = first / others[0] if kind == "ratio" else first
    return close(value, case), f"{value:.4g} ({says})" if others else says


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.xfail(reason=case["xfail"], strict=True) if "xfail" in case else ())
        for name, case in ASKED.items()
    ],
)
def test_what_was_observed_comes_out(name):
    case = ASKED[name]
    right, says = holds(case)
    wanted = case.get("observed", case.get("range", "in this order"))
    assert right, f"{case['says']}: observed {wanted}, predicted {says}"


@pytest.mark.parametrize("name", [name for name in CASES if name not in ASKED])
def test_what_cannot_be_asked(name):
    pytest.skip(CASES[name]["skip"])


def test_every_case_says_where_it_comes_from_and_what_it_takes_for_granted():
    for name, case in CASES.items():
        assert case["cite"].startswith("https://"), name
        assert len(case["says"]) > 30, name
        if "skip" in case:
            assert len(case["skip"]) > 30, name
        else:
            assert case["kind"], name
            assert case["assumed"], name
