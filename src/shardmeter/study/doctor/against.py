"""Two measured numbers of two scenarios: what the other one fixes, the ratio no longer hangs on.

The unknown that both share (the batch where none was said, else the pace of the kernels, or the length that a duration was measured
over) is set so that the prediction of the other scenario is what was measured of it. What then remains is explained.
"""

from __future__ import annotations

import math
from typing import Any

from shardmeter.core.errors import BadScenario, Violation
from shardmeter.core.record import changed, record
from shardmeter.core.units import Number
from shardmeter.specs import Scenario, Stack
from shardmeter.study.doctor.cause import Cause, Numeric
from shardmeter.study.doctor.measured import PACE, UNKNOWN, Length, Measured
from shardmeter.study.doctor.solved import solved
from shardmeter.study.doctor.world import World, world
from shardmeter.study.levers import levers
from shardmeter.study.relief import batch_unsaid

SLOWEST, FASTEST = 1e-3, 1e3
"""Factors on the pace of all kernels that are tried."""
BATCH, KERNELS, LENGTH = "plan.micro_batch", "pace of all kernels", "length"


@record
class Reference:
    """The other scenario with its measured number, and what it fixes."""

    scenario: Scenario
    measured: Measured
    predicted: float
    """Before anything is fixed."""
    field: str
    value: float
    says: str

    def entry(self) -> dict[str, Any]:
        """`against` of the answer."""
        return {
            "measured": self.measured.value, "predicted": self.predicted, "quantity": self.measured.quantity.name,
            "unit": self.measured.quantity.unit, "field": self.field, "value": self.value, "says": self.says,
        }  # fmt: skip


def referred(
    scenario: Scenario, measured: tuple[Measured, ...], other: Scenario, of_other: tuple[Measured, ...]
) -> tuple[Scenario, tuple[Measured, ...], Reference]:
    """(the scenario with what the other one fixes, its measured numbers, the other one). Raises BadScenario for numbers that are not of
    one figure, and for one that nothing makes the prediction."""
    names = {one.quantity.name for one in of_other if one.quantity.kind == PACE}
    mine = next((one for one in measured if one.quantity.name in names), None)
    if mine is None:
        asked = ", ".join(one.quantity.name for one in measured)
        says = "measures no pace that the other scenario has too"
        raise BadScenario(
            "nothing to compare",
            [Violation(field="--measured-b", says=says, way_out=f"the same figure of both: {asked}")],
        )
    theirs = next(one for one in of_other if one.quantity.name == mine.quantity.name)
    base = world(other)
    predicted = float(theirs.of(base))
    if mine.quantity.reads == "duration" and theirs.length is None and mine.length is None:
        samples = theirs.value / predicted
        length = Length(amount=samples, unit="samples")
        fixed = tuple(changed(one, length=length) if one.quantity == mine.quantity else one for one in measured)
        says = f"{samples:,.0f} samples, which the other duration implies"
        if any(text.startswith(("micro_batch =", "seq_len =")) for text in scenario.assumptions):
            says += "; batch and sequence are assumed, and what is implied hangs on them"
        return scenario, fixed, Reference(
            scenario=other, measured=theirs, predicted=predicted, field=LENGTH, value=samples, says=says
        )  # fmt: skip
    found = _batch(scenario, other, theirs, base) or _kernels(scenario, other, theirs, base)
    if found is None:
        says = f"no pace of the kernels gives {theirs.quantity.name} = {theirs.value:g} in the other scenario (predicted: {predicted:.4g})"
        raise BadScenario(
            "the other scenario cannot be what was measured", [Violation(field="--measured-b", says=says)]
        )
    moved, field, value, says = found
    return moved, measured, Reference(
        scenario=other, measured=theirs, predicted=predicted, field=field, value=value, says=says
    )  # fmt: skip


def is_free(cause: Cause, scenario: Scenario, other: Scenario) -> bool:
    """Whether a cause may be one of only one of two scenarios: what both say alike (batch, software, plan, device) is as wrong in the other,
    and fixed by it."""
    field = getattr(cause, "field", "")
    part, _, name = field.partition(".")
    if ".accelerator" in field:
        return [one.accelerator for one in scenario.fleet.islands] != [one.accelerator for one in other.fleet.islands]
    if part not in ("run", "plan", "stack") or name == "jitter":
        return True
    if name == "global_batch" and batch_unsaid(scenario):
        return False
    mine, theirs = (getattr(getattr(one, part), name) for one in (scenario, other))
    return bool(mine != theirs)


def _batch(
    scenario: Scenario, other: Scenario, theirs: Measured, base: World
) -> tuple[Scenario, str, float, str] | None:
    """The micro-batch, where neither scenario says one."""
    if not all(any(text.startswith("micro_batch =") for text in one.assumptions) for one in (scenario, other)):
        return None
    if not theirs.quantity.slower_is_more and theirs.quantity.name != "its_per_s":
        return None
    lever, own = (next(one for one in levers(each) if one.name == BATCH) for each in (other, scenario))
    cause = _numeric(BATCH, lever.value, 1e-2, 1e5, lambda value: world(_there(lever.scaled(value / lever.value))))
    solution = solved(cause, theirs, UNKNOWN, base)
    if not solution.exact:
        return None
    tokens = solution.value * float(other.run.seq_len)
    says = f"{tokens:,.0f} tokens a pass (micro-batch {solution.value:.3g}), which the other measured number implies; none was said"
    return _there(own.scaled(solution.value / own.value)), BATCH, solution.value, says


def _kernels(
    scenario: Scenario, other: Scenario, theirs: Measured, base: World
) -> tuple[Scenario, str, float, str] | None:
    """The pace of everything that is computed."""
    cause = _numeric(
        KERNELS, 1.0, SLOWEST, FASTEST, lambda value: world(changed(other, stack=_slower(other.stack, value)))
    )
    solution = solved(cause, theirs, UNKNOWN, base)
    if not solution.exact:
        return None
    says = f"kernels {solution.value:.3g} times as slow as the stack's, which the other measured number implies"
    return changed(scenario, stack=_slower(scenario.stack, solution.value)), KERNELS, solution.value, says


def _slower(stack: Stack, times: Number) -> Stack:
    """All that is computed takes about so many times as long."""
    return changed(
        stack, gemm_factor=stack.gemm_factor / times, attention_factor=stack.attention_factor / times,
        traffic_factor=stack.traffic_factor * times, launch_overhead=stack.launch_overhead * times,
        step_overhead=stack.step_overhead * times,
    )  # fmt: skip


def _there(scenario: Scenario | None) -> Scenario:
    if scenario is None:  # pragma: no cover  (a micro-batch can be scaled)
        raise AssertionError
    return scenario


def _numeric(field: str, said: float, least: float, most: float, at: Any) -> Numeric:
    return Numeric(
        name=field, title=field, means="", touches=(PACE,), field=field, unit="", said=said, at=at, least=least, most=most,
        far=lambda value: abs(math.log(value / said)), usual=1.0,
    )  # fmt: skip
