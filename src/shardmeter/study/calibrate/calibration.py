"""`calibrate`: what a user's own runs say about their stack, as an answer and as rows of a user profile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from shardmeter.core.errors import BadScenario, Violation
from shardmeter.core.record import changed, record
from shardmeter.specs import Scenario
from shardmeter.specs.stack import Stack
from shardmeter.study import trust
from shardmeter.study.calibrate import profile
from shardmeter.study.calibrate.observation import MOST, Observation
from shardmeter.study.calibrate.posterior import Given, Posterior, ensemble, interval, posteriors
from shardmeter.study.calibrate.prior import around, loose, teaches
from shardmeter.study.fit.batch import Floats, batches, step_times
from shardmeter.study.intervals import LEVEL

SUSPECT = 0.5
"""Probability above which a row is said to be bad."""
FEW, NEARBY = 8, 24
"""Plans beside the measured ones that the numbers are settled on: of every run up to so many, and in all."""


@record
class Calibration:
    """A stack before and after its user's runs."""

    observations: tuple[Observation, ...]
    before: Stack
    after: Stack
    found: Posterior
    factors: tuple[float, float]
    """What holds 90 % of measured over predicted step times, after."""
    predicted: tuple[tuple[float, float], ...]
    """Seconds of every run, as the stack predicted it before and after."""
    prior_bounds: dict[str, tuple[float, float]]
    """The central 90 % of every number before."""

    def __repr__(self) -> str:
        """One line."""
        low, high = self.factors
        runs = len(self.observations)
        return f"<Calibration {self.after.name}: {runs} run{'s' * (runs > 1)}, step time within {low:.2f} to {high:.2f} of predicted>"

    def __str__(self) -> str:
        """The page that the command prints."""
        import shardmeter

        return shardmeter.page(self)

    def to_dict(self) -> dict[str, Any]:
        """The `calibrate` JSON: SI units, fractions; errors are predicted over measured, less one."""
        runs = [
            {
                "run": one.id,
                "source": one.source or None,
                "measured_s": float(one.step_time),
                "standard_error": float(one.error),
                "predicted_before_s": before,
                "predicted_after_s": after,
                "error_before": before / float(one.step_time) - 1.0,
                "error_after": after / float(one.step_time) - 1.0,
                "bad_probability": bad,
            }
            for one, (before, after), bad in zip(self.observations, self.predicted, self.bad, strict=True)
        ]
        numbers = [
            {
                "number": name,
                "before": float(getattr(self.before, name)),
                "before_interval": list(self.prior_bounds[name]),
                "after": value,
                "after_interval": list(self.found.bounds[name]),
            }
            for name, value in self.found.numbers.items()
        ]
        return {
            "stack": self.after.name,
            "from": self.before.name,
            "level": LEVEL,
            "step_time_factors_before": self._paces(),
            "step_time_factors_after": list(self.factors),
            "offset": float(np.expm1(self.found.offset)),
            "numbers": numbers,
            "runs": runs,
            "assumptions": list(dict.fromkeys(text for one in self.observations for text in one.scenario.assumptions)),
            "warnings": self._warnings(),
        }

    @property
    def bad(self) -> list[float | None]:
        """Probability that each run is bad; None for one that tells nothing."""
        told = iter(self.found.bad)
        return [float(next(told)) if teaches(one.scenario) else None for one in self.observations]

    def _paces(self) -> list[float] | None:
        found = trust.paces(changed(self.observations[0].scenario, stack=self.before))
        return None if found is None else [found[0][0], found[1][0]]

    def _warnings(self) -> list[str]:
        others = "the others" if len(self.observations) > 1 else f"what is known of {self.before.name}"
        found = [
            f"{one.id}: does not agree with {others} ({after / float(one.step_time) - 1.0:+.0%} after calibration): counted little; "
            f"look whether it was measured and described right"
            for one, (_, after), bad in zip(self.observations, self.predicted, self.bad, strict=True)
            if bad is not None and bad > SUSPECT
        ]
        found += [
            f"{one.id}: tensor parallelism is wider than a node, which tells nothing of the stack's numbers: not used"
            for one, bad in zip(self.observations, self.bad, strict=True)
            if bad is None
        ]
        if len(self.observations) < 3:
            found.append(
                "fewer than three runs tell little of plans unlike theirs; measured grids: docs/calibration.md"
            )
        return found


def calibrate(
    observations: Sequence[Observation | tuple[Scenario, float]],
    name: str = "",
    *,
    date: str = "",
    advance: Callable[[int], None] = lambda _: None,
) -> Calibration:
    """Calibrate the stack of some runs, called `name` afterwards: observations, or (scenario, seconds of a step) of each.

    `shardmeter.calibrate([(shardmeter.load("run.yaml"), 3.2)], "ours").after` is the stack; docs/calibration.md says what it rests on.
        Raises BadScenario, with everything that is wrong: no run, too many, several stacks, several islands."""
    runs = tuple(
        one if isinstance(one, Observation) else Observation(id=f"run {at}", scenario=one[0], step_time=one[1])
        for at, one in enumerate(observations, 1)
    )
    _check(runs)
    before = runs[0].scenario.stack
    scenarios = [one.scenario for one in runs]
    measured = np.array([float(one.step_time) for one in runs])
    nearby = [other for one in scenarios for other in around(one)[1:]][:: max(1, len(scenarios) // FEW)][:NEARBY]
    prior = ensemble([*scenarios, *nearby], advance=advance)
    used = np.array([at for at, one in enumerate(scenarios) if teaches(one)], dtype=np.int64)
    errors = np.array([float(one.error) for one in runs])
    given = Given(rows=used, measured=measured[used], errors=errors[used])
    (found,) = posteriors(prior, [given])
    low, high = interval(found, prior.times)
    rare = tuple(dict.fromkeys(what for one in scenarios for what in trust.unseen(one)))
    numbers = {**found.numbers, "faster": low, "slower": high}
    after = changed(
        before, **numbers, name=name or f"{before.name}-own", aliases=(), rare=rare, fitted_on=_basis(runs), fitted_date=date,
        title=f"{before.title or before.name}, calibrated on own runs", source="calibrated on own runs",
    )  # fmt: skip
    told = np.stack([np.exp(prior.times[0, : len(runs)]), _times(scenarios, found.numbers)], axis=1)
    bounds = {
        number: (float(np.exp(least)), float(np.exp(most)))
        for number, least, most in zip(loose(before), *np.quantile(prior.points, _ends(), axis=0), strict=True)
    }
    return Calibration(
        observations=runs, before=before, after=after, found=found, factors=(low, high), prior_bounds=bounds,
        predicted=tuple((float(old), float(new)) for old, new in told),
    )  # fmt: skip


def save(answer: Calibration, folder: Path) -> Path:
    """Write the calibrated stack into a user profile; gives the file of stacks."""
    basis = answer.after.fitted_on
    written = profile.put(folder, "stacks", profile.cells("stacks", answer.after))
    profile.put_interval(folder, "stacks", answer.after.name, answer.found.bounds, level=LEVEL, basis=basis)
    return written


def _times(scenarios: Sequence[Scenario], numbers: dict[str, float]) -> Floats:
    told = [changed(one, stack=changed(one.stack, **numbers)) for one in scenarios]
    return step_times(batches(told), len(told))


def _ends() -> tuple[float, float]:
    return (1.0 - LEVEL) / 2.0, (1.0 + LEVEL) / 2.0


def _basis(runs: Sequence[Observation]) -> str:
    """`3 rows of a.log; 1 row of b.log`, as the shipped stacks say it."""
    counted = Counter((one.source or one.id).replace(";", ",") for one in runs)
    if len(counted) > 3:
        return f"{len(runs)} rows of {len(counted)} files"
    return "; ".join(f"{count} row{'s' * (count > 1)} of {source}" for source, count in counted.items())


def _check(runs: Sequence[Observation]) -> None:
    bad = []
    if not 1 <= len(runs) <= MOST:
        bad.append(Violation(field="runs", says=f"{len(runs)} runs", rule=f"a calibration takes 1 to {MOST}",
                             way_out="give logs or rows of runs"))  # fmt: skip
    stacks = list(dict.fromkeys(one.scenario.stack.name for one in runs))
    if len(stacks) > 1:
        bad.append(Violation(field="stack", says=f"runs of {len(stacks)} stacks ({', '.join(stacks)})", rule="one stack is calibrated at a time",
                             way_out="calibrate each with its own runs"))  # fmt: skip
    for one in runs:
        if len(one.scenario.fleet.islands) > 1:
            bad.append(Violation(field="fleet", says=f"{one.id}: {len(one.scenario.fleet.islands)} islands", rule="a calibration takes runs on one island",
                                 way_out="calibrate with a run of one of the islands"))  # fmt: skip
        if not 0.0 < float(one.step_time) < float("inf"):
            bad.append(Violation(field="step_time", says=f"{one.id}: {one.step_time} s a step", rule="a step takes time",
                                 way_out="leave the run out"))  # fmt: skip
    if bad:
        raise BadScenario(f"{len(bad)} problem{'s' * (len(bad) > 1)} with the runs to calibrate on", bad)
