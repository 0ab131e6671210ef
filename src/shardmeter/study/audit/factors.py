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

FILE = "audit_factors.csv"
CLOSE = 0.015
"""Relative distance of a ratio from a factor that is called the same."""
NEAR = 0.08
"""The same, of what was measured or counted loosely: told as near."""
ORDER = 0.5
"""The same, where nothing else is near and the factor is as large as `LARGE`: told as its order of magnitude."""
LARGE = 20.0
TWO = 1.2
"""What a second factor at the same time costs in likelihood, in the units of `weight`."""
MOST = 6
COUNTS = ("ratio", "flops")


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


def matches(ratio: float, single: Sequence[Factor], counting: Sequence[Factor] = (), *, loose: float = 0.0) -> tuple[Match, ...]:
    """Causes of claimed over implied, the likeliest first: one factor, or one with a convention of counting besides.

    `loose` is what rounding leaves open. What is only near, or of the order, is told where nothing is the same."""
    if ratio <= 0.0 or not math.isfinite(ratio):
        return ()
    options: list[tuple[tuple[Factor, int], ...]] = [((one, sign),) for one in (*single, *counting) for sign in (1, -1)]
    options += [
        ((one, sign), (way, other))
        for one, way in itertools.product(single, counting) for sign in (1, -1) for other in (1, -1)
    ]  # fmt: skip
    found = [made for parts in options if (made := _match(ratio, parts, loose)) is not None]
    found.sort(key=lambda one: (one.weight, abs(math.log(one.left))))
    best: dict[str, Match] = {}
    for one in found:
        best.setdefault(one.cause, one)
    kept = list(best.values())
    for close in ("same", "near", "order"):
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
    weight = sum(one.weight for one, _ in parts) + TWO * (len(parts) - 1) + 10.0 * off
    return Match(
        key=" and ".join(one.key for one, _ in parts), factor=factor, cause="; and ".join(said), left=left, close=close,
        weight=weight, source="; ".join(one.source for one, _ in parts if one.source),
    )  # fmt: skip


def whole(ratio: float, loose: float) -> tuple[int, bool] | None:
    """(n, whether the claim is so many times too large) of a ratio that is a whole number or one over it; None of any other."""
    size = max(ratio, 1.0 / ratio)
    n = round(size)
    return (n, ratio > 1.0) if 2 <= n <= 100_000 and abs(size / n - 1.0) <= min(CLOSE + loose, 0.3 / n) else None


def of_peaks(own: float, peaks: Iterable[tuple[str, str, float]], same: str) -> tuple[Factor, ...]:
    """MFU is so many times too large if the peak of another device or format was taken: (device, format, FLOP/s) of each.

    `same` is the device itself, whose other formats are the likelier."""
    best: dict[float, tuple[float, list[str]]] = {}
    for device, form, peak in peaks:
        for times, sparse in ((1.0, ""), (2.0, " with sparsity")):
            ratio = round(own / (peak * times), 3)
            weight = _likely(device, form, same) + (0.3 if sparse else 0.0)
            known = best.setdefault(ratio, (weight, []))
            known[1].append(f"{form} of {device}{sparse} ({peak * times / 1e12:.4g} TFLOP/s)")
            best[ratio] = (min(weight, known[0]), known[1])
    found = []
    for ratio, (weight, names) in best.items():
        if ratio <= 0.0 or abs(math.log(ratio)) < 2 * CLOSE:
            continue
        text = f"the peak was {names[0]}" + (f", or another of {len(names)} with that peak" if len(names) > 1 else "")
        found.append(
            Factor(key="peak of another device", value=ratio, above=text, below="", weight=weight, source="peaks of the catalog")
        )  # fmt: skip
    return tuple(found)


def as_peaks(own: float, peaks: Iterable[tuple[str, str, float]], same: str) -> tuple[Factor, ...]:
    """The same for a peak that is claimed itself: it is so many times the device's own."""
    return tuple(
        Factor(key=one.key, value=1.0 / one.value, above=one.above.replace("the peak was", "it is the peak of"), below="",
               weight=one.weight, source=one.source)
        for one in of_peaks(own, peaks, same)
    )  # fmt: skip


USUAL = ("A100-SXM4-80GB", "H100-SXM5-80GB", "V100-SXM2-16GB", "TPU v4")
"""Devices whose peaks programs have as constants."""


def _likely(device: str, form: str, same: str) -> float:
    if device == same:
        return 0.2
    return (0.05 if device in USUAL else 0.7) + (0.0 if form in ("bf16", "fp16") else 0.4)
