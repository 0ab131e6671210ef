"""The shape of what joins islands and keeps them together: links, sites, the synchronisation of a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from pydantic import BeforeValidator, Field, WithJsonSchema

from shardmeter.core.errors import BadScenario, printable, shown
from shardmeter.scenario.bounds import ISLANDS, STAGES, Bound
from shardmeter.scenario.ranges import is_range, values
from shardmeter.scenario.values import (
    Bandwidth,
    Distance,
    Duration,
    Input,
    Name,
    OverSubscription,
    Size,
    Traffic,
    int_field,
    number,
    refused,
    said,
)
from shardmeter.specs.geography import SHARED
from shardmeter.specs.plan import OUTER_STATES, RELEASES, SPLITS, TOPOLOGIES
from shardmeter.specs.wan import BACKENDS, BALANCES, PACKETS, TRANSPORTS

ROUND = 1e9
"""Inner steps of the longest round."""
MEMBERS = 2**30
"""Most probes of one step."""
if TYPE_CHECKING:
    Loss: TypeAlias = float
    Packet: TypeAlias = float
    Streams: TypeAlias = float
    Share: TypeAlias = float
    PartOfAll: TypeAlias = float
    Inner: TypeAlias = float
    Delay: TypeAlias = float
    Rank: TypeAlias = float
    Probed: TypeAlias = float
    Bits: TypeAlias = float
    Fragments: TypeAlias = int
    Hashing: TypeAlias = float
    Planes: TypeAlias = float
else:
    Loss, Share, PartOfAll = number("fraction", 0.0, 0.9), number("fraction", 0.0, 1.0), number("fraction", 1e-9, 1.0)
    Streams, Inner = number("count", 1, 1e6, whole=True), number("count", 1, ROUND, whole=True)
    Delay, Bits = number("count", 0, ROUND, whole=True), number("count", 1, 32)
    Packet = number("size", *PACKETS)
    Fragments = int_field(Bound(1, STAGES, True))
    Hashing, Planes = number("ratio", 0.0, 100.0), number("count", 1, 64, whole=True)
    Rank, Probed = number("count", 1, 65_536, whole=True), number("count", 1, MEMBERS, whole=True)


ALL, ANY = "all", "any"


def _use(value: Any) -> Any:
    """Names of islands, or how many: `all`, `any`, a count, several, a range."""
    way_out = "as in all, any, 2, 2..4, or [oregon, iowa]"
    if value in (ALL, ANY):
        return (value,)
    given: Any = value
    try:
        given = values(value, "fleet.use") if isinstance(value, str) and is_range(value) else value
    except BadScenario as error:
        raise refused("; ".join(one.says for one in error.violations), way_out) from None
    made = list(given) if isinstance(given, list | tuple) else [given]
    if made and all(isinstance(one, str) for one in made):
        return tuple(printable(one.strip()) for one in made)
    counts = [one for one in made if isinstance(one, int | float) and not isinstance(one, bool)]
    if not made or len(counts) < len(made) or any(one != int(one) or not 1 <= one <= ISLANDS for one in counts):
        raise refused(f"{shown(value, 40)} says neither how many islands nor which", way_out)
    return tuple(sorted({int(one) for one in counts}))


Use: TypeAlias = Annotated[
    Any,
    BeforeValidator(_use),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                {"type": "integer"},
                {"type": "array", "items": {"type": ["string", "integer"]}},
            ]
        }
    ),
]
"""Which islands take part: `(all,)`, `(any,)`, names, or how many."""


class SyncInput(Input):
    """Synchronisation across islands; inside one island every step is synchronous. A method reads some of these fields; the others
    contradict it."""

    method: Name | None = said("every_step = synchronous data parallelism; diloco, streaming_diloco, local_sgd, …")
    sync_every: Inner | None = said("Inner steps per round (H).", aliases=("sync_every", "H"))
    num_fragments: Fragments | None = said("Fragments of the parameters (P).", aliases=("num_fragments", "P"))
    fragment_sync_delay: Delay | None = said("Inner steps of delay (τ).", aliases=("fragment_sync_delay", "tau", "τ"))
    fragment_update_alpha: Share | None = said(
        "Weight of the local parameters when an update is applied (α).",
        aliases=("fragment_update_alpha", "alpha", "α"),
    )
    bits: Bits | None = said("Bits per value of the outer message.")
    should_quantize: bool | None = said("true = bits 8.")
    top_k: PartOfAll | None = said("Share of the values that is sent.")
    lead: Share | None = said("Share of the last inner step behind which the outer message may pass already.")
    outer_state: str | None = said("Where the outer copy and momentum lie.", words=OUTER_STATES)
    topology: str | None = said("How messages pass.", words=TOPOLOGIES)
    hierarchical: bool | None = said("Reduce inside islands first; false = one ring through all accelerators.")
    grace: Duration | None = said("What a deadline method waits for late islands after a round.")
    release: str | None = said(
        "When gradients of a step leave: each as it is whole, or all at its end.", words=RELEASES
    )
    split: str | None = said("How the batch is shared among unlike islands.", words=SPLITS)
    blocks: Fragments | None = said("Equal parts that the layers are cut into; every island trains one.")
    levels: Fragments | None = said("Rows of modules that a path goes through, one module of each.")
    rank: Rank | None = said("Rank of what is sent of a matrix, or of its perturbation.")
    perturbations: Probed | None = said("Directions in which a step without gradients is probed.")
    together: Probed | None = said("Passes that run side by side, each with weights of its own.")
    experts: Probed | None = said("Models that are trained apart from one another; left out, one an island.")


class LineInput(Input):
    """What passes between two islands, one direction."""

    preset: Name | None = said("A kind of line that fills what is left out: shardmeter catalog links.")
    bandwidth: Bandwidth | None = said("Capacity of one direction.")
    rtt: Duration | None = said("Round trip.")
    distance: Distance | None = said("Kilometres in a straight line, from which the round trip follows.")
    loss: Loss | None = said("Share of the packets that is lost.")
    streams: Streams | None = said("Streams that one transfer opens, the part of a message of one accelerator.")
    window: Size | None = said("Bytes that one stream has under way.")
    transport: str | None = said("How it is sent: lossless = neither window nor loss bind.", words=TRANSPORTS)
    sends: Size | None = said("Bytes that one accelerator's send to the next stage has under way.")
    hold: Duration | None = said("From the arrival of data until its buffer is free for more (RDMA's kinds).")
    redundancy: Loss | None = said("Share of the packets that make up for lost ones (transport coded).")
    mtu: Packet | None = said("Largest packet, headers included; bandwidths are then of all that is on the wire.")
    egress: Traffic | None = said("Paid by the sender.")
    shared: str | None = said("Whose the bandwidth is: the island's, each node's, each GPU's.", words=SHARED)


def _two(value: Any) -> Any:
    if isinstance(value, list | tuple) and len(value) == 2 and all(isinstance(one, str) for one in value):
        return value
    raise refused(f"{shown(value, 40)} are no two islands", "as in between: [oregon, iowa]")


Two: TypeAlias = Annotated[
    tuple[Name, Name],
    BeforeValidator(_two),
    WithJsonSchema({"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 2}),
]
"""Names of two islands."""


class LinkInput(LineInput):
    """A link: `between` two islands both ways, or `from` one `to` another."""

    between: Two | None = said("Two islands, both directions.")
    sender: Name | None = Field(default=None, alias="from", description="The sender, where the link has one direction.")
    to: Name | None = said("The receiver, where the link has one direction.")


class UplinkInput(Input):
    """How the flows of a site find its uplinks, and what these are."""

    oversubscription: OverSubscription | None = said(
        "All that the adapters send over all that the uplinks carry; gives up and down."
    )
    balance: str | None = said("How flows find uplinks: hashed, laid out, packet by packet.", words=BALANCES)
    flows: Streams | None = said("Flows (queue pairs) that a hash sees of one adapter's transfer.")
    uplink: Bandwidth | None = said("Rate of one uplink; that of an adapter if left out.")
    slowest: Share | None = said("Weight of the most loaded uplink beside the mean: 1 = all wait for it.")
    buffer: Size | None = said("Of one uplink port.")
    planes: Planes | None = said("Ports of an adapter, each into a network of its own.")


class SiteInput(UplinkInput):
    """An island's own connection to everything else."""

    preset: Name | None = said("A kind of line that fills what is left out: shardmeter catalog links.")
    up: Bandwidth | None = said("All that leaves the island, together.")
    down: Bandwidth | None = said("All that comes in, together.")
    shared: str | None = said("Whose the rates are: the island's, each node's, each GPU's.", words=SHARED)
    transport: str | None = said("How the island sends.", words=TRANSPORTS)


class DefaultInput(LineInput, UplinkInput):
    """Every pair, and every site, of which nothing else is said."""


class AssumedInput(Input):
    """How networks behave, where it is known better than by the defaults."""

    hashing: Hashing | None = said("Spread of hashed flows over uplinks: 1 + hashing·√(2·ln M/k) for the most loaded.")
    collisions: Share | None = said("What hashing one flow takes from the mean adapter.")
    spray: PartOfAll | None = said("Of the uplinks' rate where packets are sprayed.")
    planned: PartOfAll | None = said("The same where flows are laid out.")
    go_back: Hashing | None = said("Windows that a loss costs go-back-N.")
    selective: Hashing | None = said("The same of selective repeat.")
    drops: Loss | None = said("Packets lost where an uplink has no buffer.")
    incast: Hashing | None = said("Round trips of buffer more for each adapter's rate that an uplink is short of.")
    failures: Loss | None = said("Lasting failures of a link of an adapter, a month.")
    repair: Duration | None = said("Until such a link is back.")
    flaps: Hashing | None = said("Short losses of such a link, a day.")
    flap_stall: Duration | None = said("What a flap stops a job whose adapters have one port.")


class WanInput(Input):
    """What joins the islands."""

    default: DefaultInput | None = said("Every pair, where no link says otherwise.")
    links: tuple[LinkInput, ...] | None = said("Pairs that differ.")
    sites: dict[Name, SiteInput] | None = said("Connections that an island's transfers share, by its name.")
    self: LineInput | None = said("Between the islands of one `count`.")
    backend: str | None = said("Software of the collectives between islands; nccl if left out.", words=BACKENDS)
    assumed: AssumedInput | None = said("How networks behave: defaults of docs/network.md, with ranges.")
