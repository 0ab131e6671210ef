"""What a few measured runs tell of a stack: draws from the prior, each weighed by how well it explains them.

The host's floor, overlap and bubbles make step times kinked in the numbers, and a handful of rows leaves several explanations
standing: so widths, and which rows are bad, come from draws, which the engine evaluates at once (arrays). Given a draw, offset and
misfit are normal and are integrated in closed form; rows that may be bad are summed over. Weights are flattened until `LEAST` draws
count, so that many rows never rest on one lucky draw. The numbers themselves are the mode (`settled`): where the rows are silent
they stay what they were, which a mean of draws does not. Deterministic: same rows, same answer.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from shardmeter.core.record import record
from shardmeter.specs import Scenario
from shardmeter.study.calibrate.prior import SCALED, WIDTHS, Widths, covariance, loose, sampled
from shardmeter.study.fit.batch import Floats, batches, step_times
from shardmeter.study.fit.stacks import Prior
from shardmeter.study.intervals import LEVEL, NORMAL_90

DRAWS = 2000
LEAST = 40.0
"""Draws that must count."""
CHUNK = 250
STEPS = 12
SLIGHTLY = 0.02
"""Logarithm by which a number is moved to see its slope: wide enough to feel a kink nearby."""
_MANY = 40
"""Ways in which rows may be bad that are summed over at most."""


@record
class Ensemble:
    """Draws from the prior of one stack, and the step times that each gives to some runs."""

    scenarios: tuple[Scenario, ...]
    priors: dict[str, Prior]
    points: Floats
    """Logarithms of the numbers, shape (draws, numbers)."""
    times: Floats
    """Logarithms of step times, shape (draws, runs)."""
    near: Floats
    """Covariance of the misfit between the runs, shape (runs, runs)."""


@record
class Posterior:
    """A stack's numbers after some runs."""

    numbers: dict[str, float]
    """By name, the offset folded in: what a catalog row holds."""
    bounds: dict[str, tuple[float, float]]
    """The central `LEVEL` of each."""
    offset: float
    """Logarithm of the factor that all runs share."""
    draws: float
    """Draws that count."""
    bad: Floats
    """Probability that each row is bad, shape (rows,)."""
    weights: Floats
    """Of the draws, shape (draws,), summing to 1."""
    shifts: Floats
    """Offset of every draw, shape (draws,)."""
    own: float
    """Variance of log time that a future run has of its own: what is left of the offset, misfit and noise."""

    def deviation(self, times: Floats) -> Floats:
        """Standard deviation of log(measured / predicted) of runs whose log times under the draws are `times` (draws, runs)."""
        moved = times + self.shifts[:, None]
        mean = self.weights @ moved
        spread: Floats = np.sqrt(np.maximum(self.weights @ moved**2 - mean**2, 0.0) + self.own)
        return spread


def ensemble(
    scenarios: Sequence[Scenario], *, draws: int = DRAWS, advance: Callable[[int], None] = lambda _: None
) -> Ensemble:
    """Draw the numbers of the scenarios' stack and evaluate every scenario under each. `advance` is told draws done."""
    priors = loose(scenarios[0].stack)
    points = sampled(priors, draws)
    groups = batches(scenarios)
    parts = []
    for start in range(0, draws, CHUNK):
        part = np.exp(points[start : start + CHUNK])
        numbers = {name: part[:, at] for at, name in enumerate(priors)}
        parts.append(np.log(step_times(groups, len(scenarios), numbers)))
        advance(len(part))
    return Ensemble(
        scenarios=tuple(scenarios),
        priors=priors,
        points=points,
        times=np.concatenate(parts),
        near=covariance(scenarios, WIDTHS),
    )


def posterior(
    prior: Ensemble,
    rows: Sequence[int] | npt.NDArray[np.int64],
    measured: Floats,
    errors: Floats | None = None,
    widths: Widths = WIDTHS,
) -> Posterior:
    """Weigh the draws by the `measured` seconds of some of the ensemble's runs, `errors` their standard errors over themselves."""
    at = np.asarray(rows)
    count = len(at)
    left = np.log(measured) - prior.times[:, at]
    shared = prior.near[np.ix_(at, at)] + widths.offset**2
    noise = widths.noise**2 + (np.zeros(count) if errors is None else errors**2)
    weighed, shifts, remaining, ways = [], [], [], list(_ways(count))
    for bad in ways:
        inverse = np.linalg.inv(shared + np.diag(np.where(bad, widths.bad**2, noise)))
        gain = widths.offset**2 * inverse.sum(axis=0)
        odds = np.where(bad, widths.odds, 1.0 - widths.odds)
        weighed.append(
            np.log(odds).sum()
            + 0.5 * np.linalg.slogdet(inverse)[1]
            - 0.5 * np.einsum("si,ij,sj->s", left, inverse, left)
        )
        shifts.append(left @ gain)
        remaining.append(widths.offset**2 - widths.offset**2 * gain.sum())
    weights = _flattened(np.array(weighed))
    of_draws, of_ways = weights.sum(axis=0), weights.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        each = np.where(of_draws > 0.0, (weights * np.array(shifts)).sum(axis=0) / of_draws, 0.0)
    bad_rows: Floats = np.array(ways, dtype=float).T @ of_ways
    precision = (1.0 - bad_rows) / noise + bad_rows / widths.bad**2
    numbers, offset = settled(prior, at, np.log(measured), shared + np.diag(1.0 / precision), widths)
    own = float(of_ways @ np.array(remaining)) + widths.misfit**2 + widths.noise**2
    return Posterior(
        numbers=numbers, bounds=_bounds(prior, of_draws, each), offset=offset,
        draws=float(1.0 / np.sum(of_draws**2)), bad=bad_rows, weights=of_draws, shifts=each,
        own=own,
    )  # fmt: skip


def settled(
    prior: Ensemble, rows: npt.NDArray[np.int64], target: Floats, covariance_: Floats, widths: Widths
) -> tuple[dict[str, float], float]:
    """The numbers that explain log times best for what they cost in the prior, and the offset (folded into them): Levenberg-Marquardt
    from the centre, slopes by differences."""
    priors = list(prior.priors.values())
    groups = batches([prior.scenarios[int(row)] for row in rows])
    spread = np.array([one.spread for one in priors])
    centre = np.log([one.centre for one in priors])
    low, high = (np.log([getattr(one, end) for one in priors]) for end in ("low", "high"))
    inverse = np.linalg.inv(covariance_)
    root = np.linalg.cholesky(inverse).T

    def left(points: Floats) -> Floats:
        numbers = {name: np.exp(points[:, at]) for at, name in enumerate(prior.priors)}
        told: Floats = target - np.log(step_times(groups, len(target), numbers))
        return told

    point, damping = centre.copy(), 1e-3
    moved = _around(point, low, high)
    values = left(moved)
    best, cost = values[0], _cost(root @ values[0], (point - centre) / spread)
    for _ in range(STEPS):
        slopes = (values[1:] - values[0]) / np.diagonal(moved[1:] - moved[0])[:, None]
        system = np.vstack([root @ slopes.T, np.diag(1.0 / spread)])
        rest = np.concatenate([root @ best, (point - centre) / spread])
        normal = system.T @ system
        step = -np.linalg.solve(normal + damping * np.diag(np.diag(normal)), system.T @ rest)
        tried = np.clip(point + step, low, high)
        moved_next = _around(tried, low, high)
        values_next = left(moved_next)
        cost_next = _cost(root @ values_next[0], (tried - centre) / spread)
        if cost_next < cost:
            done = cost - cost_next < 1e-3 * (1.0 + cost)
            point, moved, values, best, cost = tried, moved_next, values_next, values_next[0], cost_next
            damping *= 0.3
            if done:
                break
        else:
            damping = max(damping, 1e-3) * 10.0
    offset = float(widths.offset**2 * inverse.sum(axis=0) @ best)
    return _folded(prior, point, offset), offset


def _around(point: Floats, low: Floats, high: Floats) -> Floats:
    """A point, and beside it each number moved a little, away from its nearer bound."""
    away = np.where(point < 0.5 * (low + high), SLIGHTLY, -SLIGHTLY)
    moved: Floats = np.vstack([point, point + np.diag(away)])
    return moved


def _cost(*parts: Floats) -> float:
    return float(sum(np.sum(part**2) for part in parts))


def interval(found: Posterior, times: Floats) -> tuple[float, float]:
    """(low, high) factors, at `LEVEL`, on the predicted step time of a run like those whose log times under the draws are `times`."""
    width = NORMAL_90 * float(np.sqrt(np.mean(found.deviation(times) ** 2)))
    return float(np.exp(-width)), float(np.exp(width))


def _ways(count: int) -> Iterator[tuple[bool, ...]]:
    """Which rows are bad: none, one, and so on up to half of them, as long as there are not too many ways."""
    told = 0
    for many in range(max(1, count // 2) + 1):
        chosen = list(itertools.combinations(range(count), many))
        if many > 1 and told + len(chosen) > _MANY:
            return
        told += len(chosen)
        for some in chosen:
            yield tuple(place in some for place in range(count))


def _flattened(logs: Floats) -> Floats:
    """Weights of (ways, draws) that sum to 1: as they are, or at the highest temperature that lets `LEAST` draws count."""

    def at(power: float) -> Floats:
        weights = np.exp(power * (logs - logs.max()))
        normal: Floats = weights / weights.sum()
        return normal

    def counting(weights: Floats) -> float:
        return float(1.0 / np.sum(weights.sum(axis=0) ** 2))

    if counting(at(1.0)) >= LEAST:
        return at(1.0)
    low, high = 0.0, 1.0
    for _ in range(30):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if counting(at(middle)) >= LEAST else (low, middle)
    return at(low)


def _folded(prior: Ensemble, logs: Floats, offset: float) -> dict[str, float]:
    """Numbers by name from their logarithms, all of them taking longer by the offset."""
    return {
        name: float(np.exp(value + SCALED.get(name, 0.0) * offset))
        for name, value in zip(prior.priors, logs, strict=True)
    }


def _bounds(prior: Ensemble, weights: Floats, shifts: Floats) -> dict[str, tuple[float, float]]:
    from shardmeter.study.fit.spread import weighted_quantiles

    ends = (1.0 - LEVEL) / 2.0, (1.0 + LEVEL) / 2.0
    found = {}
    for at, name in enumerate(prior.priors):
        low, high = weighted_quantiles(prior.points[:, at] + SCALED.get(name, 0.0) * shifts, weights, ends)
        found[name] = float(np.exp(low)), float(np.exp(high))
    return found
