"""What a run may take: its deadline and its budget, and what has to be known to hold it to them."""

from __future__ import annotations

from collections.abc import Sequence

from shardmeter.core.record import changed
from shardmeter.scenario.layout import Parts
from shardmeter.specs import Island, Run

DEADLINE, BUDGET = ("run", "deadline"), ("run", "budget")
LENGTHS = ("tokens", "steps", "target_loss", "phases")
"""Fields that say how long a run is."""


def resolve_limits(parts: Parts, islands: Sequence[Island], run: Run, *, planned: bool) -> Run:
    """The run with its limits, after noting what keeps them from an answer; of a plan that is left open a planner asks that itself."""
    asked, found = parts.run, parts.found
    made = changed(run, deadline=asked.deadline, budget=asked.budget)
    if planned:
        return made
    named = [
        path
        for path, said in ((DEADLINE, asked.deadline), (BUDGET, asked.budget))
        if said is not None or found.touched(path)
    ]
    paths = [("run", name) for name in LENGTHS]
    if named and all(getattr(asked, name) is None for name in LENGTHS) and not found.touched(*paths):
        for path in named:
            found.note(path, f"a {path[1]}, but no length of the run", "say --tokens, or run.steps", "a run has an end")
    if BUDGET in named:
        _prices(parts, islands, run)
    return made


def _prices(parts: Parts, islands: Sequence[Island], run: Run) -> None:
    """Note every price that a budget needs and nobody said: it is asked for, never taken to be 0."""
    found, rule = parts.found, "a cost is known when all its prices are"
    says, way_out = unpaid(islands)
    if says and not found.touched(("fleet",)):
        found.note(("fleet",), f"a budget, but {says}", way_out, rule)
    of_data = [one.name for one in run.stocks if one.price is None and one.each]
    kept = [one.name for one in run.stocks if one.price is None and not one.each]
    brought = [one.name for one in run.hauls if one.price is None]
    for names, path, way_out in (
        (of_data, ("run", "dataset"), "say run.dataset.price: $0.023/GB/month"),
        (kept, ("run", "storage"), "say run.storage.price: $0.023/GB/month"),
        (brought, ("run", "dataset"), "say run.dataset.region: aws:us-east-1, or egress: $0.02/GB"),
    ):
        for name in dict.fromkeys(names):
            found.note(path, f"a budget, but no price of {name} is known", way_out, rule)


def unpaid(islands: Sequence[Island]) -> tuple[str, str]:
    """What lacks a price of islands that have none, and the way out; empty where all have one."""
    lacking = [island for island in islands if island.price is None]
    said = dict.fromkeys(island.price_basis for island in lacking if island.price_basis)
    unnamed = dict.fromkeys(island.accelerator.name for island in lacking if not island.price_basis)
    bare = [f"no price of {' and '.join(unnamed)} is known"] if unnamed else []
    return " and ".join([*said, *bare]), f"say --price '$2.10/gpu/h'{', or name an instance' if unnamed else ''}"
