"""An accelerator row and a fabric row to an island: its size in nodes, its network tiers, its price per accelerator."""

from __future__ import annotations

import math

from shardmeter.core.errors import BadScenario, Violation
from shardmeter.core.record import record
from shardmeter.core.units import BytesPerS, Count, UsdPerS
from shardmeter.engine.uplinks import hashed
from shardmeter.specs import Accelerator, Fabric, Island, Power, Tariff, Tier, TorusAxis
from shardmeter.specs.assumed import Assumed


@record
class TierInput:
    """A level above the node: units of `nodes` nodes whose uplinks are oversubscribed."""

    name: str
    nodes: float
    oversubscription: float = 1.0
    latency: float | None = None
    """Seconds; the fabric's where it is None."""
    balance: str = "planned"
    """How flows find the uplinks of a unit, one for an adapter's rate each."""
    flows: float = 1.0
    """Flows of one adapter that a hash sees."""
    slowest: float = 1.0
    """Weight of the most loaded uplink beside the mean."""


def build_island(
    *,
    accelerator: Accelerator,
    nodes: float,
    gpus_per_node: float,
    fabric: Fabric | None,
    name: str = "island",
    nics: float | None = None,
    tiers: tuple[TierInput, ...] = (),
    price: UsdPerS | None = None,
    price_basis: str = "",
    tariff: Tariff | None = None,
    power: Power | None = None,
    region: str = "",
) -> Island:
    """An island of `nodes` × `gpus_per_node` accelerators.

    tiers[0] is the scale-up domain of the accelerator's row (never `gpus_per_node`), cut to the island; tiers[1] the fabric
    over all accelerators, or over one unit of the first of `tiers`; each further tier is what leaves such a unit, with the
    oversubscriptions on the way multiplied; a tier that changes neither rate nor start is none. One domain has no fabric. `price` is USD/s per accelerator. Rates are B/s per
    accelerator: the fabric's NIC rate, × NICs / gpus_per_node where `nics` (or the fabric's row) counts them per node.
    The numbers of the fabric and the price may be arrays. Raises BadScenario for a missing fabric and for tiers that do not nest.
    """
    gpus = float(nodes * gpus_per_node)
    domain = min(float(accelerator.scale_up_domain), gpus)
    levels = [
        Tier(
            name=accelerator.scale_up or "scale-up",
            size=domain,
            bandwidth=accelerator.scale_up_bandwidth,
            share=accelerator.scale_up_share,
            reduce_share=accelerator.scale_up_reduce_share,
            latency=accelerator.scale_up_latency,
            latency_step=accelerator.scale_up_step,
            pair_bandwidth=accelerator.pair_bandwidth if _is_mesh(accelerator) else None,
            exchange_bandwidth=accelerator.exchange_bandwidth,
            torus=torus(accelerator, domain),
        )
    ]
    if gpus > domain:
        if fabric is None:
            says, way_out = f"{gpus:g} GPUs in domains of {domain:g} and no fabric", "name a fabric, e.g. ib-ndr400"
            raise BadScenario(f"island {name}", [Violation(field="fabric", says=says, way_out=way_out)])
        levels += _fabric_tiers(fabric, gpus, gpus_per_node, domain, nics, tiers, name)
    return Island(
        name=name,
        accelerator=accelerator,
        nodes=float(nodes),
        gpus_per_node=float(gpus_per_node),
        tiers=tuple(levels),
        price=price,
        price_basis=price_basis,
        tariff=tariff or Tariff(),
        power=power or Power(),
        region=region,
        outside=fabric,
    )


def _is_mesh(accelerator: Accelerator) -> bool:
    """Whether a pair of accelerators gets less than one accelerator's whole rate: links are point to point, no switch."""
    pair = accelerator.pair_bandwidth
    return pair is not None and bool(pair < accelerator.scale_up_bandwidth)


def torus(accelerator: Accelerator, chips: float) -> tuple[TorusAxis, ...]:
    """The axes of so many chips of a torus: as even as whole numbers allow, the shortest first (as 4x8 and 2x4x4 are named).

    Two axes close one by one, when they are as long as the machine; three close together, being made of cubes that optical
    switches join (Jouppi 2023 §2). Empty for what is no torus, or no whole number of chips."""
    count = accelerator.torus_axes
    if not count or chips != int(chips):
        return ()
    lengths = _even_factors(int(chips), count)
    least = float(accelerator.torus_closes)
    together = count > 2 and lengths[0] < least
    return tuple(TorusAxis(length=float(n), closed=n > 2 and n >= least and not together) for n in lengths)


def _even_factors(number: int, count: int) -> tuple[int, ...]:
    """`count` whole numbers of which `number` is the product, ascending, the longest as short as can be."""
    if count == 1:
        return (number,)
    found = (
        tuple(sorted((one, *_even_factors(number // one, count - 1))))
        for one in range(1, math.isqrt(number) + 1)
        if number % one == 0
    )
    return min(found, key=lambda lengths: (lengths[-1], [-n for n in lengths]))


def fabric_rate(fabric: Fabric, gpus_per_node: float, nics: Count | None = None) -> BytesPerS:
    """Wire rate per accelerator, one direction, in B/s."""
    count = fabric.nics_per_node if nics is None else nics
    return fabric.bandwidth if count is None else fabric.bandwidth * count / gpus_per_node


def _fabric_tiers(
    fabric: Fabric,
    gpus: float,
    gpus_per_node: float,
    domain: float,
    nics: float | None,
    tiers: tuple[TierInput, ...],
    island: str,
) -> list[Tier]:
    _check_nesting(tiers, domain / gpus_per_node, gpus / gpus_per_node, island)
    tiers = tuple(
        tier for tier in tiers if tier.oversubscription != 1.0 or tier.latency is not None or tier.balance != "planned"
    )
    rate, latency, name = fabric_rate(fabric, gpus_per_node, nics), fabric.latency, fabric.name
    count = fabric.nics_per_node if nics is None else nics
    is_shared = count is not None and bool(count < gpus_per_node)
    levels: list[Tier] = []
    uplinks = gpus if count is None else count * gpus / gpus_per_node
    for unit in (*tiers, None):
        size = gpus if unit is None else min(unit.nodes * gpus_per_node, gpus)
        levels.append(
            Tier(
                name=name,
                size=size,
                bandwidth=rate,
                adapter=fabric.bandwidth if is_shared else None,
                share=fabric.share,
                latency=latency,
                latency_base=fabric.latency_base,
                latency_step=fabric.latency_step,
            )
        )
        if unit is None or size >= gpus:
            return levels
        uplinks = uplinks / unit.oversubscription
        kept = hashed(unit.balance, unit.flows, unit.oversubscription, uplinks, unit.slowest, Assumed())
        rate, name = rate / unit.oversubscription * kept, f"between {unit.name} units"
        latency = latency if unit.latency is None else unit.latency
    return levels


def _check_nesting(tiers: tuple[TierInput, ...], inner: float, nodes: float, island: str) -> None:
    """Refuse tiers that are no larger than the one inside them, or no whole number of it, or that do not fill the island."""
    found = []
    for position, tier in enumerate(tiers):
        field, says, way_out = f"tiers.{position}.nodes", "", ""
        rule = "tiers go innermost first, each a whole number of the one inside"
        if tier.nodes <= inner or tier.nodes % inner:
            says = f"{tier.name} of {tier.nodes:g} nodes around units of {inner:g}"
            way_out = f"nodes: {max(2, math.ceil(tier.nodes / inner)) * inner:g}"
        elif tier.nodes < nodes and nodes % tier.nodes:
            says, rule = (
                f"{nodes:g} nodes are no whole number of {tier.name} of {tier.nodes:g}",
                "units are of one size",
            )
            legal = [d for d in range(1, math.isqrt(int(nodes)) + 1) if nodes % d == 0]
            sizes = sorted({*legal, *(int(nodes) // d for d in legal)})
            near = {*[d for d in sizes if d < tier.nodes][-1:], *[d for d in sizes if d > tier.nodes][:1]}
            way_out = f"nodes: {' or '.join(f'{d:g}' for d in sorted(near))}"
        if says:
            found.append(Violation(field=field, says=says, rule=rule, way_out=way_out))
        inner = max(tier.nodes, inner)
    if found:
        raise BadScenario(f"island {island}", found)
