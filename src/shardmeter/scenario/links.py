"""Numbers of an island's links and its price as arrays: many islands of the same machines, laid out together.

No choice is made by these numbers; they reach the island as `scenario.fleet` reads one of them (`tests/law/test_sweep.py`
holds both to each other bit for bit).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pydantic import ValidationError

from shardmeter.core.record import changed, record
from shardmeter.scenario.fleet import upper_tiers
from shardmeter.scenario.inline import inline
from shardmeter.scenario.islands import build_island
from shardmeter.scenario.layout import Parts
from shardmeter.scenario.parts import Findings
from shardmeter.scenario.schema import IslandInput
from shardmeter.scenario.tariffs import price_each
from shardmeter.scenario.together import Array
from shardmeter.specs import Fabric, Island

_FIELD = re.compile(r"fleet\.islands\.[^.]+\.(price|fabric\.(?:bandwidth|share|latency|latency_base|latency_step))")


@record
class LinkNumbers:
    """The values of one such field in SI, in order."""

    name: str
    """price, or a field of the fabric."""
    values: Array
    basis: str = ""
    """Of a price: per gpu, or per node."""


def link_numbers(field: str, values: Sequence[Any]) -> LinkNumbers | None:
    """The values of a field as it reads them; None where the field, or one of the values, cannot be in an array."""
    match = _FIELD.fullmatch(field)
    if match is None:
        return None
    name = match[1].rpartition(".")[2]
    shape = IslandInput if name == "price" else inline(Fabric)
    try:
        read = [getattr(shape.model_validate({name: value}), name) for value in values]
    except ValidationError:
        return None
    bases = {one[1] if isinstance(one, tuple) else "" for one in read}
    numbers = [one[0] if isinstance(one, tuple) else one for one in read]
    if len(bases) != 1 or not all(isinstance(one, float) for one in numbers):
        return None
    return LinkNumbers(name=name, values=np.array(numbers), basis=bases.pop())


def linked(parts: Parts, moving: Sequence[LinkNumbers]) -> Island:
    """The island of some parts (without a fault) with these numbers, one value for every scenario; each name once."""
    island = parts.island
    fabric: Mapping[str, Array] = {one.name: one.values for one in moving if one.name != "price"}
    if fabric and island.outside is not None and parts.given.fleet and parts.given.fleet.islands:
        asked = parts.given.fleet.islands[0]
        built = build_island(
            accelerator=island.accelerator,
            nodes=float(island.nodes),
            gpus_per_node=float(island.gpus_per_node),
            fabric=changed(island.outside, **fabric),
            nics=asked.nics,
            tiers=upper_tiers(asked, (), Findings(parts.found.document)),
        )
        island = changed(island, tiers=built.tiers, outside=built.outside)
    for one in moving:
        if one.name == "price":
            island = changed(island, price=price_each(one.values, one.basis, island.gpus_per_node))
    return island
