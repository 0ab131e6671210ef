"""`plan: auto` in a question that takes one plan: the best one is found first, and said."""

from __future__ import annotations

from shardmeter.core.errors import ShardMeterError
from shardmeter.core.record import changed
from shardmeter.specs import Scenario
from shardmeter.study.planning.fleet_plans import line, plan_fleet
from shardmeter.study.planning.plans import Plans, plan
from shardmeter.study.planning.scenarios import told
from shardmeter.study.planning.search import Progress


def settled(scenario: Scenario, *, processes: int | None = 1, progress: Progress | None = None) -> Scenario:
    """The scenario with the best plan of its choices in their place or, where none is feasible, the one that misses least: what
    it lacks is then for the answer to say. Raises as `plan` does."""
    if scenario.choices is not None and scenario.choices.joint is not None:
        return _joined(scenario, processes, progress)
    found = plan(scenario, top=1, processes=processes, progress=progress)
    chosen = found.best or found.miss
    if chosen is None:  # pragma: no cover  (a search without legal plans has raised)
        raise AssertionError
    said = [*scenario.assumptions, _said(found, chosen.scenario), *found.assumed()]
    return changed(chosen.scenario, assumptions=tuple(said))


def _joined(scenario: Scenario, processes: int | None, progress: Progress | None) -> Scenario:
    """The same of several islands."""
    found = plan_fleet(scenario, top=1, processes=processes, progress=progress)
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
    return changed(chosen.scenario, assumptions=tuple(said))


def _said(found: Plans, chosen: Scenario) -> str:
    """What was chosen, from how many, by what."""
    tally = found.tally
    word = found.goal.objectives[0]
    text = f"plan auto: {told(chosen.plan, chosen.stack)}"
    if found.best is None:
        return f"{text}: of {tally.evaluated:,} plans none is feasible; this one comes nearest"
    return f"{text}: the best by {word} of {tally.feasible:,} feasible among {tally.evaluated:,} plans"
