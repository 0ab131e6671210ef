"""YAML to plain data with the place of every key, one event at a time: no constructors, no tags, no aliases, no recursion.

Plain scalars follow the YAML 1.2 core schema (null, true, false, numbers); everything else is text. Dates, `yes` and `on`
stay text, so that no value changes its kind behind the reader's back.
"""

from __future__ import annotations

import re
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from shardmeter.core.errors import BadScenario, Violation, shown

NESTING = 32
"""Deepest nesting of a scenario."""
VALUES = 20_000
"""Most keys and values of a scenario."""
Path = tuple[str | int, ...]

_INTEGER = re.compile(r"[-+]?[0-9]{1,30}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]{1,30}|[0-9]{1,30}(\.[0-9]{0,30})?)([eE][-+]?[0-9]{1,4})?")
_WORDS: dict[str, Any] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
    ".nan": float("nan"), ".NaN": float("nan"), ".NAN": float("nan"),
    ".inf": float("inf"), ".Inf": float("inf"), "-.inf": float("-inf"), "-.Inf": float("-inf"),
}  # fmt: skip


class _Level:
    """One open mapping or list."""

    def __init__(self, container: dict[str, Any] | list[Any], path: Path) -> None:
        self.container = container
        self.path = path
        self.key: str | None = None

    def step(self) -> Path:
        """Path of the value that comes next."""
        if isinstance(self.container, list):
            return (*self.path, len(self.container))
        return (*self.path, self.key or "")

    def add(self, value: Any) -> None:
        """Put the value that was read where it belongs."""
        if isinstance(self.container, list):
            self.container.append(value)
        else:
            self.container[self.key or ""] = value
            self.key = None


def read_yaml(text: str, name: str) -> tuple[Any, dict[Path, str]]:
    """The data of one YAML document, and `name:line:column` of every key and list item by its path.

    Raises BadScenario for malformed text, tags, anchors and aliases, duplicate keys, several documents, and nesting or size
    beyond the limits of this module.
    """
    builder = _Builder(name)
    try:
        for event in YAML(typ="safe", pure=True).parse(text):
            builder.take(event)
    except YAMLError as error:
        raise builder.malformed(error) from None
    except (ValueError, RecursionError, AttributeError, TypeError, IndexError, KeyError, AssertionError):
        raise BadScenario(f"{name}: not readable as YAML") from None
    return builder.root, builder.places


def scalar(text: str) -> Any:
    """A plain (unquoted) scalar by the core schema: None, bool, int, float or the text itself."""
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else text


class _Builder:
    """Plain data from events; refuses what a scenario does not need."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.root: Any = None
        self.places: dict[Path, str] = {}
        self.open: list[_Level] = []
        self.documents = 0
        self.count = 0

    def take(self, event: Any) -> None:
        """One event of the parser."""
        if isinstance(event, DocumentStartEvent):
            self.documents += 1
            if self.documents > 1:
                raise self._refused(event, "a second document", "one scenario per file", "split the file at `---`")
        elif isinstance(event, AliasEvent):
            raise self._refused(event, f"the alias *{event.anchor}*", "no anchors or aliases", "write the value out")
        elif isinstance(event, (MappingEndEvent, SequenceEndEvent)):
            self.open.pop()
        elif isinstance(event, (MappingStartEvent, SequenceStartEvent, ScalarEvent)):
            self._node(event)

    def _node(self, event: Any) -> None:
        if getattr(event, "anchor", None):
            raise self._refused(event, f"the anchor &{event.anchor}", "no anchors or aliases", "write the value out")
        if getattr(event, "tag", None):
            raise self._refused(event, f"the tag {event.tag}", "plain data only", "leave the tag out")
        self.count += 1
        if self.count > VALUES:
            raise self._refused(event, f"more than {VALUES} values", "a scenario is small", "split it")
        level = self.open[-1] if self.open else None
        if level is not None and isinstance(level.container, dict) and level.key is None:
            self._key(event, level)
            return
        if isinstance(event, ScalarEvent):
            self._put(level, scalar(event.value) if event.style is None else event.value, event)
            return
        container: dict[str, Any] | list[Any] = {} if isinstance(event, MappingStartEvent) else []
        path = level.step() if level else ()
        self._put(level, container, event)
        self.open.append(_Level(container, path))
        if len(self.open) > NESTING:
            raise self._refused(event, f"more than {NESTING} levels of nesting", "a scenario is shallow", "flatten it")

    def _key(self, event: Any, level: _Level) -> None:
        if not isinstance(event, ScalarEvent):
            raise self._refused(event, "a key that is no text", "keys are names", "quote it if it is one")
        level.key = str(event.value)
        path = level.step()
        if isinstance(level.container, dict) and level.key in level.container:
            first = self.places.get(path, "")
            raise self._refused(event, f"duplicate key {shown(level.key)}", f"first at {first}", "keep one of the two")
        self.places[path] = self._place(event)

    def _put(self, level: _Level | None, value: Any, event: Any) -> None:
        if level is None:
            self.root = value
            self.places[()] = self._place(event)
            return
        self.places.setdefault(level.step(), self._place(event))
        level.add(value)

    def _place(self, event: Any) -> str:
        return f"{self.name}:{event.start_mark.line + 1}:{event.start_mark.column + 1}"

    def _refused(self, event: Any, says: str, rule: str, way_out: str) -> BadScenario:
        found = Violation(field="", says=says, rule=rule, way_out=way_out, where=self._place(event))
        return BadScenario(f"{self.name}: refused", [found])

    def malformed(self, error: YAMLError) -> BadScenario:
        """The parser's complaint, in one line with its place."""
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        where = f"{self.name}:{mark.line + 1}:{mark.column + 1}" if mark else self.name
        way_out = "check the indentation, quotes and brackets there"
        return BadScenario(
            f"{self.name}: not readable as YAML",
            [Violation(field="", says=str(problem)[:200], way_out=way_out, where=where)],
        )
