"""Numbers of one log that cannot all be right: units, counters of a part, rates of another group. Told, never corrected."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from shardmeter.interop.logs.reports import Mask, Reports, usual
from shardmeter.interop.logs.values import GIB, positive

APART = 0.03
"""Two ways to the same number that are further apart contradict each other: reports are printed with three digits or more."""
LAG = 1.25
"""Clocks may say that much more than times of steps do: data, evaluation and logging lie between steps."""
SHORTEST = 20.0
"""Seconds between clocks of whole seconds that are long enough to compare."""
FEWEST = 8
"""Reports whose clocks are enough to compare."""
BATCH = "run.global_batch"


def found(
    reports: Reports, used: Mask, said: Mapping[str, str], rests_on: str, step_time: float, tokens: float | None, gpus: float | None
) -> list[str]:
    """Every contradiction, one sentence each."""
    numbers = {key: value for key, text in said.items() if (value := positive(text)) is not None}
    samples = usual(reports.samples)
    if samples is None:
        samples = numbers.get(BATCH)
    sentences = (
        _batch(reports, numbers, samples), _counted(reports, "samples", samples, numbers), _counted(reports, "tokens", tokens, numbers),
        _rate(reports, numbers, rests_on, step_time, tokens, gpus), _samples(reports, numbers, rests_on, step_time, samples),
        _per_gpu(reports, numbers, gpus), _clocks(reports, used, rests_on, step_time), _memory(reports, numbers),
    )  # fmt: skip
    return [text for text in sentences if text]


def because(ratio: float, said: Mapping[str, float]) -> str:
    """What a factor between two numbers looks like, in words; empty where nothing known is as large."""
    degrees = {name: said.get(f"plan.{name}", 1.0) for name in ("tp", "cp", "pp", "dp_shard", "dp_replicate", "dp")}
    known = (
        (degrees["tp"], "tp: counted once for every tensor-parallel rank"), (degrees["cp"], "cp: counted once for every context-parallel rank"),
        (degrees["tp"] * degrees["cp"], "tp × cp: counted once for every rank of a replica"), (degrees["pp"], "pp: counted once for every stage"),
        (said.get("accumulation", 1.0), "the gradient accumulation: one micro-batch over the time of a step, or the reverse"),
        (degrees["dp_shard"] * degrees["dp_replicate"] * degrees["dp"], "the data-parallel degree: one rank's count beside everyone's"),
        (said.get("gpus", 1.0), "the number of accelerators: one's rate beside everyone's"), (1000.0, "milliseconds beside seconds"),
        (60.0, "minutes beside seconds"),
    )  # fmt: skip
    larger = max(ratio, 1.0 / ratio)
    return next((f", the size of {name}" for value, name in known if value > 1.0 and abs(larger / value - 1) < APART), "")


def _apart(one: float, other: float) -> bool:
    return abs(one / other - 1) > APART


def _batch(reports: Reports, said: Mapping[str, float], samples: float | None) -> str:
    """Tokens of a step = sequences × length; sequences as the head says."""
    tokens, length = usual(reports.tokens), said.get("run.seq_len")
    if samples is not None and BATCH in said and _apart(samples, said[BATCH]):
        return f"Reports count {samples:,.0f} sequences a step, the head says {said[BATCH]:,.0f}{because(samples / said[BATCH], said)}."
    if tokens is None or samples is None or length is None or not _apart(tokens, samples * length):
        return ""
    ratio = tokens / (samples * length)
    return (
        f"Reports count {tokens:,.0f} tokens a step, {samples:,.0f} sequences of {length:,.0f} are {samples * length:,.0f}: "
        f"a factor of {ratio:.3g}{because(ratio, said)}."
    )


def _counted(reports: Reports, word: str, amount: float | None, said: Mapping[str, float]) -> str:
    """A counter grows by a batch in every step."""
    grown = usual(reports.growth(f"{word}_seen") / reports.growth("number"))
    if grown is None or amount is None or not grown > 0 or not _apart(grown, amount):
        return ""
    return f"The counter of {word} grows by {grown:,.0f} a step, a step has {amount:,.0f}: a factor of {grown / amount:.3g}{because(grown / amount, said)}."


def _rate(
    reports: Reports, said: Mapping[str, float], rests_on: str, step_time: float, tokens: float | None, gpus: float | None
) -> str:
    """Tokens a second × seconds of a step = tokens of a step."""
    rate, of_one = usual(reports.tokens_per_s), usual(reports.tokens_per_s_per_gpu)
    if rate is None and of_one is not None and gpus is not None:
        rate = of_one * gpus
    return "" if rests_on == "tokens a second" else _times(rate, "tokens", rests_on, step_time, tokens, said)


def _samples(reports: Reports, said: Mapping[str, float], rests_on: str, step_time: float, samples: float | None) -> str:
    """Sequences a second × seconds of a step = the batch."""
    rate = usual(reports.samples_per_s)
    return "" if rests_on == "samples a second" else _times(rate, "samples", rests_on, step_time, samples, said)


def _times(
    rate: float | None, word: str, rests_on: str, step_time: float, amount: float | None, said: Mapping[str, float]
) -> str:
    if rate is None or amount is None or not _apart(rate * step_time, amount):
        return ""
    ratio = rate * step_time / amount
    if rests_on == "clocks of lines" and 1 / LAG < ratio < LAG:
        return ""
    return (
        f"{rate:,.0f} {word} a second over steps of {step_time:.4g} s are {rate * step_time:,.0f} {word}, a step has {amount:,.0f}: "
        f"a factor of {ratio:.3g}{because(ratio, said)}."
    )


def _per_gpu(reports: Reports, said: Mapping[str, float], gpus: float | None) -> str:
    """Rate of all = rate of one × accelerators."""
    ratio = usual(reports.tokens_per_s / reports.tokens_per_s_per_gpu)
    if ratio is None or gpus is None or not _apart(ratio, gpus):
        return ""
    return f"Tokens a second are {ratio:,.3g} times those of one accelerator, the run has {gpus:,.0f}{because(ratio / gpus, said)}."


def _clocks(reports: Reports, used: Mask, rests_on: str, step_time: float) -> str:
    """The clocks of lines pass no slower than steps do."""
    gaps, steps = reports.growth("at"), reports.growth("number")
    known = used & np.isfinite(gaps) & (gaps >= 0)
    if rests_on == "clocks of lines" or known.sum() < FEWEST or gaps[known].sum() < SHORTEST:
        return ""
    gaps, steps = gaps[known], steps[known]
    if (gaps % 1 != 0).any() or np.median(gaps) >= SHORTEST:
        pace = float(np.median(gaps / steps))
    else:  # whole seconds: their mean, without pauses
        short = gaps <= LAG * step_time * steps + 1
        if gaps[short].sum() < 5 * SHORTEST:
            return ""
        pace = float(gaps[short].sum() / steps[short].sum())
    ratio = pace / step_time
    if not pace > 0 or 1 - 2 * APART < ratio < LAG:
        return ""
    told = f"The clocks of the lines are {pace:.4g} s a step apart, the log says {step_time:.4g} s a step"
    if ratio > LAG and not because(ratio, {}):
        return f"{told}: the rest passes between steps (data, evaluation, checkpoints, waits)."
    return f"{told}: a factor of {ratio:.3g}{because(ratio, {})}."


def _memory(reports: Reports, said: Mapping[str, float]) -> str:
    """No peak is above the device."""
    limit = said.get("device_memory")
    peaks = np.fmax(reports.reserved, reports.allocated)
    if limit is None or not np.isfinite(peaks).any() or (peak := float(np.nanmax(peaks))) <= limit * (1 + APART):
        return ""
    return f"A peak of {peak / GIB:.1f} GiB is more than the device has, {limit / GIB:.1f} GiB."
