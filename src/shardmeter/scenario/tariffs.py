"""How an island is paid and powered: its price by what it says, a file of prices or the catalog, each with its date; its hall, its grid."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardmeter.core.quantity import show
from shardmeter.core.record import record
from shardmeter.core.units import Count, Seconds, UsdPerS
from shardmeter.physics import money
from shardmeter.scenario import geography
from shardmeter.scenario.parts import Findings, Rows
from shardmeter.scenario.schema import IslandInput
from shardmeter.scenario.yaml_reader import Path
from shardmeter.specs import Accelerator, Instance, Power, Tariff

if TYPE_CHECKING:
    from shardmeter.scenario.money import OwnedInput
    from shardmeter.scenario.prices import Offer, Prices

LIFE: Seconds = 35040.0 * 3600.0
"""Over which owned hardware loses its value: four years of 365 d, as Cloud Carbon Footprint takes of servers."""
NO_PRICE = "no price is known: the cost is null (say price: $2.10/gpu/h, or --price '$2.10/gpu/h')"
"""A warning, which is none where nothing is priced."""
OTHER = "other"
"""The row of `data/grids.csv` for halls of whoever is no provider."""


@record
class Paid:
    """What an island's hours cost."""

    price: UsdPerS | None = None
    """Of one accelerator."""
    basis: str = ""
    """Where the price is from; of none, what lacks it, where that is known."""
    tariff: Tariff = Tariff()


@record
class Rented:
    """What is paid for."""

    accelerator: Accelerator
    gpus_per_node: Count
    instance: Instance | None


def paid(asked: IslandInput, what: Rented, prices: Prices | None, rows: Rows, path: Path, found: Findings) -> Paid:
    """The price of an island and where it comes from. What says it twice is refused; where none is known there is none, with a
    warning."""
    if asked.owned is not None:
        for name in ("price", "spot", "reserved"):
            if getattr(asked, name):
                found.refuse((*path, name), "stands beside owned: what is owned is not rented", "keep one of the two")
        return _owned(asked.owned, path, found)
    if asked.spot and (asked.price is not None or asked.reserved is not None):
        other = "price" if asked.price is not None else "reserved"
        found.refuse((*path, "spot"), f"both {other} and spot are given", "keep one of the two")
    if asked.price is not None:
        amount, basis = asked.price
        whole = Paid(price=price_each(amount, basis, what.gpus_per_node), basis=f"given per {basis}")
        return _reserved(asked, whole, path, found)
    if asked.reserved is not None and asked.reserved[1] != "discount":
        amount, basis = asked.reserved
        each = price_each(amount, basis, what.gpus_per_node)
        return Paid(price=each, basis=f"reserved, given per {basis}", tariff=Tariff(kind="reserved"))
    made = _offered(asked, what, prices, rows, found) if prices is not None else None
    listed = made or _listed(asked, what, path, found)
    if prices is not None and made is None and listed.price is None and listed.basis:
        listed = Paid(basis=f"{listed.basis}, nor has {prices.name}")
    return _reserved(asked, listed, path, found)


def price_each(amount: UsdPerS, basis: str, gpus_per_node: Count) -> UsdPerS:
    """A price per "gpu" or per "node" as one per accelerator."""
    return amount if basis == "gpu" else amount / gpus_per_node


def _owned(given: OwnedInput, path: Path, found: Findings) -> Paid:
    if given.power_price is None:
        found.refuse((*path, "owned"), "does not say what electricity costs", "owned: {power_price: $0.08/kWh}")
        return Paid()
    tariff = Tariff(kind="owned", electricity=given.power_price)
    if given.value is None:
        if given.life is not None:
            found.refuse((*path, "owned", "life"), "a life, but no value that is lost over it", "say value: $30,000")
        return Paid(price=0.0, basis="owned", tariff=tariff)
    life = LIFE if given.life is None else given.life
    if life <= 0.0:
        found.refuse((*path, "owned", "life"), "0 makes no sense here", "life: 1460 d")
        return Paid()
    if given.life is None:
        found.assumptions.append("owned.life = 35,040 h (left out)")
    basis = f"owned, {show(given.value, 'USD')} a GPU over {show(float(life), 's')}"
    return Paid(price=float(money.depreciation(given.value, life)), basis=basis, tariff=tariff)


def _reserved(asked: IslandInput, whole: Paid, path: Path, found: Findings) -> Paid:
    """The price after a discount for what is reserved."""
    if asked.reserved is None:
        return whole
    share, kind = asked.reserved
    if kind != "discount":
        found.refuse((*path, "reserved"), "both price and a reserved price are given", "keep one of the two")
        return whole
    if whole.price is None:
        return whole
    basis = f"{100 * share:g} % off for reserving: {whole.basis}"
    return Paid(price=whole.price * (1.0 - share), basis=basis, tariff=Tariff(kind="reserved"))


def _offered(asked: IslandInput, what: Rented, prices: Prices, rows: Rows, found: Findings) -> Paid | None:
    """The cheapest offer of a file; None where the file does not have the machine, or no such price of it, and the catalog may: both are
    said."""
    from shardmeter.scenario.prices import offers_of

    row, device = what.instance, what.accelerator
    machine = row.name if row else device.name
    names = (row.name, *_aliases(rows, "instances", row.name)) if row else ()
    region = _region(asked, row, rows)
    offers = offers_of(
        prices, names, device, region, _aliases(rows, "accelerators", device.name), strict=asked.region is not None
    )
    kind = _kind(asked)
    if not offers:
        place = f" in {region}" if asked.region else ""
        found.warnings.append(f"{prices.name} has no offer of {machine}{place}: the catalog's price, if any, is taken")
        return None
    best = min(offers, key=lambda one: float("inf") if (own := _amount(one, kind)) is None else own)
    each = _amount(best, kind)
    if each is None:
        says = f"{prices.name} has no {kind} price of {machine}"
        if row is not None:
            found.warnings.append(f"{says}: the catalog's, if any, is taken")
            return None
        found.warnings.append(f"{says}: the cost is null (say price: $2.10/gpu/h, or --price '$2.10/gpu/h')")
        return Paid(basis=says)
    said = ", ".join(filter(None, (f"{best.instance or best.accelerator} {kind}", best.region, best.date)))
    said = f"{said} ({best.where})"
    found.assumptions.append(f"price {show(float(each), 'USD/s')} per GPU: {said}")
    return Paid(price=each, basis=said, tariff=Tariff(kind=kind))


def _kind(asked: IslandInput) -> str:
    return "spot" if asked.spot else "on demand"


def _amount(offer: Offer, kind: str) -> UsdPerS | None:
    return offer.spot if kind == "spot" else offer.price


def _aliases(rows: Rows, kind: str, name: str) -> tuple[str, ...]:
    """Other names of a row."""
    return rows.aliases(kind, name) if rows.knows(kind, name) else ()


def _listed(asked: IslandInput, what: Rented, path: Path, found: Findings) -> Paid:
    """The price of the instance's row."""
    row = what.instance
    if row is None:
        if asked.spot:
            found.refuse((*path, "spot"), "spot prices belong to an instance", "name an instance, or say price")
        found.warnings.append(NO_PRICE)
        return Paid()
    kind, amount = ("spot", row.spot) if asked.spot else ("on demand", row.price)
    if amount is None:
        says = f"{row.name} has no {kind} price"
        found.warnings.append(f"{says}: the cost is null (say price: $98.32/node/h, or --price '$98.32/node/h')")
        return Paid(basis=f"the catalog has no {kind} price of {row.name}")
    each = float(amount / row.accelerators)
    basis = f"{row.name} {kind}, {row.region}, {row.date}".rstrip(", ").replace(", , ", ", ")
    found.assumptions.append(f"price {show(each, 'USD/s')} per GPU: {row.name} {kind}, {row.date}".rstrip(", "))
    return Paid(price=each, basis=basis, tariff=Tariff(kind=kind))


# ---- power -----------------------------------------------------------------------------------------------------------------------


def powered(asked: IslandInput, instance: Instance | None, rows: Rows, found: Findings) -> Power:
    """The hall and the grid of an island: what it says, else the rows of its provider and its region. What is owned stands in no
    provider's hall, wherever it is: nobody knows its PUE but its owner."""
    region = _region(asked, instance, rows)
    provider = region.partition(":")[0] if ":" in region else "" if instance is None else instance.provider.lower()
    if asked.owned is not None:
        provider = OTHER
    if asked.pue is not None:
        pue, basis = asked.pue, f"PUE {asked.pue:g} as said"
    else:
        hall = rows.grid(provider if provider and rows.knows("grids", provider) else OTHER)
        pue = 1.0 if hall.pue is None else float(hall.pue)
        whose = "halls of all kinds" if hall.name == OTHER else hall.name
        basis = f"PUE {pue:g} of {whose}, {hall.date}"
        if asked.owned is not None:
            found.assumptions.append(
                f"pue = {pue:g} (left out, and owned: {whose}, {hall.date}); say that of your hall"
            )
    if asked.carbon is not None:
        return Power(pue=pue, pue_basis=basis, carbon=asked.carbon, carbon_basis=f"{_intensity(asked.carbon)} as said")
    if not region or not rows.knows("grids", region):
        return Power(pue=pue, pue_basis=basis)
    grid = rows.grid(region)
    if grid.carbon is None:
        return Power(pue=pue, pue_basis=basis)
    said = f"{_intensity(float(grid.carbon))} of {grid.name}, {grid.date}"
    if asked.owned is not None:
        found.assumptions.append(
            f"carbon = {_intensity(float(grid.carbon))} (left out: the grid of {grid.name}, {grid.date})"
        )
    return Power(pue=pue, pue_basis=basis, carbon=grid.carbon, carbon_basis=said)


def _intensity(value: float) -> str:
    return show(value, "kg/(W*s)")


def _region(asked: IslandInput, instance: Instance | None, rows: Rows) -> str:
    """The region of an island as the catalog names it; as it is written where the catalog does not know it, "" where none is."""
    written = asked.region or ("" if instance is None else instance.region)
    known = geography.known_region(written, rows) if written else None
    if known is not None and instance is not None and not asked.region and known.provider != instance.provider.lower():
        return written
    return written if known is None else known.name
