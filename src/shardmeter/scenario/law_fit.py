"""The constants of a law of loss that miss a table of runs least, and those of rows drawn again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from shardmeter.core.record import record
from shardmeter.physics.convergence import law_floor, law_loss
from shardmeter.specs import LossLaw

if TYPE_CHECKING:
    import numpy.typing as npt

    Numbers = npt.NDArray[np.float64]

FREE = 8
"""Different runs from which on the exponents are fitted too; below them they are those of `SHAPE`."""
SHAPE = "besiroglu-2024"
DRAWS, SEED = 100, 0
"""Refits to rows drawn with replacement."""
ROBUST = 1e-3
"""Log of the loss beyond which a residual counts by its size and not by its square (Hoffmann 2022, approach 3)."""
EXPONENTS = (0.02, 1.5)
"""Least and most of α and β."""
SMALL = 1e-6
"""Share of the median loss below which a term of the law is none."""
ROUNDS, STILL = 400, 1e-7
"""Steps of a fit at most; it ends where none of the last `PATIENCE` steps lowers its sum by this share."""
PATIENCE = 10


@record
class Fit:
    """What a table says of L = E + A/N^α + B/D^β."""

    best: tuple[float, ...]
    """(E, A, α, B, β, γ = 1) of all rows."""
    draws: tuple[tuple[float, ...], ...]
    """The same of rows drawn with replacement."""
    missed: Numbers
    """Log of predicted over measured loss, a row."""
    shares: tuple[float, float]
    """A/N^α and B/D^β in the middle of the table over the median loss."""
    is_free: bool
    """Whether the exponents were fitted."""


def fit(table: Numbers, shape: LossLaw) -> Fit:
    """The law of (parameters, tokens, loss) rows with the least robust sum of squares of log residuals; `shape` has the exponents of small
    tables. Leaves out: other forms, and minima that are not reached from a law whose terms are alike in the middle of the table."""
    centre = np.log(table[:, :2]).mean(axis=0)
    rows = np.column_stack([np.exp(np.log(table[:, :2]) - centre), table[:, 2]])
    is_free = len(np.unique(table[:, :2], axis=0)) >= FREE
    median = float(np.median(table[:, 2]))
    start = np.array([[*np.log(median * np.array([0.6, 0.2, 0.2])), float(shape.alpha), float(shape.beta)]])
    bounds = _bounds(median)
    best = _least(rows, np.ones((1, len(rows))), start, bounds, is_free=is_free)[0]
    counts = _draws(table)
    again = _least(rows, counts, np.tile(best, (len(counts), 1)), bounds, is_free=is_free)
    shares = np.exp(best[1:3]) / median
    return Fit(
        best=_constants(best, centre), draws=tuple(_constants(one, centre) for one in again), missed=_off(rows, best[None])[0], is_free=is_free,
        shares=(float(shares[0]), float(shares[1])),
    )  # fmt: skip


def is_idle(made: Fit) -> tuple[bool, bool]:
    """Whether parameters, and tokens, do nothing by a fit: no term is left of them, or its exponent is at the least of `EXPONENTS`."""
    least = EXPONENTS[0] * 1.01
    alpha, beta = made.best[2], made.best[4]
    return made.shares[0] <= 10.0 * SMALL or alpha <= least, made.shares[1] <= 10.0 * SMALL or beta <= least


def _constants(x: Numbers, centre: Numbers) -> tuple[float, ...]:
    """(E, A, α, B, β, 1) from (ln E, ln A/N₀^α, ln B/D₀^β, α, β) with the logs of N₀ and D₀."""
    e, a, b, alpha, beta = map(float, x)
    return (
        float(np.exp(e)), float(np.exp(a + alpha * centre[0])), alpha, float(np.exp(b + beta * centre[1])), beta, 1.0,
    )  # fmt: skip


def _draws(table: Numbers) -> Numbers:
    """How often each row is drawn: one line for every draw that has two sizes and two lengths."""
    rng, found = np.random.default_rng(SEED), []
    for _ in range(DRAWS):
        drawn = rng.integers(0, len(table), len(table))
        if min(len(set(table[drawn, 0])), len(set(table[drawn, 1]))) >= 2:
            found.append(np.bincount(drawn, minlength=len(table)))
    return np.array(found, dtype=float).reshape(-1, len(table))


def _bounds(median: float) -> tuple[Numbers, Numbers]:
    """Least and most of (ln E, ln A/N₀^α, ln B/D₀^β, α, β): E is at most the median loss, a term ten of them."""
    small, large = np.log(median * SMALL), np.log(median * 10.0)
    low = np.array([small, small, small, EXPONENTS[0], EXPONENTS[0]])
    return low, np.array([np.log(median), large, large, EXPONENTS[1], EXPONENTS[1]])


def _off(rows: Numbers, x: Numbers) -> Numbers:
    """Log of predicted over measured loss: (fits, rows). Rows have N/N₀ and D/D₀: around the middle A and α are hardly correlated."""
    e, a, b, alpha, beta = _columns(x)
    made: Numbers = np.log(np.asarray(law_loss(rows[:, 0], rows[:, 1], e, a, alpha, b, beta, 1.0)) / rows[:, 2])
    return made


def _columns(x: Numbers) -> tuple[Numbers, ...]:
    """(E, A/N₀^α, B/D₀^β, α, β) of fits, each (fits, 1)."""
    return (*np.exp(x[:, :3]).T[..., None], *x[:, 3:].T[..., None])


def _slopes(rows: Numbers, x: Numbers) -> Numbers:
    """Derivatives of `_off`, (fits, rows, 5): shares of the terms in the loss, and those times the logs of size and length."""
    e, a, b, alpha, beta = _columns(x)
    of_size, of_tokens = law_floor(rows[:, 0], 0.0, a, alpha, 1.0), law_floor(rows[:, 1], 0.0, b, beta, 1.0)
    size, tokens = np.log(rows[:, :2]).T
    terms = [e + 0.0 * of_size, of_size, of_tokens, -size * of_size, -tokens * of_tokens]
    made: Numbers = np.stack(terms, axis=-1) / (e + of_size + of_tokens)[..., None]
    return made


def _sum(off: Numbers, counts: Numbers) -> Numbers:
    """The robust sum of squares of every fit (Huber)."""
    size = np.abs(off)
    made: Numbers = (counts * np.where(size <= ROBUST, off**2, ROBUST * (2.0 * size - ROBUST))).sum(axis=1)
    return made


def _least(rows: Numbers, counts: Numbers, x: Numbers, bounds: tuple[Numbers, Numbers], *, is_free: bool) -> Numbers:
    """Fits (fits, 5) of the rows, each drawn `counts` (fits, rows) times, all at once from the starts `x`: damped least squares with
    weights anew at every step (Levenberg 1944, Huber 1964)."""
    damping, history = np.full(len(x), 1e-2), []
    off = _off(rows, x)
    value = _sum(off, counts)
    for _ in range(ROUNDS):
        weights = counts / np.maximum(np.abs(off) / ROBUST, 1.0)
        tried = _stepped(x, _slopes(rows, x), weights, off, damping, bounds, is_free=is_free)
        missed = _off(rows, tried)
        found = _sum(missed, counts)
        better = found < value
        x, off = np.where(better[:, None], tried, x), np.where(better[:, None], missed, off)
        value, damping = (
            np.where(better, found, value),
            np.clip(np.where(better, damping / 5.0, damping * 4.0), 1e-9, 1e9),
        )
        history.append(value)
        if len(history) > PATIENCE and np.all(history[-PATIENCE - 1] - value <= STILL * value + 1e-24):
            break
    return x


def _stepped(
    x: Numbers,
    slopes: Numbers,
    weights: Numbers,
    off: Numbers,
    damping: Numbers,
    bounds: tuple[Numbers, Numbers],
    *,
    is_free: bool,
) -> Numbers:
    """The next point of every fit: what is held (exponents of few rows, a constant that would leave its bounds) does not move."""
    pull = np.einsum("krc,kr->kc", slopes, weights * off)
    moves = ~(((x <= bounds[0]) & (pull > 0.0)) | ((x >= bounds[1]) & (pull < 0.0)))
    moves[:, 3:] &= is_free
    curved = np.einsum("krc,krd->kcd", slopes * weights[..., None], slopes) * (moves[:, :, None] & moves[:, None, :])
    diagonal = np.einsum("kcc->kc", curved)
    diagonal += damping[:, None] * diagonal + np.where(moves, 1e-12, 1.0)
    step = np.linalg.solve(curved, (pull * moves)[..., None])[..., 0]
    made: Numbers = np.clip(x - np.clip(step, -1.0, 1.0), *bounds)
    return made
