"""What a whole run takes, all of it together: for one plan or for an array of them, by one body of formulas.

`predict` tells these figures, `plan` compares by them, `sweep` has them as columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shardmeter.core.record import changed, record
from shardmeter.core.units import Count, Fraction, Kilograms, Number, Seconds, Usd
from shardmeter.engine import add
from shardmeter.engine.fleet import Whole, alone, stretched
from shardmeter.specs import Estimate, Island, Plan, Run, Scenario
from shardmeter.specs.estimate import Ends
from shardmeter.study.course import energy, loss, phases
from shardmeter.study.course.dollars import summed
from shardmeter.study.course.hours import step_tokens
from shardmeter.study.course.phases import Leg


@record
class Totals:
    """Of all islands together; NaN for what is not known."""

    seconds: Seconds
    """Wall clock."""
    held: Seconds
    """That of every accelerator added up."""
    paid: Usd
    drawn: Number
    """kWh."""
    emitted: Kilograms


def is_plain(run: Run, islands: Sequence[Island]) -> bool:
    """Whether a run is so many steps and nothing else: what it takes is then linear in a step."""
    said = run.target_loss, run.checkpoint, run.failures, run.evaluation, *(island.preemption for island in islands)
    return not (run.phases or run.stocks or run.hauls) and all(one is None for one in said)


def has_length(run: Run) -> bool:
    """Whether anything says how long a run is."""
    return any(one is not None for one in (run.tokens, run.steps, run.target_loss))


def of_step(island: Island, plan: Plan, run: Run, step: Seconds, busy: Fraction) -> Whole:
    """A fleet of one island of which a step is known, and the share of it that is computed, and nothing else. Numbers may be arrays."""
    one = Estimate(
        step_time=step, terms=(), memory=(), memory_allocated=0.0, memory_first=0.0, memory_peak=0.0, memory_limit=0.0,
        tokens=run.global_batch * run.seq_len, samples=run.global_batch, model_flops=0.0, hardware_flops=0.0,
        compute_seconds=busy * step, gpus=island.gpus, peak_flops=0.0, ends=Ends(),
    )  # fmt: skip
    return alone(island, plan, run, one)


def steps_of(scenario: Scenario, whole: Whole, asked: loss.Question | None) -> Count | None:
    """Steps of the run as it is asked, the last one partial; None where it has no length, NaN where no token counts, or no data
    reaches the loss. Numbers may be arrays."""
    run, each = scenario.run, step_tokens(whole)
    each = np.where(np.equal(each, 0.0), np.nan, each)[()]
    if run.target_loss is not None:
        return None if asked is None else loss.tokens_for(asked, run.target_loss, each) / each
    if run.steps is not None:
        return np.where(np.isnan(each), np.nan, run.steps)[()]
    return None if run.tokens is None else run.tokens / each


def legs_of(scenario: Scenario, whole: Whole) -> tuple[Leg, ...] | None:
    """The run as the engine prices it, phase by phase; None where it has no length."""
    steps = steps_of(scenario, whole, loss.question(scenario, whole))
    return None if steps is None else phases.legs(scenario, whole, steps)


def totals(run: Run, parts: Sequence[Leg]) -> Totals:
    """What all legs take."""
    legs = tuple(parts)
    seconds, held = phases.durations_of(legs)
    return Totals(
        seconds=seconds,
        held=held,
        paid=summed(phases.charges_of(run, legs)),
        drawn=add.folded(energy.used(leg.whole, leg.steps) for leg in legs),
        emitted=add.folded(_emitted(leg) for leg in legs),
    )


def _emitted(leg: Leg) -> Kilograms:
    found = energy.emitted(leg.whole, leg.steps)
    return np.nan if found is None else found


def slowed(scenario: Scenario, parts: Sequence[Leg], inner: Number, across: Number) -> tuple[Leg, ...] | None:
    """The same tokens if every inner step took `inner` times as long and every message `across` times; None where none counts then."""
    found = []
    for leg in parts:
        whole = stretched(leg.whole, scenario.plan, inner, across)
        if not np.all(step_tokens(whole)):
            return None
        steps = leg.steps * (step_tokens(leg.whole) / step_tokens(whole))
        found.append(changed(leg, whole=whole, steps=steps))
    return tuple(found)
