"""Fields of a scenario that are about money and electricity: how an island is paid and powered, what a run keeps and is fed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypeAlias

from pydantic import BeforeValidator, WithJsonSchema

from shardmeter.core.errors import BadQuantity, shown
from shardmeter.core.quantity import BOUNDS, EXAMPLES, price, quantity
from shardmeter.scenario.bounds import FIELDS, Bound
from shardmeter.scenario.values import (
    Duration,
    Input,
    Money,
    Name,
    Traffic,
    int_field,
    number,
    number_field,
    refused,
    said,
)

MOST_KEPT = 100_000
"""Checkpoints that a store keeps."""


def _reserved(value: Any) -> tuple[float, str]:
    """A price, or a discount: (USD/s, "gpu" or "node"), (fraction, "discount")."""
    text = value.strip() if isinstance(value, str) else value
    try:
        if isinstance(text, str) and text.startswith("$"):
            return price(text)
        share = quantity(text, "fraction")
    except BadQuantity as error:
        raise refused(error.message, "a discount such as 40%, or a price such as $1.50/gpu/h") from None
    if not 0.0 < share < 1.0:
        raise refused(f"a discount of {shown(value, 20)}", "between 0 and 1, as in 40%, or a price such as $1.50/gpu/h")
    return share, "discount"


def _zero_too(dimension: str) -> Callable[[Any], float]:
    """A reader of numbers of a dimension of which nothing is something: what is free, a grid without carbon."""

    def read(value: Any) -> float:
        try:
            return quantity(value, dimension)
        except BadQuantity as error:
            raise refused(error.message) from None

    return read


def _free(dimension: str) -> Any:
    schema = WithJsonSchema({"type": "string", "examples": [EXAMPLES[dimension]]})
    return Annotated[float, BeforeValidator(_zero_too(dimension)), schema]


Reserved: TypeAlias = Annotated[
    tuple[float, str],
    BeforeValidator(_reserved),
    WithJsonSchema({"type": ["string", "number"], "examples": ["40%", "$1.50/gpu/h"]}),
]
"""(fraction, "discount") off the price on demand, or (USD/s, per "gpu" or "node")."""
Electricity: TypeAlias = Annotated[float, *number_field("electricity", Bound(*BOUNDS["electricity"])).__metadata__]
"""US dollars a joule, above zero."""
StoragePrice: TypeAlias = Annotated[float, *_free("storage").__metadata__]
"""US dollars a byte and second."""
Carbon: TypeAlias = Annotated[float, *_free("carbon").__metadata__]
"""Kilograms a joule."""
Hall: TypeAlias = Annotated[float, *number_field("ratio", FIELDS["pue"]).__metadata__]
"""A ratio of 1 or more."""
Kept: TypeAlias = Annotated[int, *int_field(Bound(1, MOST_KEPT, True)).__metadata__]
BytesEach: TypeAlias = Annotated[float, *number("ratio", 1e-3, 1e3).__metadata__]
"""Bytes, bare: of one parameter, or of one token."""


class OwnedInput(Input):
    """Accelerators that nobody rents out: their electricity is paid, and what they lose in value."""

    power_price: Electricity | None = said("Price of electricity, as in $0.08/kWh.")
    value: Money | None = said("What one accelerator with its part of the node cost; left out, nothing is lost.")
    life: Duration | None = said("Over which it loses that value; left out: 35,040 h.")


class StorageInput(Input):
    """What is kept of the run while it lasts."""

    checkpoints: Kept | None = said("Full states that are kept at a time.")
    bytes_per_parameter: BytesEach | None = said(
        "Of a full state; left out: run.checkpoint's, else 14 (weights, master weights, two moments)."
    )
    price: StoragePrice | None = said("As in $0.023/GB/month; left out, that of the region's provider.")
    region: Name | None = said("Where it lies; left out, the first island's.")


class DatasetInput(Input):
    """The tokens of the run: kept beside every island, and brought there once."""

    bytes_per_token: BytesEach | None = said("Left out: 2 for a vocabulary of at most 65,536, else 4.")
    region: Name | None = said("Where it comes from, as provider:region.")
    price: StoragePrice | None = said("Of keeping it, as in $0.023/GB/month; left out, that of each region's provider.")
    egress: Traffic | None = said("Of bringing it to an island; left out, that of the two regions.")
