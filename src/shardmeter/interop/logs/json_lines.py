"""JSON objects of a log: a line each, also behind a logger's prefix."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from shardmeter.interop.logs.lines import Log


def objects(log: Log) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Every object that fills the rest of a line, with the number of the line; cut ones are left out."""
    for place, line in enumerate(log.text.split("\n"), 1):
        start = line.find("{")
        if start < 0 or not line.rstrip().endswith("}"):
            continue
        try:
            entry = json.loads(line[start:])
        except (ValueError, RecursionError):
            continue
        if isinstance(entry, Mapping):
            yield place, entry


def scalar(value: object) -> str | float | None:
    """A number or a text; None for anything else."""
    return value if isinstance(value, str | int | float) and not isinstance(value, bool) else None
