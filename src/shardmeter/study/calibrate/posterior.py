"""What a few measured runs tell of a stack: draws from the prior, each weighed by how well it explains them.

The host's floor, overlap and bubbles make step times kinked in the numbers, and a handful of rows leaves several explanations
standing: so widths, and which rows are bad, come from draws, which the engine evaluates at once (arrays). Given a draw, offset and
misfit are normal and are integrated in closed form; rows that may be bad are summed over. Weights are flattened until `LEAST` draws
count, so that many rows never rest on one lucky draw. The numbers are then those that predict, for the plans around, what the draws
predict on average (`settled`); of one or two runs only part of the way is followed. Deterministic: same rows, same answer.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from shardmeter.core.record import changed, record
from shardmeter.specs import Scenario
from shardmeter.study.calibrate.prior import SCALED, TRUSTED, WIDTHS, Widths, covariance, loose, sampled
from shardmeter.study.fit.batch import Floats, batches, step_times
from shardmeter.study.fit.stacks import Prior
from shardmeter.study.intervals import LEVEL, NORMAL_90

Order: TypeAlias = npt.NDArray[np.int64]
DRAWS = 1000
LEAST = 40.0
"""Draws that must count."""
CHUNK = 250
STEPS = 8
CLOSE = 0.02
"""Logarithm of time by which numbers may miss what the draws predict."""
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


@record
class Given:
    """Measured runs: their places in an ensemble, their seconds, and the standard errors of these over themselves."""

    rows: Order
    measured: Floats
    errors: Floats | float = 0.0


def posteriors(prior: Ensemble, given: Sequence[Given], widths: Widths = WIDTHS) -> list[Posterior]:
    """What each of several sets of runs tells, alone."""
    weighed = [_weighed(prior, one, widths) for one in given]
    shares = [TRUSTED.get(len(one.rows), 1.0) for one in given]
    told = [share * (one.weights @ prior.times - prior.times[0]) for one, share in zip(weighed, shares, strict=True)]
    found = []
    for one, share, moved, point in zip(
        weighed, shares, told, settled(prior, [prior.times[0] + move for move in told]), strict=True
    ):
        mean = float(one.weights @ one.shifts)
        untrusted = (1.0 - share) ** 2 * float(np.mean((moved / share + mean) ** 2)) if share else 0.0
        found.append(
            changed(one, numbers=_folded(prior, point, share * mean), offset=share * mean, own=one.own + untrusted)
        )
    return found


def _weighed(prior: Ensemble, given: Given, widths: Widths) -> Posterior:
    """Draws weighed by the runs; the numbers are still to be found."""
    at = given.rows
    left = np.log(given.measured) - prior.times[:, at]
    shared = prior.near[np.ix_(at, at)] + widths.offset**2
    noise = widths.noise**2 + np.broadcast_to(given.errors, at.shape) ** 2
    logs, shifts, remaining, ways = [], [], [], list(_ways(len(at)))
    for bad in ways:
        sure = np.linalg.inv(shared + np.diag(np.where(bad, widths.bad**2, noise)))
        gain = widths.offset**2 * sure.sum(axis=0)
        odds = np.log(np.where(bad, widths.odds, 1.0 - widths.odds)).sum()
        logs.append(odds + 0.5 * np.linalg.slogdet(sure)[1] - 0.5 * ((left @ sure) * left).sum(axis=1))
        shifts.append(left @ gain)
        remaining.append(widths.offset**2 * (1.0 - gain.sum()))
    weights = _flattened(np.array(logs))
    of_draws, of_ways = weights.sum(axis=0), weights.sum(axis=1)
    each = (weights * np.array(shifts)).sum(axis=0) / np.maximum(of_draws, np.finfo(float).tiny)
    bad_rows: Floats = np.array(ways, dtype=float).T @ of_ways
    own = float(of_ways @ np.array(remaining)) + widths.misfit**2 + widths.noise**2 + widths.unlike**2
    return Posterior(
        numbers={}, bounds=_bounds(prior, of_draws, each), offset=0.0, draws=float(1.0 / np.sum(of_draws**2)), bad=bad_rows,
        weights=of_draws, shifts=each, own=own,
    )  # fmt: skip


@record
class _Place:
    """Where one search stands."""

    point: Floats
    around: Floats
    left: Floats
    """Of the target at every point around, over `CLOSE`, shape (1 + numbers, plans)."""
    cost: float
    damping: float = 1e-3
    done: bool = False


def settled(prior: Ensemble, targets: Sequence[Floats]) -> list[Floats]:
    """For every set of log times of the ensemble's plans the numbers (as logarithms) that predict them, up to `CLOSE` and what they cost
    in the prior. Levenberg-Marquardt from the centre, slopes by differences, all sets together in one evaluation a step."""
    priors = list(prior.priors.values())
    centre, spread = np.log([one.centre for one in priors]), np.array([one.spread for one in priors])
    low, high = (np.log([getattr(one, end) for one in priors]) for end in ("low", "high"))
    groups = batches(prior.scenarios)

    def places(points: Sequence[Floats], which: Sequence[Floats]) -> list[_Place]:
        around = [_around(point, low, high) for point in points]
        stacked = np.exp(np.concatenate(around))
        numbers = {name: stacked[:, at] for at, name in enumerate(prior.priors)}
        times = np.log(step_times(groups, len(prior.scenarios), numbers)).reshape(len(which), -1, len(prior.scenarios))
        found = []
        for point, near, told, target in zip(points, around, times, which, strict=True):
            left = (target - told) / CLOSE
            cost = float(left[0] @ left[0] + np.sum(((point - centre) / spread) ** 2))
            found.append(_Place(point=point, around=near, left=left, cost=cost))
        return found

    at = places([centre] * len(targets), targets)
    for _ in range(STEPS):
        open_ = [place for place in range(len(targets)) if not at[place].done]
        if not open_:
            break
        steps = [_step(at[place], (at[place].point - centre) / spread**2, spread) for place in open_]
        tried = [np.clip(at[place].point + step, low, high) for place, step in zip(open_, steps, strict=True)]
        for place, new in zip(open_, places(tried, [targets[place] for place in open_]), strict=True):
            old = at[place]
            if new.cost < old.cost:
                at[place] = changed(new, damping=0.3 * old.damping, done=old.cost - new.cost < 1e-2 * (1.0 + old.cost))
            else:
                at[place] = changed(old, damping=10.0 * max(old.damping, 1e-2))
    return [place.point for place in at]


def _step(at: _Place, pull: Floats, spread: Floats) -> Floats:
    """The damped step of one search; `pull` is the slope of the prior's cost."""
    slopes = (at.left[1:] - at.left[0]) / np.diagonal(at.around[1:] - at.around[0])[:, None]
    normal = slopes @ slopes.T + np.diag(1.0 / spread**2)
    step: Floats = -np.linalg.solve(normal + at.damping * np.diag(np.diag(normal)), slopes @ at.left[0] + pull)
    return step


def _around(point: Floats, low: Floats, high: Floats) -> Floats:
    """A point, and beside it each number moved a little, away from its nearer bound."""
    away = np.where(point < 0.5 * (low + high), SLIGHTLY, -SLIGHTLY)
    moved: Floats = np.vstack([point, point + np.diag(away)])
    return moved


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
