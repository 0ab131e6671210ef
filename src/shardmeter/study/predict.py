"""`predict`: one scenario, one answer, with the terms that add to it."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardmeter.core.record import changed, record
from shardmeter.core.units import GIB, Number, Seconds
from shardmeter.engine.evaluate import evaluate
from shardmeter.physics import money
from shardmeter.specs.estimate import Estimate
from shardmeter.specs.fleet import Island
from shardmeter.specs.plan import Plan
from shardmeter.specs.run import Run
from shardmeter.specs.scenario import Scenario

LEVEL = 0.90
"""Level of every interval."""
HOUR = 3600.0


@record
class Prediction:
    """An island's estimate read as the answer to a scenario. Numbers are scalars here."""

    scenario: Scenario
    estimate: Estimate
    way_out: tuple[str, ...] = ()
    """What would fit, when the plan does not."""

    @property
    def fits(self) -> bool:
        """Whether the peak of the worst rank is within the device."""
        return bool(self.estimate.memory_peak <= self.estimate.memory_limit)

    @property
    def step_time(self) -> Seconds:
        """Seconds of one optimizer step."""
        return self.estimate.step_time

    def to_dict(self) -> dict[str, Any]:
        """The `predict` JSON: SI units as each key says, fractions for shares, null for what is not built or not asked."""
        e = self.estimate
        rate = _number(e.tokens / e.step_time)
        gpus = _number(e.gpus)
        island = self.scenario.fleet.islands[0]
        mfu = _number(e.model_flops / (e.step_time * e.peak_flops))
        step = _number(e.step_time)
        return {
            "fits": self.fits,
            "fits_probability": None,
            "step_time_s": step,
            "tokens_per_s": rate,
            "tokens_per_s_per_gpu": rate / gpus,
            "samples_per_s": _number(e.samples / e.step_time),
            "mfu": mfu,
            "hfu": _number(e.hardware_flops / (e.step_time * e.peak_flops)),
            "tflops_per_gpu": _number(e.model_flops / (e.step_time * e.gpus)) / 1e12,
            "gpus": gpus,
            "memory": self._memory(),
            "islands": [
                {
                    "name": island.name,
                    "gpus": gpus,
                    "step_time_s": step,
                    "tokens_per_s": rate,
                    "tokens_per_s_per_gpu": rate / gpus,
                    "mfu": mfu,
                    "memory_peak_gib": _number(e.memory_peak) / GIB,
                    "compute_utilization": _number(e.compute_seconds / e.step_time),
                }
            ],
            "ledger": [
                {
                    "term": t.label,
                    "seconds": _number(t.seconds),
                    "share": _number(t.seconds / e.step_time),
                    "hidden_seconds": _number(t.hidden),
                    "cause": t.cause,
                }
                for t in e.terms
            ],
            "bottleneck": self._bottleneck(),
            "run": self._run(island),
            "intervals": {"level": LEVEL, "step_time_s": None, "tokens_per_s": None, "memory_peak_gib": None},
            "way_out": list(self.way_out),
            "assumptions": list(self.scenario.assumptions),
            "warnings": list(self.scenario.warnings),
        }

    def _memory(self) -> dict[str, Any]:
        e = self.estimate
        return {
            "peak_gib": _number(e.memory_peak) / GIB,
            "allocated_gib": _number(e.memory_allocated) / GIB,
            "limit_gib": _number(e.memory_limit) / GIB,
            "terms": [{"term": t.label, "gib": _number(t.size) / GIB, "exactness": t.exactness} for t in e.memory],
        }

    def _bottleneck(self) -> dict[str, Any]:
        worst = max(self.estimate.terms, key=lambda t: float(t.seconds))
        share = _number(worst.seconds / self.estimate.step_time)
        return {"term": worst.label, "share": share, "advice": worst.advice}

    def _run(self, island: Island) -> dict[str, Any] | None:
        e, run = self.estimate, self.scenario.run
        steps = run.steps if run.steps is not None else None
        if steps is None and run.tokens is not None:
            steps = run.tokens / e.tokens
        if steps is None:
            return None
        duration = money.run_time(steps, e.step_time)
        cost = None if island.price is None else _number(money.rent(e.gpus, duration, island.price))
        terms = [] if cost is None else [{"term": "accelerators", "usd": cost, "basis": island.price_basis}]
        return {
            "wall_clock_s": _number(duration),
            "gpu_hours": _number(duration * e.gpus) / HOUR,
            "tokens": _number(steps * e.tokens),
            "steps": _number(steps),
            "goodput": None,
            "cost_usd": cost,
            "cost_terms": terms,
            "energy_kwh": None,
            "carbon_kg": None,
            "loss": None,
        }


def predict(scenario: Scenario) -> Prediction:
    """Predict a resolved scenario.

    Raises ShardMeterError for what cannot be answered; a plan that does not fit is answered, with what would fit. Leaves
    out: failures, checkpoints and evaluation (the run's `goodput` is null), energy, intervals."""
    return with_way_out(answered(scenario))


def answered(scenario: Scenario) -> Prediction:
    """The prediction alone, without looking for what would fit."""
    island = scenario.fleet.islands[0]
    estimate = evaluate(scenario.model, island, scenario.plan, scenario.run, scenario.stack)
    return Prediction(scenario=scenario, estimate=estimate)


def with_way_out(answer: Prediction) -> Prediction:
    """The prediction, with what would fit if it does not."""
    return answer if answer.fits else changed(answer, way_out=what_would_fit(answer.scenario))


def what_would_fit(scenario: Scenario) -> tuple[str, ...]:
    """Single changes of the plan that bring the worst rank under the limit, each with its peak and the step time it costs."""
    found = []
    for says, plan, run in _relief(scenario):
        estimate = evaluate(scenario.model, scenario.fleet.islands[0], plan, run, scenario.stack)
        if float(estimate.memory_peak) <= float(estimate.memory_limit):
            peak = float(estimate.memory_peak) / GIB
            found.append(f"{says}: peak {peak:.1f} GiB, step {float(estimate.step_time):.3g} s")
    return tuple(found)


def _relief(scenario: Scenario) -> list[tuple[str, Plan, Run]]:
    plan, run = scenario.plan, scenario.run
    options: list[tuple[str, Plan, Run]] = []
    micro = float(plan.micro_batch)
    smaller = micro / 2
    while smaller >= 1 and smaller == int(smaller):
        options.append((f"micro_batch: {int(smaller)}", changed(plan, micro_batch=smaller), run))
        smaller /= 2
    whole = plan.dp_shard * plan.dp_replicate
    relief: list[tuple[str, dict[str, Any]]] = []
    if plan.sharding != "fsdp" and whole > 1:
        relief.append(("sharding: fsdp", {"sharding": "fsdp", "dp_shard": whole, "dp_replicate": 1.0}))
    if plan.recompute in ("none", "selective"):
        relief.append(("recompute: full", {"recompute": "full"}))
    both = {key: value for _, change in relief for key, value in change.items()} | {"micro_batch": 1.0}
    options += [(says, changed(plan, **change), run) for says, change in relief]
    if relief:
        says = " with ".join(["micro_batch: 1", *(name for name, _ in relief)])
        options.append((says, changed(plan, **both), run))
    heads = scenario.model.kv_heads
    for times in (2.0, 4.0, 8.0):
        tp = plan.tp * times
        if plan.dp_shard % times == 0 and scenario.model.heads % tp == 0 and (heads % tp == 0 or tp % heads == 0):
            change = {**both, "tp": tp, "dp_shard": plan.dp_shard / times}
            if run.global_batch % (plan.dp / times) == 0:
                says = " with ".join([f"tp: {int(tp)}", "micro_batch: 1", *(name for name, _ in relief)])
                options.append((says, changed(plan, **change), run))
    return options


def _number(value: Number) -> float:
    """A plain finite float. Raises FloatingPointError where a formula left the numbers: never printed as NaN."""
    result = float(value)
    if not np.isfinite(result):
        raise FloatingPointError(f"a figure came out as {result}")
    return result
