"""The files and the folders of checkpoints that a scenario names: what it rests on beside its own text, and how that is found from
elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path as FilePath
from typing import Any

from shardmeter.core.errors import BadScenario, ShardMeterError
from shardmeter.core.files import are_closed, at_home
from shardmeter.scenario.hugging_face.files import configuration
from shardmeter.scenario.parts import Rows, is_checkpoint_name
from shardmeter.scenario.read import SUFFIXES, read_file

MODELS = frozenset({"model", "reference", "vision"})
"""Fields that are models: their texts, and the `base` of their mappings, may name the folder of a checkpoint."""
TABLE = ".csv"
"""How the file of a table ends."""
_DEEPEST = 8
"""Files that name a file that names a file …"""


def named_files(data: Any, folder: FilePath, rows: Rows) -> Iterator[tuple[str, FilePath]]:
    """Every file that plain data of a scenario in `folder` names, as written, and where it lies; of a checkpoint's folder the
    configuration that is read, and of a file also what it names itself. None where no file may be named."""
    if are_closed():
        return
    yield from _named(data, folder, rows, _DEEPEST)
    for _, _, name in _tables(data):
        yield name, folder / at_home(FilePath(name))


def _named(data: Any, folder: FilePath, rows: Rows, deeper: int) -> Iterator[tuple[str, FilePath]]:
    found: list[tuple[str, FilePath, bool]] = []

    def note(text: str, model: bool) -> str:
        if text.lower().endswith(SUFFIXES):
            found.append((text, folder / text, model))
        elif model and is_checkpoint_name(text, folder, rows):
            found.append((text, _configuration(folder / at_home(FilePath(text))), model))
        return text

    _each(data, note)
    for text, path, model in found:
        yield text, path
        try:
            inner = read_file(path) if deeper else None
        except ShardMeterError:  # reading the scenario says so
            continue
        if inner is not None:
            inside = {"model": inner.data} if model else inner.data
            yield from ((f"{text}: {name}", file) for name, file in _named(inside, path.parent, rows, deeper - 1))


def _configuration(path: FilePath) -> FilePath:
    try:
        return configuration(path)
    except BadScenario:
        return path


def rooted(data: Any, folder: FilePath, rows: Rows) -> Any:
    """The same data with every name of a file or of a checkpoint's folder made absolute; as it stands where no file may be named."""
    if are_closed():
        return data

    def root(text: str, model: bool) -> str:
        if text.lower().endswith(SUFFIXES):
            return str((folder / text).resolve())
        if model and is_checkpoint_name(text, folder, rows):
            return str((folder / at_home(FilePath(text))).resolve())
        return text

    made = _each(data, root)
    for part, field, name in _tables(data):
        made[part][field] = str((folder / at_home(FilePath(name))).resolve())
    return made


def _tables(data: Any) -> Iterator[tuple[str, str, str]]:
    """The tables that a scenario names: (part, field, name); the prices of a fleet, and a law that is not of the catalog."""
    for part, field in (("fleet", "prices"), ("run", "law")):
        inside = data.get(part) if isinstance(data, dict) else None
        name = inside.get(field) if isinstance(inside, dict) else None
        if isinstance(name, str) and (field == "prices" or name.lower().endswith(TABLE)):
            yield part, field, name


def _each(value: Any, change: Callable[[str, bool], str], model: bool = False, names_model: bool = False) -> Any:
    """The same data with every text changed; `change` is told whether the text stands where a model is named.

    `model` = inside a model's mapping, `names_model` = this very value names one."""
    if isinstance(value, dict):
        inside = model or names_model
        return {
            key: _each(one, change, inside, key in MODELS or (inside and key == "base")) for key, one in value.items()
        }
    if isinstance(value, list | tuple):
        return [_each(one, change, model, names_model) for one in value]
    return change(value, names_model) if isinstance(value, str) else value
