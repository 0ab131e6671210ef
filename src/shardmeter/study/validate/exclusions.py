"""Rows that do not count although they can be read: by id or by source, each with its reason (`data/exclusions.csv`)."""

from __future__ import annotations

import csv
from functools import cache

from shardmeter import data


@cache
def exclusions() -> tuple[dict[str, str], dict[str, str]]:
    """Reasons by row id, and by source."""
    with data.open_text("exclusions.csv") as file:
        lines = tuple(csv.DictReader(file))
    ids = {line["id"]: line["reason"] for line in lines if line["id"]}
    sources = {line["source_key"]: line["reason"] for line in lines if line["source_key"]}
    return ids, sources


def excluded(id_: str, source_key: str) -> str:
    """Why a row does not count; empty if it does."""
    ids, sources = exclusions()
    return ids.get(id_) or sources.get(source_key, "")
