"""What the catalog knows of places and of lines between them: regions, measured pairs, prices of traffic, kinds of lines."""

from __future__ import annotations

from shardmeter.core.record import record
from shardmeter.core.units import (
    Bytes,
    BytesPerS,
    Count,
    Degrees,
    Fraction,
    KilogramsPerJoule,
    Ratio,
    Seconds,
    UsdPerByte,
    UsdPerByteS,
)
from shardmeter.specs.wan import BALANCES, TRANSPORTS

SHARED = ("island", "node", "gpu")
"""Whose a rate is: the whole island's, every node's, every accelerator's."""
WORDS: dict[str, tuple[str, ...]] = {
    "of": ("site", "link"), "transport": TRANSPORTS, "shared": SHARED, "balance": BALANCES,
}  # fmt: skip
"""Vocabularies of a line."""


@record
class Region:
    """A cloud region: a row of `data/geo/regions.csv`, named provider:region."""

    name: str
    provider: str
    city: str
    continent: str
    latitude: Degrees
    longitude: Degrees
    vm_bandwidth: BytesPerS | None = None
    """Most that one virtual machine sends to other regions: the provider's cap."""
    window: Bytes | None = None
    """What a single TCP stream into it has under way."""


@record
class Pair:
    """Two regions between which was measured: a row of `data/geo/pairs.csv`, named region/region. Rates are of one virtual machine
    at each end."""

    name: str
    rtt: Seconds
    bandwidth: BytesPerS
    """From the first to the second."""
    bandwidth_back: BytesPerS
    streams: Count
    date: str = ""
    source: str = ""


@record
class Egress:
    """A price of traffic: a row of `data/geo/egress.csv`, named provider/continent of the sender/reach."""

    name: str
    price: UsdPerByte
    date: str = ""
    source: str = ""


@record
class Grid:
    """What an island's electricity is: a row of `data/grids.csv`. A region (provider:region) has the carbon of its grid, a provider
    (or `other`) what its halls use beside the machines."""

    name: str
    carbon: KilogramsPerJoule | None = None
    """Emitted by the power plants of the grid, on the average of a year, location-based."""
    pue: Ratio | None = None
    """Energy of the hall over that of the machines in it."""
    date: str = ""
    source: str = ""


@record
class Storage:
    """What a provider charges for bytes kept: a row of `data/storage.csv`, named by the provider."""

    name: str
    price: UsdPerByteS
    date: str = ""
    notes: str = ""
    source: str = ""


@record
class Line:
    """A kind of line: a row of `data/geo/links.csv`. `of` says whether it is a site's own connection (`up`, `down`) or joins two
    (`bandwidth`); what it leaves open, whoever names it must say."""

    name: str
    of: str
    bandwidth: BytesPerS | None = None
    up: BytesPerS | None = None
    down: BytesPerS | None = None
    rtt: Seconds | None = None
    """Of a site: to another of the kind, half of it its own."""
    loss: Fraction | None = None
    window: Bytes | None = None
    streams: Count | None = None
    transport: str | None = None
    shared: str | None = None
    egress: UsdPerByte | None = None
    sends: Bytes | None = None
    hold: Seconds | None = None
    redundancy: Fraction | None = None
    mtu: Bytes | None = None
    oversubscription: Ratio | None = None
    balance: str | None = None
    flows: Count | None = None
    uplink: BytesPerS | None = None
    slowest: Fraction | None = None
    buffer: Bytes | None = None
    planes: Count | None = None
    notes: str = ""
    source: str = ""
