"""Which reports of a log tell how long a step takes: with a time, after the warm-up, without pauses."""

from __future__ import annotations

import numpy as np

from shardmeter.core.record import changed
from shardmeter.core.units import Count
from shardmeter.interop.logs.record import Dropped, Reading
from shardmeter.interop.logs.reports import Mask, Numbers, Reports, dropped

WARM_UP = 5
"""Steps at the start of a process that compile, fill the allocator's cache and wait for the first data."""
FEWEST = 3
"""Reports that the warm-up leaves, as long as there are any others to take away."""
SLOW, SLOW_AFTER_A_PAUSE, FAST = 1.5, 1.1, 0.5
"""Multiples of the median beyond which a report is a pause, one behind a line that tells of one, and a misprint."""
LONGEST = 1e9
"""Seconds of a step beyond which a number is a misprint."""
COARSE = 30.0
"""Seconds apart at which clocks of whole seconds tell a step to 2 %."""


def timed(reports: Reports, tokens: Count | None, samples: Count | None, gpus: Count | None) -> tuple[Reports, str]:
    """The reports with their seconds, and where these come from: the first way that serves half as many reports as the best one does."""
    missing = np.full(reports.number.shape, np.nan)
    of_all = np.where(
        np.isfinite(reports.tokens_per_s), reports.tokens_per_s, reports.tokens_per_s_per_gpu * (np.nan if gpus is None else gpus)
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        ways = {
            "time of steps": reports.seconds,
            "tokens a second": _said(reports.tokens, tokens, missing) / of_all,
            "samples a second": _said(reports.samples, samples, missing) / reports.samples_per_s,
        }
        spans, steps = _spans(reports)
        ways["clocks of lines"] = spans / steps
    sane = {name: np.where((seconds > 0) & (seconds < LONGEST), seconds, np.nan) for name, seconds in ways.items()}
    counts = {name: int(np.isfinite(seconds).sum()) for name, seconds in sane.items()}
    most = max(counts.values())
    if most == 0:
        return changed(reports, seconds=missing), ""
    name = next(name for name, count in counts.items() if 2 * count >= most)
    made = changed(reports, seconds=sane[name])
    if name == "clocks of lines":
        made = changed(made, over=np.where(np.isfinite(steps), steps, 1.0))
    return made, name


def _spans(reports: Reports) -> tuple[Numbers, Numbers]:
    """Seconds and steps between reports with clocks; between those that are long enough apart, where clocks have whole seconds."""
    gaps, steps = reports.growth("at"), reports.growth("number")
    known = gaps[np.isfinite(gaps)]
    if not known.size or (known % 1 != 0).any() or np.median(known) >= COARSE:
        return gaps, steps
    at, number, part = reports.at.tolist(), reports.number.tolist(), reports.part.tolist()
    gaps, steps = np.full(reports.at.shape, np.nan), np.full(reports.at.shape, np.nan)
    begin = 0
    for place in range(1, len(at)):
        if part[place] != part[begin] or not at[begin] <= at[place]:
            begin = place
        elif at[place] - at[begin] >= COARSE:
            gaps[place], steps[place] = at[place] - at[begin], number[place] - number[begin]
            begin = place
    return gaps, steps


def _said(own: Numbers, common: Count | None, missing: Numbers) -> Numbers:
    return np.where(np.isfinite(own), own, missing if common is None else common)


def steady(reports: Reports, reading: Reading) -> tuple[Mask, tuple[Dropped, ...], tuple[str, ...]]:
    """Which reports count, what was left out, and what is to be said of it."""
    said = np.isfinite(reports.seconds)
    if not said.any():
        return said, (), ()
    _, firsts, of = np.unique(reports.part, return_index=True, return_inverse=True)
    begins = (reports.number - reports.over)[firsts][of]
    cold = said & (reports.number - reports.over < begins + WARM_UP)
    warm = said & ~cold
    notes: tuple[str, ...] = ()
    if (short := FEWEST - int(warm.sum())) > 0 and cold.any():
        spared = np.flatnonzero(cold)[-min(short, max(1, int(said.sum()) - 1)) :]
        warm[spared], cold[spared] = True, False
        notes = (f"{len(spared)} of the {warm.sum()} reports that are used begin in the first {WARM_UP} steps, which compile and warm up.",)
    kept, pauses = _unbroken(reports, warm, said, np.array(reading.pauses, dtype=np.float64))
    return kept, (
        *dropped("without a time, or the first of a process by its clock", reports, ~said),
        *dropped(f"warm-up: the first {WARM_UP} steps of a process", reports, cold),
        *pauses,
    ), notes  # fmt: skip


def _unbroken(reports: Reports, warm: Mask, said: Mask, pauses: Numbers) -> tuple[Mask, tuple[Dropped, ...]]:
    """Without what stands behind an evaluation or a checkpoint, or far from the median."""
    if warm.sum() < FEWEST:
        return warm, ()
    pace = np.where(warm, reports.seconds / np.median(reports.seconds[warm]), 1.0)
    before = np.full(reports.line.shape, -1.0)
    timed_lines = reports.line[said]
    before[said] = np.concatenate([[-1.0], timed_lines[:-1]])
    paused = np.searchsorted(pauses, reports.line) > np.searchsorted(pauses, before, side="right")
    behind = warm & paused & (pace > SLOW_AFTER_A_PAUSE)
    slow, fast = warm & ~behind & (pace > SLOW), warm & (pace < FAST)
    return warm & ~behind & ~slow & ~fast, (
        *dropped("evaluation or checkpoint since the report before", reports, behind),
        *dropped(f"more than {SLOW:g} times the median: a pause", reports, slow),
        *dropped(f"less than {FAST:g} times the median", reports, fast),
    )
