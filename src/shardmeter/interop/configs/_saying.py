"""What a writer of settings collects: what is said, what cannot be, and what would make another run of it."""

from __future__ import annotations

import re
from typing import Any

from shardmeter.core.errors import Violation, cut
from shardmeter.interop.configs.record import Inexpressible, Setting


class Saying:
    """Settings by key, in the order in which they are said, with what of the scenario each says; in groups where a file has them."""

    def __init__(self, format_: str) -> None:
        self.format = format_
        self.values: dict[str, Any] = {}
        self.means: dict[str, str] = {}
        self.unsaid: list[str] = []
        self.notes: list[str] = []
        self.reasons: list[Violation] = []
        self._title = ""
        self._titles: dict[str, str] = {}

    def begin(self, title: str) -> None:
        """Whatever is said next belongs to the group of this title."""
        self._title = title

    def say(self, key: str, value: Any, means: str) -> None:
        """Set one key."""
        self.values[key], self.means[key], self._titles[key] = value, means, self._title

    def leave(self, field: str, why: str) -> None:
        """A field of the scenario that is not said, as it changes nothing of the run or nothing that can be told."""
        self.unsaid.append(f"{field}: {why}")

    def refuse(self, field: str, says: str, way_out: str = "") -> None:
        """A field of the scenario that makes another run of it."""
        self.reasons.append(Violation(field=field, says=says, way_out=way_out))

    def stop(self) -> None:
        """Raises Inexpressible where anything was refused."""
        if self.reasons:
            raise Inexpressible(f"{self.format} cannot run this plan", self.reasons)

    def settings(self) -> tuple[Setting, ...]:
        """What is said, with values as a file shows them."""
        return tuple(
            Setting(key=key, value=value_text(value), means=self.means[key]) for key, value in self.values.items()
        )

    def groups(self) -> dict[str, list[Setting]]:
        """What is said by the titles of its groups."""
        found: dict[str, list[Setting]] = {}
        for one in self.settings():
            found.setdefault(self._titles[one.key], []).append(one)
        return found


LONGEST_NAME = 120
"""Characters of a user's name in a file that is written."""
EXACT = 2.0**53
"""Below it a float holds every whole number."""


def harmless(name: str) -> str:
    """A user's name as it may stand in a comment, a docstring or a message of any file: what a shell, YAML or Python could take for its own
    (quotes, `$`, backslashes, braces, ends of lines) is an underscore."""
    return cut(re.sub(r"[^\w .,:+@=/()×-]", "_", name), LONGEST_NAME)


def value_text(value: Any) -> str:
    """A value as a file or a report shows it: whole numbers without a fraction, lists and mappings as YAML has them in one line."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(value_text, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {value_text(one)}' for key, one in value.items())}}}"
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < EXACT else f"{value:g}"
    return str(value)


def count(value: Any) -> int:
    """A whole number of a record, which are floats."""
    return round(float(value))
