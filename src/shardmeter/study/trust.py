"""How far an answer is to be trusted: its intervals, what they rest on, and what to say when that is little."""

from __future__ import annotations

import csv
import functools
import re
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from shardmeter import data
from shardmeter.core.errors import ShardMeterError
from shardmeter.core.record import changed, field_names, record
from shardmeter.core.units import GIB
from shardmeter.specs import Island, Plan, Scenario
from shardmeter.specs.stack import Stack
from shardmeter.study import intervals

FEW = 20
"""Rows below which a fit is called thin."""
_TEXTS = frozenset({"title", "aliases", "source"})
"""Fields of a stack that no prediction depends on."""


@record
class Footing:
    """What the intervals of one stack rest on."""

    stack: str
    """Name under which the spread is looked up; empty where the stack as it stands was never fitted."""
    rows: int
    accelerators: tuple[str, ...]
    """Those of the rows the stack was fitted on."""
    changed: bool
    """Whether the stack is a shipped one with other numbers."""
    own: tuple[float, float] | None = None
    """Factors on its step time that the user's own runs give, where it was calibrated on them."""


def footing(stack: Stack) -> Footing:
    """A stack counts as fitted when it is a shipped row that names its rows, with every number as shipped; one that was calibrated
    brings its own factors."""
    if stack.faster is not None and stack.slower is not None:
        own = float(stack.faster), float(stack.slower)
        return Footing(stack="", rows=_told(stack), accelerators=(), changed=False, own=own)
    shipped = _shipped(stack.name)
    same = shipped is not None and all(
        getattr(shipped, name) == getattr(stack, name) for name in field_names(Stack) if name not in _TEXTS
    )
    if not same or not stack.fitted_on:
        return Footing(stack="", rows=0, accelerators=(), changed=shipped is not None and not same)
    return Footing(stack=stack.name, rows=_told(stack), accelerators=_accelerators().get(stack.name, ()), changed=False)


def _told(stack: Stack) -> int:
    """Rows that a stack says it was fitted on."""
    return sum(int(count) for count in re.findall(r"(\d+) rows? of", stack.fitted_on))


def unseen(scenario: Scenario) -> tuple[str, ...]:
    """What the scenario has that no row had which the stacks were fitted to."""
    found = []
    if scenario.model.experts:
        found.append("routed experts")
    if any(plan.cp > 1.0 for _, plan in _laid(scenario)):
        found.append("context parallelism")
    if scenario.run.reference is not None:
        found.append("a reference model")
    model, stack = scenario.model, scenario.stack
    if model.family != "decoder" and (model.family, stack.name) not in SEEN_FAMILIES:
        found.append(f"a model of family {model.family}")
    if set("mds") & set(model.mixers):
        found.append("recurrent layers")
    own = footing(stack)
    makers = {_vendor(name) for name in own.accelerators}
    others = dict.fromkeys(island.accelerator.vendor for island in scenario.fleet.islands)
    found += [
        f"an accelerator of {maker} under {stack.name}"
        for maker in others
        if own.stack and makers and maker not in makers
    ]
    return tuple(one for one in found if one not in stack.rare)


Joined: TypeAlias = Callable[[float, float], tuple[float, float]]
ACROSS = (0.77, 2.0)
"""90 % of the times that a message between islands takes over the predicted one: the ranges of outer all-reduces of INTELLECT-1 over
their medians (80 to 180 of 103 s, 300 to 600 of 382, 350 to 1,400 of 469: Jaghouar 2024 Table 2), geometric mean of the three.
The rates of links are the scenario's; this is how they vary in use."""
SEEN_FAMILIES = frozenset({("vision", "timm-2022")})
"""(family, stack) of the measured runs that are of no decoder."""


def _vendor(accelerator: str) -> str:
    from shardmeter.scenario.catalog import load_catalog

    return load_catalog().accelerator(accelerator).vendor


def _base(scenario: Scenario) -> Footing:
    """The footing of the stack, which is none where the fit never saw what the scenario has."""
    base = footing(scenario.stack)
    return changed(base, stack="", own=None) if unseen(scenario) else base


def _speed(base: Footing) -> tuple[float, float] | None:
    """(low, high) factors on a predicted step time; None before any fit."""
    return base.own or intervals.factors("step_time", base.stack, bool(base.stack))


def paces(scenario: Scenario) -> tuple[tuple[float, float], tuple[float, float]] | None:
    """(inner steps, messages between islands): how many times as long as predicted they take if all are fast, and if all are slow; None
    before any fit."""
    base = _base(scenario)
    speed = _speed(base)
    return None if speed is None else ((speed[0], ACROSS[0]), (speed[1], ACROSS[1]))


def memory_factors(scenario: Scenario) -> tuple[float, float] | None:
    """(low, high) factors on a predicted peak; None before any fit."""
    base = _base(scenario)
    return intervals.factors("memory", base.stack, bool(base.stack))


def spread(
    scenario: Scenario, step: float, tokens: float, peak: float, exact: float, joined: Joined | None = None
) -> dict[str, Any]:
    """The `intervals` of an answer: (low, high) of each figure, or null before any fit, and what they rest on. Memory is never
    less than what is counted exactly. `joined` gives (step, tokens a second) of a fleet whose inner steps and messages take so
    many times as long: then both ends of the interval are those of all islands and links being fast, or slow, together."""
    base, speed = _base(scenario), paces(scenario)
    size = intervals.factors("memory", base.stack, bool(base.stack))
    ends = None
    if speed is not None:
        ends = [(step * factor, tokens / (step * factor)) for factor, _ in speed]
        if joined is not None:
            ends = [joined(factor, across) for factor, across in speed]
    return {
        "level": intervals.LEVEL,
        "step_time_s": None if ends is None else [ends[0][0], ends[1][0]],
        "tokens_per_s": None if ends is None else [ends[1][1], ends[0][1]],
        "memory_peak_gib": None
        if size is None
        else [max(peak * size[0], min(exact, peak)) / GIB, peak / GIB * size[1]],
        "basis": _basis(scenario.stack, base, "step_time"),
        "memory_basis": _basis(scenario.stack, base, "memory"),
    }


def fits_probability(scenario: Scenario, peak: float, limit: float, exact: float) -> float | None:
    """Probability that the peak stays within the limit; none where what is counted exactly is beyond it. None before any fit."""
    if exact > limit:
        return 0.0
    base = _base(scenario)
    return intervals.probability_below(limit, peak, "memory", base.stack, bool(base.stack))


def peak_within(scenario: Scenario, limit: float, probability: float) -> float | None:
    """The largest predicted peak that stays within the limit with that probability; None before any fit."""
    base = _base(scenario)
    return intervals.prediction_within(limit, probability, "memory", base.stack, bool(base.stack))


def warnings(scenario: Scenario) -> tuple[str, ...]:
    """Sentences where the speed rests on little: few rows, other accelerators, no fit at all."""
    stack, base = scenario.stack, footing(scenario.stack)
    found = [
        f"no measured run with {what} taught the stacks: the interval is that of a stack never seen"
        for what in unseen(scenario)
    ]
    wide = [(float(plan.tp), float(island.tiers[0].size)) for island, plan in _laid(scenario)]
    for tp, domain in dict.fromkeys((tp, domain) for tp, domain in wide if tp > domain):
        found.append(
            f"tp = {tp:g} is wider than the scale-up domain of {domain:g}: measured runs of that kind took much longer than "
            f"predicted (docs/accuracy.md, tp above 8), and the interval does not know it"
        )
    if base.own:
        few = [f"stack {stack.name} is calibrated on {stack.fitted_on}"] if base.rows < FEW else []
        return (*found, *few)
    if base.changed:
        return (*found, f"stack {stack.name} is not as it was fitted: the interval is that of a stack never seen")
    if not base.stack:
        return (
            *found,
            f"stack {stack.name} was never fitted to measured runs: the interval is that of a stack never seen",
        )
    if base.rows < FEW:
        found.append(f"stack {stack.name} is fitted on {base.rows} rows only ({stack.fitted_on})")
    return (*found, *new_devices(stack, (island.accelerator.name for island, _ in _laid(scenario))))


def new_devices(stack: Stack, devices: Iterable[str]) -> tuple[str, ...]:
    """A sentence about the accelerators on which a stack was not fitted; none where it was on all, or on none, or is not as it was."""
    base = footing(stack)
    new = [device for device in dict.fromkeys(devices) if base.accelerators and device not in base.accelerators]
    if not new or not base.stack or base.own or base.changed:
        return ()
    seen, are = ", ".join(base.accelerators), "is" if len(new) == 1 else "are"
    sheet = "its data sheet" if len(new) == 1 else "their data sheets"
    return (f"stack {stack.name} is fitted on {seen}; {' and '.join(new)} {are} predicted from {sheet}",)


def _laid(scenario: Scenario) -> list[tuple[Island, Plan]]:
    """Every island with its plan."""
    return list(
        zip(scenario.fleet.islands, scenario.plans or (scenario.plan,) * len(scenario.fleet.islands), strict=True)
    )


def _basis(stack: Stack, base: Footing, quantity: str) -> str:
    found = intervals.basis(quantity, base.stack, bool(base.stack))
    if base.own and quantity == "step_time":
        return f"{stack.name}, calibrated on {stack.fitted_on}"
    beyond = "fitted without such runs" if base.rows else "not fitted"
    rows = f"{base.rows} rows" if base.stack else "changed, so not fitted" if base.changed else beyond
    return f"{stack.name}, {rows}: {found}" if found and quantity == "step_time" else found


def _shipped(name: str) -> Stack | None:
    from shardmeter.scenario.catalog import load_catalog

    try:
        found = load_catalog().stack(name)
    except ShardMeterError:
        return None
    return found if found.name == name else None


@functools.cache
def _accelerators() -> dict[str, tuple[str, ...]]:
    """Accelerators of the fitted rows of each stack, named as in the catalog (a variant counts as its base)."""
    with data.open_text("fit_loso.csv") as file:
        scored = {row[0] for row in csv.reader(file) if row[1] == "step_time"}
    found: dict[str, dict[str, None]] = {}
    with data.open_text("measured/runs.csv") as file:
        rows = csv.reader(file)
        head = next(rows)
        key, device, stack = (head.index(name) for name in ("id", "accelerator", "framework"))
        for row in rows:
            if row[key] in scored:
                found.setdefault(row[stack], {})[row[device].partition(";")[0].strip()] = None
    return {name: tuple(sorted(devices)) for name, devices in found.items()}
