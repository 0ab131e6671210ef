"""The parts of a run that have a batch and a sequence length of their own, each priced by the engine."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from shardmeter.core.record import changed, record
from shardmeter.core.sums import plain_sum
from shardmeter.core.units import GIB, Count, Number, Seconds
from shardmeter.engine import add
from shardmeter.engine.fleet import Whole, evaluate_fleet
from shardmeter.specs import Run
from shardmeter.specs.course import Phase
from shardmeter.specs.scenario import Scenario
from shardmeter.study.course import energy
from shardmeter.study.course.dollars import Charge, running, stored
from shardmeter.study.course.hours import durations, held, slowest, step_tokens


@record
class Leg:
    """So many steps of one kind, one after the other."""

    whole: Whole
    steps: Count
    """Not rounded: what a leg lacks of a whole step the next one takes."""
    phase: Phase | None = None
    """None where the run has no phases."""


def legs(scenario: Scenario, whole: Whole, steps: Count) -> tuple[Leg, ...]:
    """The run in the order of its phases; one leg of so many `steps` where it has none."""
    if not scenario.run.phases:
        return (Leg(whole=whole, steps=steps),)
    found = []
    for phase in scenario.run.phases:
        own = _evaluated(scenario, whole, phase)
        found.append(Leg(whole=own, steps=phase.tokens / step_tokens(own), phase=phase))
    return tuple(found)


def _evaluated(scenario: Scenario, whole: Whole, phase: Phase) -> Whole:
    """The fleet with the batch and the sequences of a phase."""
    run = scenario.run
    same = np.equal(phase.seq_len, run.seq_len) & np.equal(phase.global_batch, run.global_batch)
    if np.all(same):
        return whole
    laid = changed(run, seq_len=phase.seq_len, global_batch=phase.global_batch)
    return evaluate_fleet(scenario.model, scenario.fleet, scenario.plan, laid, scenario.stack, scenario.plans)


def durations_of(parts: tuple[Leg, ...]) -> tuple[Seconds, Seconds]:
    """(wall clock, that of every accelerator added up) of all legs: the island that is done last with all of them sets the wall clock.
    Numbers may be arrays."""
    accelerators = plain_sum((durations(leg.whole, leg.steps)[1] for leg in parts), 0.0)
    each = zip(*(held(leg.whole, leg.steps) for leg in parts), strict=True)
    return functools.reduce(np.maximum, [add.folded(own) for own in each]), accelerators


def _lasts(parts: tuple[Leg, ...]) -> list[Seconds]:
    """How long each leg lasts, whatever interrupts it, on the island that is done last; together they are the wall clock."""
    return [one.seconds for one in slowest([(leg.whole, leg.steps) for leg in parts])]


def charges_of(run: Run, parts: tuple[Leg, ...]) -> list[Charge]:
    """What all legs cost, term by term, and what is kept and brought beside them."""
    found: dict[str, tuple[Number, dict[str, None]]] = {}
    for leg in parts:
        for term, usd, basis in running(leg.whole, leg.steps):
            before, said = found.get(term, (0.0, {}))
            found[term] = before + usd, {**said, basis: None}
    tokens = plain_sum((leg.steps * step_tokens(leg.whole) for leg in parts), 0.0)
    merged = [(term, usd, " + ".join(filter(None, said))) for term, (usd, said) in found.items()]
    return [*merged, *stored(run, tokens, durations_of(parts)[0])]


def energy_of(parts: tuple[Leg, ...]) -> dict[str, Any]:
    """What all legs draw and emit: the keys of `energy.answer`."""
    each = [energy.answer(leg.whole, leg.steps) for leg in parts]
    first = each[0]
    if len(each) == 1:
        return first
    ranges = [one["energy_range_kwh"] for one in each]
    return first | {
        "energy_kwh": _sum([one["energy_kwh"] for one in each]),
        "energy_range_kwh": None if None in ranges else [plain_sum(ends) for ends in zip(*ranges, strict=True)],
        "energy": [
            {**term, "kwh": _sum([one["energy"][at]["kwh"] for one in each])} for at, term in enumerate(first["energy"])
        ],
        "carbon_kg": _sum([one["carbon_kg"] for one in each]),
    }


def _sum(values: list[float | None]) -> float | None:
    """Together; None where one is not known."""
    known = [value for value in values if value is not None]
    return plain_sum(known) if len(known) == len(values) else None


def answer(parts: tuple[Leg, ...]) -> list[dict[str, Any]]:
    """`run.phases` of the answer; empty where the run has none."""
    each = zip(parts, _lasts(parts), strict=True)
    return [_entry(leg, leg.phase, lasts) for leg, lasts in each if leg.phase is not None]


def _entry(leg: Leg, phase: Phase, lasts: Seconds) -> dict[str, Any]:
    e = leg.whole.estimate
    peaks = [(part.estimate.memory_peak, part.estimate.memory_limit) for part in leg.whole.parts]
    return {
        "tokens": float(phase.tokens),
        "seq_len": float(phase.seq_len),
        "global_batch": float(phase.global_batch),
        "steps": float(leg.steps),
        "step_time_s": float(e.step_time),
        "tokens_per_s": float(e.tokens / e.step_time),
        "seconds": float(lasts),
        "memory_peak_gib": float(functools.reduce(np.maximum, [peak for peak, _ in peaks])) / GIB,
        "fits": all(bool(peak <= limit) for peak, limit in peaks),
    }


def warnings(run: dict[str, Any] | None) -> list[str]:
    """Phases that do not fit: the verdict is that of the run's own batch and sequence."""
    entries = [] if run is None else run.get("phases", [])
    return [
        f"phase {at} does not fit: sequences of {one['seq_len']:g}, {one['memory_peak_gib']:.1f} GiB on the fullest GPU"
        for at, one in enumerate(entries, 1)
        if not one["fits"]
    ]
