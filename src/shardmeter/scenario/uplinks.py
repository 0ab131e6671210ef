"""What a scenario says of a site's uplinks: rates that follow from its adapters, words and numbers of their balance, what is taken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from shardmeter.core.quantity import show
from shardmeter.core.record import changed
from shardmeter.engine.uplinks import adapters_of
from shardmeter.physics import network
from shardmeter.scenario.between import AssumedInput
from shardmeter.scenario.parts import Findings
from shardmeter.scenario.yaml_reader import Path
from shardmeter.specs import Island
from shardmeter.specs.assumed import MONTH, Assumed
from shardmeter.specs.wan import BALANCES, Wan

if TYPE_CHECKING:
    from shardmeter.scenario.between import UplinkInput

Row: TypeAlias = npt.NDArray[np.float64]
UPLINKS = ("oversubscription", "balance", "flows", "uplink", "slowest", "buffer", "planes")
"""What may be said of a site's uplinks."""
_UNSAID = {"flows": 1.0, "uplink": np.inf, "slowest": 1.0, "buffer": np.inf, "planes": 1.0}
_HASHED = ("flows", "slowest")
"""Numbers that only hashing reads."""
OWN = {"sends": np.inf, "hold": 0.0, "redundancy": 0.1, "mtu": 0.0}
"""Numbers of a pair that sites do not say, with what they are where nobody says them."""


def reach_of(island: Island | None) -> float:
    """Payload in B/s of all adapters of an island; inf where they are not known, NaN of an island that could not be built."""
    if island is None:
        return np.nan
    adapters, wire = adapters_of(island)
    return float(network.uplink_rate(adapters, wire, network.HEADER, 1.0))


def refuse_two_rates(said: UplinkInput, path: Path, found: Findings) -> None:
    """Note an oversubscription beside the rates that would follow from it."""
    rates = [name for name in ("up", "down") if getattr(said, name, None) is not None]
    if said.oversubscription is not None and rates:
        says = f"stands beside {' and '.join(rates)}, which follow from it"
        found.refuse((*path, "oversubscription"), says, "keep one of the two")


def follow(sites: Mapping[str, Row], members: Sequence[int], reach: Row, oversubscription: float) -> list[int]:
    """Set what leaves and enters sites of an oversubscription where no rate is said yet; gives those whose adapters are not known."""
    lacking = []
    for at in members:
        if not np.isnan(sites["up"][at]) and not np.isnan(sites["down"][at]):
            continue
        if np.isinf(reach[at]):
            lacking.append(at)
        rate = 1.0 if np.isnan(reach[at]) else reach[at] / oversubscription  # the fault of the island is noted
        for name in ("up", "down"):
            sites[name][at] = rate if np.isnan(sites[name][at]) else sites[name][at]
        sites["shared"][at] = 0.0 if np.isnan(sites["shared"][at]) else sites["shared"][at]
    return lacking


def said_of(sites: Mapping[str, Row], found: Findings) -> dict[str, Any]:
    """The fields of a network that its uplinks fill; none where nothing is said of them."""
    said = {name: ~np.isnan(sites[name]) for name in UPLINKS}
    if not any(one.any() for one in said.values()):
        return {}
    words = np.where(said["balance"], np.nan_to_num(sites["balance"]), BALANCES.index("planned")).astype(int)
    hashed = words == BALANCES.index("ecmp")
    if not said["balance"].all():
        found.assumptions.append("fleet.wan: flows find uplinks as planned, none shared (balance left out)")
    if hashed.any() and not said["flows"][hashed].all():
        found.assumptions.append("fleet.wan: a hash sees 1 flow of an adapter's transfer (flows left out)")
    if hashed.any() and not said["slowest"][hashed].all():
        found.assumptions.append("fleet.wan: all wait for the most loaded uplink (slowest left out)")
    for name in _HASHED:
        if said[name].any() and not hashed.any():
            found.warnings.append(f"fleet.wan: {name} changes nothing: no site has balance: ecmp")
    made: dict[str, Any] = {"balance": tuple(BALANCES[at] for at in words)}
    for name, unsaid in _UNSAID.items():
        if said[name].any():
            made[name] = np.where(said[name], sites[name], unsaid)
    return made


def of_pairs(pairs: Mapping[str, Row]) -> dict[str, Any]:
    """What pairs say of themselves alone, where any does."""
    said = {name: ~np.isnan(pairs[name]) for name in OWN}
    return {name: np.where(said[name], pairs[name], unsaid) for name, unsaid in OWN.items() if said[name].any()}


def assumed_of(asked: AssumedInput | None) -> Assumed:
    """The numbers of networks with those that a scenario says; failures are of a month, flaps of a day."""
    if asked is None:
        return Assumed()
    said: dict[str, Any] = {name: value for name, value in asked.model_dump().items() if value is not None}
    for name, unit in (("failures", MONTH), ("flaps", 86400.0)):
        if name in said:
            said[name] = said[name] / unit
    return changed(Assumed(), **said)


def say_failures(wan: Wan, islands: Sequence[Island | None], said: bool, found: Findings) -> None:
    """What failing links do to a job whose planes are said: stop it, or slow one adapter."""
    if not said or any(one is None for one in islands):
        return
    assumed = wan.assumed
    planes = np.broadcast_to(np.asarray(wan.planes, dtype=float), (len(islands),))
    links = np.array([adapters_of(one)[0] for one in islands if one is not None]) * planes
    down = network.down_share(assumed.failures, assumed.repair)
    for many in sorted(set(planes.tolist())):
        own = float(links[planes == many].sum())
        if many > 1.0:
            kept = network.plane_share(own, many, down)
            text = f"{own:,.0f} links in {many:g} planes: while one is down its adapter has {1.0 - 1.0 / many:.1%}, {kept:.1%} on the mean"
        else:
            failing = float(network.link_interruptions(own, assumed.failures))
            lost = network.flap_share(own, assumed.flaps, assumed.flap_stall)
            fails = (
                f"one of {own:,.0f} links fails every {show(1.0 / failing, 's')} and stops the job, which is not in "
                "its time (say failures: {mtbf: …, per: island})"
                if failing > 0.0
                else f"none of {own:,.0f} links fails"
            )
            text = f"one port an adapter: {fails}; flaps hold it up {lost:.2%} of the time, not counted"
        found.assumptions.append(f"fleet.wan: {text}")
