"""Times along sizes, and the few numbers that explain them: a posterior that does not take twenty sizes for twenty witnesses.

Seconds of a collective lie on a curve over its size. What a form of a few numbers misses there is alike from one size to the next
(protocols and channels change over some doublings). So every row counts alike in the fit, and intervals are as wide as those of
fewer rows that were independent: as many as the likeness of neighbouring residuals leaves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from shardmeter.core.record import changed, record

Floats: TypeAlias = npt.NDArray[np.float64]
Bools: TypeAlias = npt.NDArray[np.bool_]
Model: TypeAlias = Callable[[Floats, float], Floats]
"""(draws, numbers) in logarithms, and a factor on every size → (draws, rows): logarithms of seconds."""

LEAST_NOISE = 0.01
"""Spread of one row about any curve at least: what runs of one benchmark differ by."""
EVEN = (0.02, 0.06, 0.2, 0.6, 1.0)
"""What a row of no start-up scatters (squared) beside one that is all start-up, each as likely before. Runs of one benchmark scatter alike at
all sizes; what the form misses is a matter of short messages: plateaus of one network lie 1 to 4 % about a curve, starts 20 to 30 %."""
LARGER = 1.02
"""Factor on the size by which the share of start-up is found."""
SOFT = 0.05
"""How far a number goes beyond its ceiling, in logarithm: rows that press on it show."""
ROUNDS = 15
LONGEST_STRIDE = 1.0
"""Most that a number moves in one round of the search, in logarithm."""
DRAWS = 2000
PASSES = 5
"""Times that draws are made about what the last ones found."""
FATTER = 1.25
"""Spread of the draws over what was found, so that tails are drawn too."""
FREEDOM = 5.0
"""Degrees of freedom of the distribution that is drawn from."""
NEIGHBOURS = 3
"""Rows on each side that a row is held against."""
APART, AT_LEAST = 5.0, 0.35
"""A row is strange that is off by so many of the usual deviations from its neighbours, and by more than e^0.35 − 1 = 42 %."""


@record
class Rows:
    """What was measured: all arrays of shape (rows,), by curve and size."""

    curve: npt.NDArray[np.int64]
    """Which curve a row is of."""
    doublings: Floats
    """Logarithm of the size to base 2."""
    seconds: Floats
    """Logarithm."""


@record
class Known:
    """What is known of the numbers before: all arrays of shape (numbers,), logarithms."""

    prior: Floats
    spread: Floats
    """Standard deviation."""
    ceiling: Floats
    """What a number hardly passes; infinite where there is no such."""

    def part(self, kept: Bools) -> Known:
        """Of some of the numbers."""
        return Known(prior=self.prior[kept], spread=self.spread[kept], ceiling=self.ceiling[kept])


@record
class Posterior:
    """What rows say of the numbers."""

    best: Floats
    """(numbers,): the likeliest together."""
    draws: Floats
    """(draws, numbers), logarithms, each as likely as any other."""
    noise: float
    """Spread of the rows about the curves."""
    alike: float
    """Rows that are worth one: 1 where residuals are independent."""
    effective: float
    """Draws that the weighted ones are worth."""


def strange(rows: Rows, expected: Floats) -> Bools:
    """Rows whose distance from what is expected is unlike that of their neighbours on the curve: (rows,).

    A curve that lies wrong as a whole, or bends where the form does not, has no strange row; a spike is one. Leaves out: curves
    of less than five rows, on which nothing is usual."""
    found = np.zeros(rows.seconds.shape, dtype=bool)
    for one in np.unique(rows.curve):
        at = np.flatnonzero(rows.curve == one)
        at = at[np.argsort(rows.doublings[at], kind="stable")]
        if len(at) < 5:
            continue
        off = (rows.seconds - expected)[at]
        apart = np.array([
            here - np.median(np.concatenate((off[max(0, i - NEIGHBOURS) : i], off[i + 1 : i + 1 + NEIGHBOURS])))
            for i, here in enumerate(off)
        ])  # fmt: skip
        usual = 1.4826 * np.median(np.abs(apart))
        found[at] = np.abs(apart) > max(APART * usual, AT_LEAST)
    return found


def likeness(rows: Rows, residuals: Floats) -> float:
    """Rows that are worth one independent row: 1 + 2·Σ of the correlations of residuals with the next, the one after …, up to the first
    that is not positive. Never less than 1."""
    power = float(np.mean(residuals**2))
    total, lag = 1.0, 1
    while power > 0.0:
        pairs = np.flatnonzero(rows.curve[lag:] == rows.curve[:-lag])
        if len(pairs) < 3:
            break
        share = float(np.mean(residuals[pairs] * residuals[pairs + lag])) / power
        if share <= 0.0:
            break
        total, lag = total + 2.0 * share, lag + 1
    return total


def start_up(model: Model, centre: Floats) -> Floats:
    """Share of start-up in the time of every row, (rows,): 1 less what a larger message takes longer."""
    here, larger = (model(centre[None, :], factor)[0] for factor in (1.0, LARGER))
    found: Floats = np.clip(1.0 - (larger - here) / np.log(LARGER), 0.0, 1.0)
    return found


def posterior(model: Model, rows: Rows, known: Known, *, seed: int = 0) -> Posterior:
    """What `rows` say of the numbers.

    Search by linear steps, then weighted draws about what it finds: exact up to their number, bends included. How much rows scatter is not
    known before; long messages do less than short ones. The same seed gives the same draws. Leaves out: second answers far from the
    first."""
    target, centre, covers = _settled(model, rows, known, known.prior)
    random = np.random.default_rng(seed)
    best, top = centre, float(target.of(centre[None, :])[0])
    draws = weights = np.empty(0)
    for _ in range(PASSES):
        draws, density = _drawn(random, centre, covers * FATTER**2)
        likely = target.of(draws)
        if likely.max() > top:
            best, top = draws[int(np.argmax(likely))], float(likely.max())
        weights = np.exp(likely - density - np.max(likely - density))
        weights = weights / weights.sum()
        centre = weights @ draws
        covers = ((draws - centre) * weights[:, None]).T @ (draws - centre) + 1e-8 * np.eye(len(centre))
    kept = random.choice(len(draws), size=len(draws), p=weights)
    noise = float(np.sqrt(np.mean((rows.seconds - model(best[None, :], 1.0)[0]) ** 2)))
    return Posterior(
        best=best, draws=draws[kept], noise=noise, alike=target.alike, effective=float(1.0 / np.sum(weights**2))
    )


def likeliest(model: Model, rows: Rows, known: Known, first: Floats) -> Floats:
    """The likeliest numbers alone, (numbers,), searched from `first`; the rest as `posterior`."""
    return _settled(model, rows, known, first)[1]


def _settled(model: Model, rows: Rows, known: Known, first: Floats) -> tuple[_Target, Floats, Floats]:
    """How rows scatter, and about it the likeliest numbers and their covariance."""
    target = _Target(model=model, rows=rows, known=known, scatter=np.ones((1, len(rows.seconds))), alike=1.0)
    centre, covers = target.search(first)
    for _ in range(2):
        starting = start_up(model, centre)
        target = changed(target, scatter=np.sqrt([even + (1.0 - even) * starting for even in EVEN]))
        residuals = rows.seconds - model(centre[None, :], 1.0)[0]
        target = changed(target, alike=likeness(rows, residuals / target.likely_scatter(residuals)))
        centre, covers = target.search(centre)
    return target, centre, covers


@record
class _Target:
    """What a posterior is made of."""

    model: Model
    rows: Rows
    known: Known
    scatter: Floats
    """How much rows scatter beside others: (kinds, rows), each kind as likely before."""
    alike: float

    def of(self, draws: Floats) -> Floats:
        """Logarithm of prior times likelihood, (draws,): the spread of the rows is unknown, all values of it as likely before."""
        kinds = self._kinds(self.rows.seconds - self.model(draws, 1.0))
        top = kinds.max(axis=0)
        likely = top + np.log(np.exp(kinds - top).sum(axis=0))
        before = np.sum(((draws - self.known.prior) / self.known.spread) ** 2 + (self.above(draws) / SOFT) ** 2, axis=1)
        found: Floats = likely - 0.5 * before
        return found

    def likely_scatter(self, residuals: Floats) -> Floats:
        """The kind of scatter, (rows,), that residuals (rows,) are likeliest of."""
        found: Floats = self.scatter[int(np.argmax(self._kinds(residuals[None, :])[:, 0]))]
        return found

    def _kinds(self, residuals: Floats) -> Floats:
        """Logarithm of the likelihood of residuals (draws, rows), by kind of scatter: (kinds, draws)."""
        squares = residuals**2 @ (self.scatter.T**-2) / residuals.shape[1] + LEAST_NOISE**2
        each = np.log(squares.T) + 2.0 * np.mean(np.log(self.scatter), axis=1)[:, None]
        found: Floats = -0.5 * residuals.shape[1] / self.alike * each
        return found

    def above(self, draws: Floats) -> Floats:
        """By how much draws pass the ceiling."""
        return np.maximum(draws - self.known.ceiling, 0.0)

    def search(self, centre: Floats) -> tuple[Floats, Floats]:
        """Where it is highest, by linear steps from `centre`, and the covariance there."""
        best, found = -np.inf, (centre, np.diag(self.known.spread**2))
        for _ in range(ROUNDS):
            expected, slopes = _linear(self.model, centre)
            scatter = self.likely_scatter(self.rows.seconds - expected)
            off, slopes = (self.rows.seconds - expected) / scatter, slopes / scatter[:, None]
            noise = (float(np.mean(off**2)) + LEAST_NOISE**2) * self.alike
            above = self.above(centre)
            covers: Floats = np.linalg.inv(
                slopes.T @ slopes / noise + np.diag(self.known.spread**-2 + (above > 0.0) / SOFT**2)
            )
            here = float(self.of(centre[None, :])[0])
            if here > best:
                best, found = here, (centre, covers)
            stride = covers @ (
                slopes.T @ off / noise + (self.known.prior - centre) / self.known.spread**2 - above / SOFT**2
            )
            longest = float(np.max(np.abs(stride)))
            if longest < 1e-3:
                break
            centre = centre + stride * min(1.0, LONGEST_STRIDE / longest)
        return found


def _linear(model: Model, centre: Floats) -> tuple[Floats, Floats]:
    """The model at a point, (rows,), and its slopes, (rows, numbers)."""
    step, size = 0.02, len(centre)
    points = np.concatenate((centre[None, :], centre + step * np.eye(size), centre - step * np.eye(size)))
    values = model(points, 1.0)
    return values[0], ((values[1 : 1 + size] - values[1 + size :]) / (2.0 * step)).T


def _drawn(random: np.random.Generator, centre: Floats, covers: Floats) -> tuple[Floats, Floats]:
    """Draws of a Student distribution, and the logarithm of its density up to a constant."""
    size = len(centre)
    plain = random.standard_normal((DRAWS, size))
    away = plain * np.sqrt(FREEDOM / random.chisquare(FREEDOM, DRAWS))[:, None]
    density = -0.5 * (FREEDOM + size) * np.log1p(np.sum(away**2, axis=1) / FREEDOM)
    return centre + away @ np.linalg.cholesky(covers).T, density
