"""90 % predictive intervals for one future run, from residuals that `make fit` wrote (`data/fit_spread.csv`)."""

from __future__ import annotations

import csv
import functools
import math

from shardmeter import data

SPREAD_FILE = "fit_spread.csv"
LEVEL = 0.90
FITTED, OTHER = "(fitted, few rows)", "(any other)"
RATIO = "step_time_ratio"
"""The quantity of `ratio`."""
NORMAL_90 = 1.6449
"""Half-width of the central 90 % of a normal distribution, in standard deviations."""


@functools.cache
def _rows() -> dict[tuple[str, str], tuple[float, float, str]]:
    if not data.file(SPREAD_FILE).is_file():
        return {}
    with data.open_text(SPREAD_FILE) as file:
        return {
            (line["quantity"], line["stack"]): (float(line["low"]), float(line["high"]), line["basis"])
            for line in csv.DictReader(file)
        }


def _row(quantity: str, stack: str, fitted: bool) -> tuple[float, float, str] | None:
    rows = _rows()
    return (
        rows.get((quantity, stack)) or rows.get((quantity, FITTED if fitted else OTHER)) or rows.get((quantity, OTHER))
    )


def basis(quantity: str, stack: str, fitted: bool) -> str:
    """What the factors of `quantity` rest on, in words; empty before any fit."""
    found = _row(quantity, stack, fitted)
    return "" if found is None else found[2]


def factors(quantity: str, stack: str, fitted: bool) -> tuple[float, float] | None:
    """(low, high) factors on a prediction of `quantity` (step_time, memory) under `stack`; None before any fit."""
    found = _row(quantity, stack, fitted)
    return None if found is None else (math.exp(found[0]), math.exp(found[1]))


def probability_below(limit: float, predicted: float, quantity: str, stack: str, fitted: bool) -> float | None:
    """Probability that a quantity predicted as `predicted` stays at or below `limit`: log-normal with the interval's centre
    and width. None before any fit. Leaves out: that the worst of many ranks decides."""
    found = factors(quantity, stack, fitted)
    if found is None or predicted <= 0.0:
        return None
    return probability_between(limit, predicted * found[0], predicted * found[1])


def probability_between(limit: float, low: float, high: float) -> float:
    """Probability that a quantity with this 90 % interval stays at or below `limit`: log-normal through both ends. Leaves out: what of it
    is certain."""
    if not 0.0 < low < high:
        return float(high <= limit)
    centre = (math.log(low) + math.log(high)) / 2.0
    deviation = (math.log(high) - math.log(low)) / (2.0 * NORMAL_90)
    return 0.5 * math.erfc(-(math.log(limit) - centre) / (deviation * math.sqrt(2.0)))


def prediction_within(limit: float, probability: float, quantity: str, stack: str, fitted: bool) -> float | None:
    """The largest prediction that stays at or below `limit` with that probability: the inverse of `probability_below`. None
    before any fit. Leaves out: what that does."""
    import statistics  # takes as long as a prediction to import, and few questions need it

    found = factors(quantity, stack, fitted)
    if found is None:
        return None
    low, high = math.log(found[0]), math.log(found[1])
    centre, deviation = (low + high) / 2.0, (high - low) / (2.0 * NORMAL_90)
    return limit * math.exp(-centre - deviation * statistics.NormalDist().inv_cdf(probability))


def ratio() -> float | None:
    """Half-width of the 90 % interval of log(measured ratio / predicted ratio) of two good plans of one question: what the two
    have in common, and what is wrong with it, cancels. None before any fit."""
    found = _row(RATIO, OTHER, fitted=False)
    return None if found is None else found[1]


def ratio_basis() -> str:
    """What `ratio` rests on, in words; empty before any fit."""
    return basis(RATIO, OTHER, fitted=False)
