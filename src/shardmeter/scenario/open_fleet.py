"""What a document of several islands leaves to the planner beside the shared plan: synchronisation, islands, their own plans."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from shardmeter.core.errors import BadScenario
from shardmeter.scenario.grammar import AUTO, SYNC_ALIASES, parse_plan
from shardmeter.scenario.ranges import is_range, values
from shardmeter.scenario.read import Document
from shardmeter.scenario.yaml_reader import Path

SYNC_WORDS = ("method", "outer_state", "topology", "hierarchical", "release", "split")
"""Fields of the synchronisation of which every word can be asked for with `any`."""


def is_several(document: Document) -> bool:
    """Whether a document names several islands, one by one or by `count`."""
    items = _items(document)
    return len(items) > 1 or any(_counts(one.get("count")) for one in items)


def _counts(count: Any) -> bool:
    return str(count).strip() not in ("None", "1", "1.0")


def _items(document: Document) -> list[dict[str, Any]]:
    fleet = document.data.get("fleet")
    islands = fleet.get("islands") if isinstance(fleet, dict) else None
    return [one for one in islands if isinstance(one, dict)] if isinstance(islands, list) else []


def synchronisation(document: Document, plan: Mapping[str, Any]) -> dict[str, tuple[Any, ...]] | None:
    """The values of every field that is said of the synchronisation; None where there is one island, or what is no mapping."""
    said = plan.get("sync")
    if not is_several(document) or not isinstance(said, dict | None):
        return None
    made: dict[str, tuple[Any, ...]] = {}
    for name, value in (said or {}).items():
        if value is None:
            continue
        field = str(SYNC_ALIASES.get(name, name))
        try:
            several = values(value, f"plan.sync.{field}") if isinstance(value, str) and is_range(value) else value
        except BadScenario as error:
            document.problems.extend(error.violations)
            continue
        made[field] = tuple(several) if isinstance(several, list | tuple) else (several,)
    return made


def plans_of_islands(document: Document) -> Iterator[tuple[dict[str, Any], Path]]:
    """The plan of every island of several, as a mapping in the document, with its place; those of no island of its own are empty."""
    if not is_several(document):
        return
    for at, one in enumerate(_items(document)):
        path: Path = ("fleet", "islands", at, "plan")
        given = one.get("plan")
        if isinstance(given, str):
            try:
                given = parse_plan(given)
            except BadScenario:
                given = None  # which reading it will say
        if isinstance(given, dict):
            one["plan"] = given = dict(given)
        yield (given if isinstance(given, dict) else {}), path


def placement_of(document: Document, plan: dict[str, Any]) -> bool:
    """Whether it is left open which of several islands form pipelines, taken out of the plan."""
    if not is_several(document) or plan.get("placement") != {"pp": AUTO}:
        return False
    del plan["placement"]
    return True


def use_of(document: Document) -> Any:
    """What is said of which islands take part, taken out of the document where that is left open."""
    fleet = document.data.get("fleet")
    if not is_several(document) or not isinstance(fleet, dict) or "use" not in fleet:
        return None
    said = fleet["use"]
    if said == "any" or any(isinstance(one, int | float) for one in _listed(said)):
        return fleet.pop("use")
    return None


def _listed(said: Any) -> list[Any]:
    if isinstance(said, str) and is_range(said):
        try:
            return list(values(said, "fleet.use"))
        except BadScenario:
            return []
    return said if isinstance(said, list) else [said]


def bare(fleet: Mapping[str, Any]) -> dict[str, Any]:
    """A fleet without the plans of its islands."""
    islands = [{key: value for key, value in one.items() if key != "plan"} for one in fleet["islands"]]
    return {**fleet, "islands": islands}
