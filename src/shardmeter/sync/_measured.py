"""What replicas that meet every H steps were measured to lose (data/geo/diloco.csv), carried between the sizes, cells and rounds of
those runs: in straight lines over their logarithms.
"""

from __future__ import annotations

import csv
import itertools
import math
from collections.abc import Mapping
from functools import cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from shardmeter import data
from shardmeter.core.sums import plain_sum
from shardmeter.core.units import Count, Number, Ratio

Curve: TypeAlias = tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]
"""ln N, ascending, and the log of the loss over the synchronous one there."""
MILLION = 1e6


@cache
def curves(without: str = "") -> Mapping[tuple[float, float], Curve]:
    """By (cells, inner steps of a round): the mean of the rows of every size, no gain taken over. `without` leaves out a paper,
    by the beginning of its source."""
    found: dict[tuple[float, float], dict[float, list[float]]] = {}
    with data.open_text("geo/diloco.csv") as file:
        for row in csv.DictReader(file):
            if without and row["source"].startswith(without):
                continue
            size = MILLION * float(row["parameters"].removesuffix("M"))
            curve = found.setdefault((float(row["cells"]), float(row["period"])), {})
            curve.setdefault(size, []).append(math.log(float(row["ratio"])))
    return {
        key: (
            np.log(np.array(sorted(curve))),
            np.array([max(plain_sum(curve[size]) / len(curve[size]), 0.0) for size in sorted(curve)]),
        )
        for key, curve in sorted(found.items())
    }


def gap(cells: Count, parameters: Count, period: Count, without: str = "") -> Ratio:
    """Log of the loss over the synchronous one: 0 for one cell, never less with more cells or longer rounds. Beyond the largest size it
    stays, beyond the most cells it grows with ln M, beyond the longest round on as between the last two with ln H; rounds
    shorter than the shortest cost what that does. Leaves out: the ratio of tokens to parameters, what fragments and formats
    of messages add (no run of these shows any)."""
    known = curves(without)
    periods = sorted({one for _, one in known})
    least = _over_cells(known, periods[0], cells, parameters)
    if len(periods) == 1:
        return least * np.maximum(np.log(np.maximum(period, 1.0)) / math.log(periods[0]), 1.0)
    total, before = least, least
    for short, long in itertools.pairwise(periods):
        after = np.maximum(_over_cells(known, long, cells, parameters), before)
        share = np.maximum(np.log(np.maximum(period, 1.0) / short) / math.log(long / short), 0.0)
        total = total + (after - before) * (share if long == periods[-1] else np.minimum(share, 1.0))
        before = after
    return total


def is_inside(cells: Count, parameters: Count, period: Count, without: str = "") -> Number:
    """Whether some run had at least as many cells and as long a round, at a size that its table reaches; one cell always is."""
    inside = np.less_equal(cells, 1.0)
    known = curves(without)
    shortest = min(one for _, one in known)
    for (most, longest), (sizes, _) in known.items():
        within = np.less_equal(cells, most) & np.less_equal(period, longest) & np.greater_equal(period, shortest)
        low, high = math.exp(sizes[0]) * (1.0 - 1e-9), math.exp(sizes[-1]) * (1.0 + 1e-9)
        inside = inside | (within & np.greater_equal(parameters, low) & np.less_equal(parameters, high))
    return inside


@cache
def reach() -> str:
    """How far the runs go, in words: the largest size of so many cells at each length of a round, from the smallest on."""
    known = curves()
    least = min(sizes[0] for sizes, _ in known.values())
    told = [
        f"at H = {period:g} {' and '.join(_ends({most: sizes[-1] for (most, one), (sizes, _) in known.items() if one == period}))}"
        for period in sorted({one for _, one in known})
    ]
    return f"C4 from {_size(least)}: {'; '.join(told)}"


def _ends(largest: Mapping[float, float]) -> list[str]:
    """`4 cells to 10B`, without those that more cells reach too."""
    ends = [most for most in sorted(largest) if all(largest[most] > largest[more] for more in largest if more > most)]
    return [f"{most:g} {'cells ' if most == ends[0] else ''}to {_size(largest[most])}" for most in ends]


def _size(log: float) -> str:
    size = math.exp(log)
    return f"{size / 1e9:.3g}B" if size >= 0.9995e9 else f"{size / 1e6:.3g}M"


def _over_cells(known: Mapping[tuple[float, float], Curve], period: float, cells: Count, parameters: Count) -> Number:
    """The gap of rounds of one of the known lengths."""
    size, many = np.log(parameters), np.log(np.maximum(cells, 1.0))
    total: Number = np.zeros(np.broadcast_shapes(np.shape(size), np.shape(many)))
    reached, before = 0.0, total
    for count in sorted(most for most, one in known if one == period):
        after = np.maximum(np.interp(size, *known[count, period]), before)
        share = np.clip((many - reached) / (math.log(count) - reached), 0.0, 1.0)
        total = total + share * (after - before)
        reached, before = math.log(count), after
    return total * np.maximum(many / reached, 1.0)
