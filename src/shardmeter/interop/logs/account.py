"""A reading as an account: how long a step takes, how surely, and what of the log that rests on."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from shardmeter.core.units import Bytes, Count, Fraction, Seconds
from shardmeter.interop.logs import contradictions, selection
from shardmeter.interop.logs.lines import Log
from shardmeter.interop.logs.record import LogAccount, Reading, Step
from shardmeter.interop.logs.reports import Numbers, Reports, table, usual
from shardmeter.interop.logs.values import positive

MEDIAN_ERROR = math.sqrt(math.pi / 2)
"""Standard error of a median over that of a mean, of a normal distribution."""
FEW = 10
"""Reports below which quantiles say less than the standard deviation."""
DRIFT = 0.1


def account(reading: Reading, log: Log, name: str, known: Mapping[str, str]) -> LogAccount:
    """What a format file read, as an account. `known` of the run stands in where the head of the log says nothing."""
    said = {**known, **reading.said}
    reports, left_out = table(reading.steps, averaged=reading.averaged)
    tokens, samples, gpus = _batch(said, reports)
    reports, rests_on = selection.timed(reports, tokens, samples, gpus)
    used, unused, notes = selection.steady(reports, reading)
    times = reports.seconds[used]
    step_time = float(np.median(times)) if times.size else None
    losses = reports.loss[np.isfinite(reports.loss)]
    warnings = [*reading.notes, *notes, *_of_losses(reading), *_drift(times), *_goings_back(reports)]
    if step_time is None:
        warnings.append(_untimed(reports, tokens, gpus))
    else:
        warnings += contradictions.found(reports, used, said, rests_on, step_time, tokens, gpus)
    return LogAccount(
        format=name, version=reading.version, lines=log.text.count("\n") + (not log.text.endswith("\n")), steps=len(reading.steps), used=times.size,
        dropped=(*reading.dropped, *left_out, *unused), step_time=step_time, spread=_spread(times), error=_error(times, reading.resolution),
        tokens_per_step=tokens, gpus=gpus, peak_allocated=_largest(reading.allocated, reading.steps, "allocated"),
        peak_reserved=_largest(reading.reserved, reading.steps, "reserved"),
        goodput=_goodput(reports, step_time), restarts=int(reports.part[-1]) if reports.part.size else 0,
        loss_first=float(losses[0]) if losses.size else None, loss_last=float(losses[-1]) if losses.size else None,
        said=tuple(sorted(reading.said.items())), warnings=tuple(dict.fromkeys(warnings)), rests_on=rests_on,
        pace=tuple(zip(reports.number[used].tolist(), times.tolist(), strict=True)),
    )  # fmt: skip


def _batch(head: Mapping[str, str], reports: Reports) -> tuple[float | None, float | None, float | None]:
    """Tokens and sequences of a step, and the accelerators: as reports say, as the head says, or as counters grow."""
    said = {key: positive(value) for key, value in head.items()}
    samples = _first(usual(reports.samples), said.get("run.global_batch"), _growth(reports, "samples_seen"))
    length = said.get("run.seq_len")
    product = samples * length if samples is not None and length is not None else None
    tokens = _first(usual(reports.tokens), said.get("tokens_per_step"), product, _growth(reports, "tokens_seen"))
    ratio = usual(reports.tokens_per_s / reports.tokens_per_s_per_gpu)
    gpus = _first(said.get("gpus"), None if ratio is None or ratio < 0.5 else float(round(ratio)))
    return tokens, samples, gpus


def _first(*values: float | None) -> float | None:
    return next((value for value in values if value is not None), None)


def _growth(reports: Reports, counter: str) -> float | None:
    """What a counter grows by in a step."""
    grown = usual(reports.growth(counter) / reports.growth("number"))
    return grown if grown is not None and grown > 0 else None


def _spread(times: Numbers) -> tuple[Seconds, Seconds] | None:
    if not times.size:
        return None
    low, high = np.quantile(times, (0.05, 0.95))
    return float(low), float(high)


def _error(times: Numbers, resolution: Fraction) -> Fraction | None:
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


def _independent(times: Numbers) -> float:
    """How many reports these are worth, by how alike neighbours are."""
    apart = times - times.mean()
    whole = float(np.dot(apart, apart))
    alike = 0.0 if times.size < FEW or whole == 0 else min(max(float(np.dot(apart[1:], apart[:-1])) / whole, 0.0), 0.99)
    return max(1.0, times.size * (1 - alike) / (1 + alike))


def _goodput(reports: Reports, step_time: Seconds | None) -> Fraction | None:
    """Steps that were finished for good at the median's pace, over the time that passed."""
    clocked = np.isfinite(reports.at)
    if step_time is None or clocked.sum() < 2:
        return None
    at, number, part = reports.at[clocked], reports.number[clocked], reports.part[clocked]
    between = np.diff(at)
    if (between < 0).any():  # a clock of each process: what lies between processes is not known
        between = between[(np.diff(part) == 0) & (between > 0)]
    passed, finished = float(between.sum()), float(number[-1] - number[0])
    return min(1.0, step_time * finished / passed) if passed > 0 and finished > 0 else None


def _largest(own: Bytes | None, steps: Sequence[Step], column: str) -> float | None:
    """The largest peak of all ranks."""
    peaks = np.array([own, *(getattr(step, column) for step in steps)], dtype=np.float64)
    known = peaks[np.isfinite(peaks)]
    return float(known.max()) if known.size else None


def _of_losses(reading: Reading) -> tuple[str, ...]:
    bad = [step for step in reading.steps if step.loss is not None and not math.isfinite(step.loss)]
    if not bad:
        return ()
    return (f"The loss is no number in {len(bad):,} of {len(reading.steps):,} reports, first at step {bad[0].number}.",)


def _drift(times: Numbers) -> tuple[str, ...]:
    """Whether the later half is another pace than the earlier one."""
    if times.size < 2 * FEW:
        return ()
    early, late = (float(np.median(half)) for half in np.array_split(times, 2))
    if abs(late / early - 1) < DRIFT:
        return ()
    return (
        f"The pace changes: {early:.4g} s a step in the first half of the used reports, {late:.4g} s in the second.",
    )


def _goings_back(reports: Reports) -> tuple[str, ...]:
    parts, size = len(np.unique(reports.part)), reports.part.size
    if parts < 4 or parts * 4 < size:
        return ()
    return (
        f"Step numbers go back {parts - 1:,} times in {size:,} reports: several ranks or runs that the lines do not tell apart.",
    )


def _untimed(reports: Reports, tokens: Count | None, gpus: Count | None) -> str:
    """Why there is no step time."""
    if not reports.number.size:
        return "No report of a training step was found."
    if np.isfinite(reports.tokens_per_s_per_gpu).any():
        lacks = [
            word
            for word, value in (("the tokens of a step", tokens), ("the number of accelerators", gpus))
            if value is None
        ]
        if lacks:
            clocks = (
                "clocks that tell it (they are whole seconds, over less than 30 s)"
                if np.isfinite(reports.at).any()
                else "clocks"
            )
            return f"The log says tokens a second and accelerator, but neither {clocks} nor {' and '.join(lacks)}: the time of a step is not known."
    return "No report has a time, a rate with its batch or a clock that is a number: the time of a step is not known."
