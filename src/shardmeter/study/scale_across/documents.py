"""A choice as a scenario that `predict` answers with the same step."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np

from shardmeter.specs import Plan, Scenario, Wan
from shardmeter.specs.plan import AXES
from shardmeter.study.planning.scenarios import plan_document
from shardmeter.study.scale_across.networks import Network


def document_of(said: Mapping[str, Any], scenario: Scenario, wan: Wan, network: Network) -> dict[str, Any]:
    """The document of a case with a plan and a network; of lines that are not all alike those that it says stay."""
    made: dict[str, Any] = copy.deepcopy(dict(said))
    made["plan"] = _plan(scenario)
    made["fleet"] = {**made["fleet"], "wan": _wan(made["fleet"].get("wan") or {}, scenario, wan, network)}
    return made


def _plan(scenario: Scenario) -> dict[str, Any]:
    """Every field of the plan that means something, with what crosses buildings."""
    whole, own = scenario.plan, scenario.plans[0]
    fields = plan_document(own)
    if own.ahead:
        fields["ahead"] = int(own.ahead)
    if own.stagger:
        fields["stagger"] = True
    if own.sync.release != Plan().sync.release:
        fields["sync"] = {"release": own.sync.release}
    for axis, cells in whole.placement:
        fields["placement"] = {axis: [list(cell) for cell in cells]}
        fields.pop(axis, None)
        if axis == "pp":
            fields |= {"schedule": own.schedule, "virtual_stages": own.virtual_stages}
    if tuple(own.rank_order) == AXES:
        fields.pop("rank_order", None)
    return fields


def _wan(said: Mapping[str, Any], scenario: Scenario, wan: Wan, network: Network) -> dict[str, Any]:
    """The lines between buildings, all alike, used as a network says."""
    gpus = float(scenario.fleet.islands[0].gpus)
    count = len(wan.islands)
    apart = ~np.eye(count, dtype=bool)

    def one(numbers: Any) -> float:
        return float(np.broadcast_to(np.asarray(numbers, dtype=float), (count, count))[apart].max())

    line = {
        "bandwidth": f"{one(wan.bandwidth) / gpus:.17g} B/s", "shared": "gpu", "rtt": f"{one(wan.rtt):.17g} s", "loss": float(one(wan.loss)),
        "transport": network.transport, "streams": network.streams, "window": f"{network.window:.17g} B", "sends": f"{network.sends:.17g} B",
        "balance": network.balance, "flows": network.flows, "slowest": float(np.max(wan.slowest)),
    }  # fmt: skip
    made: dict[str, Any] = {"default": line}
    if np.all(np.isfinite(wan.up)):
        names = [island.name for island in scenario.fleet.islands]
        made["sites"] = {name: {"up": f"{float(np.max(wan.up)) / gpus:.17g} B/s", "down": f"{float(np.max(wan.down)) / gpus:.17g} B/s", "shared": "gpu"}
                         for name in names}  # fmt: skip
    if "assumed" in said:
        made["assumed"] = said["assumed"]
    return made
