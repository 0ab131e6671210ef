"""Which reports of a log tell how long a step takes: one rank's, each once, after the warm-up, without pauses."""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import TypeAlias

from shardmeter.core.record import changed
from shardmeter.core.units import Count, Seconds
from shardmeter.interop.logs.record import Dropped, Reading, Step

Segments: TypeAlias = list[list[Step]]
WARM_UP = 5
"""Steps at the start of a process that compile, fill the allocator's cache and wait for the first data."""
FEWEST = 3
"""Reports that the warm-up leaves, as long as there are any others to take away."""
SLOW, SLOW_AFTER_A_PAUSE, FAST = 1.5, 1.1, 0.5
"""Multiples of the median beyond which a report is a pause, one behind a line that tells of one, and a misprint."""


def place(step: Step) -> str:
    """Where a report stands, in words."""
    return f"step {step.number}"


def dropped(reason: str, steps: Sequence[Step]) -> tuple[Dropped, ...]:
    """The steps as one entry of an account; none where there is none."""
    return (Dropped(reason=reason, count=len(steps), first=place(steps[0])),) if steps else ()


def one_rank(steps: Sequence[Step]) -> tuple[list[Step], tuple[Dropped, ...]]:
    """The reports of the rank that has most with a time or a rate, the first of these."""
    ranks = list(dict.fromkeys(step.rank for step in steps))
    if len(ranks) < 2:
        return list(steps), ()
    timed = Counter(step.rank for step in steps if any(value is not None for value in _paces(step)))
    all_of = Counter(step.rank for step in steps)
    chosen = max(ranks, key=lambda rank: (timed[rank], all_of[rank], -ranks.index(rank)))
    others = [step for step in steps if step.rank != chosen]
    return [step for step in steps if step.rank == chosen], dropped("printed by other ranks", others)


def _paces(step: Step) -> tuple[float | None, ...]:
    return step.seconds, step.tokens_per_s, step.tokens_per_s_per_gpu, step.samples_per_s


def segments(steps: Iterable[Step]) -> tuple[Segments, tuple[Dropped, ...]]:
    """Runs of growing step numbers: a new one begins where numbers go back, which a restart does. A number said again at once, or beside
    its neighbour (ranks without labels), counts once."""
    found: Segments = []
    again = []
    for step in steps:
        if not found:
            found.append([step])
            continue
        current = found[-1]
        if step.number in (current[-1].number, current[-2].number if len(current) > 1 else None):
            again.append(step)
        elif step.number > current[-1].number:
            current.append(step)
        else:
            found.append([step])
    return found, dropped("said more than once", again)


def averaging(parts: Segments, *, averaged: bool) -> Segments:
    """The same with the steps that every report averages: the usual distance between reports, where the format says means."""
    if not averaged:
        return parts
    apart = Counter(
        after.number - before.number for part in parts for before, after in zip(part, part[1:], strict=False)
    )
    usual = apart.most_common(1)[0][0] if apart else 1
    made = []
    for part in parts:
        befores = [part[0].number - (usual if part[0].number % usual == 0 else 1), *(step.number for step in part)]
        made.append(
            [
                changed(step, over=max(1, min(usual, step.number - before)))
                for before, step in zip(befores, part, strict=False)
            ]
        )
    return made


def timed(parts: Segments, tokens: Count | None, samples: Count | None, gpus: Count | None) -> tuple[Segments, str]:
    """Every report with its seconds, and where they come from: the first of the ways that serves most of the reports."""

    def by_rate(step: Step) -> Seconds | None:
        of_all = step.tokens_per_s
        if of_all is None and step.tokens_per_s_per_gpu is not None and gpus is not None:
            of_all = step.tokens_per_s_per_gpu * gpus
        return _over(step.tokens if step.tokens is not None else tokens, of_all)

    def by_samples(step: Step) -> Seconds | None:
        return _over(step.samples if step.samples is not None else samples, step.samples_per_s)

    ways: tuple[tuple[str, Callable[[Step], Seconds | None]], ...] = (
        ("time of steps", lambda step: step.seconds), ("tokens a second", by_rate), ("samples a second", by_samples),
    )  # fmt: skip
    made = [
        (name, [[changed(step, seconds=_sane(way(step))) for step in part] for part in parts]) for name, way in ways
    ]
    made.append(("clocks of lines", [_clocked(part) for part in parts]))
    counts = [sum(step.seconds is not None for part in found for step in part) for _, found in made]
    most = max(counts)
    if most == 0:
        return made[0][1], ""
    name, found = next(one for one, count in zip(made, counts, strict=True) if 2 * count >= most)
    return found, name


def _over(amount: Count | None, rate: float | None) -> Seconds | None:
    return None if amount is None or rate is None or not rate > 0 else amount / rate


def _sane(seconds: Seconds | None) -> Seconds | None:
    return seconds if seconds is not None and 0 < seconds < 1e9 else None


def _clocked(part: list[Step]) -> list[Step]:
    """Seconds from one report's clock to the next; none of the first."""
    made = [changed(part[0], seconds=None)]
    for before, after in zip(part, part[1:], strict=False):
        passed = None if before.at is None or after.at is None else (after.at - before.at) / (after.number - before.number)
        made.append(changed(after, seconds=_sane(passed), over=after.number - before.number))
    return made


def steady(parts: Segments, reading: Reading) -> tuple[list[Step], tuple[Dropped, ...], tuple[str, ...]]:
    """The reports that count, what was left out, and what is to be said of it."""
    all_of = [step for part in parts for step in part]
    said = [step for step in all_of if step.seconds is not None]
    missing = dropped("without a time that is a number", [step for step in all_of if step.seconds is None])
    warm, cold = [], []
    for part in parts:
        begin = part[0].number - part[0].over
        for step in part:
            if step.seconds is not None:
                (cold if step.number - step.over < begin + WARM_UP else warm).append(step)
    notes: tuple[str, ...] = ()
    if len(warm) < FEWEST and cold:
        spared = cold[max(1, len(cold) + len(warm) - FEWEST) if len(said) > 1 else 0 :]
        if spared:
            notes = (
                f"{len(spared)} of the {len(spared) + len(warm)} reports that are used lie in the first {WARM_UP} steps, which compile and warm up.",
            )
        warm, cold = sorted([*spared, *warm], key=lambda step: step.line), cold[: len(cold) - len(spared)]
    kept, pauses = _unbroken(warm, said, reading.pauses)
    return kept, (*missing, *dropped(f"warm-up: the first {WARM_UP} steps of a process", cold), *pauses), notes


def _unbroken(warm: list[Step], said: list[Step], pauses: Sequence[int]) -> tuple[list[Step], tuple[Dropped, ...]]:
    """Without what stands behind an evaluation or a checkpoint, or far from the median."""
    if len(warm) < FEWEST:
        return warm, ()
    usual = median(step.seconds for step in warm if step.seconds is not None)
    before = {id(step): previous.line for previous, step in zip(said, said[1:], strict=False)}
    behind, slow, fast, kept = [], [], [], []
    for step in warm:
        pace = (step.seconds or 0.0) / usual
        first = bisect.bisect_right(pauses, before.get(id(step), step.line))
        if pace > SLOW_AFTER_A_PAUSE and bisect.bisect_left(pauses, step.line) > first:
            behind.append(step)
        elif pace > SLOW or pace < FAST:
            (slow if pace > SLOW else fast).append(step)
        else:
            kept.append(step)
    return kept, (
        *dropped("evaluation or checkpoint since the report before", behind),
        *dropped(f"more than {SLOW:g} times the median: a pause", slow),
        *dropped(f"less than {FAST:g} times the median", fast),
    )
