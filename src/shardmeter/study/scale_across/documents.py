"""A choice as a scenario that `predict` answers with the same step."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from shardmeter.specs import Island, Plan, Scenario, Wan
from shardmeter.study.planning.fleet_plans import sync_document
from shardmeter.study.planning.scenarios import plan_document
from shardmeter.study.scale_across.networks import Network


def document_of(said: Mapping[str, Any], scenario: Scenario, wan: Wan, network: Network) -> dict[str, Any]:
    """The document of a case with a plan and a network."""
    made: dict[str, Any] = copy.deepcopy(dict(said))
    made["plan"] = _plan(scenario)
    made["fleet"] = {
        **made["fleet"], "islands": _islands(made["fleet"]["islands"], scenario),
        "wan": _wan(made["fleet"].get("wan") or {}, scenario, wan, network),
    }  # fmt: skip
    return made


def _islands(said: Sequence[Mapping[str, Any]], scenario: Scenario) -> list[dict[str, Any]]:
    """The buildings with what the plan of each has otherwise than that of the first."""
    plans = {island.name: plan for island, plan in zip(scenario.fleet.islands, scenario.plans, strict=True)}
    usual, made = _fields(scenario, scenario.plans[0]), []
    for entry in said:
        kept = {name: value for name, value in entry.items() if name != "plan"}
        own = plans.get(str(entry.get("name")), plans.get(f"{entry.get('name')}-1"))
        if own is not None:
            fields = {name: int(getattr(own, name)) for name in usual if name in EXPERT} | _fields(scenario, own)
            other = {name: value for name, value in fields.items() if usual.get(name) != value}
            kept |= {"plan": other} if other else {}
        made.append(kept)
    return made


EXPERT = ("ep", "etp")
"""Degrees of which a plan is silent where it has none."""


def _fields(scenario: Scenario, own: Plan) -> dict[str, Any]:
    """What a building's own plan says, without the axis that crosses buildings."""
    crossing = [axis for axis, _ in scenario.plan.placement]
    return {name: value for name, value in plan_document(own).items() if name not in crossing}


def _plan(scenario: Scenario) -> dict[str, Any]:
    """Every field of the plan that means something, with what crosses buildings."""
    whole, own = scenario.plan, scenario.plans[0]
    fields = plan_document(own)
    usual = sync_document(Plan().sync)
    sync = {name: value for name, value in sync_document(own.sync).items() if value != usual[name]}
    if sync:
        fields["sync"] = sync
    for axis, cells in whole.placement:
        fields["placement"] = {axis: [list(cell) for cell in cells]}
        fields.pop(axis, None)
        if axis == "pp":
            fields |= {"schedule": own.schedule, "virtual_stages": own.virtual_stages}
    return fields


def _wan(said: Mapping[str, Any], scenario: Scenario, wan: Wan, network: Network) -> dict[str, Any]:
    """The lines between buildings, pair by pair where they are not all alike, used as a network says."""
    used: dict[str, Any] = {
        "transport": network.transport, "streams": float(network.streams), "window": _exactly(network.window, "B"),
        "sends": _exactly(network.sends, "B"), "balance": network.balance,
    }  # fmt: skip
    if network.balance == "ecmp":
        used |= {"flows": float(network.flows), "slowest": float(np.max(wan.slowest))}
    lines = _lines(scenario, wan)
    pairs = list(itertools.permutations([island.name for island in scenario.fleet.islands], 2))
    alike = all(one == lines[0] for one in lines)
    made: dict[str, Any] = {"default": lines[0] | used}
    if not alike:
        word = _shared(
            float(np.broadcast_to(wan.lanes, (len(wan.islands),) * 2)[0, 0]), *scenario.fleet.islands[:1] * 2
        )
        made["default"] |= {"shared": word}
        made["links"] = [{"from": one, "to": other} | line for (one, other), line in zip(pairs, lines, strict=True)]
    sites = _sites(scenario, wan)
    made |= {"sites": sites} if sites else {}
    return made | ({"assumed": said["assumed"]} if "assumed" in said else {})


def _lines(scenario: Scenario, wan: Wan) -> list[dict[str, Any]]:
    """The line of every pair of buildings, one direction."""
    islands = scenario.fleet.islands
    shape = (len(islands), len(islands))
    names = ("bandwidth", "rtt", "loss", "lanes", "egress")
    tables = {name: np.broadcast_to(np.asarray(getattr(wan, name), dtype=float), shape) for name in names}
    found = []
    for one, other in itertools.permutations(range(len(islands)), 2):
        own = {name: float(table[one, other]) for name, table in tables.items()}
        word = _shared(own["lanes"], islands[one], islands[other])
        line = {
            "bandwidth": _exactly(own["bandwidth"] / _sizes(islands[one], islands[other])[word], "B/s"), "shared": word,
            "rtt": _exactly(own["rtt"], "s"), "loss": own["loss"],
        }  # fmt: skip
        held = float(np.broadcast_to(np.asarray(wan.hold, dtype=float), shape)[one, other])
        line |= {"hold": _exactly(held, "s")} if held else {}
        found.append(line if math.isnan(own["egress"]) else line | {"egress": f"${own['egress'] * 1e9:.17g}/GB"})
    return found


def _sites(scenario: Scenario, wan: Wan) -> dict[str, dict[str, Any]]:
    """What leaves and enters every building, where that has a limit of its own, and what is said of its uplinks."""
    count = len(scenario.fleet.islands)
    names = ("up", "down", "uplink", "buffer", "planes")
    rows = {name: np.broadcast_to(np.asarray(getattr(wan, name), dtype=float), (count,)) for name in names}
    made: dict[str, dict[str, Any]] = {}
    for at, island in enumerate(scenario.fleet.islands):
        own = {name: float(row[at]) for name, row in rows.items()}
        word = _shared(float(np.max(wan.lanes)), island, island)
        size = _sizes(island, island)[word]
        said = {name: _exactly(own[name] / size, "B/s") for name in names[:2] if math.isfinite(own[name])}
        said |= {"shared": word} if said else {}
        said |= {"uplink": _exactly(own["uplink"], "B/s")} if math.isfinite(own["uplink"]) else {}
        said |= {"buffer": _exactly(own["buffer"], "B")} if math.isfinite(own["buffer"]) else {}
        made[island.name] = said | ({"planes": int(own["planes"])} if own["planes"] > 1.0 else {})
    return {name: said for name, said in made.items() if said}


def _sizes(one: Island, other: Island) -> dict[str, float]:
    """Parts of a rate by whom it belongs to."""
    return {
        "island": 1.0, "node": float(min(one.nodes, other.nodes)), "gpu": float(min(one.gpus, other.gpus)),
    }  # fmt: skip


def _shared(lanes: float, one: Island, other: Island) -> str:
    """Whose a rate is that has so many lanes."""
    return next((word for word, size in _sizes(one, other).items() if size == lanes), "island")


def _exactly(number: Any, unit: str) -> str:
    """A quantity with all its digits."""
    return f"{float(number):.17g} {unit}"
