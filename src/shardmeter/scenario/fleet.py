"""The islands of a scenario: GPUs, instance or short form to an island, with every default said."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from shardmeter.core.errors import BadScenario, Violation, quoted
from shardmeter.core.quantity import show
from shardmeter.core.record import changed, record
from shardmeter.scenario.bounds import GPUS, ISLANDS
from shardmeter.scenario.causes import failing
from shardmeter.scenario.islands import TierInput, build_island
from shardmeter.scenario.parts import Findings, Rows, lookup, part
from shardmeter.scenario.schema import IslandInput, ScenarioInput
from shardmeter.scenario.tariffs import Rented, paid, powered
from shardmeter.scenario.yaml_reader import Path
from shardmeter.specs import Accelerator, Fabric, Instance, Island, Region

if TYPE_CHECKING:
    from shardmeter.scenario.prices import Prices


@record
class _Machines:
    """What one island is made of, before its network is built."""

    accelerator: Accelerator
    nodes: float
    gpus_per_node: float
    instance: Instance | None


@record
class Entry:
    """One item of `fleet.islands`: an island, or several that are alike."""

    names: tuple[str, ...]
    """Of its islands: one, or as many as `count` says."""
    name: str
    asked: IslandInput
    path: Path
    island: Island | None
    """The first of them; None where it could not be built, which is noted."""


def resolve_island(given: ScenarioInput, rows: Rows, found: Findings) -> tuple[Island | None, IslandInput]:
    """The first island of the scenario, and what was said about it; None after noting why there is none."""
    entries = resolve_fleet(given, rows, found)
    return (entries[0].island, entries[0].asked) if entries else (None, IslandInput())


def resolve_fleet(given: ScenarioInput, rows: Rows, found: Findings) -> tuple[Entry, ...]:
    """What the scenario says of islands, item by item, after noting what is wrong with them; none where nothing is said."""
    asked = _asked(given, found)
    items = [(one, path, *named(one, at, len(asked))) for at, (one, path) in enumerate(asked)]
    _check_names([(path, name, names) for _, path, name, names in items], found)
    single = len(items) == 1
    inner = [found if single else found.apart() for _ in items]
    prices = _prices(given, rows, found)
    made = [
        Entry(name=name, names=names, asked=one, path=path, island=_island(one, path, names[0], prices, rows, each))
        for (one, path, name, names), each in zip(items, inner, strict=True)
    ]
    if not single:
        found.add_all([(one.name, each) for one, each in zip(made, inner, strict=True)])
    return tuple(made)


def _prices(given: ScenarioInput, rows: Rows, found: Findings) -> Prices | None:
    """The file of prices that the fleet names; None where it names none, or after noting why it cannot be read."""
    name = given.fleet.prices if given.fleet else None
    if name is None:
        return None
    from shardmeter.scenario.prices import read_prices

    try:
        prices = read_prices(name, found.document.folder, rows)
    except BadScenario as error:
        path: Path = ("fleet", "prices")
        plain = Violation(field="fleet.prices", says=error.message, where=found.document.where(path))
        found.violations += error.violations or (plain,)
        return None
    found.warnings += prices.warnings
    return prices


def named(asked: IslandInput, position: int, items: int) -> tuple[str, tuple[str, ...]]:
    """What an item of several is called, and its islands: island, island-2, iowa-1 and iowa-2."""
    name = asked.name or ("island" if items == 1 else f"island-{position + 1}")
    count = asked.count or 1
    return name, (name,) if count == 1 else tuple(f"{name}-{number}" for number in range(1, count + 1))


def _check_names(items: Sequence[tuple[Path, str, tuple[str, ...]]], found: Findings) -> None:
    """Refuse names that two islands have, and more islands than can be joined."""
    owner: dict[str, Path] = {}
    for path, name, names in items:
        taken = next((one for one in dict.fromkeys((name, *names)) if one in owner), None)
        if taken is not None:
            first = ".".join(map(str, owner[taken]))
            found.refuse((*path, "name"), f"{quoted(taken)} is also the name of {first}", "give every island its own")
        owner |= dict.fromkeys((name, *names), path)
    islands = sum(len(names) for _, _, names in items)
    if islands > ISLANDS:
        found.refuse(("fleet", "islands"), f"{islands} islands are beyond reason", f"at most {ISLANDS:g}")


def _island(
    asked: IslandInput, path: Path, name: str, prices: Prices | None, rows: Rows, found: Findings
) -> Island | None:
    """One island; None after noting why there is none."""
    before = len(found.violations)
    if asked.region is not None:
        lookup(Region, asked.region, rows, (*path, "region"), found)
    machines = _machines(asked, rows, path, found)
    fabric = None if machines is None else _fabric(asked, machines, rows, path, found)
    if machines is None or len(found.violations) > before:
        return None
    what = Rented(accelerator=machines.accelerator, gpus_per_node=machines.gpus_per_node, instance=machines.instance)
    cost = paid(asked, what, prices, rows, path, found)
    preemption = None if asked.preemption is None else failing(asked.preemption, rows, (*path, "preemption"), found)
    tiers = upper_tiers(asked, path, found)
    gpus = machines.nodes * machines.gpus_per_node
    if gpus > GPUS:
        found.refuse((*path, "nodes"), f"{gpus:g} GPUs are beyond reason", f"at most {GPUS:g}")
    if len(found.violations) > before:
        return None
    try:
        built = build_island(
            accelerator=machines.accelerator,
            nodes=machines.nodes,
            gpus_per_node=machines.gpus_per_node,
            fabric=fabric,
            name=name,
            nics=asked.nics,
            tiers=tiers,
            price=cost.price,
            price_basis=cost.basis,
            tariff=cost.tariff,
            power=powered(asked, machines.instance, rows, found),
            region=asked.region or (machines.instance.region if machines.instance else ""),
        )
    except BadScenario as error:
        for violation in error.violations:
            field = tuple(int(step) if step.isdigit() else step for step in violation.field.split("."))
            found.refuse((*path, *field), violation.says, violation.way_out, violation.rule)
        return None
    island = changed(built, preemption=preemption)
    _warn(machines, tiers, found)
    inner = island.tiers[0]
    if inner.torus:
        lengths = " x ".join(f"{axis.length:g}{'' if axis.closed else ' (open)'}" for axis in inner.torus)
        found.assumptions.append(f"{inner.name} of {lengths}: ranks fill its axes in rank_order, the innermost first")
    return island


def _asked(given: ScenarioInput, found: Findings) -> tuple[tuple[IslandInput, Path], ...]:
    """The items of the fleet, or that of the short form, with their places."""
    islands = given.fleet.islands if given.fleet else None
    if given.gpus is not None and islands is not None:
        found.refuse(("gpus",), "both gpus and fleet are given", "keep one of the two")
    elif given.gpus is not None:
        short = f"{given.gpus[0]:.15g}x{given.gpus[1]}"
        return ((IslandInput.model_validate({"gpus": short}), ("gpus",)),)
    elif not islands:
        found.refuse(("gpus",), "no GPUs are named", "say gpus: 64xH100-SXM5-80GB (--gpus), or fleet.islands")
    else:
        return tuple((one, ("fleet", "islands", at)) for at, one in enumerate(islands))
    return ()


def _machines(asked: IslandInput, rows: Rows, path: Path, found: Findings) -> _Machines | None:
    sources = [name for name in ("gpus", "accelerator", "instance") if getattr(asked, name) is not None]
    if len(sources) != 1:
        what = " and ".join(sources) + " are given" if sources else "neither accelerator, instance nor gpus is given"
        found.refuse(path, what, "say one of accelerator, instance, gpus: NxNAME")
        return None
    if asked.gpus is not None:
        return _short_form(asked, rows, path, found)
    instance = None
    if asked.instance is not None:
        instance = lookup(Instance, asked.instance, rows, (*path, "instance"), found)
        if instance is None:
            return None
        accelerator = lookup(Accelerator, instance.accelerator, rows, (*path, "instance"), found)
    else:
        accelerator = part(Accelerator, asked.accelerator or "", rows, (*path, "accelerator"), found)
    if accelerator is None:
        return None
    per_node = asked.gpus_per_node
    if per_node is None:
        per_node = float(instance.accelerators if instance else accelerator.node_size)
        source = f"the instance {instance.name}" if instance else "the usual node size"
        found.assumptions.append(f"gpus_per_node = {per_node:g} ({source})")
    if asked.nodes is None:
        found.assumptions.append(f"nodes = 1 (left out): {per_node:g} GPUs")
    return _Machines(accelerator=accelerator, nodes=asked.nodes or 1.0, gpus_per_node=per_node, instance=instance)


def _short_form(asked: IslandInput, rows: Rows, path: Path, found: Findings) -> _Machines | None:
    """`NxNAME`: up to the node size part of one node, above it whole nodes."""
    count, name = asked.gpus or (0.0, "")
    at = path if path == ("gpus",) else (*path, "gpus")
    accelerator = part(Accelerator, name, rows, at, found)
    if asked.nodes is not None or asked.gpus_per_node is not None:
        found.refuse(at, "NxNAME already says nodes and gpus_per_node", "use accelerator, nodes, gpus_per_node")
    if accelerator is None:
        return None
    size = float(accelerator.node_size)
    if count > size and count % size:
        below = count // size * size
        rule = f"above one node of {size:g}, whole nodes"
        found.refuse(
            at, f"{count:g} is no multiple of {size:g}", f"the nearest are {below:g} and {below + size:g}", rule
        )
        return None
    per_node = min(count, size)
    return _Machines(accelerator=accelerator, nodes=count / per_node, gpus_per_node=per_node, instance=None)


def _fabric(asked: IslandInput, machines: _Machines, rows: Rows, path: Path, found: Findings) -> Fabric | None:
    """The fabric that an island names; else its machines' usual one, with the numbers that the island says of it (an inline fabric of
    its own has a `name` or a `base`)."""
    given = asked.fabric
    if given is None:
        return _usual_fabric(asked, machines, rows, path, found)
    if not isinstance(given, str) and not {"base", "name"} & given.model_fields_set:
        usual = _usual_fabric(asked, machines, rows, path, Findings(found.document))
        if usual is not None:
            said = {name: value for name, value in given.model_dump(exclude_unset=True).items() if value is not None}
            found.assumptions.append(f"fabric {usual.name}, but for {', '.join(said)}")
            return changed(usual, **said)
    return part(Fabric, given, rows, (*path, "fabric"), found)


def _usual_fabric(asked: IslandInput, machines: _Machines, rows: Rows, path: Path, found: Findings) -> Fabric | None:
    """What joins the nodes of an instance, or usually those of an accelerator; None where that is not known."""
    instance, accelerator = machines.instance, machines.accelerator
    alone = machines.nodes * machines.gpus_per_node <= accelerator.scale_up_domain
    name = instance.fabric if instance and instance.fabric else accelerator.fabric
    if not name:
        return None
    if alone:  # nothing crosses it: neither an unknown name nor a default is worth a word
        found = Findings(found.document)
    fabric = lookup(Fabric, name, rows, (*path, "fabric"), found)
    if not isinstance(fabric, Fabric):
        return None
    if instance is not None and instance.scale_out is not None and asked.nics is None:
        rate = instance.scale_out / instance.accelerators
        fabric = changed(fabric, bandwidth=rate, nics_per_node=None)
        found.assumptions.append(
            f"fabric {fabric.name} at {show(float(rate), 'B/s')} per GPU (instance {instance.name})"
        )
    else:
        found.assumptions.append(f"fabric {fabric.name} (the default of {accelerator.name})")
    return fabric


def upper_tiers(asked: IslandInput, path: Path, found: Findings) -> tuple[TierInput, ...]:
    """The levels above the node that an island asks for."""
    made = []
    for position, tier in enumerate(asked.tiers or ()):
        if tier.nodes is None:
            found.refuse((*path, "tiers", position), "a tier without nodes", "say how many nodes one unit has")
            continue
        made.append(
            TierInput(
                name=tier.name or f"tier {position + 1}",
                nodes=tier.nodes,
                oversubscription=tier.oversubscription or 1.0,
                latency=tier.latency,
                balance=tier.balance or "planned",
                flows=tier.flows or 1.0,
                slowest=1.0 if tier.slowest is None else tier.slowest,
            )
        )
    return tuple(made)


def _warn(machines: _Machines, tiers: tuple[TierInput, ...], found: Findings) -> None:
    for tier in tiers:
        if tier.nodes >= machines.nodes:
            found.warnings.append(
                f"a {tier.name} of {tier.nodes:g} nodes holds the whole island of {machines.nodes:g}: it has no effect"
            )
    accelerator, per_node = machines.accelerator, machines.gpus_per_node
    domain, gpus = float(accelerator.scale_up_domain), machines.nodes * per_node
    if per_node < domain <= accelerator.node_size and machines.nodes > 1:
        found.warnings.append(
            f"{per_node:g} GPUs per node, but the scale-up domain of {accelerator.name} is taken as {domain:g}; "
            f"if a domain ends at the node, set accelerator.scale_up_domain"
        )
    if gpus > domain and gpus % domain:
        found.warnings.append(f"{gpus:g} GPUs are no whole number of scale-up domains of {domain:g}")


def overridden(base: Any, own: Any) -> dict[str, Any]:
    """Two partial plans as one: what the island says wins over what the scenario says."""
    merged: dict[str, Any] = {}
    for given in (base, own):
        if given is not None:
            said = given.model_dump(exclude_unset=True)
            merged |= {name: value for name, value in said.items() if value is not None}
    return merged
