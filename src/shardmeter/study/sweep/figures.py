"""The figures of a row: what `predict` says of one point, over arrays, under the names of its JSON."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from shardmeter.core.errors import ShardMeterError
from shardmeter.core.record import record
from shardmeter.core.sums import plain_sum
from shardmeter.core.units import GIB, Number
from shardmeter.engine.add import folded
from shardmeter.engine.course import is_interrupted
from shardmeter.engine.fleet import Whole, alone
from shardmeter.engine.round import Folded
from shardmeter.scenario.together import reason
from shardmeter.specs import Island, Plan, Run, Scenario
from shardmeter.specs.estimate import Estimate
from shardmeter.study.causes import main_cause
from shardmeter.study.course import check, hours, loss, phases, refusable, step_tokens, summed
from shardmeter.study.course.energy import emitted, used
from shardmeter.study.course.phases import Leg
from shardmeter.study.islands import nobody_waits
from shardmeter.study.sweep.verdicts import met, probability, verdict

HOUR = 3600.0
Column: TypeAlias = npt.NDArray[Any]


@record
class Point:
    """Points evaluated together: records and estimate with arrays of `count` numbers, or one number for all."""

    island: Island
    plan: Plan
    run: Run
    estimate: Estimate
    """Of one island, or of one inner step of a fleet."""
    count: int
    whole: Whole | None = None
    """The fleet: `island`, `plan` and `run` are those of the island that sets the pace."""
    legs: tuple[Leg, ...] | None = None
    """The run, phase by phase; None where it has no length."""
    scenario: Scenario | None = None
    """What all points share by name, with their arrays."""
    refused: Mapping[int, str] = field(default_factory=dict)
    """Why a run that resolves makes no sense once it is evaluated, by the place of the point."""

    def wide(self, value: Any) -> Column:
        """A number, or one for every point, as an array."""
        return np.broadcast_to(np.asarray(value), (self.count,))

    @property
    def fits(self) -> Column:
        """Whether the peak is within the device, on every island."""
        every = [part.estimate for part in self.whole.parts] if self.whole else [self.estimate]
        fits: Column = np.logical_and.reduce([self.wide(one.memory_peak <= one.memory_limit) for one in every])
        return fits

    @property
    def seconds(self) -> Column:
        """Seconds of every term of the ledger: one row a term."""
        return np.stack([self.wide(term.seconds) for term in self.estimate.terms])


@record
class Figure:
    """One column: its unit as the page shows it, what it is, and the array of a batch of points (None = null for
    all)."""

    unit: str
    says: str
    of: Callable[[Point], Any]


def _mfu(flops: str) -> Callable[[Point], Any]:
    return lambda p: getattr(p.estimate, flops) / (p.estimate.step_time * p.estimate.peak_flops)


def _of_run(of: Callable[[Run, tuple[Leg, ...]], Any]) -> Callable[[Point], Any]:
    """A figure of the whole run; null where it has no length, or does not come to its end."""

    def found(point: Point) -> Any:
        if point.legs is None:
            return None
        value = of(point.run, point.legs)
        ends = functools.reduce(np.logical_and, [hours.ends(leg.whole, leg.steps) for leg in point.legs])
        return value if value is None or np.all(ends) else np.where(ends, value, np.nan)

    return found


def _steps(_: Run, legs: tuple[Leg, ...]) -> Number:
    return np.ceil(plain_sum(leg.steps for leg in legs))


def _emitted(leg: Leg) -> Number:
    found = emitted(leg.whole, leg.steps)
    return np.nan if found is None else found


def _tokens(_: Run, legs: tuple[Leg, ...]) -> Number:
    return folded(leg.steps * step_tokens(leg.whole) for leg in legs)


def _goodput(_: Run, legs: tuple[Leg, ...]) -> Number | None:
    return hours.goodput([(leg.whole, leg.steps) for leg in legs]) if is_interrupted(legs[0].whole) else None


def _loss(point: Point) -> Any:
    """By the law; null where none is named, or tells it, and above what a model knows that guesses."""
    if point.legs is None or point.scenario is None:
        return None
    whole = point.whole or alone(point.island, point.plan, point.run, point.estimate)
    asked = loss.question(point.scenario, whole)
    if asked is None:
        return None
    seen = [(leg.steps * step_tokens(leg.whole), step_tokens(leg.whole)) for leg in point.legs]
    found = loss.reached(asked, seen)
    return np.where(np.less_equal(found, asked.untrained), found, np.nan)


def _step(point: Point) -> Number | None:
    """Null where no step is common to all islands."""
    return None if point.whole is not None and nobody_waits(point.whole) else point.estimate.step_time


def _of_round(of: Callable[[Whole, Folded], Any]) -> Callable[[Point], Any]:
    """A figure of the round that joins islands; null for one island."""

    def found(point: Point) -> Any:
        whole = point.whole
        return None if whole is None or whole.folded is None else of(whole, whole.folded)

    return found


def _of_effect(name: str) -> Callable[[Point], Any]:
    """What is known of the method's loss; null where it is not, and for one island."""

    def found(point: Point) -> Any:
        known = None if point.whole is None or point.whole.effect is None else point.whole.effect
        value = None if known is None else getattr(known, name)
        return None if value is None else point.wide(value)

    return found


def _busy(whole: Whole, round_: Folded) -> Any:
    """Share of the round that the island that sets the pace is in inner steps."""
    return np.asarray(round_.inner)[..., whole.parts[whole.critical].cell] / round_.seconds


def _term(point: Point) -> Column:
    labels = np.array([term.label for term in point.estimate.terms], dtype=object)
    return np.asarray(labels[np.argmax(point.seconds, axis=0)])


WALL_CLOCK = _of_run(lambda _, legs: phases.durations_of(legs)[0])
COST = _of_run(lambda run, legs: summed(phases.charges_of(run, legs)))


def _verdicts(limit: str, unit: str, amount: str, used: Callable[[Point], Any]) -> dict[str, Figure]:
    """The answer to a deadline or a budget, under the names of the JSON of `predict`; null where it is not asked."""
    return {
        f"run.{limit}.met": Figure(unit="", says=f"whether the {limit} is kept", of=verdict(limit, used, met)),
        f"run.{limit}.margin_{unit}": Figure(
            unit=amount, says="what is left of it, negative where it is broken",
            of=verdict(limit, used, lambda most, spent: most - spent),
        ),
        f"run.{limit}.margin": Figure(
            unit="%", says="the same, as a share of it", of=verdict(limit, used, lambda most, spent: (most - spent) / most)
        ),
        f"run.{limit}.probability": Figure(unit="%", says="how likely it is kept", of=probability(limit, used)),
    }  # fmt: skip


FIGURES: Mapping[str, Figure] = {
    "fits": Figure(unit="", says="whether the peak is within the device", of=lambda p: p.fits),
    "step_time_s": Figure(unit="s", says="one optimizer step", of=_step),
    "tokens_per_s": Figure(unit="", says="tokens of all GPUs", of=lambda p: p.estimate.tokens / p.estimate.step_time),
    "tokens_per_s_per_gpu": Figure(
        unit="", says="of one GPU", of=lambda p: p.estimate.tokens / p.estimate.step_time / p.estimate.gpus
    ),
    "samples_per_s": Figure(
        unit="", says="sequences of all GPUs", of=lambda p: p.estimate.samples / p.estimate.step_time
    ),
    "mfu": Figure(unit="%", says="model FLOPs over the dense bf16 peak", of=_mfu("model_flops")),
    "hfu": Figure(unit="%", says="the same with recomputation", of=_mfu("hardware_flops")),
    "tflops_per_gpu": Figure(
        unit="TFLOP/s",
        says="model FLOPs of one GPU",
        of=lambda p: p.estimate.model_flops / (p.estimate.step_time * p.estimate.gpus) / 1e12,
    ),
    "gpus": Figure(unit="", says="accelerators", of=lambda p: p.estimate.gpus),
    "compute_utilization": Figure(
        unit="%", says="compute over the step", of=lambda p: p.estimate.compute_seconds / p.estimate.step_time
    ),
    "memory.peak_gib": Figure(unit="GiB", says="fullest GPU", of=lambda p: p.estimate.memory_peak / GIB),
    "memory.allocated_gib": Figure(
        unit="GiB", says="of that, allocated", of=lambda p: p.estimate.memory_allocated / GIB
    ),
    "memory.limit_gib": Figure(unit="GiB", says="what the device has", of=lambda p: p.estimate.memory_limit / GIB),
    "run.wall_clock_s": Figure(unit="s", says="the whole run", of=WALL_CLOCK),
    "run.gpu_hours": Figure(
        unit="h", says="GPU time of the run", of=_of_run(lambda _, legs: phases.durations_of(legs)[1] / HOUR)
    ),
    "run.goodput": Figure(
        unit="%",
        says="share of the wall clock in which steps are taken that count; null where nothing interrupts the run",
        of=_of_run(_goodput),
    ),
    "run.tokens": Figure(unit="", says="tokens of the run", of=_of_run(_tokens)),
    "run.steps": Figure(unit="", says="steps of the run, the last one partial", of=_of_run(_steps)),
    "run.cost_usd": Figure(unit="USD", says="all that the run costs", of=COST),
    "run.energy_kwh": Figure(
        unit="kWh",
        says="electricity of the run, halls and all",
        of=_of_run(lambda _, legs: folded(used(leg.whole, leg.steps) for leg in legs)),
    ),
    "run.carbon_kg": Figure(
        unit="kg", says="carbon of that electricity", of=_of_run(lambda _, legs: folded(_emitted(leg) for leg in legs))
    ),
    "run.loss": Figure(
        unit="",
        says="what the run reaches by the law that is named, in the law's unit; null where none tells it",
        of=_loss,
    ),
    **_verdicts("deadline", "s", "s", WALL_CLOCK),
    **_verdicts("budget", "usd", "USD", COST),
    "sync.round_s": Figure(unit="s", says="one round over islands", of=_of_round(lambda _, round_: round_.seconds)),
    "sync.utilization": Figure(
        unit="%",
        says="of that, inner steps of the island that sets the pace",
        of=_of_round(_busy),
    ),
    "sync.exposed_s": Figure(
        unit="s", says="waited for messages, a round", of=_of_round(lambda _, round_: folded(round_.exposed))
    ),
    "sync.hidden_s": Figure(
        unit="s", says="messages behind inner steps, a round", of=_of_round(lambda _, round_: folded(round_.hidden))
    ),
    "sync.sent_bytes": Figure(
        unit="B", says="sent between islands, a round", of=_of_round(lambda whole, _: folded(whole.sent))
    ),
    "sync.paid_usd": Figure(
        unit="USD",
        says="what that costs; null where no price is known",
        of=_of_round(lambda whole, _: folded(whole.paid)),
    ),
    "sync.loss_effect.factor": Figure(
        unit="", says="what the method is known to multiply the loss by", of=_of_effect("factor")
    ),
    "sync.loss_effect.nats": Figure(unit="", says="nats that it is known to add to the loss", of=_of_effect("nats")),
    "bottleneck.term": Figure(unit="", says="the longest term of the ledger", of=_term),
    "bottleneck.share": Figure(
        unit="%", says="its share of the step", of=lambda p: np.max(p.seconds, axis=0) / p.estimate.step_time
    ),
    "bottleneck.cause": Figure(
        unit="", says="what takes most of the step", of=lambda p: main_cause(p.estimate, p.plan, p.island, p.count)[0]
    ),
    "bottleneck.cause_share": Figure(
        unit="%",
        says="its share of the step",
        of=lambda p: main_cause(p.estimate, p.plan, p.island, p.count)[1] / p.estimate.step_time,
    ),
}
"""Every column, by its name in the JSON of `predict`."""
DEFAULT = (
    "fits", "step_time_s", "tokens_per_s", "tokens_per_s_per_gpu", "mfu", "memory.peak_gib", "run.cost_usd",
    "bottleneck.term", "bottleneck.cause",
)  # fmt: skip
"""Columns where none are asked for."""
TEXTS = frozenset({"bottleneck.term", "bottleneck.cause"})
"""Columns that hold words."""
TRUTHS = frozenset({"fits", "run.deadline.met", "run.budget.met"})
"""Columns that hold yes or no."""


def refusals(
    run: Run, legs: tuple[Leg, ...] | None, count: int, one: Callable[[int], tuple[Scenario, Whole]]
) -> dict[int, str]:
    """Why `predict` refuses some of so many points after it has evaluated them, by their place; `one` tells a point by itself."""
    found = {}
    for at in np.flatnonzero(np.broadcast_to(refusable(run, legs), count)).tolist():
        try:
            check(*one(at))
        except ShardMeterError as error:
            found[at] = reason(error)
    return found


def figure(name: str, point: Point) -> Column:
    """One figure of every point: an array of words, of truth values with None for null, or of numbers with NaN for null."""
    found = FIGURES[name].of(point)
    if found is None:
        return np.full(point.count, None if name in TRUTHS else np.nan)
    return point.wide(found)
