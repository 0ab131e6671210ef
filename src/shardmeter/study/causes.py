"""Terms of one cause, taken together: what holds a step back is seldom one line of the ledger."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardmeter.core.record import record
from shardmeter.core.sums import plain_sum
from shardmeter.specs.estimate import Estimate
from shardmeter.specs.fleet import Island
from shardmeter.specs.plan import Plan

FABRIC, SCALE_UP, WIDE_AREA = "fabric", "scale-up link", "wide-area link"
_DATA = ("dp_shard", "dp_replicate")
_AXES = {"tensor parallel": ("tp",), "stage sends": ("pp",), "tied matrix": ("pp",)}
_CROSSED = _AXES | {"context parallel": ("cp",), "expert all-to-all": ("ep",)}
"""The same for axes that cross islands."""
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
    """The cause of a term: for what moves bytes, the network between islands where its axis is placed across them, the fabric where
    its ranks leave the scale-up domain, else its link."""
    if cause not in (FABRIC, SCALE_UP):
        return cause
    if crosses(label, plan):
        return WIDE_AREA
    return FABRIC if leaves(label, plan, island) else SCALE_UP


def crosses(label: str, plan: Plan) -> bool:
    """Whether the ranks of a term that moves bytes are on several islands; copies of the model on islands are joined by the round."""
    return any(axis in _CROSSED.get(label, _DATA) and axis != "dp_replicate" for axis, _ in plan.placement)


def leaves(label: str, plan: Plan, island: Island) -> Any:
    """Whether the ranks of a term that moves bytes reach beyond the scale-up domain, at the shape of the degrees."""
    reach: Any = 1.0
    for axis in _AXES.get(label, _DATA):
        degree = plan.degree(axis)
        reach = np.maximum(reach, np.where(np.asarray(degree) > 1, plan.stride(axis) * degree, 1.0))
    return reach > np.asarray(island.tiers[0].size)


def main_cause(estimate: Estimate, plan: Plan, island: Island, count: int) -> tuple[Any, Any]:
    """The cause that takes most of each of `count` steps, and its seconds: the first of `causes`, for arrays."""
    seconds: dict[str, Any] = {}
    for term in estimate.terms:
        time = np.broadcast_to(np.asarray(term.seconds, dtype=float), (count,))
        if term.cause in (FABRIC, SCALE_UP) and crosses(term.label, plan):
            parts = {WIDE_AREA: time}
        elif term.cause in (FABRIC, SCALE_UP):
            out = leaves(term.label, plan, island)
            parts = {FABRIC: np.where(out, time, 0.0), SCALE_UP: np.where(out, 0.0, time)}
        else:
            parts = {term.cause: time}
        for name, part in parts.items():
            seconds[name] = seconds[name] + part if name in seconds else part
    all_of_them = np.stack(list(seconds.values()))
    names = np.array(list(seconds), dtype=object)
    return names[np.argmax(all_of_them, axis=0)], np.max(all_of_them, axis=0)


def causes(estimate: Estimate, plan: Plan, island: Island) -> tuple[Cause, ...]:
    """The step by cause, largest first."""
    step = float(estimate.step_time)
    groups: dict[str, list[tuple[str, float]]] = {}
    for term in estimate.terms:
        name = cause_of(term.label, term.cause, plan, island)
        groups.setdefault(name, []).append((term.label, float(term.seconds)))
    found = []
    for name, terms in groups.items():
        seconds = plain_sum(value for _, value in terms)
        ordered = sorted(((label, value / step) for label, value in terms if value > 0), key=lambda item: -item[1])
        found.append(Cause(name=name, seconds=seconds, share=seconds / step, terms=tuple(ordered)))
    return tuple(sorted(found, key=lambda cause: -cause.seconds))
