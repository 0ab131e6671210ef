"""One cluster as several equal buildings: the document of a case, and a fleet of one island divided."""

from __future__ import annotations

import copy
import re
from typing import Any

from shardmeter.core.errors import BadScenario, Violation, shown
from shardmeter.scenario.grammar import AUTO, parse_plan
from shardmeter.scenario.read import Document
from shardmeter.study.scale_across.question import MOST_BUILDINGS, Own

USUAL_LINE = "dci-4to1"
"""Between buildings of which nothing is said: a quarter of every GPU's rate, over 100 km of fibre."""
BUILDING = "building"
_COUNTED = re.compile(r"\s*([\d_.,]+[kKM]?)\s*[x×*]\s*(.+)", re.IGNORECASE)


def lined(document: Document) -> bool:
    """Whether a document says what lies between its buildings."""
    fleet = document.data.get("fleet")
    return isinstance(fleet, dict) and bool(fleet.get("wan"))


def asked(document: Document, buildings: Any = None) -> Document:
    """The document that is asked about: without what its plan leaves open (`auto`), which degrees are looked for then, and divided into
    so many buildings where that is said. Raises BadScenario as `divided`."""
    plan = document.data.get("plan")
    if isinstance(plan, str) and plan.partition(",")[0].strip() == AUTO:
        plan = parse_plan(plan)
    if isinstance(plan, dict):
        kept = {name: value for name, value in plan.items() if value != AUTO and not (name == AUTO and value is True)}
        document = _as(document, {**document.data, "plan": kept}, document.notes)
    return document if buildings is None else divided(document, buildings)


def divided(document: Document, buildings: Any) -> Document:
    """A document of one island as so many buildings, with the usual line between them where none is said. Raises BadScenario for a fleet
    of several islands, and where the GPUs do not divide."""
    if not isinstance(buildings, int) or isinstance(buildings, bool) or not 2 <= buildings <= MOST_BUILDINGS:
        says = f"{shown(buildings)} is no number of buildings"
        way_out = f"a whole number from 2 to {MOST_BUILDINGS}"
        raise BadScenario("scale-across: 1 problem", [Violation(field="buildings", says=says, way_out=way_out)])
    data = copy.deepcopy(document.data)
    islands = _islands(data)
    if len(islands) > 1 or str(islands[0].get("count") or 1) != "1":
        says = "divides one island, and the fleet names its buildings already"
        raise BadScenario(
            "scale-across: 1 problem", [Violation(field="--buildings", says=says, way_out="leave it out")]
        )
    fleet = data.get("fleet") or {}
    notes = list(document.notes)
    if not fleet.get("wan"):
        fleet["wan"] = {"default": {"preset": USUAL_LINE}}
        notes.append(f"fleet.wan.default.preset {USUAL_LINE} (left out): buildings of one operator")
    data["fleet"] = {**fleet, "islands": [_shared(islands[0], buildings, buildings)]}
    data.pop("gpus", None)
    notes.append(f"--buildings {buildings} divides the GPUs evenly")
    return _as(document, data, notes)


def case(document: Document, own: Own, model: Any, buildings: int, gpus: int) -> Document:
    """The document with another model, as `buildings` equal ones of `gpus` in all; its first building says what they are made of."""
    data = copy.deepcopy(document.data)
    data["model"] = model
    if (buildings, gpus) == (own.buildings, own.gpus):
        return _as(document, data, document.notes)
    fleet = data["fleet"]
    wan = fleet.get("wan") or {}
    named = [key for key in ("links", "sites") if wan.get(key)]
    if named:
        says = f"{' and '.join(named)} name islands, and other numbers of buildings or GPUs have others"
        out = "say it in fleet.wan.default, or leave out --over buildings and gpus"
        raise BadScenario("scale-across: 1 problem", [Violation(field="fleet.wan", says=says, way_out=out)])
    island = _islands(data)[0]
    island.pop("count", None)
    data["fleet"] = {**fleet, "islands": [_shared(island, buildings, 1, gpus / buildings / float(own.island.gpus))]}
    plan = data.get("plan")
    if isinstance(plan, dict):
        plan.pop("placement", None)
    return _as(document, data, document.notes)


def _islands(data: dict[str, Any]) -> list[dict[str, Any]]:
    fleet = data.get("fleet")
    said = fleet.get("islands") if isinstance(fleet, dict) else None
    if isinstance(said, list) and said and all(isinstance(one, dict) for one in said):
        return said
    return [{"gpus": data.get("gpus")}]


def _shared(island: dict[str, Any], count: int, parts: int, times: float = 1.0) -> dict[str, Any]:
    """`count` islands, each `times` the size of the given one over `parts`."""
    made = {**island, "name": BUILDING, "count": count}
    size = island.get("nodes")
    if size is not None:
        made["nodes"] = _whole(float(str(size).replace(",", "").replace("_", "")) * times / parts, size, parts, "nodes")
        return made
    found = _COUNTED.fullmatch(str(island.get("gpus")))
    if found is None:
        return made
    from shardmeter.core.quantity import quantity

    gpus = _whole(quantity(found[1], "count") * times / parts, found[1], parts, "GPUs")
    return {**made, "gpus": f"{gpus}x{found[2]}"}


def _whole(number: float, size: object, parts: int, what: str) -> int:
    if number != int(number):
        says = f"{parts} do not divide {size} {what} ({size} ÷ {parts} = {number:,.2f})"
        raise BadScenario("scale-across: 1 problem", [Violation(field="--buildings", says=says)])
    return int(number)


def _as(document: Document, data: dict[str, Any], notes: list[str]) -> Document:
    return Document(
        data, name=document.name, folder=document.folder, places=document.places, text=document.text, notes=list(notes),
        warnings=list(document.warnings), problems=list(document.problems), unknown=list(document.unknown),
        gone=list(document.gone), begins=document.begins,
    )  # fmt: skip
