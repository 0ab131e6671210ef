"""The points of a curve: whole scenarios, each predicted by itself, so that a point is what `predict` says of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from shardmeter.core.errors import ShardMeterError
from shardmeter.core.record import changed, record
from shardmeter.core.sums import plain_sum
from shardmeter.scenario import ranges
from shardmeter.scenario.choices import left_open
from shardmeter.scenario.parts import Rows
from shardmeter.scenario.read import Document
from shardmeter.scenario.resolve import resolve
from shardmeter.scenario.together import reason
from shardmeter.specs import Scenario
from shardmeter.study import islands, trust
from shardmeter.study.course import course
from shardmeter.study.levers import answered
from shardmeter.study.planning.automatic import settled
from shardmeter.study.planning.scenarios import told
from shardmeter.study.predict import Prediction, predict
from shardmeter.study.returns.axis import Axis
from shardmeter.study.sweep import Progress
from shardmeter.study.sweep.space import Space
from shardmeter.study.transitions import regimes

Report = Callable[[Progress], None]
Settle = Callable[[Scenario], Scenario]
BILLION = 1e9
"""Tokens that prices of training are told for, and the length of a run that has none."""

MOST_SCANNED = 512
"""Units between two points that are tried one by one."""


@record
class Reading:
    """One place on the axis: the scenario there with its prediction, or why there is none."""

    place: float
    x: float
    prediction: Prediction | None = None
    why: str = ""

    @property
    def rate(self) -> float | None:
        """Tokens a second; None where the point is illegal or does not fit, so that no curve passes through it."""
        return None if self.prediction is None or not self.prediction.fits else self.prediction.tokens_per_s

    @property
    def fits(self) -> bool | None:
        """None where the point is illegal."""
        return None if self.prediction is None else self.prediction.fits


class Curve:
    """Evaluates places of one axis and remembers them. `settle` finds the plan where the scenario leaves it open."""

    def __init__(
        self, document: Document, rows: Rows, axis: Axis, settle: Settle = settled, report: Report | None = None
    ) -> None:
        self.document, self.rows, self.axis = document, rows, axis
        self._settle, self._report = settle, report
        self._known: dict[float, Reading] = {}
        self._figures: dict[float, dict[str, Any]] = {}
        self._seconds: dict[float, dict[str, float]] = {}
        self._start, self.expected = time.monotonic(), 1

    def beside(self, axis: Axis) -> Curve:
        """The same scenario along another axis: what its own point is need not be asked again."""
        made = Curve(self.document, self.rows, axis, self._settle)
        here = self.axis.own
        made._known[axis.own] = changed(self.at(here), place=axis.own, x=axis.x(axis.own))
        made._figures[axis.own], made._seconds[axis.own] = self.figures(here), self.seconds(here)
        return made

    def scenario(self, place: float) -> Scenario:
        """The scenario there, with its plan. Raises ShardMeterError where it is illegal."""
        fields = self.axis.overrides(place)
        if isinstance(fields, str):
            raise ShardMeterError(fields)
        axes = (ranges.Axis(fields=tuple(fields), points=(tuple(fields.values()),)),)
        space = Space(document=self.document, rows=self.rows, axes=axes, columns=())
        document = space.at((0,))
        made = resolve(document, self.rows, left_open(document, planning=False))
        if self.axis.lever is not None:
            moved = self.axis.lever.scaled(place / self.axis.own)
            if moved is None:
                raise ShardMeterError(f"{self.axis.name}: {place:.6g} means nothing")
            return moved
        return made if made.choices is None else self._settle(made)

    def at(self, place: float) -> Reading:
        """What is there."""
        found = self._known.get(place)
        if found is None:
            found = self._known[place] = self._read(place)
            if self._report is not None:
                done, gone = len(self._known), time.monotonic() - self._start
                self._report(Progress(rows=done, total=max(done, self.expected), resumed=0, seconds=gone))
        return found

    def _read(self, place: float) -> Reading:
        x = self.axis.x(place)
        try:
            return Reading(place=place, x=x, prediction=predict(self.scenario(place)))
        except ShardMeterError as error:
            return Reading(place=place, x=x, why=reason(error))

    def figures(self, place: float) -> dict[str, Any]:
        """FIGURES of a place."""
        if place not in self._figures:
            self._figures[place] = _figures(self.at(place).prediction, self.seconds(place))
        return self._figures[place]

    def seconds(self, place: float) -> dict[str, float]:
        """Seconds of a step there by regime, latency told apart: they add up to the step. Empty where the point is illegal."""
        if place not in self._seconds:
            one = self.at(place).prediction
            self._seconds[place] = {} if one is None else _regime_seconds(one)
        return self._seconds[place]

    def next_legal(self, place: float, until: float) -> Reading | None:
        """The first place beyond this one, a whole unit at a time, at which the scenario is legal and fits; None up to `until`.

        Where that is more than MOST_SCANNED units away, the last of them is tried and nothing before it."""
        at = place + 1.0 if until - place <= MOST_SCANNED else until
        while at <= until:
            if (found := self.at(at)).rate is not None:
                return found
            at += 1.0
        return None


FIGURES = (
    "gpus", "global_batch", "fits", "tokens_per_s", "tokens_per_s_per_gpu", "mfu", "step_time_s", "memory_peak_gib", "wall_clock_s",
    "run_tokens_per_s", "cost_usd", "usd_per_1e9_tokens", "usd_per_token", "plan", "intervals", "regime", "regime_share", "term", "term_share",
)  # fmt: skip
"""Of every point; null where it is illegal."""


def _figures(one: Prediction | None, shares: Mapping[str, float]) -> dict[str, Any]:
    """The figures of a point: seconds, dollars, fractions; `run_tokens_per_s`: tokens of the run over its wall clock, interruptions and
    checkpoints counted; `intervals` (90 %) by figure; the regime that takes most of the step, and the longest term of its ledger."""
    if one is None:
        return dict.fromkeys(FIGURES)
    estimate, scenario = one.estimate, one.scenario
    run = course(scenario, one.whole, trust.paces(scenario))
    bounds: dict[str, Any] = {} if run is None else run["intervals"]
    regime = max(shares, key=lambda name: shares[name])
    term = max(estimate.terms, key=lambda t: float(t.seconds))
    step, rate, gpus = one.step_time, one.tokens_per_s, float(estimate.gpus)
    cost, tokens = (None, 1.0) if run is None else (run["cost_usd"], run["tokens"])
    own = one.intervals()
    ends = {"tokens_per_s": own["tokens_per_s"], "step_time_s": own["step_time_s"], "wall_clock_s": bounds.get("wall_clock_s"),
            "cost_usd": bounds.get("cost_usd"), "mfu": _scaled(own["tokens_per_s"], one.mfu / rate),
            "tokens_per_s_per_gpu": _scaled(own["tokens_per_s"], 1.0 / gpus),
            "usd_per_1e9_tokens": _scaled(bounds.get("cost_usd"), BILLION / tokens)}  # fmt: skip
    return {
        "gpus": gpus,
        "global_batch": float(plain_sum(part.run.global_batch for part in one.whole.parts))
        if scenario.plans
        else float(scenario.run.global_batch),
        "fits": one.fits,
        "tokens_per_s": rate,
        "tokens_per_s_per_gpu": rate / gpus,
        "mfu": one.mfu,
        "step_time_s": None if islands.nobody_waits(one.whole) else step,
        "memory_peak_gib": one.memory_peak_gib,
        "wall_clock_s": None if run is None else run["wall_clock_s"],
        "run_tokens_per_s": None if run is None else run["tokens"] / run["wall_clock_s"],
        "cost_usd": cost,
        "usd_per_1e9_tokens": None if cost is None else cost / tokens * BILLION,
        "usd_per_token": None if cost is None else cost / tokens,
        "plan": told(scenario.plan, scenario.stack),
        "intervals": ends,
        "regime": regime,
        "regime_share": shares[regime] / step,
        "term": term.label,
        "term_share": float(term.seconds) / step,
    }


def _scaled(ends: Any, factor: float) -> list[float] | None:
    return None if ends is None else [end * factor for end in ends]


def _regime_seconds(one: Prediction) -> dict[str, float]:
    boundless = answered(regimes.without_limits(one.scenario))
    found = regimes.seconds(one.estimate, boundless.estimate, islands.critical(one.whole).plan)
    return {name: float(seconds) for name, seconds in found.items()}
