"""A document as JSON: the answer's own data, every number finite or null, with the keys that every JSON has."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from shardmeter import __version__
from shardmeter.data import DATA_DATE
from shardmeter.render.document import Document


def text(document: Document) -> str:
    """Indented JSON, one trailing newline."""
    return json.dumps(envelope(document.data), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def envelope(data: Mapping[str, Any]) -> dict[str, Any]:
    """The data with `version`, `data_date`, `assumptions` and `warnings`, made plain for JSON."""
    always = {"version": __version__, "data_date": DATA_DATE, "assumptions": [], "warnings": []}
    return {key: plain(value) for key, value in (always | dict(data)).items()}


def plain(value: Any) -> Any:
    """JSON's own types: NumPy scalars and arrays become numbers and lists, what is not finite becomes null."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    return str(value)
