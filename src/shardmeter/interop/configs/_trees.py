"""Texts of settings as mappings, their keys as dotted paths, and the keys that a trainer has."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from functools import cache
from typing import Any

from shardmeter import data
from shardmeter.core.errors import BadScenario, kind_of
from shardmeter.scenario.yaml_reader import read_yaml

LARGEST = 1_000_000
"""Characters of the largest file of settings that is read."""
_COMMENT = re.compile(r"^\s*//.*$", re.MULTILINE)


def topped(text: str, name: str, own: Collection[str]) -> Mapping[str, Any]:
    """The mapping of a text that has one of some names anywhere; empty where it has none, or is no mapping."""
    if not any(one in text for one in own):
        return {}
    try:
        return mapping(text, name)
    except BadScenario:
        return {}


def mapping(text: str, what: str) -> dict[str, Any]:
    """The mapping of a YAML or JSON text (lines of `//` comments, which some readers of JSON take, left out). Raises BadScenario."""
    if len(text) > LARGEST:
        raise BadScenario(f"{what}: a text of {len(text):,} characters; at most {LARGEST:,}")
    found, _ = read_yaml(_COMMENT.sub("", text), what)
    if not isinstance(found, dict):
        raise BadScenario(f"{what}: {kind_of(found)} at the top, where a mapping of settings belongs")
    return found


def flat(tree: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """The leaves of nested mappings by their dotted paths; a list, and an empty mapping, is a leaf."""
    found: dict[str, Any] = {}
    for key, value in tree.items():
        path = f"{above}{key}"
        found |= flat(value, f"{path}.") if isinstance(value, Mapping) and value else {path: value}
    return found


@cache
def keys(name: str) -> frozenset[str]:
    """The settings that a trainer has, from `data/keys`: dotted paths, `a.*` where anything may stand below `a`."""
    lines = data.read_text(f"keys/{name}.txt").splitlines()
    return frozenset(line for line in lines if line and not line.startswith("#"))


def has(key: str, known: frozenset[str]) -> bool:
    """Whether a key is a known path, lies below a known `a.*`, or is a section that known paths lie in."""
    parts = key.split(".")
    free = any(".".join([*parts[:depth], "*"]) in known for depth in range(1, len(parts)))
    return key in known or free or key in _sections(known)


@cache
def _sections(known: frozenset[str]) -> frozenset[str]:
    """Every path that known ones lie below."""
    parts = [one.split(".") for one in known]
    return frozenset(".".join(path[:depth]) for path in parts for depth in range(1, len(path)))


def written(value: Any) -> str:
    """A value as a line of the report shows it: as JSON; a float as short as it can be."""
    if isinstance(value, float):
        return f"{value:.12g}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
