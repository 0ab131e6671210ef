"""Ratios with a name: what a claimed over an implied number is likely to be, from one table of causes, the numbers of the run, the peaks
of the catalog and the conventions of counting."""

from __future__ import annotations

import csv
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cache

from shardmeter import data
from shardmeter.core.record import record
from shardmeter.core.sums import plain_sum

FILE = "audit_factors.csv"
CLOSE = 0.015
"""Relative distance of a ratio from a factor that is called the same."""
NEAR = 0.08
"""The same, of what was measured or counted loosely: told as near."""
ORDER = 0.35
"""The same, where nothing else is near and the factor is as large as `LARGE`: told as its order of magnitude."""
LARGE = 20.0
TWO = 1.2
"""What a second factor at the same time costs in likelihood, in the units of `weight`."""
MOST = 6
MISTAKE = 0.3
"""Weight of a count that is wrong for a model; one that is merely another has less."""
TOGETHER = ("world size", "accumulation", "context parallel", "tensor parallel", "sparse peak")
"""Factors that are tried together with a convention of counting; of peaks, those of usual devices and of the
device itself."""
HEADLESS = "convention no-head"
"""A count that is tried together with another mistake: formulas of layers leave the head out."""


@record
class Factor:
    """A named number, and what it means that a claim is so many times too large, or too small."""

    key: str
    value: float
    above: str
    below: str
    weight: float
    source: str = ""


@record
class Match:
    """A cause of a ratio."""

    key: str
    factor: float
    """What the claim was multiplied by."""
    cause: str
    left: float
    """Ratio over factor: 1 = all is explained."""
    close: str
    """same, near, order."""
    weight: float
    source: str


@cache
def rows() -> tuple[Mapping[str, str], ...]:
    """The table of causes."""
    with data.open_text(FILE) as file:
        return tuple(csv.DictReader(file))


def named(group: str, numbers: Mapping[str, float]) -> tuple[Factor, ...]:
    """The factors that a group of quantities may be off by, those of the run at its own `numbers`."""
    found = []
    for row in rows():
        if group not in row["of"].split("|"):
            continue
        value = _value(row["value"], numbers)
        if value is None or not math.isfinite(value) or abs(math.log(value)) < 2 * CLOSE:
            continue
        above, below = (_filled(row[side], value, numbers) for side in ("above", "below"))
        if value < 1.0:
            value, above, below = 1.0 / value, below, above
        found.append(
            Factor(key=row["key"], value=value, above=above, below=below, weight=float(row["weight"]), source=row["source"])
        )  # fmt: skip
    return tuple(found)


def _value(text: str, numbers: Mapping[str, float]) -> float | None:
    """A number, a quantity of the run, or one over the other; None where the run does not say it."""
    parts = [_single(part, numbers) for part in text.split("/")]
    if any(part is None or part <= 0.0 for part in parts):
        return None
    first, *rest = (float(part or 0.0) for part in parts)
    return first / rest[0] if rest else first


def _single(text: str, numbers: Mapping[str, float]) -> float | None:
    try:
        return float(text)
    except ValueError:
        return numbers.get(text)


def _filled(text: str, value: float, numbers: Mapping[str, float]) -> str:
    if "{bits" in text:
        text = text.replace("{bits:g}", f"{numbers.get('bits', 0.0):g}")
    return text.replace("{n}", f"{value:.4g}")


def matches(
    ratio: float, single: Sequence[Factor], counting: Sequence[Factor] = (), *, loose: float = 0.0, order: bool = False
) -> tuple[Match, ...]:
    """Causes of claimed over implied, the likeliest first: one factor, or one with a convention of counting besides.

    `loose` is what rounding leaves open. What is only near, or (if asked) of the order, is told where nothing is the same."""
    if ratio <= 0.0 or not math.isfinite(ratio):
        return ()
    options: list[tuple[tuple[Factor, int], ...]] = [((one, sign),) for one in (*single, *counting) for sign in (1, -1)]
    paired = [one for one in single if one.key in TOGETHER or (one.key == PEAK and one.weight <= SAME_WEIGHT)]
    options += [((one, sign), (way, 1)) for one, way in itertools.product(paired, counting) for sign in (1, -1)]
    layers = [one for one in counting if one.key == HEADLESS]
    mistakes = [one for one in counting if one.weight >= MISTAKE and one.key != HEADLESS]
    options += [((one, 1), (way, 1)) for one, way in itertools.product(layers, mistakes)]
    found = [made for parts in options if (made := _match(ratio, parts, loose)) is not None]
    found.sort(key=lambda one: (one.weight, abs(math.log(one.left))))
    best: dict[str, Match] = {}
    for one in found:
        best.setdefault(one.cause, one)
    kept = list(best.values())
    for close in ("same", "near", *(("order",) if order else ())):
        of = [one for one in kept if one.close == close]
        if of:
            return tuple(of[:MOST])
    return ()


def _match(ratio: float, parts: Sequence[tuple[Factor, int]], loose: float) -> Match | None:
    factor = math.prod(one.value**sign for one, sign in parts)
    left = ratio / factor
    off = abs(math.log(left))
    if len(parts) > 1 and off > CLOSE + loose:
        return None
    close = "same" if off <= CLOSE + loose else "near" if off <= NEAR else "order"
    if close == "order" and (off > ORDER or parts[0][0].value < LARGE):
        return None
    if close != "same" and abs(math.log(factor)) < 3.0 * off:
        return None
    said = [one.above if sign > 0 else one.below for one, sign in parts]
    if not all(said):
        return None
    weight = plain_sum(one.weight for one, _ in parts) + TWO * (len(parts) - 1) + 10.0 * off
    return Match(
        key=" and ".join(one.key for one, _ in parts), factor=factor, cause="; and ".join(said), left=left, close=close,
        weight=weight, source="; ".join(one.source for one, _ in parts if one.source),
    )  # fmt: skip


def whole(ratio: float, loose: float) -> tuple[int, bool] | None:
    """(n, whether the claim is so many times too large) of a ratio that is a whole number or one over it; None of any other."""
    size = max(ratio, 1.0 / ratio)
    n = round(size)
    return (
        (n, ratio > 1.0)
        if 2 <= n <= 100_000 and abs(size / n - 1.0) <= min(CLOSE + 0.5 * min(loose, CLOSE), 0.3 / n)
        else None
    )


def of_peaks(own: float, peaks: Iterable[tuple[str, str, float]], same: str) -> tuple[Factor, ...]:
    """MFU is so many times too large if the peak of another device or format was taken: (device, format, FLOP/s) of each.

    `same` is the device itself, whose other formats are the likelier."""
    named_: dict[float, list[tuple[float, str]]] = {}
    for device, form, peak in peaks:
        for times, sparse in ((1.0, ""), (2.0, " with sparsity")):
            weight = _likely(device, form, same) + (0.3 if sparse else 0.0)
            text = f"{form} of {device}{sparse} ({peak * times / 1e12:.4g} TFLOP/s)"
            named_.setdefault(round(own / (peak * times), 3), []).append((weight, text))
    found = []
    for ratio, names in named_.items():
        if ratio <= 0.0 or abs(math.log(ratio)) < 2 * CLOSE:
            continue
        weight, name = min(names, key=lambda one: one[0])
        text = f"the peak was {name}" + (f", or of {len(names) - 1} more with as much" if len(names) > 1 else "")
        found.append(Factor(key=PEAK, value=ratio, above=text, below="", weight=weight, source="peaks of the catalog"))
    return tuple(found)


def as_peaks(own: float, peaks: Iterable[tuple[str, str, float]], same: str) -> tuple[Factor, ...]:
    """The same for a peak that is claimed itself: it is so many times the device's own."""
    found = []
    for one in of_peaks(own, peaks, same):
        size, way = max(one.value, 1.0 / one.value), "low" if one.value < 1.0 else "high"
        text = f"{one.above.replace('the peak was', 'it is the peak of')}: an MFU of {same} over it is {size:.3g} times too {way}"
        found.append(
            Factor(key=one.key, value=1.0 / one.value, above=text, below="", weight=one.weight, source=one.source)
        )
    return tuple(found)


PEAK = "peak of another device"
USUAL = ("A100-SXM4-80GB", "H100-SXM5-80GB")
"""Devices whose peaks programs have as constants."""
USUAL_WEIGHT, SAME_WEIGHT = 0.05, 0.4
"""Of a peak that programs have as a constant; of another format of the device itself."""


def _likely(device: str, form: str, same: str) -> float:
    if device == same:
        return 0.2 if form in ("bf16", "fp16") else SAME_WEIGHT
    return (USUAL_WEIGHT if device in USUAL else 0.7) + (0.0 if form in ("bf16", "fp16") else 0.4)
