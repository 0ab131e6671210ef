"""Where the run happens: fabrics and instances (catalog rows), tiers, islands, the fleet."""

from __future__ import annotations

from shardmeter.core.record import changed, record
from shardmeter.core.units import BytesPerS, Count, Fraction, Ratio, Seconds, UsdPerS
from shardmeter.specs.accelerator import Accelerator
from shardmeter.specs.course import Failures, Power, Tariff
from shardmeter.specs.wan import Wan


@record
class Fabric:
    """A scale-out network: a row of `data/fabrics.csv`. Rates are per accelerator unless an island says `nics`."""

    name: str
    bandwidth: BytesPerS
    """Wire rate of one NIC, one direction."""
    share: Fraction = 0.90
    """Plateau share of the wire rate that collectives reach."""
    latency: Seconds = 82e-6
    """Added to an all-reduce for every doubling of the nodes."""
    latency_base: Seconds = 25e-6
    """Start of an all-reduce over nodes."""
    latency_step: Seconds = 4e-6
    """One step of a ring from node to node."""
    nics_per_node: Count | None = None
    """Set where the rate belongs to a node's few adapters rather than to each accelerator."""
    aliases: tuple[str, ...] = ()
    source: str = ""
    retrieved: str = ""


@record
class Instance:
    """A cloud shape: a row of `data/instances.csv`. It fills accelerator, node size, fabric and price."""

    name: str
    provider: str
    accelerator: str
    accelerators: Count
    fabric: str
    scale_out: BytesPerS | None
    """Out of one instance, one direction, all adapters together."""
    price: UsdPerS | None
    """On demand, per instance."""
    spot: UsdPerS | None
    region: str = ""
    date: str = ""
    source: str = ""


@record
class TorusAxis:
    """One axis of a torus: `length` accelerators in a row; `closed` says whether the last has a link to the first."""

    length: Count
    closed: bool


@record
class Tier:
    """One level of an island's network: `size` accelerators reach each other at `bandwidth` each."""

    name: str
    size: Count
    """Accelerators in one unit of this tier, those of the tiers inside it included."""
    bandwidth: BytesPerS
    """Wire rate per accelerator, one direction, after oversubscription."""
    share: Fraction
    latency: Seconds
    """All-reduce start added per doubling of the units below it (innermost tier: once)."""
    latency_base: Seconds = 0.0
    latency_step: Seconds = 4e-6
    """One step of a ring that crosses this tier."""
    latency_start: Seconds = 14e-6
    """Start of a ring or a send (NCCL's LL128 protocol); the innermost tier's counts."""
    reduce_share: Ratio | None = None
    """`share` of an all-reduce that the switch sums; it takes a group of `collectives.SWITCH_LEAST` inside this tier."""
    pair_bandwidth: BytesPerS | None = None
    """Rate of one pair where the tier is a mesh and not a switch: a group of n gets at most n − 1 pairs; of one link, one
    way, where it is a torus."""
    exchange_bandwidth: BytesPerS | None = None
    """What each reaches in an all-to-all of more than half a node, where that is less; shares included."""
    torus: tuple[TorusAxis, ...] = ()
    """Where the tier is a torus: its axes, in the order in which ranks fill them. A group has the links of those it spans."""
    asked: bool = False
    """Whether what crosses it passes in segments that their receivers ask for (gloo between islands)."""
    adapter: BytesPerS | None = None
    """Wire rate of one adapter where accelerators share adapters: what one of them gets while the others are silent."""


@record
class Island:
    """Accelerators of one kind under one scheduler. `tiers[0]` is the scale-up domain."""

    name: str
    accelerator: Accelerator
    nodes: Count
    gpus_per_node: Count
    tiers: tuple[Tier, ...]
    price: UsdPerS | None = None
    """Per accelerator: its rent or, of owned ones, what they lose in value."""
    price_basis: str = ""
    tariff: Tariff = Tariff()
    """How it is paid."""
    power: Power = Power()
    """What surrounds its accelerators, as electricity is counted."""
    preemption: Failures | None = None
    """How its capacity is taken away and comes back; None = it stays."""
    region: str = ""
    outside: Fabric | None = None
    """What joins its scale-up domains, or would if it had more than one; None if that is not known."""

    @property
    def gpus(self) -> Count:
        """Accelerators of the island."""
        return self.nodes * self.gpus_per_node


def bare(island: Island) -> Island:
    """The island as its steps see it: without name, place, price, power and what takes it away."""
    return changed(
        island, name="", region="", price=None, price_basis="", tariff=Tariff(), power=Power(), preemption=None
    )


@record
class Fleet:
    """One or more islands, and what joins them."""

    islands: tuple[Island, ...]
    wan: Wan | None = None
    """None for one island."""

    @property
    def gpus(self) -> Count:
        """Accelerators of all islands, summed in order."""
        total: Count = 0.0
        for island in self.islands:
            total = total + island.gpus
        return total
