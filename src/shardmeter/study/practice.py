"""What a class of runs takes beyond its steps: evaluation, restarts, ramps, input, idle machines. Hours as counted over hours of
the steps.

Classes are told from what is known before a run (`class_of`). A class has one factor, the exponential of the mean over its sources
of log(measured / predicted), shrunk to no loss at all by `SHRINK` sources and kept within `BOUNDS`; a source's mean is over its rows
of tier A. `data/runs/practice.csv` holds the factors and what each is without one source; `make fit` writes it. A row is always
predicted with the factor that has not seen its source. `predict` says the factor beside a deadline and a budget of a run of which nothing
is said that interrupts it; it goes into no other figure.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache

import numpy as np

from shardmeter import data
from shardmeter.core.record import record
from shardmeter.physics.practice import practice_factor

FIXED = ("dual_encoder", "vision", "diffusion")
"""Families whose samples are all of one size, so that samples are counted and not tokens."""
FILE = "runs/practice.csv"
TEAM, STEPS, TOWERS, AMPERE, HOPPER = "team", "steps", "towers", "ampere", "hopper"
CLASSES: Mapping[str, str] = {
    TEAM: "up to 16 accelerators: one team, one node or two",
    STEPS: "hours counted as steps times the time of a step, or by the trillion of tokens",
    TOWERS: "two towers and images: the input pipeline beside the model",
    AMPERE: "text on accelerators of before 2022 (A100, V100, TPU v4, MI250X)",
    HOPPER: "text on accelerators from 2022 on (H100 and what came after)",
}
"""In order: the first that fits a run."""
SMALL = 16.0
SHRINK = 1.0
"""Sources of factor one that every class is mixed with."""
BOUNDS = (1.0, 2.5)
LEVEL = 0.90
FEWEST = 8
"""Residuals that an interval needs."""
OLDER = re.compile(r"^(V100|A100|A10|TPU v[2-5]|MI250|RTX A|RTX 3|L4|Gaudi2)")
COUNTED = re.compile(
    r"iteration time|step time|counted by steps|steps? x|samples?_per_sec|tok/s|throughput|per\s+[0-9.]*\s*(t|trillion)\b"
)


def class_of(gpus: float, given: bool, family: str, accelerator: str, counted: str) -> str:
    """The class of a run. `counted`: what is said of how its hours are counted."""
    if family in FIXED:
        return TOWERS
    if COUNTED.search(counted.lower()):
        return STEPS
    if given and gpus <= SMALL:
        return TEAM
    return AMPERE if OLDER.search(accelerator) else HOPPER


@record
class Residual:
    """A scored row of tier A as the fit sees it."""

    source: str
    kind: str
    """Its class."""
    log: float
    """Of measured over predicted hours of the steps."""


def fitted(rows: Iterable[Residual], name: str, without: str = "") -> tuple[float, int]:
    """(factor of a class, sources it rests on), one source left out."""
    by_source: dict[str, list[float]] = {}
    for row in rows:
        if row.kind == name and row.source != without:
            by_source.setdefault(row.source, []).append(row.log)
    if not by_source:
        return BOUNDS[0], 0
    mean = float(np.mean([float(np.mean(logs)) for logs in by_source.values()]))
    return float(practice_factor(mean, float(len(by_source)), SHRINK, *BOUNDS)), len(by_source)


RESIDUALS_FILE = "runs/residuals.csv"


@cache
def residuals() -> Sequence[tuple[str, str, float]]:
    """(tier, source, log of measured over predicted hours by the factor without the source) of the rows of the last fit."""
    with data.open_text(RESIDUALS_FILE) as file:
        return tuple((line["tier"], line["source"], float(line["log"])) for line in csv.DictReader(file))


@cache
def table() -> Mapping[tuple[str, str], float]:
    """Factors by (class, source left out; empty for none)."""
    with data.open_text(FILE) as file:
        return {(line["class"], line["without"]): float(line["factor"]) for line in csv.DictReader(file)}


def factor(name: str, source: str = "") -> float:
    """The factor of a class, without the source's own rows where it has any."""
    known = table()
    return known.get((name, source), known.get((name, ""), BOUNDS[0]))


def spread(tier: str, source: str) -> tuple[float, float] | None:
    """(low, high) factors of the 90 % interval of one future run: from the residuals of other sources, of the same tier where it
    has enough of them; None where they are few.

    The ends are order statistics one further out than the quantile, for samples are finite."""
    known = [(own, log) for of, own, log in residuals() if of == tier] or [(own, log) for _, own, log in residuals()]
    others = np.sort([log for own, log in known if own != source])
    if len(others) < FEWEST:
        return None
    out = math.floor((len(others) + 1) * (1.0 - LEVEL) / 2.0)
    return math.exp(float(others[max(out - 1, 0)])), math.exp(float(others[len(others) - max(out, 1)]))
