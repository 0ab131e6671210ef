"""`sensitivity`: what an answer hangs on. The elasticity of a figure to every number of a scenario, ranked, what doubling and halving each
does, what it costs to move it, and whether two of them together do more than each by itself."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

from shardmeter.core.errors import BadScenario, Violation, shown
from shardmeter.core.record import record
from shardmeter.specs import Scenario
from shardmeter.study import intervals, trust
from shardmeter.study.levers import levers
from shardmeter.study.sensitivity import what_if as moved
from shardmeter.study.sensitivity.answers import OF, Answers, known
from shardmeter.study.sensitivity.effects import Effect, Sensed, sensed
from shardmeter.study.sensitivity.what_if import Move, Pair
from shardmeter.study.sweep.figures import FIGURES

__all__ = ["OF", "STEP", "Sensitivity", "sensitivity"]

STEP = 0.01
"""Relative step of an elasticity, up and down: small enough for a slope, far above the rounding of floats."""
MOST_PAIRS = 12
LESS = ("step_time_s", "run.wall_clock_s", "run.gpu_hours", "run.cost_usd", "run.energy_kwh", "run.carbon_kg", "run.tokens", "run.steps",
        "sync.round_s", "sync.exposed_s", "sync.sent_bytes", "memory.peak_gib", "memory.allocated_gib", "bottleneck.share")  # fmt: skip
"""Figures of which less is better."""
CORRELATED = (
    "what the model has wrong of this stack, machine and network is taken to be wrong of the moved scenario by the same factor, so that it "
    "cancels in a change; the range of a change is what is left of the interval then"
)


@record
class Sensitivity:
    """What an answer hangs on. `print` shows it as a page; `to_dict` is the JSON."""

    scenario: Scenario
    of: str
    step: float
    value: float
    interval: tuple[float, float] | None
    """90 % predictive interval of the answer itself; None where it is not known."""
    ranked: tuple[Sensed, ...]
    """Numbers that do something, the largest elasticity first."""
    silent: tuple[Sensed, ...]
    """Numbers that do nothing, neither doubled nor halved."""
    stuck: tuple[Sensed, ...]
    """Numbers of which no other value is legal, or answered."""
    moves: tuple[tuple[Move, Effect], ...] = ()
    pairs: tuple[Pair, ...] = ()

    def __repr__(self) -> str:
        """One line."""
        first = self.ranked[0] if self.ranked else None
        most = "nothing" if first is None else f"{first.lever.name} (elasticity {first.size:.2f})"
        return f"<Sensitivity of {self.of} = {self.value:.4g}: {len(self.ranked)} numbers, most to {most}>"

    def __str__(self) -> str:
        """The page that the command prints, without what was assumed."""
        import shardmeter

        return shardmeter.page(self)

    @property
    def relative(self) -> tuple[float, float] | None:
        """The interval over the answer, less 1."""
        return (
            None
            if self.interval is None
            else (self.interval[0] / self.value - 1.0, self.interval[1] / self.value - 1.0)
        )

    def to_dict(self) -> dict[str, Any]:
        """The `sensitivity` JSON."""
        figure = FIGURES[self.of]
        return {
            "of": self.of, "unit": figure.unit, "says": figure.says, "value": self.value,
            "interval": None if self.interval is None else list(self.interval), "level": intervals.LEVEL,
            "less_is_better": self.of in LESS, "step": self.step,
            "levers": [one.to_dict(self.relative) for one in self.ranked],
            "silent": [one.to_dict(self.relative) for one in self.silent],
            "stuck": [one.lever.name for one in self.stuck],
            "what_if": [{"move": move.text, "name": move.lever.name, "title": move.lever.title, "unit": move.lever.unit,
                         "from": move.lever.value, "factor": move.factor, **effect.to_dict()} for move, effect in self.moves],
            "pairs": [one.to_dict() for one in self.pairs],
            "assumptions": [*self.scenario.assumptions, CORRELATED],
            "warnings": list(trust.warnings(self.scenario)),
        }  # fmt: skip


def sensitivity(
    scenario: Scenario,
    of: str = "tokens_per_s",
    *,
    pairs: int = 0,
    what_if: Sequence[str] = (),
    beside: Sequence[str] = (),
    step: float = STEP,
) -> Sensitivity:
    """What a figure of a scenario hangs on.

    An elasticity is (ln answer(number · (1 + step)) − ln answer(number / (1 + step))) / (2 ln(1 + step)), every other number as it is; of a
    number that is whole half of it and twice of it are taken, or the next legal values where these are not legal. `what_if` and `beside` are moves (`NAME=x2`): each of the
    first with each of the second. `pairs`: all pairs of so many of the first numbers. Raises BadScenario with everything that is wrong.

    Leaves out: numbers that are 0; what a change of hardware does to the fitted numbers of the stack; that prices move together."""
    _asked(pairs, step, alone=bool(beside) and not what_if)
    answers = Answers(scenario, known(of))
    every = levers(scenario)
    singles = moved.moves((*what_if, *beside), every)
    asked, others = singles[: len(what_if)], singles[len(what_if) :]
    found = sensed(answers, every, step)
    ranked = sorted((one for one in found if not one.stuck and not one.silent), key=_rank)
    every_pair = [*product(asked, others), *moved.top(ranked, pairs, less_is_better=of in LESS)]
    return Sensitivity(
        scenario=scenario,
        of=of,
        step=step,
        value=float(answers.base.value or 0.0),
        interval=_interval(answers),
        ranked=tuple(ranked),
        silent=tuple(one for one in found if one.silent and not one.stuck),
        stuck=tuple(one for one in found if one.stuck),
        moves=tuple(zip(singles, moved.alone(answers, singles), strict=True)),
        pairs=moved.pairs_of(answers, every_pair),
    )


def _rank(one: Sensed) -> tuple[float, float, str]:
    """The largest elasticity first, then the largest swing."""
    return -round(one.size, 6), -one.swing, one.lever.name


def _interval(answers: Answers) -> tuple[float, float] | None:
    """The interval of the answer: of what follows from a step, at both ends of the interval of a step; of the peak, as `predict` has it."""
    if answers.of == "memory.peak_gib":
        e = answers.whole.estimate
        step, tokens, peak, exact = map(float, (e.step_time, e.tokens, e.memory_peak, e.memory_exact))
        found = trust.spread(answers.scenario, step, tokens, peak, exact)["memory_peak_gib"]
        return None if found is None else (found[0], found[1])
    ends = [one for one in answers.base.ends if one is not None]
    moves = len(ends) == 2 and ends[0] != ends[1]
    return (min(ends), max(ends)) if moves else None


def _asked(pairs: object, step: object, *, alone: bool) -> None:
    """Raises BadScenario for numbers that are none."""
    wrong = []
    if isinstance(pairs, bool) or not isinstance(pairs, int) or not 0 <= pairs <= MOST_PAIRS or pairs == 1:
        out = f"a whole number from 2 to {MOST_PAIRS}"
        wrong.append(Violation(field="pairs", says=f"{shown(pairs)} is no number of numbers to pair", way_out=out))
    if isinstance(step, bool) or not isinstance(step, int | float) or not 1e-6 <= step <= 0.2:
        wrong.append(Violation(field="step", says=f"{shown(step)} is no step", way_out="a fraction from 1e-6 to 0.2"))
    if alone:
        wrong.append(
            Violation(field="with", says="there is nothing to move it beside", way_out="say --what-if NAME=x2 too")
        )
    if wrong:
        raise BadScenario(f"{len(wrong)} problem{'s' if len(wrong) > 1 else ''}", wrong)
