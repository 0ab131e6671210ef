"""What a writer of settings collects: what is said, what cannot be, and what would make another run of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from shardmeter.core.errors import Violation, cut
from shardmeter.interop.configs.record import Inexpressible, Setting


class Saying:
    """Settings by key, in the order in which they are said, with what of the scenario each says."""

    def __init__(self, format_: str) -> None:
        self.format = format_
        self.values: dict[str, Any] = {}
        self.means: dict[str, str] = {}
        self.unsaid: list[str] = []
        self.notes: list[str] = []
        self.reasons: list[Violation] = []

    def say(self, key: str, value: Any, means: str) -> None:
        """Set one key."""
        self.values[key], self.means[key] = value, means

    def leave(self, field: str, why: str) -> None:
        """A field of the scenario that is not said, as it changes nothing of the run or nothing that can be told."""
        self.unsaid.append(f"{field}: {why}")

    def refuse(self, field: str, says: str, way_out: str = "", rule: str = "") -> None:
        """A field of the scenario that makes another run of it."""
        self.reasons.append(Violation(field=field, says=says, way_out=way_out, rule=rule))

    def stop(self) -> None:
        """Raises Inexpressible where anything was refused."""
        if self.reasons:
            raise Inexpressible(f"{self.format} cannot run this plan", self.reasons)

    def settings(self, shown: Mapping[str, str] | None = None) -> tuple[Setting, ...]:
        """What is said, with values as a file shows them."""
        texts = shown or {}
        return tuple(
            Setting(key=key, value=texts.get(key, value_text(value)), means=self.means[key])
            for key, value in self.values.items()
        )


LONGEST_NAME = 120
"""Characters of a user's name in a file that is written."""


def harmless(name: str) -> str:
    """A user's name as it may stand in a comment, a docstring or a message of any file: what a shell, YAML or Python could take for its own
    (quotes, `$`, backslashes, braces, ends of lines) is an underscore."""
    return cut(re.sub(r"[^\w .,:+@=/()×-]", "_", name), LONGEST_NAME)


def value_text(value: Any) -> str:
    """A value as a report shows it: lists and mappings as YAML has them in one line."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(value_text, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {value_text(one)}' for key, one in value.items())}}}"
    return f"{value:g}" if isinstance(value, float) else str(value)


def count(value: Any) -> int:
    """A whole number of a record, which are floats."""
    return round(float(value))
