"""`diff`: what two scenarios say differently, what that does to every figure, term by term, and which of it does how much.

One file a question: `sides` (the two scenarios), `said` (the inputs that differ, as `change`s) and `names` (as a user sets them),
`figures` (the answers beside each other and the terms that they sum from), `clock` (why one run is longer), `learned` (what one costs in
loss), `mixtures` (scenarios with some parts of each), `shares` (what each part makes of the difference), `says` (all that in sentences)."""

from __future__ import annotations

from typing import Any

from shardmeter.core.record import record
from shardmeter.specs.scenario import Scenario
from shardmeter.study.diff import clock, figures, learned, said, shares
from shardmeter.study.diff.says import Told, says
from shardmeter.study.diff.shares import Attribution
from shardmeter.study.diff.sides import Side, sides
from shardmeter.study.predict import Prediction, predict

__all__ = ["Difference", "Side", "difference", "sides"]


@record
class Difference:
    """The predictions of two scenarios, A and B, and what the parts in which they differ make of it.

    Every difference is B − A. `print` shows it as a page; `to_dict` is the JSON, which also holds what predicting either has."""

    a: Prediction
    b: Prediction
    attribution: Attribution

    def __repr__(self) -> str:
        """One line."""
        names = f"{self.a.scenario.name} and {self.b.scenario.name}"
        return f"<Difference of {names}: {self.a.step_time:.4g} and {self.b.step_time:.4g} s a step>"

    def __str__(self) -> str:
        """The page that the command prints, without what was assumed."""
        import shardmeter

        return shardmeter.page(self)

    @property
    def scenarios(self) -> tuple[Scenario, Scenario]:
        """A and B, resolved."""
        return self.a.scenario, self.b.scenario

    def to_dict(self) -> dict[str, Any]:
        """The `diff` JSON: SI units as each `unit` says, null for what one of the two does not have."""
        one, other = self.a.to_dict(), self.b.to_dict()
        ledgers = figures.ledgers(one, other)
        course, gap = clock.decomposed(one, other), learned.gap(self.a, self.b)
        ruling = course and clock.ruling(course, ledgers.get("hours"))
        ruling = ruling or figures.ruling(ledgers)
        unequal = None if _is_at_equal_loss(*self.scenarios) else gap
        told = Told(a=one, b=other, ledgers=ledgers, rules=ruling, attribution=self.attribution, gap=unequal)
        return {
            "equal": not said.differences(*self.scenarios),
            "says": says(told),
            "said": said.rows(*self.scenarios, self.attribution.groups),
            "figures": [*figures.figures(one, other), *(gap.figures() if gap else ())],
            "wall_clock": course,
            "ledgers": ledgers,
            "rules": ruling,
            "attribution": self.attribution.to_dict(),
            "assumptions": figures.of_both(one["assumptions"], other["assumptions"]),
            "warnings": [
                *figures.warnings(one, other),
                *(unequal.warnings() if unequal else ()),
                *figures.of_both(one["warnings"], other["warnings"]),
            ],
        }


def _is_at_equal_loss(a: Scenario, b: Scenario) -> bool:
    """Whether one loss is asked of both."""
    return a.run.target_loss is not None and a.run.target_loss == b.run.target_loss and a.run.law == b.run.law


def difference(a: Side, b: Side) -> Difference:
    """Compare two scenarios.

    Raises ShardMeterError for what cannot be answered of either. Takes one evaluation for every mixture of the parts in which they
    differ: 2^n of n parts, of which there are six at the most."""
    one, other = predict(a.scenario), predict(b.scenario)
    return Difference(a=one, b=other, attribution=shares.attribution(a, b, one, other))
