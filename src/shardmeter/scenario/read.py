"""Files, texts and mappings to one plain `Document`: YAML, JSON and TOML, bounded in size and depth.

Whatever is wrong with the file itself — missing, a folder, binary, empty, too big, too deep, a list at the top, malformed —
is one BadScenario. What the fields mean is the schema's business.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any

from shardmeter.core.errors import BadScenario, UnknownName, Violation, cut, kind_of, printable, shown
from shardmeter.core.files import are_closed, at_home, read_text
from shardmeter.scenario.hugging_face.files import CONFIG, is_checkpoint, is_config
from shardmeter.scenario.hugging_face.files import LEAST as LEAST_OF_CONFIG
from shardmeter.scenario.yaml_reader import NESTING, VALUES, Path, read_yaml

LARGEST_FILE = 1_000_000
"""Bytes of the largest file that is read as a scenario."""
LEAST = "has at least `model:` and `gpus:`"
SUFFIXES = (".yaml", ".yml", ".json", ".toml")


@dataclass(slots=True)
class Document:
    """Plain data (dicts, lists, text, numbers) with the place each part came from. Not frozen: overrides edit it."""

    data: dict[str, Any]
    name: str = "scenario"
    folder: FilePath = field(default_factory=FilePath)
    places: dict[Path, str] = field(default_factory=dict)
    text: str = ""
    notes: list[str] = field(default_factory=list)
    """What options and overrides did to the document, for `assumptions`."""
    warnings: list[str] = field(default_factory=list)
    problems: list[Violation] = field(default_factory=list)
    """Options and overrides that do not apply; reported with everything else that is wrong."""
    unknown: list[UnknownName] = field(default_factory=list)
    gone: list[Path] = field(default_factory=list)
    """Places that such an option would have set."""
    begins: frozenset[str] = frozenset()
    """Structural rules that the scenario may break: a question begins there and looks at legal values only."""

    def where(self, path: Path) -> str:
        """`file:line:column` of a path, or of the nearest part around it that has one; "" where nothing is known."""
        if not self.places and self.text:
            self.places = _json_places(self.text, self.name) if self.name.endswith(".json") else {}
        for length in range(len(path), 0, -1):
            if path[:length] in self.places:
                return self.places[path[:length]]
        return _toml_place(self, path) if self.name.endswith(".toml") else ""


def read(source: object, *, what: str = "scenario") -> Document:
    """Read a path, a text, a mapping or None (an empty scenario). Raises BadScenario.

    A text with a line break, or one that starts with a brace or holds `key: value`, is YAML; any other names a file.
    """
    if source is None:
        return Document({}, what)
    if isinstance(source, Mapping):
        return Document(plain_mapping(source, what), what)
    if isinstance(source, os.PathLike):
        source = os.fspath(source)
        if isinstance(source, str):
            return read_file(FilePath(source))
    if not isinstance(source, str):
        raise BadScenario(f"{kind_of(source)} is no {what}; give a file, a YAML text or a mapping")
    if not source.strip():
        raise BadScenario(f"the name of the {what} file is empty")
    if source.lstrip().startswith("{") or "\n" in source or re.search(r":\s", source):
        if len(source) > LARGEST_FILE:
            raise BadScenario(f"a text of {len(source)} characters is no {what}; at most {LARGEST_FILE}")
        return _document(source, what, ".yaml", FilePath())
    return read_file(FilePath(source))


def checkpoint(source: object) -> Document | None:
    """The scenario that names a checkpoint and nothing else, where `source` is a folder or a file that holds a Hugging Face
    configuration; None for anything else."""
    source = os.fspath(source) if isinstance(source, os.PathLike) else source
    if not isinstance(source, str) or not source.strip() or "\n" in source or source.lstrip().startswith("{"):
        return None
    if are_closed():
        return None
    try:
        path = at_home(FilePath(source))
        folder, file = path.is_dir() and is_checkpoint(path), path.suffix.lower() == ".json" and path.is_file()
    except (OSError, ValueError):
        return None
    if folder or (file and is_config(read_file(path).data)):
        return Document({"model": path_text(path)}, source)
    return None


def path_text(path: FilePath) -> str:
    """A path as a model's text says it: never to be taken for a name."""
    text = str(path)
    return text if path.is_absolute() or text.startswith(".") else f"./{text}"


def read_file(path: FilePath, what: str = "a scenario", least: str = LEAST) -> Document:
    """Read one file by its suffix (.yaml, .yml, .json, .toml; any other is tried as YAML). `what` it should be and what such a
    file holds at `least` are for the messages. Raises BadScenario."""
    if path.name == CONFIG:
        what, least = f"a {CONFIG}", LEAST_OF_CONFIG
    text = read_text(path, what, LARGEST_FILE, BadScenario, SUFFIXES)
    name = str(path)
    if any(ord(c) < 32 and c not in "\t\n\r\f" for c in text) or "\x7f" in text:
        raise BadScenario(f"{name}: binary (control characters inside); {what} is text")
    return _document(text, name, path.suffix.lower(), path.parent, f"{what} {least}")


def plain_mapping(source: Mapping[Any, Any], what: str) -> dict[str, Any]:
    """A mapping as plain dicts, lists and scalars, NumPy numbers included. Raises BadScenario for what is none of these."""
    made = _plain(source, what, (), [0])
    if not isinstance(made, dict):
        raise BadScenario(f"{what}: wanted a mapping")
    return made


def plain(value: Any, path: str) -> Any:
    """A value as plain data; raises BadScenario for what has no place in a scenario."""
    return _plain(value, path, (), [0])


def _plain(value: Any, root: str, keys: tuple[str, ...], count: list[int]) -> Any:
    """`root` is the file or the field that holds the value, `keys` the way to it from there."""
    count[0] += 1
    if len(keys) > NESTING or count[0] > VALUES:
        raise _misplaced(root, keys, f"more than {NESTING} levels or {VALUES} values (or a mapping inside itself)")
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise _misplaced(root, keys, f"the key {shown(key)} is no text; keys are names")
        return {_text(key): _plain(item, root, (*keys, key), count) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, root, (*keys, str(i)), count) for i, item in enumerate(value)]
    if isinstance(value, str):
        return _text(value)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        return value.item()
    raise _misplaced(root, keys, f"{kind_of(value)} has no place in a scenario; use text, numbers, lists, mappings")


def _misplaced(root: str, keys: tuple[str, ...], says: str) -> BadScenario:
    """The refusal of a value: the file is named whole, the way through its keys is cut."""
    return BadScenario(f"{root}{cut(''.join(f'.{cut(key)}' for key in keys), 80)}: {says}")


def _text(text: str) -> str:
    """A text with control characters, bidirectional marks and lone surrogates written out; line ends and tabs stay."""
    return text if text.isprintable() else "".join(c if c in "\n\t" else printable(c) for c in text)


def _document(text: str, name: str, suffix: str, folder: FilePath, rule: str = f"a scenario {LEAST}") -> Document:
    if not text.strip():
        raise BadScenario(f"{name}: empty; {rule}")
    places: dict[Path, str] = {}
    if suffix == ".json":
        data = _json(text, name)
    elif suffix == ".toml":
        data = _toml(text, name)
    else:
        data, places = read_yaml(text, name)
    if not isinstance(data, dict):
        raise BadScenario(f"{name}: holds {kind_of(data)} at the top, where a mapping belongs; {rule}")
    return Document(plain_mapping(data, name), name, folder, places, text)


def within(document: Document) -> Document:
    """The document itself or, of an entry of a planner's answer, the scenario that it holds."""
    held = document.data.get("scenario")
    if not isinstance(held, dict) or "model" in document.data:
        return document
    places = {path[1:]: place for path, place in document.places.items() if path[:1] == ("scenario",)}
    return Document(held, document.name, document.folder, places)


def _bracket_depth(text: str) -> int:
    """Deepest nesting of brackets outside double-quoted strings: what a recursive parser would recurse."""
    depth = deepest = 0
    for token in re.finditer(r'"(?:[^"\\\n]|\\.)*"|[\[\]{}]', text):
        mark = token.group()
        depth += 1 if mark in "[{" else -1 if mark in "]}" else 0
        deepest = max(deepest, depth)
    return deepest


def _json(text: str, name: str) -> Any:
    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for key, value in found:
            if key in made:
                raise _duplicate(text, name, key)
            made[key] = value
        return made

    _shallow(text, name)
    try:
        return json.loads(text, object_pairs_hook=pairs)
    except json.JSONDecodeError as error:
        found = Violation(field="", says=error.msg.removesuffix(" at"), where=f"{name}:{error.lineno}:{error.colno}")
        if error.msg.startswith("Unterminated string") or not text[error.pos :].strip():
            line, column = text.rstrip().count("\n") + 1, len(text.rstrip().rpartition("\n")[2]) + 1
            found = Violation(field="", says="the file breaks off here", where=f"{name}:{line}:{column}")
        raise BadScenario(f"{name}: not readable as JSON", [found]) from None
    except (ValueError, RecursionError):
        raise BadScenario(f"{name}: not readable as JSON (a number of too many digits, or too deep)") from None


def _duplicate(text: str, name: str, key: str) -> BadScenario:
    """The refusal of a key that is there twice, with both places where the text reads as YAML too."""
    try:
        read_yaml(text, name)
    except BadScenario as error:
        if any(one.says.startswith("duplicate key") for one in error.violations):
            return error
    return BadScenario(f"{name}: duplicate key {shown(key)}; keep one of the two")


def _toml(text: str, name: str) -> Any:
    _shallow(text, name)
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadScenario(f"{name}: not readable as TOML: {str(error)[:200]}") from None
    except (ValueError, RecursionError):
        raise BadScenario(f"{name}: not readable as TOML (a number of too many digits, or too deep)") from None


def _shallow(text: str, name: str) -> None:
    if _bracket_depth(text) > NESTING:
        raise BadScenario(f"{name}: more than {NESTING} levels of nesting; a scenario is shallow: flatten it")


def _json_places(text: str, name: str) -> dict[Path, str]:
    """JSON is nearly YAML: where its text reads as YAML, the places come from there."""
    try:
        return read_yaml(text, name)[1]
    except BadScenario:
        return {(): ""}


def _toml_place(document: Document, path: Path) -> str:
    """The line of a TOML key, where only one line has that key."""
    keys = [step for step in path if isinstance(step, str)]
    if not keys:
        return document.name
    pattern = re.compile(rf"\s*\[*[\w. \"-]*\b{re.escape(keys[-1])}\b[\"\]\s]*(=|$)")
    lines = [i for i, line in enumerate(document.text.splitlines(), 1) if pattern.match(line)]
    return f"{document.name}:{lines[0]}:1" if len(lines) == 1 else document.name
