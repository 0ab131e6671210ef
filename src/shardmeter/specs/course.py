"""What a run is paid and powered by: how an island is paid, what surrounds its accelerators, what is kept and what is brought."""

from __future__ import annotations

from shardmeter.core.record import record
from shardmeter.core.units import Bytes, Count, KilogramsPerJoule, Ratio, UsdPerByte, UsdPerByteS, UsdPerJoule


@record
class Tariff:
    """How an island is paid, beside its price: rented by the hour, or owned, and then its electricity is paid."""

    kind: str = "given"
    """on demand, spot, reserved, given or owned."""
    electricity: UsdPerJoule | None = None
    """Of what is owned; None where the price covers it."""

    @property
    def owned(self) -> bool:
        """Whether nobody is paid for the hours."""
        return self.kind == "owned"


@record
class Power:
    """What surrounds an island's accelerators: its hall and its grid."""

    pue: Ratio = 1.0
    """Energy of the hall over that of the machines in it."""
    pue_basis: str = ""
    carbon: KilogramsPerJoule | None = None
    """None where the grid is not known."""
    carbon_basis: str = ""


@record
class Stock:
    """Bytes that are kept as long as the run lasts."""

    name: str
    size: Bytes = 0.0
    each: Bytes = 0.0
    """More of them for every token of the run."""
    copies: Count = 1.0
    price: UsdPerByteS | None
    """None where it is not known: so is the cost then."""
    basis: str = ""


@record
class Haul:
    """Bytes that are sent to an island once."""

    name: str
    each: Bytes
    """For every token of the run."""
    price: UsdPerByte | None
    basis: str = ""
