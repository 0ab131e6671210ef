"""The fit of one stack: least squares on log time, soft-L1, wide log-normal priors, bounds, three starts of the launch floor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from shardmeter.core.record import record
from shardmeter.study.fit.batch import Batch, step_times

Floats = npt.NDArray[np.float64]


@record
class Prior:
    """Where a number is expected before any row is seen: centre, log-standard-deviation, hard bounds."""

    centre: float
    spread: float
    low: float
    high: float


PRIORS: dict[str, Prior] = {
    "gemm_factor": Prior(centre=0.95, spread=0.15, low=0.45, high=1.05),
    "traffic_factor": Prior(centre=1.2, spread=0.5, low=0.4, high=8.0),
    "launch_overhead": Prior(centre=25e-6, spread=1.0, low=2e-6, high=100e-6),
    "nic_factor": Prior(centre=0.75, spread=0.4, low=0.05, high=1.1),
    "contention": Prior(centre=0.40, spread=0.7, low=0.02, high=0.80),
}
"""Centres and spreads: quartiles of an independent pilot model on 15 stacks; bounds: physics (nothing beats its peak)."""
WHERE_SEEN: dict[str, Prior] = {"collective_overhead": Prior(centre=3e-4, spread=0.7, low=1e-5, high=2e-3)}
"""Numbers that only stacks have whose row holds one above zero: fitted there, nought in every other and in the stand-in."""
WITH_EXPERTS: dict[str, Prior] = {"dispatch_wait": Prior(centre=5e-4, spread=1.0, low=1e-5, high=1e-2)}
"""Numbers that only rows with routed experts can show: fitted where a stack has `EXPERT_ROWS` of them."""
EXPERT_ROWS = 4
STARTS = (10e-6, 30e-6, 75e-6)
"""A launch floor that is not active has no gradient: begin from several."""
NOISE = 0.04
"""Log-spread of one measured row about its model: release noise (3 %) and what the physics leaves out."""


@record
class Fit:
    """Fitted numbers by name, and the residual cost of the best start."""

    numbers: dict[str, float]
    cost: float
    rows: int


def fit(
    groups: Sequence[Batch],
    measured: Floats,
    priors: Mapping[str, Prior] = PRIORS,
    starts: Sequence[float] = STARTS,
) -> Fit:
    """Fit the numbers named by `priors` to `measured` step times of the rows in `groups`.

    Deterministic: same rows, same result. Needs SciPy (the `fit` extra)."""
    from scipy.optimize import least_squares

    names = list(priors)
    centre = np.array([np.log(priors[n].centre) for n in names])
    spread = np.array([priors[n].spread for n in names])
    low = np.array([np.log(priors[n].low) for n in names])
    high = np.array([np.log(priors[n].high) for n in names])
    target = np.log(measured)
    root = 1.0 / NOISE

    def residuals_of(points: Floats) -> Floats:
        numbers = {name: np.exp(points[:, i]) for i, name in enumerate(names)}
        errors = (np.log(step_times(groups, len(measured), numbers)) - target) * root
        both: Floats = np.concatenate([errors, (points - centre) / spread], axis=1)
        return both

    def soft(values: Floats) -> Floats:
        robust: Floats = np.sign(values) * np.sqrt(2.0 * (np.sqrt(1.0 + values * values) - 1.0))
        return robust

    def objective(point: Floats) -> Floats:
        errors: Floats = residuals_of(point[None, :])[0]
        return soft(errors)

    def jacobian(point: Floats) -> Floats:
        step = 1e-5
        moved = np.vstack([point, point + step * np.eye(len(point))])
        values = soft(residuals_of(moved))
        slopes: Floats = (values[1:] - values[0]).T / step
        return slopes

    best: Fit | None = None
    for start in starts:
        begin = centre.copy()
        if "launch_overhead" in names:
            begin[names.index("launch_overhead")] = np.log(start)
        found = least_squares(
            objective, np.clip(begin, low + 1e-6, high - 1e-6), jac=jacobian, bounds=(low, high), max_nfev=60
        )
        if best is None or found.cost < best.cost - 1e-9:
            best = Fit(
                numbers={n: float(np.exp(v)) for n, v in zip(names, found.x, strict=True)},
                cost=float(found.cost), rows=len(measured),
            )  # fmt: skip
    if best is None:
        raise ValueError("a fit needs at least one start")
    return best
