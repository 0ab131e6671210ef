"""Scalar equals vector, bit for bit: a batch of plans gives every plan the number it has alone."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardmeter.core.record import changed, stacked
from shardmeter.engine.evaluate import evaluate
from shardmeter.specs import Estimate

PEAKS = (1.0, 0.7, 1.3, 0.9, 2.0)


def figures(estimate: Estimate) -> dict[str, Any]:
    """Every number of an estimate, by name."""
    totals = (
        "step_time", "memory_allocated", "memory_peak", "memory_limit", "tokens", "samples", "model_flops",
        "hardware_flops", "compute_seconds", "gpus", "peak_flops",
    )  # fmt: skip
    found: dict[str, Any] = {name: getattr(estimate, name) for name in totals}
    for term in estimate.terms:
        found[f"seconds of {term.label}"], found[f"hidden {term.label}"] = term.seconds, term.hidden
    return found | {f"bytes of {term.label}": term.size for term in estimate.memory}


def equal(together: Any, alone: list[Any]) -> None:
    """Every figure of the batch at every place is the figure of the question that stands there."""
    whole = figures(together)
    for place, one in enumerate(map(figures, alone)):
        assert list(one) == list(whole), "the same terms in the same order"
        for name, value in one.items():
            column = np.broadcast_to(np.asarray(whole[name], dtype=float), (len(alone),))
            assert float(column[place]) == float(value), f"{name} of question {place}"


@settings(max_examples=max(int(os.environ.get("LAWS", "0")) // 3, 40), deadline=None)  # a batch is two to five plans
@given(data=st.data())
def test_a_batch_gives_every_plan_the_number_it_has_alone(batch: Any, data: Any) -> None:
    drawn = data.draw(batch)
    for place, one in enumerate(drawn):
        device = one["island"].accelerator
        peak = {dtype: rate * PEAKS[place] for dtype, rate in device.peak.items()}
        one["island"] = changed(one["island"], accelerator=changed(device, peak=peak))
    alone = [evaluate(**one) for one in drawn]
    first = drawn[0]["island"].accelerator
    arrays = {
        dtype: np.array([one["island"].accelerator.peak[dtype] for one in drawn]) for dtype in first.peak
    }  # names (dtypes) loop, so the rates under them are set by hand
    level = [changed(one["island"], accelerator=changed(one["island"].accelerator, peak=first.peak)) for one in drawn]
    island = stacked(level)
    island = changed(island, accelerator=changed(island.accelerator, peak=arrays))
    records = {name: stacked([one[name] for one in drawn]) for name in ("plan", "run", "stack")}
    equal(evaluate(model=drawn[0]["model"], island=island, **records), alone)


@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_an_open_mesh_gives_every_crossing_its_own_number(question: Any, data: Any) -> None:
    one = data.draw(question)
    degrees, micro, rates = (1.0, 2.0, 8.0), (1.0, 4.0), (0.5, 1.0, 3.0)
    tier = one["island"].tiers[0]

    def crossed(tp: Any, micro_batch: Any, rate: Any) -> Estimate:
        plan = changed(one["plan"], tp=tp, etp=tp, ep=1.0, micro_batch=micro_batch)
        run = changed(one["run"], global_batch=plan.dp * micro_batch * one["plan"].pp * 2.0)
        tiers = (changed(tier, bandwidth=tier.bandwidth * rate), *one["island"].tiers[1:])
        return evaluate(one["model"], changed(one["island"], tiers=tiers), plan, run, one["stack"])

    axes = np.array(degrees)[:, None, None], np.array(micro)[None, :, None], np.array(rates)[None, None, :]
    whole = figures(crossed(*axes))
    shape = (len(degrees), len(micro), len(rates))
    for place in np.ndindex(*shape):
        alone = figures(crossed(degrees[place[0]], micro[place[1]], rates[place[2]]))
        for name, value in alone.items():
            column = np.broadcast_to(np.asarray(whole[name], dtype=float), shape)
            assert float(column[place]) == float(value), f"{name} at {place}"


@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_one_bit_off_is_seen(question: Any, data: Any) -> None:
    estimate = evaluate(**data.draw(question))
    equal(estimate, [estimate])
    first, memory = estimate.terms[0], estimate.memory[0]
    planted = (
        {"step_time": np.nextafter(estimate.step_time, np.inf)},
        {"terms": (changed(first, seconds=np.nextafter(first.seconds, np.inf)), *estimate.terms[1:])},
        {"terms": (changed(first, hidden=np.nextafter(first.hidden, np.inf)), *estimate.terms[1:])},
        {"memory": (changed(memory, size=np.nextafter(memory.size, np.inf)), *estimate.memory[1:])},
    )
    for change in planted:
        with pytest.raises(AssertionError):
            equal(changed(estimate, **change), [estimate])
