"""Where the numbers of an answer come from: rows of the catalog, and formulas with what they cite."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from shardmeter.core.alike import kinds, span
from shardmeter.core.formula import REGISTRY, Step
from shardmeter.specs import Island, Scenario
from shardmeter.study.explain import citations

SAID = "said in the scenario"
"""Of what has no row."""


def rows_of(scenario: Scenario) -> list[dict[str, Any]]:
    """Every row that the scenario rests on, those that differ in their name alone together: which `part` it is, its `name`, `source`, the
    day it was `retrieved` (null where the row has none)."""
    return [
        {"part": some[0][0], "name": span(list(dict.fromkeys(one[1] for one in some))), "source": some[0][2] or SAID,
         "retrieved": some[0][3] or None}
        for some in kinds(list(_rows(scenario)), lambda one: (one[0], *one[2:]))
    ]  # fmt: skip


def _rows(scenario: Scenario) -> Iterator[tuple[str, str, str, str]]:
    model, stack, run = scenario.assembled or scenario.model, scenario.stack, scenario.run
    yield "model", model.name, model.source, model.retrieved
    if run.reference is not None:
        yield "reference model", run.reference.name, run.reference.source, run.reference.retrieved
    fitted = f"fitted on {stack.fitted_on}" if stack.fitted_on else ""
    yield "stack", stack.name, "; ".join(filter(None, (stack.source, fitted))), ""
    for island in scenario.fleet.islands:
        yield from _of_island(island)
    wan = scenario.fleet.wan
    if wan is not None:
        yield from (("line", f"{one} → {other}", basis, "") for one, other, basis in wan.basis)
        yield from (("price of traffic", f"{one} → {other}", basis, "") for one, other, basis in wan.prices)
    if run.law is not None:
        yield "law of the loss", run.law.name, run.law.source, run.law.date
    if run.critical_batch is not None:
        yield "critical batch", run.critical_batch.name, run.critical_batch.source, ""
    if run.failures is not None:
        yield "failures", run.failures.name, run.failures.source, run.failures.date


def _of_island(island: Island) -> Iterator[tuple[str, str, str, str]]:
    device, fabric = island.accelerator, island.outside
    yield "accelerator", device.name, device.source, device.retrieved
    if fabric is not None and float(island.nodes) > 1.0:
        yield "fabric", fabric.name, fabric.source, fabric.retrieved
    if island.price is not None:
        yield "price", island.name, island.price_basis or island.tariff.kind, ""
    if island.power.pue_basis:
        yield "hall", island.name, island.power.pue_basis, ""
    if island.power.carbon is not None:
        yield "grid", island.name, island.power.carbon_basis, ""
    if island.preemption is not None:
        yield "preemption", island.preemption.name, island.preemption.source, island.preemption.date


def formulas_of(steps: Sequence[Step]) -> list[dict[str, Any]]:
    """Every formula that was called, in order, with how often, what it is in a sentence, and the source that it cites."""
    counts: dict[str, int] = {}
    cited: dict[str, str] = {}
    for step in steps:
        counts[step.formula] = counts.get(step.formula, 0) + 1
        cited[step.formula] = step.cite
    known = citations()
    return [
        {"formula": name, "calls": count, "says": _first(name), "cite": cited[name], "source": dict(known[cited[name]])}
        for name, count in counts.items()
    ]


def _first(name: str) -> str:
    """The first sentence of a formula's docstring, on one line."""
    held = REGISTRY.get(name)
    text = "" if held is None else " ".join(held.doc.split("\n\n")[0].split())
    return text.partition(". ")[0].rstrip(".")
