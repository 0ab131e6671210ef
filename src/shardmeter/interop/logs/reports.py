"""The reports of a log as columns: what each says, and which run of growing step numbers it belongs to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from shardmeter.core.record import changed, record
from shardmeter.interop.logs.record import Dropped, Step

Numbers: TypeAlias = npt.NDArray[np.float64]
Mask: TypeAlias = npt.NDArray[np.bool_]
SAID = (
    "seconds", "tokens", "samples", "tokens_per_s", "tokens_per_s_per_gpu", "samples_per_s", "loss", "at", "tokens_seen", "samples_seen",
    "allocated", "reserved",
)  # fmt: skip
"""Fields of a `Step` that are columns here; NaN = not said."""


@record
class Reports:
    """As many values a column as there are reports."""

    number: Numbers
    over: Numbers
    line: Numbers
    part: Numbers
    """From 0; a restart begins the next one."""
    seconds: Numbers
    tokens: Numbers
    samples: Numbers
    tokens_per_s: Numbers
    tokens_per_s_per_gpu: Numbers
    samples_per_s: Numbers
    loss: Numbers
    at: Numbers
    tokens_seen: Numbers
    samples_seen: Numbers
    allocated: Numbers
    reserved: Numbers

    def growth(self, column: str) -> Numbers:
        """What a column grew by since the report before of the same run; NaN for the first one."""
        values: Numbers = getattr(self, column)
        grown: Numbers = np.diff(values, prepend=np.nan)
        grown[np.diff(self.part, prepend=-1.0) != 0] = np.nan
        return grown


def usual(values: Numbers) -> float | None:
    """The median of what is said; None where nothing is."""
    known = values[np.isfinite(values)]
    return float(np.median(known)) if known.size else None


def dropped(reason: str, reports: Reports, which: Mask) -> tuple[Dropped, ...]:
    """These reports as one entry of an account; none where there is none."""
    return (Dropped(reason=reason, count=int(which.sum()), first=f"step {reports.number[which][0]:.0f}"),) if which.any() else ()


def table(steps: Sequence[Step], *, averaged: bool) -> tuple[Reports, tuple[Dropped, ...]]:
    """One rank's reports, each once, and what was left out for it. `averaged`: a report is the mean since the last one."""
    chosen, others = _one_rank(steps)
    parts, first_said = _parts([step.number for step in chosen])
    again = [step for step, kept in zip(chosen, first_said, strict=True) if not kept]
    kept = [step for step, kept in zip(chosen, first_said, strict=True) if kept]
    columns = {name: np.array([getattr(step, name) for step in kept], dtype=np.float64) for name in (*SAID, "number", "over", "line")}
    reports = Reports(part=np.array([part for part, kept in zip(parts, first_said, strict=True) if kept], dtype=np.float64), **columns)
    return (
        changed(reports, over=_averaged(reports)) if averaged and kept else reports,
        (*_told("printed by other ranks", others), *_told("said more than once", again)),
    )


def _told(reason: str, steps: Sequence[Step]) -> tuple[Dropped, ...]:
    return (Dropped(reason=reason, count=len(steps), first=f"step {steps[0].number}"),) if steps else ()


def _one_rank(steps: Sequence[Step]) -> tuple[Sequence[Step], list[Step]]:
    """The reports of the rank that has most with a time or a rate, the first of these; and the others."""
    all_of = Counter(step.rank for step in steps)
    if len(all_of) < 2:
        return steps, []
    timed = Counter(
        step.rank
        for step in steps
        if not (step.seconds is step.tokens_per_s is step.tokens_per_s_per_gpu is step.samples_per_s is None)
    )
    ranks = list(all_of)
    chosen = max(ranks, key=lambda rank: (timed[rank], all_of[rank], -ranks.index(rank)))
    return [step for step in steps if step.rank == chosen], [step for step in steps if step.rank != chosen]


def _parts(numbers: Sequence[int]) -> tuple[list[int], list[bool]]:
    """Of every report its run of growing numbers, and whether its number is new: said again at once, or beside its neighbour (ranks without
    labels), it is not. Where numbers go back further, the run was restarted."""
    parts, new = [], []
    part, last, one_before = 0, -1, -1
    for number in numbers:
        is_new = number not in (last, one_before)
        if is_new:
            if number < last:
                part, one_before = part + 1, -1
            else:
                one_before = last
            last = number
        parts.append(part)
        new.append(is_new)
    return parts, new


def _averaged(reports: Reports) -> Numbers:
    """Steps since the last report, the usual distance at most: lines may be missing."""
    apart = reports.growth("number")
    known = apart[np.isfinite(apart)]
    most = Counter(known.tolist()).most_common(1)[0][0] if known.size else 1.0
    begins = np.where(reports.number % most == 0, most, 1.0)
    return np.where(np.isfinite(apart), np.clip(apart, 1.0, most), begins)
