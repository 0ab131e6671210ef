"""Terms of one cause, taken together: what holds a step back is seldom one line of the ledger."""

from __future__ import annotations

from shardmeter.core.record import record
from shardmeter.specs.estimate import Estimate
from shardmeter.specs.fleet import Island
from shardmeter.specs.plan import Plan

FABRIC, SCALE_UP = "fabric", "scale-up link"
_DATA = ("dp_shard", "dp_replicate")
_AXES = {"tensor parallel": ("tp",), "stage sends": ("pp",), "tied matrix": ("pp",)}
"""Mesh axes of the terms that move bytes; those not named run over the data-parallel ranks."""


@record
class Cause:
    """Everything of a step that one resource takes."""

    name: str
    seconds: float
    share: float
    terms: tuple[tuple[str, float], ...]
    """(term, its share of the step), largest first."""


def cause_of(label: str, cause: str, plan: Plan, island: Island) -> str:
    """The cause of a term: for what moves bytes, the fabric where its ranks leave the scale-up domain, else its link."""
    if cause not in (FABRIC, SCALE_UP):
        return cause
    axes = _AXES.get(label, _DATA)
    reach = max((float(plan.stride(axis) * plan.degree(axis)) for axis in axes if plan.degree(axis) > 1), default=1.0)
    return FABRIC if reach > float(island.tiers[0].size) else SCALE_UP


def causes(estimate: Estimate, plan: Plan, island: Island) -> tuple[Cause, ...]:
    """The step by cause, largest first."""
    step = float(estimate.step_time)
    groups: dict[str, list[tuple[str, float]]] = {}
    for term in estimate.terms:
        name = cause_of(term.label, term.cause, plan, island)
        groups.setdefault(name, []).append((term.label, float(term.seconds)))
    found = []
    for name, terms in groups.items():
        seconds = sum(value for _, value in terms)
        ordered = sorted(((label, value / step) for label, value in terms if value > 0), key=lambda item: -item[1])
        found.append(Cause(name=name, seconds=seconds, share=seconds / step, terms=tuple(ordered)))
    return tuple(sorted(found, key=lambda cause: -cause.seconds))
