"""`doctor`: the model run backwards. A measured number and a scenario: what would explain the one by the other.

One file a question: `measured` (what was measured, and the same figure of a prediction), `world` (a scenario if something were so),
`cause` (what a cause is), `numbers`, `settings` and `misread` (all of them), `usual` (how far numbers are usually off), `solved` (what
value explains it), `classes` (which kind of link that is), `findings` (all causes solved and ranked), `pairs` (two together), `against`
(two measured numbers, whose ratio no longer hangs on what both share), `checks` (what tells the leading causes apart),
`room` (whether the run as it was said fits at all).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

from shardmeter.core.errors import BadScenario, Violation
from shardmeter.core.record import changed, record
from shardmeter.core.sums import plain_sum
from shardmeter.specs import Scenario
from shardmeter.study import intervals, islands, trust
from shardmeter.study.causes import causes
from shardmeter.study.doctor.against import Reference, is_free, referred
from shardmeter.study.doctor.cause import Cause
from shardmeter.study.doctor.checks import Check, checks
from shardmeter.study.doctor.findings import POSSIBLE, Finding, findings
from shardmeter.study.doctor.measured import PACE, Length, Measured, Spread, measured, of_ratio, spread
from shardmeter.study.doctor.pairs import Pair, pairs
from shardmeter.study.doctor.room import room
from shardmeter.study.doctor.world import World, world

__all__ = ["Diagnosis", "doctor", "measured"]
INSIDE, SLOWER, FASTER, FULLER, EMPTIER, IMPOSSIBLE = "inside", "slower", "faster", "fuller", "emptier", "impossible"
PARTS = ("forward", "backward", "compute_utilization", "busbw", "busbw_node", "matmul", "communication_share")
"""Figures of parts of a step, and of benchmarks, which tell more than its time."""
AGREE = math.log(1.1)
"""Two measured paces that imply steps within 10 % of each other agree."""


@record
class Diagnosis:
    """A scenario, what was measured of it, and what would explain that. `print` shows it as a page; `to_dict` is the JSON."""

    scenario: Scenario
    """As it was said, or with what another measured scenario fixes."""
    base: World
    spread: Spread
    measured: tuple[Measured, ...]
    primary: Measured | None
    """The number that causes are asked of: of the paces of steps and of memory the one farthest outside its interval, else of the
    benchmarks; None where all are inside."""
    findings: tuple[Finding, ...] = ()
    pairs: tuple[Pair, ...] = ()
    checks: tuple[Check, ...] = ()
    reference: Reference | None = None

    def __repr__(self) -> str:
        """One line."""
        first = next((one for one in self.findings if one.explains), None)
        says = "nothing to explain" if self.primary is None else first.cause.title if first else "no single cause"
        return f"<Diagnosis of {self.scenario.name}: {says}>"

    def __str__(self) -> str:
        """The page that the command prints, without what was assumed."""
        import shardmeter

        return shardmeter.page(self)

    @property
    def explained(self) -> bool:
        """Whether nothing needs explaining, or some single cause explains it."""
        return self.primary is None or any(one.explains for one in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """The `doctor` JSON: SI units, fractions, null for what does not apply."""
        told = [one.entry() for one in self.findings]
        return {
            "verdict": verdict_of(self),
            "readings": [reading(one, self.base, self.spread) for one in self.measured],
            "memory": room(self.scenario, self.base),
            "rules": _rules(self.base),
            "primary": None if self.primary is None else self.primary.quantity.name,
            "causes": [one for one in told if one["explains"]],
            "insufficient": [one for one in told if not one["explains"]],
            "pairs": [one.entry() for one in self.pairs],
            "next": [one.entry() for one in self.checks],
            "contradictions": list(contradictions(self.scenario, self.base, self.measured)),
            "against": None if self.reference is None else self.reference.entry(),
            "level": intervals.LEVEL,
            "assumptions": [*self.scenario.assumptions],
            "warnings": [*trust.warnings(self.scenario)],
        }


def doctor(
    scenario: Scenario,
    numbers: Sequence[Measured],
    other: Scenario | None = None,
    of_other: Sequence[Measured] = (),
) -> Diagnosis:
    """What would explain measured numbers of a scenario; with `other` and its numbers, what would explain the ratio.

    Raises BadScenario for a duration of unknown length with nothing to compare it with, and for numbers that are not of one figure.
    Takes some hundred evaluations. Leaves out: that several things are wrong at once, beyond pairs where no single one suffices."""
    given, reference, sure, said = tuple(numbers), None, spread(scenario), scenario
    if other is not None:
        scenario, given, reference = referred(scenario, given, other, tuple(of_other))
        sure = of_ratio(scenario)
    given = tuple(_with_length(one, scenario) for one in given)
    base = world(scenario)
    _answerable(given, base)
    outside = [one for one in given if reading(one, base, sure)["verdict"] != INSIDE]
    made = Diagnosis(scenario=scenario, base=base, spread=sure, measured=given, primary=None, reference=reference)
    if not outside:
        return made
    primary = max(outside, key=lambda one: (one.quantity.name not in PARTS, abs(one.deviations(base, sure))))
    others = [one for one in given if one is not primary and not (_is_of_steps(one) and _is_of_steps(primary))]

    def free(cause: Cause) -> bool:
        return other is None or is_free(cause, said, other)

    found = findings(scenario, base, primary, others, sure, free)
    alone = [one for one in found if one.explains]
    together = () if alone and alone[0].plausibility >= POSSIBLE else pairs(found, primary, sure)
    asked = checks(scenario, base, alone, primary)
    return changed(made, primary=primary, findings=found, pairs=together, checks=asked)


def _is_of_steps(one: Measured) -> bool:
    """Whether a figure is the step's time in other words."""
    return one.quantity.kind == PACE and one.quantity.name not in PARTS


def _with_length(one: Measured, scenario: Scenario) -> Measured:
    """A duration with the length of the run, where it has none of its own. Raises BadScenario where the run has none either."""
    if one.quantity.reads != "duration" or one.length is not None:
        return one
    run = scenario.run
    if run.tokens is not None or run.steps is not None:
        unit, amount = ("tokens", run.tokens) if run.tokens is not None else ("steps", run.steps)
        return changed(one, length=Length(amount=float(amount or 0.0), unit=unit))
    says = "how much was trained in that time is not known"
    out = "duration='13.5 h for 500 steps' (or tokens, samples, 3 epochs of 52k samples), run.tokens, or another run with --against"
    raise BadScenario(
        "1 problem with what was measured", [Violation(field="--measured duration", says=says, way_out=out)]
    )


def _answerable(given: Sequence[Measured], base: World) -> None:
    """Raises BadScenario for figures that a scenario does not have."""
    bad = [
        Violation(field=f"--measured {one.quantity.name}", says="is not known of pipeline stages or several islands", way_out="measure the step")
        for one in given if not math.isfinite(float(one.of(base)))
    ]  # fmt: skip
    if bad:
        raise BadScenario(f"{len(bad)} problem{'s' if len(bad) > 1 else ''} with what was measured", bad)


# ---- one number beside its prediction ----------------------------------------------------------------------------------------------


def reading(one: Measured, base: World, sure: Spread) -> dict[str, Any]:
    """`readings[]` of the answer: measured, predicted, interval, where it lies in it, what it says."""
    predicted = float(one.of(base))
    low, high = (float(end) for end in one.ends(base, sure))
    inside = low <= one.value <= high or math.isclose(one.value, predicted, rel_tol=1e-9)
    slow = one.slowness(base) > 0.0
    verdict = INSIDE if inside else (SLOWER if slow else FASTER)
    if one.quantity.kind != PACE and not inside:
        verdict = FULLER if slow else EMPTIER
    below = 0.5 * math.erfc(-_middle(one.value, low, high) / math.sqrt(2.0)) if high > low else None
    return {
        "quantity": one.quantity.name, "title": one.quantity.title, "unit": one.quantity.unit, "measured": one.value,
        "predicted": predicted, "low": low, "high": high, "ratio": one.value / predicted, "times_slower": math.exp(one.slowness(base)),
        "percentile": below, "verdict": verdict, "impossible": _impossible(one, base),
    }  # fmt: skip


def _middle(value: float, low: float, high: float) -> float:
    """Standard deviations from the middle of an interval."""
    wide = (math.log(high) - math.log(low)) / (2.0 * intervals.NORMAL_90)
    return (math.log(value) - (math.log(low) + math.log(high)) / 2.0) / wide


def _impossible(one: Measured, base: World) -> str | None:
    """Why no machine does that: more arithmetic than its peak, more memory than it has. None where it could be."""
    if one.quantity.kind != PACE:
        limit = float(base.estimate.memory_limit)
        return f"{one.value / limit:.3g} times the memory of the device" if one.value > limit else None
    if one.quantity.name in PARTS:
        return None
    e, step = base.estimate, float(base.step) * math.exp(one.slowness(base))
    rate = float(e.hardware_flops) / step / float(e.peak_flops)
    if rate <= 1.0:
        return None
    return f"{rate:.3g} times the dense bf16 peak of all GPUs: a unit, a count or a peak is wrong"


def _rules(base: World) -> dict[str, Any]:
    """`rules` of the answer: what the predicted step goes to, and how often parameters are gathered for it."""
    part = islands.critical(base.whole)
    first = causes(base.estimate, part.plan, part.island)[0]
    passes = float(part.run.global_batch) / float(part.plan.dp * part.plan.micro_batch)
    gathers = passes * (2.0 if part.plan.reshard else 1.0) if part.plan.sharding in ("fsdp", "zero3") else 0.0
    return {
        "cause": first.name, "share": first.share, "terms": [{"term": term, "share": share} for term, share in first.terms],
        "passes": passes, "gathers": gathers,
    }  # fmt: skip


def verdict_of(made: Diagnosis) -> str:
    """inside, or what the number that is explained is: slower, faster, fuller, emptier, impossible."""
    if made.primary is None:
        return INSIDE
    told = reading(made.primary, made.base, made.spread)
    return IMPOSSIBLE if told["impossible"] else str(told["verdict"])


def contradictions(scenario: Scenario, base: World, given: Sequence[Measured]) -> Iterator[dict[str, Any]]:
    """Pairs of measured paces that cannot both be of this scenario: what each says of a step, their ratio, and the count that it is."""
    paces = [one for one in given if _is_of_steps(one)]
    for one, other in itertools.combinations(paces, 2):
        steps = [float(base.step) * math.exp(each.slowness(base)) for each in (one, other)]
        ratio = max(steps) / min(steps)
        if math.log(ratio) > AGREE:
            yield {
                "quantities": [one.quantity.name, other.quantity.name], "steps_s": steps, "ratio": ratio,
                "is": _count(scenario, ratio),
            }  # fmt: skip


def _count(scenario: Scenario, ratio: float) -> str | None:
    """Which count of a scenario a ratio is, within 10 %; None for none."""
    plan, fleet = scenario.plan, scenario.fleet
    passes = float(scenario.run.global_batch) / float(plan.dp * plan.micro_batch)
    nodes = plain_sum(float(island.nodes) for island in fleet.islands)
    counts = {
        "GPUs": float(fleet.gpus), "nodes": nodes, "GPUs of a node": float(fleet.gpus) / nodes, "passes of a step": passes,
        "data-parallel ranks": float(plan.dp), "tp": float(plan.tp), "pp": float(plan.pp),
    }  # fmt: skip
    near = [(abs(math.log(ratio / value)), name, value) for name, value in counts.items() if value > 1.0]
    best = min(near, default=None)
    return f"the number of {best[1]}, {best[2]:g}" if best is not None and best[0] <= AGREE else None
