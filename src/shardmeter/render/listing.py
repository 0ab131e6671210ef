"""The pages of the catalog: the rows of one kind, or one row with its sources. Rows are shown as written, units and all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shardmeter.render.document import Column, Document, Fact, Facts, Table, Value

SHOWN: dict[str, tuple[str, ...]] = {
    "accelerators": (
        "name",
        "memory",
        "memory_bandwidth",
        "peak_bf16",
        "scale_up_bandwidth",
        "scale_up_domain",
        "fabric",
    ),
    "fabrics": ("name", "bandwidth", "share", "latency", "nics_per_node"),
    "instances": ("name", "provider", "accelerator", "accelerators", "fabric", "price", "region", "date"),
    "models": ("name", "family", "layers", "hidden", "heads", "kv_heads", "vocab", "context", "parameters"),
    "stacks": ("name", "framework", "year", "title"),
    "regions": ("name", "city", "continent", "vm_bandwidth", "window"),
    "links": ("name", "of", "bandwidth", "up", "down", "rtt", "loss", "transport", "shared"),
    "pairs": ("name", "rtt", "bandwidth", "bandwidth_back", "streams", "date"),
    "egress": ("name", "price", "least", "most", "date"),
    "grids": ("name", "carbon", "pue", "date"),
    "storage": ("name", "price", "date", "notes"),
    "laws": ("name", "irreducible", "a", "alpha", "b", "beta", "gamma", "data", "date"),
    "failures": ("name", "mtbf", "per", "wait", "notice", "data", "date"),
    "critical_batches": ("name", "form", "coefficient", "exponent", "overhead", "data"),
}
"""Columns of the list of each kind; a row shown by its name has every field, JSON and CSV have every column."""
GIVES_WAY = frozenset({"title", "region"})


def several(kind: str, rows: Sequence[Mapping[str, str]]) -> Document:
    """All rows of a kind."""
    shown = SHOWN[kind]
    columns = tuple(
        Column(key=key, title=key.replace("_", " "), wide=key in GIVES_WAY, drop=_drop(position, len(shown)))
        for position, key in enumerate(shown)
    )
    return Document(
        title=f"{len(rows)} {kind.replace('_', ' ')}",
        sections=(Table(title="", columns=columns, rows=tuple(rows)),),
        data={"kind": kind, "rows": [dict(row) for row in rows]},
        flat=tuple(rows),
    )


def _drop(position: int, columns: int) -> int:
    """The last column gives way first; the name and what stands next to it stay."""
    return columns - position if position > 1 else 0


def one(
    kind: str, row: Mapping[str, str], record: Any, where: str, counted: Mapping[str, int] | None = None
) -> Document:
    """One row: every field as written, and in JSON the record it becomes, in SI units. `counted` is what follows from its numbers."""
    facts = tuple(Fact(label=key.replace("_", " "), value=value) for key, value in row.items() if value)
    return Document(
        title=row["name"],
        verdict=f"from {where}",
        sections=(*_counted(counted or {}), Facts(title="As written", facts=facts)),
        data={"kind": kind, **(counted or {}), "row": dict(row), "record": fields_of(record), "where": where},
        flat=(dict(row),),
    )


def _counted(counted: Mapping[str, int]) -> tuple[Facts, ...]:
    facts = tuple(Fact(label=key.replace("_", " "), value=value) for key, value in counted.items() if value)
    return (Facts(title="Counted from its numbers", facts=facts),) if facts else ()


def fields_of(record: Any) -> dict[str, Value | dict[str, Any] | list[Any]]:
    """A record as plain data."""
    return {name: _plain(getattr(record, name)) for name in type(record).__slots__}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, str | bool | int | float) else str(value)
