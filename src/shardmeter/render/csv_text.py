"""A document as CSV: raw numbers in SI units under stable column names."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from typing import Any

from shardmeter.render.document import Document, Row, Value


def text(document: Document) -> str:
    """The document's flat rows; columns in its own order, others in the order in which they first appear."""
    names = list(dict.fromkeys([*document.columns, *(name for row in document.flat for name in row)]))
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=names, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _value(value) for name, value in row.items()} for row in document.flat)
    return out.getvalue()


def flatten(data: Mapping[str, Any], prefix: str = "") -> Row:
    """The scalars of nested mappings as one row, keys joined by dots; lists are left out."""
    row: dict[str, Value] = {}
    for key, value in data.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            row.update(flatten(value, f"{name}."))
        elif value is None or isinstance(value, str | bool | int | float):
            row[name] = value
    return row


def _value(value: Value) -> Value:
    if value is None:
        return ""
    return ("true" if value else "false") if isinstance(value, bool) else value
