"""Inputs by the names that a user sets: `fleet.islands.iowa.carbon` for what the record of an island keeps under its power."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shardmeter.core.record import changed
from shardmeter.study.diff.change import Change

ISLANDS = ("fleet", "islands")
OF_ISLAND = {
    "tariff.electricity": "owned.power_price", "power.pue": "pue", "power.carbon": "carbon", "outside": "fabric",
    "outside.nics_per_node": "nics",
}  # fmt: skip
"""By where the record of an island has it: the key of an island in a scenario."""
KINDS = {"spot": "spot", "reserved": "reserved", "owned": "owned"}
"""By how an island is paid: the key that says so. Of `given` and `on demand` the price says which."""
KEPT, BROUGHT = "run.stocks.", "run.hauls."
OF_DATA = {"price": "run.dataset.price", "each": "run.dataset.bytes_per_token"}
OF_CHECKPOINTS = {"price": "run.storage.price", "size": "run.storage.checkpoints"}
OF_HAUL = {"price": "run.dataset.egress", "each": "run.dataset.bytes_per_token"}
CAUSES = ("nodes", "gpus_per_node", "accelerator", "fabric", "nics")
"""Keys of an island from which its tiers are made."""


def settable(found: Sequence[Change]) -> list[Change]:
    """The same inputs, each by the name that `--set` takes, and once; the tiers of an island that differ because it does follow.

    Leaves out: matrices of the network, which links, sites and the catalog fill together, and rates of tiers."""
    named = [one for change in found for one in _named(change)]
    moved = {tuple(one.field.split(".")[:4]) for one in named}
    made = []
    for one in named:
        steps = one.field.split(".")
        of_tier = tuple(steps[:2]) == ISLANDS and steps[3:4] == ["tiers"]
        follows = of_tier and any((*steps[:3], cause) in moved for cause in CAUSES)
        made.append(changed(one, follows=True) if follows else one)
    return list({(one.field, str(one.a), str(one.b)): one for one in made}.values())


def _named(change: Change) -> Iterator[Change]:
    """What a user says instead of one field of a record."""
    steps = change.field.split(".")
    if tuple(steps[:2]) == ISLANDS and len(steps) > 3:
        yield from _of_island(change, ".".join(steps[:3]), ".".join(steps[3:]))
    elif change.field.startswith((KEPT, BROUGHT)):
        yield changed(change, field=_of_store(change.field))
    elif change.field.startswith("fleet.wan.assumed."):
        yield change
    elif change.field.startswith("fleet.wan.") and not isinstance(change.a, list) and not isinstance(change.b, list):
        yield changed(change, field=f"fleet.wan.default.{steps[-1]}")
    else:
        yield change


def _of_island(change: Change, island: str, rest: str) -> Iterator[Change]:
    if rest == "tariff.kind":
        for kind, key in KINDS.items():
            if kind in (change.a, change.b):
                yield changed(change, field=f"{island}.{key}", a=change.a == kind, b=change.b == kind)
        return
    key = OF_ISLAND.get(rest, rest)
    first, _, more = rest.partition(".")
    if key == rest and more and first in OF_ISLAND:
        key = f"{OF_ISLAND[first]}.{more}"
    yield changed(change, field=f"{island}.{key}")


def _of_store(field: str) -> str:
    """What is kept or brought is called after itself: its name may hold anything but a field."""
    last = field.rpartition(".")[2]
    if field.startswith(BROUGHT):
        return OF_HAUL.get(last, "run.dataset")
    names, whole = (OF_CHECKPOINTS, "run.storage") if "checkpoints" in field else (OF_DATA, "run.dataset")
    return names.get(last, whole)
