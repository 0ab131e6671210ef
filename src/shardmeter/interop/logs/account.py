"""A reading as an account: how long a step takes, how surely, and what of the log that rests on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import median

import numpy as np

from shardmeter.core.units import Count, Fraction, Seconds
from shardmeter.interop.logs import contradictions, selection
from shardmeter.interop.logs.lines import Log
from shardmeter.interop.logs.record import Dropped, LogAccount, Reading, Step
from shardmeter.interop.logs.values import finite, positive

MEDIAN_ERROR = math.sqrt(math.pi / 2)
"""Standard error of a median over that of a mean, of a normal distribution."""
FEW = 10
"""Reports below which quantiles say less than the standard deviation."""
DRIFT = 0.1


def account(reading: Reading, log: Log, name: str) -> LogAccount:
    """What a format file read, as an account."""
    of_one, of_others = selection.one_rank(reading.steps)
    parts, again = selection.segments(of_one)
    parts = selection.averaging(parts, averaged=reading.averaged)
    tokens, samples, gpus = _batch(reading, parts)
    parts, rests_on = selection.timed(parts, tokens, samples, gpus)
    used, unused, notes = selection.steady(parts, reading)
    times = np.array([step.seconds for step in used], dtype=np.float64)
    step_time = float(np.median(times)) if used else None
    losses = [step.loss for step in of_one if step.loss is not None]
    finite_losses = [loss for loss in losses if math.isfinite(loss)]
    warnings = [*reading.notes, *notes, *_of_losses(of_one), *_drift(times), *_goings_back(parts)]
    if step_time is None:
        warnings.append(_untimed(of_one, tokens, gpus))
    else:
        warnings += contradictions.found(parts, reading.said, rests_on, step_time, tokens, gpus)
    return LogAccount(
        format=name, version=reading.version, lines=log.text.count("\n") + (not log.text.endswith("\n")), steps=len(reading.steps), used=len(used),
        dropped=(*reading.dropped, *of_others, *again, *(unused if step_time is not None else ())), step_time=step_time,
        spread=_spread(times), error=_error(times, reading.resolution), tokens_per_step=tokens, gpus=gpus,
        peak_allocated=_largest(reading.allocated, (step.allocated for step in reading.steps)),
        peak_reserved=_largest(reading.reserved, (step.reserved for step in reading.steps)),
        goodput=_goodput(parts, step_time), restarts=max(0, len(parts) - 1),
        loss_first=finite_losses[0] if finite_losses else None, loss_last=finite_losses[-1] if finite_losses else None,
        said=tuple(sorted(reading.said.items())), warnings=tuple(dict.fromkeys(warnings)), rests_on=rests_on, reports=tuple(used),
    )  # fmt: skip


def _batch(reading: Reading, parts: selection.Segments) -> tuple[Count | None, Count | None, Count | None]:
    """Tokens and sequences of a step, and the accelerators: as reports say, as the head says, or as counters grow."""
    steps = [step for part in parts for step in part]
    said = {key: positive(value) for key, value in reading.said.items()}
    samples = _first(_median(step.samples for step in steps), said.get("run.global_batch"), _growth(parts, "samples_seen"))
    length = said.get("run.seq_len")
    product = samples * length if samples is not None and length is not None else None
    tokens = _first(_median(step.tokens for step in steps), said.get("tokens_per_step"), product, _growth(parts, "tokens_seen"))
    ratio = _median(
        step.tokens_per_s / step.tokens_per_s_per_gpu
        for step in steps
        if step.tokens_per_s is not None and step.tokens_per_s_per_gpu is not None
    )
    gpus = _first(said.get("gpus"), None if ratio is None or ratio < 0.5 else float(round(ratio)))
    return tokens, samples, gpus


def _first(*values: float | None) -> float | None:
    return next((value for value in values if value is not None), None)


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None and math.isfinite(value)]
    return float(median(known)) if known else None


def _growth(parts: selection.Segments, counter: str) -> float | None:
    """What a counter grows by in a step."""
    return _median(
        (getattr(after, counter) - getattr(before, counter)) / (after.number - before.number)
        for part in parts
        for before, after in zip(part, part[1:], strict=False)
        if getattr(before, counter) is not None and getattr(after, counter) is not None and getattr(after, counter) > getattr(before, counter)
    )  # fmt: skip


def _spread(times: np.ndarray) -> tuple[Seconds, Seconds] | None:
    if not times.size:
        return None
    low, high = np.quantile(times, (0.05, 0.95))
    return float(low), float(high)


def _error(times: np.ndarray, resolution: Fraction) -> Fraction | None:
    """Standard error of the median over the median, for reports that are alike to the one before as much as these are.

    Leaves out: what all reports share, such as the node that the run had; how far two runs of the same thing are apart."""
    if times.size < 2:
        return None
    if times.size < FEW:
        wide = float(np.std(times, ddof=1))
    else:
        low, high = np.quantile(times, (0.1587, 0.8413))
        wide = float(high - low) / 2
    error = MEDIAN_ERROR * wide / math.sqrt(_independent(times)) / float(np.median(times))
    return math.hypot(error, resolution)


def _independent(times: np.ndarray) -> float:
    """How many reports these are worth, by how alike neighbours are."""
    apart = times - times.mean()
    whole = float(np.dot(apart, apart))
    alike = 0.0 if times.size < FEW or whole == 0 else min(max(float(np.dot(apart[1:], apart[:-1])) / whole, 0.0), 0.99)
    return max(1.0, times.size * (1 - alike) / (1 + alike))


def _goodput(parts: selection.Segments, step_time: Seconds | None) -> Fraction | None:
    """Steps that were finished for good at the median's pace, over the time that passed."""
    clocked = [[step for step in part if step.at is not None] for part in parts]
    ends = [(part[0].at or 0.0, part[-1].at or 0.0) for part in clocked if part]
    if not ends or step_time is None:
        return None
    forward = all(after[0] >= before[1] for before, after in zip(ends, ends[1:], strict=False))
    passed = ends[-1][1] - ends[0][0] if forward else sum(max(0.0, last - first) for first, last in ends)
    steps = [part for part in clocked if part]
    finished = steps[-1][-1].number - steps[0][0].number
    return min(1.0, step_time * finished / passed) if passed > 0 and finished > 0 else None


def _largest(own: float | None, values: Iterable[float | None]) -> float | None:
    known = [value for value in (own, *values) if finite(value) is not None]
    return max(value for value in known if value is not None) if known else None


def _of_losses(steps: Sequence[Step]) -> tuple[str, ...]:
    bad = [step for step in steps if step.loss is not None and not math.isfinite(step.loss)]
    if not bad:
        return ()
    return (f"The loss is no number in {len(bad):,} of {len(steps):,} reports, first at step {bad[0].number}.",)


def _drift(times: np.ndarray) -> tuple[str, ...]:
    """Whether the later half is another pace than the earlier one."""
    if times.size < 2 * FEW:
        return ()
    early, late = (float(np.median(half)) for half in np.array_split(times, 2))
    if abs(late / early - 1) < DRIFT:
        return ()
    return (f"The pace changes: {early:.4g} s a step in the first half of the used reports, {late:.4g} s in the second.",)


def _goings_back(parts: selection.Segments) -> tuple[str, ...]:
    reports = sum(map(len, parts))
    if len(parts) < 4 or len(parts) * 4 < reports:
        return ()
    return (f"Step numbers go back {len(parts) - 1:,} times in {reports:,} reports: several ranks or runs that the lines do not tell apart.",)


def _untimed(steps: Sequence[Step], tokens: Count | None, gpus: Count | None) -> str:
    """Why there is no step time."""
    if not steps:
        return "No report of a training step was found."
    if any(step.tokens_per_s_per_gpu is not None for step in steps):
        lacks = [word for word, value in (("the tokens of a step", tokens), ("the number of accelerators", gpus)) if value is None]
        if lacks:
            return f"The log says tokens a second and accelerator, but neither clocks nor {' and '.join(lacks)}: the time of a step is not known."
    return "No report has a time, a rate or a clock that is a number: the time of a step is not known."
