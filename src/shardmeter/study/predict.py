"""`predict`: one scenario, one answer, with the terms that add to it."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardmeter.core.record import record
from shardmeter.core.units import GIB, Number
from shardmeter.engine.fleet import Whole, evaluate_fleet, refolded
from shardmeter.families import active_parameters, parameters, sample
from shardmeter.specs.estimate import Estimate
from shardmeter.specs.scenario import Scenario
from shardmeter.study import islands, relief_islands, trust, zero_order
from shardmeter.study.causes import cause_of, causes
from shardmeter.study.course import check, course, unpriced
from shardmeter.study.course import warnings as course_warnings
from shardmeter.study.course.ranges import KEYS
from shardmeter.study.relief import Outcome, advice, batch_unsaid, relief, ways_out

NO_COST = "the cost is null"
"""What every warning about a missing price says."""


@record
class Prediction:
    """An island's estimate read as the answer to a scenario. Numbers are scalars here.

    `print` shows it as a page; `to_dict` is the JSON, with what would relieve the plan, which takes some 20 evaluations."""

    scenario: Scenario
    whole: Whole

    def __repr__(self) -> str:
        """One line."""
        verdict = "fits" if self.fits else "does not fit"
        return f"<Prediction {self.scenario.model.name}: {self.step_time:.4g} s a step, {self.tokens_per_s:,.0f} tokens/s, {verdict}>"

    def __str__(self) -> str:
        """The page that the command prints, without what was assumed."""
        import shardmeter

        return shardmeter.page(self)

    @property
    def estimate(self) -> Estimate:
        """One inner step of the whole fleet."""
        return self.whole.estimate

    @property
    def fits(self) -> bool:
        """Whether the peak of the worst rank of every island is within its device."""
        return all(bool(part.estimate.memory_peak <= part.estimate.memory_limit) for part in self.whole.parts)

    @property
    def step_time(self) -> float:
        """Seconds of one optimizer step."""
        return _number(self.estimate.step_time)

    @property
    def tokens_per_s(self) -> float:
        """Tokens of all accelerators together, a second."""
        return _number(self.estimate.tokens / self.estimate.step_time)

    @property
    def mfu(self) -> float:
        """Model FLOPs over the dense bf16 peak."""
        e = self.estimate
        return _number(e.model_flops / (e.step_time * e.peak_flops))

    @property
    def memory_peak_gib(self) -> float:
        """Peak of the fullest accelerator."""
        return _number(self.estimate.memory_peak) / GIB

    def to_dict(self, *, advised: bool = True) -> dict[str, Any]:
        """The `predict` JSON: SI units as each key says, fractions for shares, null for what is not built or not asked. Without `advised`
        nothing is tried that would relieve it, or make it fit: `way_out` and `relief` are empty."""
        e = self.estimate
        rate, mfu, step = self.tokens_per_s, self.mfu, self.step_time
        gpus, first = _number(e.gpus), islands.critical(self.whole)
        run = course(self.scenario, self.whole, trust.paces(self.scenario))
        bounds = {} if run is None else run.pop("intervals")
        model = self.scenario.assembled or self.scenario.model
        ways = self._ways() if advised and not self.fits else ()
        return {
            "model": {
                "name": model.name,
                "family": model.family,
                "parameters": _number(parameters(model)),
                "active_parameters": _number(active_parameters(model)),
            },
            "fits": self.fits,
            "fits_probability": trust.fits_probability(
                self.scenario, _number(e.memory_peak), _number(e.memory_limit), _number(e.memory_exact)
            ),
            "step_time_s": None if islands.nobody_waits(self.whole) else step,
            "tokens_per_s": rate,
            "tokens_per_s_per_gpu": rate / gpus,
            "samples_per_s": _number(e.samples / e.step_time),
            "sample": sample(self.scenario.model),
            "mfu": mfu,
            "hfu": _number(e.hardware_flops / (e.step_time * e.peak_flops)),
            "tflops_per_gpu": _number(e.model_flops / (e.step_time * e.gpus)) / 1e12,
            "gpus": gpus,
            "memory": self._memory(),
            "islands": islands.entries(self.whole),
            "sync": islands.synchronisation(self.whole, self.scenario),
            "zero_order": zero_order.answer(self.scenario, self.whole),
            "ledger": [
                {
                    "term": t.label,
                    "seconds": _number(t.seconds),
                    "share": _number(t.seconds / e.step_time),
                    "hidden_seconds": _number(t.hidden),
                    "cause": cause_of(t.label, t.cause, first.plan, first.island),
                }
                for t in e.terms
            ],
            "bottleneck": self._bottleneck(ways, advised=advised),
            "run": run,
            "intervals": self.intervals() | bounds,
            "way_out": [one.to_dict() for one in ways],
            "assumptions": [*self.scenario.assumptions, *(self.whole.round.notes if self.whole.round else ())],
            "warnings": [
                *self._warnings(asked=run is not None),
                *course_warnings(self.scenario, self.whole, run),
            ],
        }

    def intervals(self) -> dict[str, Any]:
        """[low, high] by key, what they rest on; null for a step that not all islands take, a round of one island, a run that was
        not asked (what is known of one that was is laid over it)."""
        e, round_ = self.estimate, self.whole.round
        together = None if round_ is None else self._joined
        numbers = self.step_time, _number(e.tokens), _number(e.memory_peak), _number(e.memory_exact)
        found = trust.spread(self.scenario, *numbers, together)
        step = found["step_time_s"]
        return found | {
            "step_time_s": None if islands.nobody_waits(self.whole) else step,
            "round_s": step and round_ and [_number(end * round_.steps) for end in step],
            **dict.fromkeys(KEYS),
        }

    def _joined(self, inner: float, across: float) -> tuple[float, float]:
        """(step, tokens a second) if all inner steps and messages took so many times as long."""
        folded, round_ = refolded(self.whole, self.scenario.plan, inner, across), self.whole.round
        if folded is None or round_ is None:  # pragma: no cover  (asked of fleets only)
            raise AssertionError
        return _number(folded.seconds / round_.steps), _number(folded.tokens / folded.seconds)

    def _ways(self) -> tuple[Outcome, ...]:
        """What would fit."""
        if self.whole.round is None:
            return ways_out(self.scenario, self.estimate)
        return relief_islands.ways_out(self.scenario, self.whole)

    def _memory(self) -> dict[str, Any]:
        e = self.estimate
        return {
            "peak_gib": _number(e.memory_peak) / GIB,
            "allocated_gib": _number(e.memory_allocated) / GIB,
            "limit_gib": _number(e.memory_limit) / GIB,
            "terms": [{"term": t.label, "gib": _number(t.size) / GIB, "exactness": t.exactness} for t in e.memory],
        }

    def _bottleneck(self, ways: tuple[Outcome, ...], *, advised: bool) -> dict[str, Any]:
        e, part = self.estimate, islands.critical(self.whole)
        worst = max(e.terms, key=lambda t: float(t.seconds))
        first = causes(e, part.plan, part.island)[0]
        found: tuple[Outcome, ...] = ()
        if advised:
            alone = self.whole.round is None
            found = relief(self.scenario, e) if alone else relief_islands.relief(self.scenario, self.whole)
        return {
            "term": worst.label,
            "share": _number(worst.seconds / e.step_time),
            "cause": first.name,
            "cause_seconds": first.seconds,
            "cause_share": first.share,
            "cause_terms": [{"term": label, "share": share} for label, share in first.terms],
            "advice": advice(found, ways) if advised else "",
            "relief": [one.to_dict() for one in found],
        }

    def _warnings(self, *, asked: bool) -> list[str]:
        """The scenario's, without a missing price where no run was asked, and what a reader may overlook."""
        part = islands.critical(self.whole)
        plan, run = part.plan, part.run
        found = [text for text in self.scenario.warnings if asked or NO_COST not in text]
        price = unpriced(self.scenario, self.whole) if asked else None
        found += [price] if price else []
        passes = float(run.global_batch) / float(plan.dp * plan.micro_batch)
        if plan.pp > passes and batch_unsaid(self.scenario):
            found.append(
                f"pp = {plan.pp} stages share {passes:g} micro-batches, because no global batch was said: most of the step is "
                f"pipeline bubble; say --global-batch (real runs have many times pp micro-batches)"
            )
        return [*found, *islands.too_late(self.whole, self.scenario.plan.sync), *trust.warnings(self.scenario)]


def predict(scenario: Scenario) -> Prediction:
    """Predict a resolved scenario.

    Raises ShardMeterError for what cannot be answered; a plan that does not fit is answered. Leaves out: failures, checkpoints
    and evaluation where nothing is said of them (the run's `goodput` is null)."""
    whole = evaluate_fleet(scenario.model, scenario.fleet, scenario.plan, scenario.run, scenario.stack, scenario.plans)
    check(scenario, whole)
    return Prediction(scenario=scenario, whole=whole)


def _number(value: Number) -> float:
    """A plain finite float. Raises FloatingPointError where a formula left the numbers: never printed as NaN."""
    result = float(value)
    if not np.isfinite(result):
        raise FloatingPointError(f"a figure came out as {result}")
    return result
