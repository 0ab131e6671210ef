"""A resolved question: everything named has become a record, everything left out has become an assumption."""

from __future__ import annotations

from shardmeter.core.record import record
from shardmeter.specs.choices import Choices
from shardmeter.specs.fleet import Fleet
from shardmeter.specs.model import Model
from shardmeter.specs.plan import Plan
from shardmeter.specs.run import Run
from shardmeter.specs.stack import Stack


@record
class Scenario:
    """What `predict` and every study take."""

    name: str = "scenario"
    model: Model
    """What one cell trains: the whole, or one of the blocks that a method cuts it into."""
    assembled: Model | None = None
    """The whole model, where a cell trains a part of it."""
    stack: Stack
    fleet: Fleet
    plan: Plan
    """Of several islands the first one's, with the whole degree of an axis that crosses islands."""
    plans: tuple[Plan, ...] = ()
    """Of each of several islands, laid over it: the degrees multiply to its GPUs, and of an axis that crosses islands each has its
    own steps. Empty where there is one island."""
    run: Run
    assumptions: tuple[str, ...] = ()
    """What was not said and taken from a default: one sentence each."""
    warnings: tuple[str, ...] = ()
    choices: Choices | None = None
    """What is left to the planner (`plan: auto`, pins and ranges); None where everything is said. While it is there, `plan` and
    the global batch are placeholders, unless the choices say that a plan is stated."""
