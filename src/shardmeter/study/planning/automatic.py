"""`plan: auto` in a question that takes one plan: the best one is found first, and said."""

from __future__ import annotations

from typing import TypeAlias

from shardmeter.core.errors import ShardMeterError
from shardmeter.core.record import changed
from shardmeter.specs import Scenario
from shardmeter.study.planning.fleet_plans import FleetPlans, FleetRanked, line, plan_fleet
from shardmeter.study.planning.plans import Plans, Ranked, plan
from shardmeter.study.planning.scenarios import told
from shardmeter.study.planning.search import Progress

Found: TypeAlias = tuple[Scenario, Ranked | FleetRanked, Plans | FleetPlans]
"""The scenario with its plan, that plan as the search has it, and the whole search."""


def settled(scenario: Scenario, *, processes: int | None = 1, progress: Progress | None = None) -> Scenario:
    """The scenario with the best plan of its choices in their place or, where none is feasible, the one that misses least: what
    it lacks is then for the answer to say. Raises as `plan` does."""
    return searched(scenario, processes=processes, progress=progress)[0]


def searched(scenario: Scenario, *, top: int = 1, processes: int | None = 1, progress: Progress | None = None) -> Found:
    """The same with the search that found it, which lists `top` plans."""
    if scenario.choices is not None and scenario.choices.joint is not None:
        return _joined(scenario, top, processes, progress)
    found = plan(scenario, top=top, processes=processes, progress=progress)
    chosen = found.best or found.miss
    if chosen is None:  # pragma: no cover  (a search without legal plans has raised)
        raise AssertionError
    said = [*scenario.assumptions, _said(found, chosen.scenario), *found.assumed()]
    return changed(chosen.scenario, assumptions=tuple(said)), chosen, found


def _joined(scenario: Scenario, top: int, processes: int | None, progress: Progress | None) -> Found:
    """The same of several islands."""
    found = plan_fleet(scenario, top=top, processes=processes, progress=progress)
    chosen = found.best or found.miss
    if chosen is None:
        raise ShardMeterError("plan: auto: no plan of the islands can be joined")
    word, counted = found.found.goal.objectives[0], found.found.joined
    text = f"plan auto: {line(chosen.scenario)}: "
    text += (
        f"of {counted.evaluated:,} joint plans none is feasible; this one comes nearest"
        if found.best is None
        else f"the best by {word} of {counted.feasible:,} feasible among {counted.evaluated:,} joint plans"
    )
    said = [*scenario.assumptions, text, *found.assumed()]
    return changed(chosen.scenario, assumptions=tuple(said)), chosen, found


def _said(found: Plans, chosen: Scenario) -> str:
    """What was chosen, from how many, by what."""
    tally = found.tally
    word = found.goal.objectives[0]
    text = f"plan auto: {told(chosen.plan, chosen.stack)}"
    if found.best is None:
        return f"{text}: of {tally.evaluated:,} plans none is feasible; this one comes nearest"
    return f"{text}: the best by {word} of {tally.feasible:,} feasible among {tally.evaluated:,} plans"
