"""Settings of torchtitan before 0.3: a TOML file of sections."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from typing import Any

from shardmeter.core.errors import BadScenario

NESTING = 40
"""Brackets inside one another that a file of settings may have."""


def text(head: str, settings: Mapping[str, Any]) -> str:
    """The file: a comment, then the sections in the order in which they are first said."""
    sections: dict[str, list[str]] = {}
    for key, value in settings.items():
        section, _, name = key.rpartition(".")
        sections.setdefault(section, []).append(f"{name} = {json.dumps(value)}")
    blocks = [f"[{section}]\n" + "\n".join(lines) + "\n" for section, lines in sections.items()]
    return "\n".join((head, *blocks))


def comment(lines: Iterable[str]) -> str:
    """Lines as a comment of a TOML or Python file."""
    return "".join(f"# {line}\n" for line in lines)


def flat(text_: str, name: str) -> dict[str, Any]:
    """The keys of a file with their sections before them. Raises BadScenario."""
    if any(text_.count(mark) > NESTING * 100 for mark in "[{"):
        raise BadScenario(f"{name}: more brackets than a file of settings has")
    try:
        found = tomllib.loads(text_)
    except tomllib.TOMLDecodeError as error:
        raise BadScenario(f"{name}: not readable as TOML: {str(error)[:200]}") from None
    except (ValueError, RecursionError):
        raise BadScenario(f"{name}: not readable as TOML (a number of too many digits, or too deep)") from None
    try:
        return dict(_flat(found, ""))
    except RecursionError:
        raise BadScenario(f"{name}: more than {NESTING} sections in one another") from None


def _flat(found: Mapping[str, Any], before: str) -> Iterable[tuple[str, Any]]:
    if before.count(".") > NESTING:
        raise RecursionError
    for key, value in found.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", value
