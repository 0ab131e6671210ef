"""What a run keeps and is fed: checkpoints in a store, the data set beside every island, each byte at a price with its date."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from shardmeter.core.quantity import show
from shardmeter.core.units import UsdPerByte, UsdPerByteS
from shardmeter.families import parameters
from shardmeter.physics import money
from shardmeter.scenario import geography
from shardmeter.scenario.parts import Findings, Rows, lookup
from shardmeter.scenario.yaml_reader import Path
from shardmeter.specs import Haul, Island, Model, Region, Stock

if TYPE_CHECKING:
    from shardmeter.scenario.money import DatasetInput, StorageInput
    from shardmeter.scenario.schema import RunInput

STATE = 14.0
"""Bytes a parameter of a full state: weights in two, master weights, and both moments of Adam in four each. BLOOM-176B wrote 13.1."""
SHORT = 65_536.0
"""Largest vocabulary whose tokens take two bytes."""


def kept(run: RunInput, model: Model, islands: Sequence[Island], rows: Rows, found: Findings) -> tuple[Stock, ...]:
    """What is kept while the run lasts; nothing that was not asked for."""
    stocks = () if run.storage is None else _checkpoints(run.storage, model, islands, rows, found)
    return (*stocks, *(() if run.dataset is None else _copies(run.dataset, model, islands, rows, found)))


def brought(run: RunInput, model: Model, islands: Sequence[Island], rows: Rows, found: Findings) -> tuple[Haul, ...]:
    """The data set on its way to every island that does not lie where it comes from."""
    asked, path = run.dataset, ("run", "dataset")
    if asked is None:
        return ()
    source = _region(asked.region, rows, (*path, "region"), found)
    each = _token(asked, model)
    hauls: list[Haul] = []
    for island in islands:
        target = geography.known_region(island.region, rows) if island.region else None
        if source is not None and target is not None and source.name == target.name:
            continue
        price, basis = _fare(asked, source, target, rows)
        hauls.append(Haul(name=f"data set to {island.name}", each=each, price=price, basis=basis))
    if any(one.price is None for one in hauls):
        says = "no price is known of bringing the data set to the islands: the cost is null"
        found.warnings.append(f"{says} (say run.dataset.region: aws:us-east-1, or egress: $0.02/GB)")
    return tuple(hauls)


def _fare(
    asked: DatasetInput, source: Region | None, target: Region | None, rows: Rows
) -> tuple[UsdPerByte | None, str]:
    if asked.egress is not None:
        return asked.egress, f"{show(asked.egress, 'USD/B')} as said"
    found = None if source is None else geography.egress(source, target, rows)
    return (None, "") if found is None else found


def _checkpoints(
    asked: StorageInput, model: Model, islands: Sequence[Island], rows: Rows, found: Findings
) -> tuple[Stock, ...]:
    path = ("run", "storage")
    if asked.checkpoints is None:
        found.refuse(path, "does not say how many checkpoints are kept", "storage: {checkpoints: 3}")
        return ()
    each = STATE if asked.bytes_per_parameter is None else asked.bytes_per_parameter
    if asked.bytes_per_parameter is None:
        found.assumptions.append(f"run.storage.bytes_per_parameter = {STATE:g} (left out)")
    where = _region(asked.region, rows, (*path, "region"), found)
    provider = _provider(islands[0], rows) if where is None else where.provider
    price, basis = _rate(asked.price, provider, rows)
    _warn(price, "the checkpoints", "run.storage.price", found)
    size = money.checkpoint_size(parameters(model), each, float(asked.checkpoints))
    return (Stock(name="storage of checkpoints", size=size, price=price, basis=basis),)


def _copies(
    asked: DatasetInput, model: Model, islands: Sequence[Island], rows: Rows, found: Findings
) -> tuple[Stock, ...]:
    """One copy for each island, at its provider's price."""
    if asked.bytes_per_token is None:
        found.assumptions.append(f"run.dataset.bytes_per_token = {_token(asked, model):g} (left out)")
    each = _token(asked, model)
    rates = [_rate(asked.price, _provider(island, rows), rows) for island in islands]
    if any(price is None for price, _ in rates):
        _warn(None, "the data set", "run.dataset.price", found)
    names = [f" of {island.name}" if len(islands) > 1 else "" for island in islands]
    return tuple(
        Stock(name=f"storage of the data set{name}", each=each, price=price, basis=basis)
        for name, (price, basis) in zip(names, rates, strict=True)
    )


def _token(asked: DatasetInput, model: Model) -> float:
    if asked.bytes_per_token is not None:
        return asked.bytes_per_token
    return 2.0 if model.vocab <= SHORT else 4.0


def _rate(given: UsdPerByteS | None, provider: str, rows: Rows) -> tuple[UsdPerByteS | None, str]:
    """A price of storage and its basis; none where nothing is said and the provider is not known."""
    if given is not None:
        return given, f"{show(float(given), 'USD/(B*s)')} as said"
    if not provider or not rows.knows("storage", provider):
        return None, ""
    row = rows.storage(provider)
    return row.price, f"{show(float(row.price), 'USD/(B*s)')} of {row.name}, {row.date}"


def _warn(price: UsdPerByteS | None, what: str, field: str, found: Findings) -> None:
    if price is None:
        found.warnings.append(f"no price is known of keeping {what}: the cost is null (say {field}: $0.023/GB/month)")


def _provider(island: Island, rows: Rows) -> str:
    region = geography.known_region(island.region, rows) if island.region else None
    return "" if region is None else region.provider


def _region(name: str | None, rows: Rows, path: Path, found: Findings) -> Region | None:
    return lookup(Region, name, rows, path, found) if name else None
