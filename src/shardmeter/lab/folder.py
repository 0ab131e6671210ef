"""The folder of a study's results: made anew, or refused; what a lab did not make is never touched."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from shardmeter.core.errors import BadData, ShardMeterError
from shardmeter.core.files import file_name, read_text
from shardmeter.lab import kept
from shardmeter.lab.prediction import FILE as PREDICTION
from shardmeter.lab.prediction import written

MACHINE, STUDY, SCENARIO, OUTCOME = "machine.json", "study.yaml", "scenario.yaml", "outcome.json"
CATALOG, ALONE, RUN = "catalog", "alone", "run"
OWN_FILES, OWN_FOLDERS = (SCENARIO, PREDICTION, OUTCOME), (CATALOG, ALONE, RUN)
REPORT, PAGE, TRACE = "report.json", "report.md", "trace.json"
NAMED = 3
"""Names that a message tells before it counts."""
LARGEST_JSON = 256_000_000


def prepare(folder: Path, experiments: Iterable[str], *, again: bool) -> None:
    """Make the folder, or take what a lab left of these experiments out of it. Raises ShardMeterError for a folder that holds something
    else, or results that are not to be replaced."""
    try:
        held = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    except OSError as error:
        raise ShardMeterError(f"{file_name(folder)}: cannot be read ({error.strerror})") from None
    if folder.exists() and not folder.is_dir():
        raise ShardMeterError(f"{file_name(folder)}: is no folder; -o DIR names another")
    if held and MACHINE not in held:
        raise ShardMeterError(f"{file_name(folder)}: holds {_some(held)}, which no lab made; -o DIR names another")
    mine = [name for name in experiments if (folder / name).exists()]
    if mine and not again:
        raise ShardMeterError(
            f"{file_name(folder)}: has results of {_some(mine)}; --again replaces them, -o DIR names another folder"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in mine:
            _emptied(folder / name)
    except OSError as error:
        raise ShardMeterError(f"{file_name(folder)}: no results can be kept there ({error.strerror})") from None


def _some(names: list[str]) -> str:
    """The first three of some names, and how many more there are."""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def _emptied(place: Path) -> None:
    """Take out what an experiment left; other files stay, and with them the folder."""
    for name in OWN_FOLDERS:
        if (place / name).is_dir() and not (place / name).is_symlink():
            shutil.rmtree(place / name)
    for name in OWN_FILES:
        (place / name).unlink(missing_ok=True)
    if not any(place.iterdir()):
        place.rmdir()


def put(path: Path, data: Any) -> None:
    """Write JSON, on the disk before this returns."""
    written(path, json.dumps(data, indent=1, allow_nan=False) + "\n")


def read(path: Path, what: str, kind: kept.Kind) -> dict[str, Any] | None:
    """A JSON file of the folder; None where there is none. Raises BadData for one that is damaged, or whose fields are not of their
    kind."""
    if not path.exists():
        return None
    text = read_text(path, what, LARGEST_JSON, BadData)
    try:
        data = kept.loaded(text)
    except ValueError:
        data = None
    if not isinstance(data, dict):
        raise BadData(f"{file_name(path)}: is no {what}")
    bad = tuple(kept.wrong(data, kind))
    if bad:
        raise BadData(f"{file_name(path)}: is no {what} as a lab writes it", bad)
    return data
