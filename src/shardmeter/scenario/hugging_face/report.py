"""What a config.json said, what was taken for granted, and what does not matter: the report of one reading."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from shardmeter.core.errors import Violation, shown


@dataclass(slots=True)
class Report:
    """Filled while a file is read; keys of nested mappings are written `text_config.hidden_size`."""

    source: str
    kind: str = ""
    """The model type that it was read as."""
    understood: dict[str, Any] = field(default_factory=dict)
    """Keys that were read, each with its value."""
    assumed: dict[str, tuple[Any, str]] = field(default_factory=dict)
    """Keys that the file leaves out: what they are taken for, and why."""
    ignored: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Keys that change neither sizes nor counts, by group."""
    unknown: tuple[str, ...] = ()
    """Keys that nothing here knows."""
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Sentences for `assumptions` beside the keys left out."""
    violations: list[Violation] = field(default_factory=list)
    parts: list[Any] = field(default_factory=list)
    """The mappings that were looked into."""

    def assume(self, key: str, value: Any, why: str) -> None:
        """Note what a key that is left out is taken for."""
        self.assumed.setdefault(key, (value, why))

    def sentence(self) -> str:
        """All that was assumed, in one line; empty if nothing was."""
        if not self.assumed:
            return ""
        told = [f"{key} = {brief(value)}{_because(why)}" for key, (value, why) in self.assumed.items()]
        return f"{self.source} leaves out, so taken from the class {self.kind} of transformers: {', '.join(told)}"


def _because(why: str) -> str:
    return "" if why == "class default" else f" ({why})"


def brief(value: Any) -> str:
    """A value of a config.json in a few characters."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}" if abs(value) < 1e15 else shown(value)
    if isinstance(value, int):
        return shown(value)
    if isinstance(value, str):
        return shown(value, 40)
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}"
    return f"a mapping of {len(value)}" if isinstance(value, dict) else shown(value)
