"""`tradeoffs`: what turning a knob buys and costs. Throughput against loss, memory and traffic at every value of H, fragments, bits, batch,
micro-batch, sequence and recomputation, and the points of several that nothing beats."""

from __future__ import annotations

import copy
from typing import Any

from shardmeter.core.errors import BadScenario, Violation
from shardmeter.core.record import record
from shardmeter.scenario.grammar import spelled_out
from shardmeter.scenario.parts import Rows
from shardmeter.scenario.ranges import Over, axes
from shardmeter.scenario.read import Document
from shardmeter.scenario.resolve import resolve
from shardmeter.specs import Scenario
from shardmeter.study import trust
from shardmeter.study.tradeoffs.joint import Joint, joint, refuse_many
from shardmeter.study.tradeoffs.knobs import Knob, asked, usual
from shardmeter.study.tradeoffs.says import notes, says
from shardmeter.study.tradeoffs.turned import Base, Turned, base_of, turned

__all__ = ["Tradeoffs", "tradeoffs"]


@record
class Tradeoffs:
    """What turning knobs does. `print` shows it as a page; `to_dict` is the JSON."""

    scenario: Scenario
    base: Base
    knobs: tuple[Turned, ...]
    joint: Joint | None
    """The product of the knobs, where several were named."""

    def __repr__(self) -> str:
        """One line."""
        names = ", ".join(one.knob.title for one in self.knobs)
        return f"<Tradeoffs of {self.scenario.model.name}: {names}>"

    def __str__(self) -> str:
        """The page that the command prints, without what was assumed."""
        import shardmeter

        return shardmeter.page(self)

    def to_dict(self) -> dict[str, Any]:
        """The `tradeoffs` JSON."""
        base = self.base
        law = self.scenario.run.law
        return {
            "base": {
                "tokens_per_s": base.figures["tokens_per_s"], "memory_peak_gib": base.figures["memory.peak_gib"],
                "memory_limit_gib": base.figures["memory.limit_gib"], "fits": bool(base.figures["fits"]), "tokens": base.tokens,
                "loss": base.loss, "law": None if law is None else law.name, "unit": None if law is None else law.unit,
                "why_no_loss": base.why,
            },
            "knobs": [
                {"field": one.knob.field, "title": one.knob.title, "now": one.knob.now, "points": list(one.entries), "says": list(says(one, base))}
                for one in self.knobs
            ],
            "joint": None if self.joint is None else {
                "points": self.joint.points, "fitting": self.joint.fitting, "against": self.joint.against, "front": list(self.joint.front),
                "cloud": [list(one) for one in self.joint.cloud],
            },
            "assumptions": [*self.scenario.assumptions, *notes(self.knobs, base)],
            "warnings": [*self.scenario.warnings, *trust.warnings(self.scenario)],
        }  # fmt: skip


def tradeoffs(document: Document, rows: Rows, over: Over = ()) -> Tradeoffs:
    """What each knob does over its values, every other number as it is; of several that are named their product too.

    `over` names axes as a sweep does; left out, those of the usual ones that the scenario has. Raises BadScenario with everything that is
    wrong, for a product of more than 10^5 points too.

    Leaves out: that a learning rate has to follow a batch; what a sequence, a precision or the data does to the loss."""
    scenario = resolve(copy.deepcopy(document), rows)
    if scenario.choices is not None:
        says_ = "plan: auto leaves the plan open, and a trade-off turns one of a plan that is stated"
        raise BadScenario("1 problem", [Violation(field="plan", says=says_, way_out="shardmeter plan finds one")])
    chosen = _chosen(scenario, over)
    several = over and len(chosen) > 1
    if several:
        refuse_many(chosen)
    base = base_of(scenario)
    return Tradeoffs(
        scenario=scenario,
        base=base,
        knobs=tuple(turned(document, rows, knob, base) for knob in chosen),
        joint=joint(document, rows, chosen, base) if several else None,
    )


MOST_OF_ONE = 1_000
"""Values of a knob."""


def _chosen(scenario: Scenario, over: Over) -> tuple[Knob, ...]:
    if not over:
        return usual(scenario)
    found = []
    for axis in axes(over, MOST_OF_ONE):
        if len(axis.fields) > 1:
            says_ = "a trade-off turns one field at a time"
            raise BadScenario("1 problem", [Violation(field=axis.name, says=says_, way_out="an --over for each")])
        found.append(asked(scenario, spelled_out(axis.fields[0]), tuple(point[0] for point in axis.points)))
    return tuple(found)
