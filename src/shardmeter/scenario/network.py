"""The network of a scenario resolved alone: what is said of lines and sites in numbers changes nothing else."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pydantic import ValidationError

from shardmeter.scenario.between import WanInput
from shardmeter.scenario.parts import Findings, Rows
from shardmeter.scenario.read import Document
from shardmeter.scenario.used import among
from shardmeter.scenario.wan import resolve_wan
from shardmeter.specs import Wan

if TYPE_CHECKING:
    from shardmeter.scenario.fleet import Entry

_FIELD = re.compile(
    r"fleet\.wan\.(?:(?:default|self|links\.[^.]+)\.(?:bandwidth|rtt|distance|loss|streams|window|egress|sends|hold|redundancy)"
    r"|sites\.[^.]+\.(?:up|down|rtt|loss|streams|window|egress)"
    r"|(?:default|sites\.[^.]+)\.(?:oversubscription|balance|flows|uplink|slowest|buffer|planes)"
    r"|(?:default|sites\.[^.]+|links\.[^.]+)\.transport|assumed\.[^.]+)"
)


def is_number_of_network(field: str) -> bool:
    """Whether a field is one number of a line or a site, of which nothing but the network depends."""
    return _FIELD.fullmatch(field) is not None


def network(document: Document, everyone: Sequence[Entry], names: Sequence[str], rows: Rows) -> Wan | None:
    """The network between the islands of some `names`, of all that a document has; None where anything is wrong with it, which only
    the whole scenario can tell."""
    fleet = document.data.get("fleet")
    said = fleet.get("wan") if isinstance(fleet, dict) else None
    try:
        asked = WanInput.model_validate(said)
    except ValidationError:
        return None
    found = Findings(document)
    made = resolve_wan(asked, everyone, rows, found)
    return None if found.violations or found.unknown else among(made, names)
