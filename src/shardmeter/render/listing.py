"""The pages of the catalog: the rows of one kind, or one row with its sources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args, get_origin, get_type_hints

from shardmeter.core.units import Unit
from shardmeter.render.document import Column, Document, Fact, Facts, Table, Value

SHOWN: dict[str, tuple[str, ...]] = {
    "accelerators": ("name", "memory", "memory_bandwidth", "peak.bf16", "scale_up", "scale_up_domain", "fabric"),
    "fabrics": ("name", "bandwidth", "share", "latency", "nics_per_node"),
    "instances": ("name", "provider", "accelerator", "accelerators", "fabric", "price", "region", "date"),
    "models": ("name", "family", "layers", "hidden", "heads", "kv_heads", "vocab", "context", "parameters"),
    "stacks": ("name", "title", "framework", "year", "attention", "kernels", "fitted_on"),
}
"""Columns of the list of each kind; one entry shown by name has every field."""


def several(kind: str, rows: Sequence[Any]) -> Document:
    """All rows of a kind."""
    fields = [fields_of(row) for row in rows]
    units = units_of(rows[0]) if rows else {}
    names = SHOWN.get(kind) or tuple(fields[0] if fields else ())
    columns = tuple(
        Column(key=name, title=name.replace("_", " "), unit=_unit(units, name), wide=name in {"title", "fitted_on"})
        for name in names
    )
    return Document(
        title=f"{len(rows)} {kind}",
        sections=(Table(title=kind.capitalize(), columns=columns, rows=tuple(fields)),),
        data={"kind": kind, "rows": fields},
        flat=tuple(fields),
    )


def one(kind: str, row: Any) -> Document:
    """One row, every field, with where it comes from."""
    fields, units = fields_of(row), units_of(row)
    facts = tuple(
        Fact(label=name.replace("_", " "), value=value, unit=_unit(units, name))
        for name, value in fields.items()
        if value not in (None, "")
    )
    return Document(
        title=str(fields.get("name", "")),
        sections=(Facts(title=kind.capitalize(), facts=facts),),
        data={"kind": kind, "row": fields},
        flat=(fields,),
    )


def fields_of(row: Any) -> dict[str, Value]:
    """A record or mapping as one flat row; mappings become `name.key`, lists become text."""
    items = row.items() if isinstance(row, Mapping) else ((name, getattr(row, name)) for name in type(row).__slots__)
    flat: dict[str, Value] = {}
    for name, value in items:
        if isinstance(value, Mapping):
            flat.update({f"{name}.{key}": _value(item) for key, item in value.items()})
        else:
            flat[name] = _value(value)
    return flat


def units_of(row: Any) -> dict[str, str]:
    """The unit of every annotated field of a record; of a mapping's values for a mapping field."""
    if isinstance(row, Mapping):
        return {}
    return {name: _annotated(hint) for name, hint in get_type_hints(type(row), include_extras=True).items()}


def _annotated(hint: Any) -> str:
    for extra in getattr(hint, "__metadata__", ()):
        if isinstance(extra, Unit):
            return "" if extra.symbol == "1" else extra.symbol
    if get_origin(hint) is not None:
        return next((found for found in map(_annotated, get_args(hint)) if found), "")
    return next((found for found in map(_annotated, getattr(hint, "__args__", ())) if found), "")


def _unit(units: Mapping[str, str], name: str) -> str:
    return units.get(name.partition(".")[0], "")


def _value(value: Any) -> Value:
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, tuple | list):
        return ", ".join(str(item) for item in value)
    return str(value)
