"""Numbers of one log that cannot all be right: units, counters of a part, rates of another group. Told, never corrected."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median

from shardmeter.core.units import Bytes, Count, Seconds
from shardmeter.interop.logs.record import Step
from shardmeter.interop.logs.selection import Segments
from shardmeter.interop.logs.values import GIB, positive

APART = 0.03
"""Two ways to the same number that are further apart contradict each other: reports are printed with three digits or more."""
LAG = 1.25
"""Clocks may say that much more than times of steps do: data, evaluation and logging lie between steps."""
SHORTEST = 20.0
"""Seconds between clocks of whole seconds that are long enough to compare."""


def found(
    parts: Segments, said: Mapping[str, str], rests_on: str, step_time: Seconds, tokens: Count | None, gpus: Count | None
) -> list[str]:
    """Every contradiction, one sentence each."""
    steps = [step for part in parts for step in part]
    numbers = {key: value for key, text in said.items() if (value := positive(text)) is not None}
    return [
        text
        for text in (
            _batch(steps, numbers), _counted(parts, "samples_seen", numbers.get("run.global_batch"), "samples", numbers),
            _counted(parts, "tokens_seen", tokens, "tokens", numbers), _rate(steps, numbers, rests_on, step_time, tokens, gpus),
            _per_gpu(steps, numbers, gpus), _clocks(parts, rests_on, step_time), _memory(steps, numbers),
        )
        if text
    ]  # fmt: skip


def _usual(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def because(ratio: float, said: Mapping[str, float]) -> str:
    """What a factor between two numbers looks like, in words; empty where nothing known is as large."""
    degrees = {name: said.get(f"plan.{name}", 1.0) for name in ("tp", "cp", "pp", "dp_shard", "dp_replicate")}
    data = degrees["dp_shard"] * degrees["dp_replicate"]
    known = (
        (degrees["tp"], "tp: counted once for every tensor-parallel rank"), (degrees["cp"], "cp: counted once for every context-parallel rank"),
        (degrees["tp"] * degrees["cp"], "tp × cp: counted once for every rank of a replica"), (degrees["pp"], "pp: counted once for every stage"),
        (said.get("accumulation", 1.0), "the gradient accumulation: one micro-batch over the time of a step, or the reverse"),
        (data, "the data-parallel degree: one rank's count beside everyone's"), (said.get("gpus", 1.0), "the number of accelerators: one's rate beside everyone's"),
        (1000.0, "milliseconds beside seconds"), (60.0, "minutes beside seconds"), (GIB / 1e9, "GiB beside GB"),
    )  # fmt: skip
    larger = max(ratio, 1.0 / ratio)
    return next((f", the size of {name}" for value, name in known if value > 1.0 and abs(larger / value - 1) < APART), "")


def _apart(one: float, other: float) -> bool:
    return abs(one / other - 1) > APART


def _batch(steps: list[Step], said: Mapping[str, float]) -> str:
    """Tokens of a step = sequences × length."""
    tokens, samples = _usual([step.tokens for step in steps]), _usual([step.samples for step in steps]) or said.get("run.global_batch")
    length = said.get("run.seq_len")
    if samples is not None and "run.global_batch" in said and _apart(samples, said["run.global_batch"]):
        return f"Reports count {samples:,.0f} sequences a step, the head says {said['run.global_batch']:,.0f}{because(samples / said['run.global_batch'], said)}."
    if tokens is None or samples is None or length is None or not _apart(tokens, samples * length):
        return ""
    product = samples * length
    return f"Reports count {tokens:,.0f} tokens a step, {samples:,.0f} sequences of {length:,.0f} are {product:,.0f}: a factor of {tokens / product:.3g}{because(tokens / product, said)}."


def _counted(parts: Segments, counter: str, usual: float | None, word: str, said: Mapping[str, float]) -> str:
    """A counter grows by a batch in every step."""
    grown = [
        (getattr(after, counter) - getattr(before, counter)) / (after.number - before.number)
        for part in parts
        for before, after in zip(part, part[1:], strict=False)
        if getattr(before, counter) is not None and getattr(after, counter) is not None
    ]
    if not grown or usual is None or not median(grown) > 0 or not _apart(median(grown), usual):
        return ""
    ratio = median(grown) / usual
    return f"The counter of {word} grows by {median(grown):,.0f} a step, a step has {usual:,.0f}: a factor of {ratio:.3g}{because(ratio, said)}."


def _rate(
    steps: list[Step], said: Mapping[str, float], rests_on: str, step_time: Seconds, tokens: Count | None, gpus: Count | None
) -> str:
    """Tokens a second × seconds of a step = tokens of a step."""
    rate, of_one = _usual([step.tokens_per_s for step in steps]), _usual([step.tokens_per_s_per_gpu for step in steps])
    if rate is None and of_one is not None and gpus is not None:
        rate = of_one * gpus
    if rests_on == "tokens a second" or rate is None or tokens is None or not _apart(rate * step_time, tokens):
        return ""
    ratio = rate * step_time / tokens
    if rests_on == "clocks of lines" and 1 / LAG < ratio < LAG:
        return ""
    return (
        f"{rate:,.0f} tokens a second over steps of {step_time:.4g} s are {rate * step_time:,.0f} tokens, a step has {tokens:,.0f}: "
        f"a factor of {ratio:.3g}{because(ratio, said)}."
    )


def _per_gpu(steps: list[Step], said: Mapping[str, float], gpus: Count | None) -> str:
    """Rate of all = rate of one × accelerators."""
    rate, of_one = _usual([step.tokens_per_s for step in steps]), _usual([step.tokens_per_s_per_gpu for step in steps])
    if rate is None or of_one is None or gpus is None or not _apart(rate, of_one * gpus):
        return ""
    ratio = rate / (of_one * gpus)
    return f"{rate:,.0f} tokens a second are {rate / of_one:,.3g} times the rate of one accelerator, the run has {gpus:,.0f}{because(ratio, said)}."


def _clocks(parts: Segments, rests_on: str, step_time: Seconds) -> str:
    """The clocks of lines pass no slower than steps do."""
    if rests_on == "clocks of lines":
        return ""
    paces, gaps = [], []
    for part in parts:
        clocked = [step for step in part if step.at is not None]
        for before, after in zip(clocked, clocked[1:], strict=False):
            gap = (after.at or 0.0) - (before.at or 0.0)
            gaps.append(gap)
            paces.append(gap / (after.number - before.number))
    if len(paces) < 3:
        return ""
    pace = median(paces)
    if median(gaps) < SHORTEST:
        pace = sum(gaps) / sum(gap / one for gap, one in zip(gaps, paces, strict=True) if one) if any(paces) else 0.0
    ratio = pace / step_time
    if sum(gaps) < SHORTEST or not pace > 0 or 1 - 2 * APART < ratio < LAG:
        return ""
    told = f"The clocks of the lines are {pace:.4g} s a step apart, the log says {step_time:.4g} s a step"
    if ratio > LAG and not because(ratio, {}):
        return f"{told}: the rest passes between steps (data, evaluation, checkpoints, waits)."
    return f"{told}: a factor of {ratio:.3g}{because(ratio, {})}."


def _memory(steps: list[Step], said: Mapping[str, float]) -> str:
    """No peak is above the device."""
    limit: Bytes | None = said.get("device_memory")
    peaks = [max(step.reserved or 0.0, step.allocated or 0.0) for step in steps]
    if limit is None or not peaks or max(peaks) <= limit * (1 + APART):
        return ""
    return f"A peak of {max(peaks) / GIB:.1f} GiB is more than the device has, {limit / GIB:.1f} GiB."
