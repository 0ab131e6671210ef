"""A user profile: a folder of catalog rows that were measured or calibrated, read by `--catalog DIR`.

It holds `stacks.csv`, `fabrics.csv`, `accelerators.csv` with the columns of the shipped tables, and `intervals.csv`: how well
each calibrated number is known. A file is replaced whole or not at all, and only by rows that the catalog reads.
"""

from __future__ import annotations

import csv
import io
import os
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from shardmeter.core.errors import BadData, ShardMeterError, Unavailable, UnknownName, Violation
from shardmeter.core.files import REFUSED, file_name, put_file, read_text, write_whole
from shardmeter.core.record import field_types
from shardmeter.scenario.catalog import LARGEST_FILE, load_catalog
from shardmeter.scenario.rows import read_rows
from shardmeter.scenario.tables import LAYOUTS

UNITS = {"Seconds": " s", "Bytes": " B", "BytesPerS": " B/s", "FlopPerS": " FLOP/s", "Watts": " W"}
"""What follows the number in a cell of that type; the other types are bare."""
FROM_RUNS = ("faster", "slower")
"""Numbers of a stack that only runs tell, 0 where none did; the catalog has no 0 for them."""
DIGITS = 6
INTERVALS = "intervals"


def refuse_place(folder: Path) -> None:
    """Raises ShardMeterError where no profile can be, and BadData for one that the catalog does not read, before any work."""
    try:
        with suppress(FileNotFoundError, NotADirectoryError):
            folder.stat()
        place = next((one for one in (folder, *folder.absolute().parents) if one.exists()), folder)
    except (OSError, ValueError):  # too long, a null byte, a link to itself
        raise ShardMeterError(f"{file_name(folder)}: no folder can have this name") from None
    if not place.is_dir() or not os.access(place, os.W_OK):
        why = "is not writable" if place.is_dir() else "is no folder"
        raise ShardMeterError(f"{file_name(folder)}: no folder for a profile ({file_name(place)} {why})")
    if folder.is_dir() and any(folder.iterdir()):
        load_catalog((folder,))


def put(folder: Path, kind: str, row: Mapping[str, str]) -> Path:
    """Write one row (text by column, as the catalog's files write it) into the table of `kind` in a profile; gives the file.

    A row of the same name is kept where `row` is silent and replaced where it speaks. The folder is made where there is none.
    Raises BadData, with every complaint, for what the catalog could not read back (nothing is written then), UnknownName for
    a table that is none, ShardMeterError where the folder takes no file."""
    return put_all(folder, kind, [row])


def put_all(folder: Path, kind: str, rows: Sequence[Mapping[str, str]]) -> Path:
    """As `put`, for several rows of one table, all or none."""
    if kind not in LAYOUTS:
        raise UnknownName("table", kind, LAYOUTS)
    path = folder / f"{kind}.csv"
    lines = _merged(_held(path, kind), rows, LAYOUTS[kind].key)
    used = [name for name in LAYOUTS[kind].columns if any(line.get(name) for line in lines)]
    strange = dict.fromkeys(name for line in lines for name in line if name not in LAYOUTS[kind].columns)
    text = _csv([*dict.fromkeys((*LAYOUTS[kind].key, *used)), *strange], lines)
    _check(folder, path, text)
    _write(path, text)
    return path


def cell(value: Any, type_name: str) -> str:
    """A value of an annotated type as the catalog writes it: `2.5e-05 s`, `yes`, `a|b`; empty for None."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return "|".join(map(str, value))
    if isinstance(value, int | float):
        return f"{value:.{DIGITS}g}{UNITS.get(type_name.removesuffix(' | None'), '')}"
    return str(value)


def cells(kind: str, record: Any) -> dict[str, str]:
    """A record of a table as text by column; empty where 0 stands for a number that nobody knows. Leaves out: what is put together from
    several columns (peaks of an accelerator)."""
    columns = LAYOUTS[kind].columns
    return {
        name: "" if name in FROM_RUNS and not getattr(record, name) else cell(getattr(record, name), type_name)
        for name, type_name in field_types(type(record)).items()
        if name in columns
    }


def put_interval(
    folder: Path, kind: str, name: str, bounds: Mapping[str, tuple[float, float]], *, level: float, basis: str
) -> Path:
    """How well the numbers of a row are known: (low, high) by column, in SI units, at `level`; `basis` says what on."""
    types = field_types(LAYOUTS[kind].record)
    rows = [
        {
            "kind": kind, "name": name, "number": number, "low": cell(float(low), types.get(number, "")),
            "high": cell(float(high), types.get(number, "")), "level": f"{level:g}", "basis": basis,
        }
        for number, (low, high) in bounds.items()
    ]  # fmt: skip
    return put_all(folder, INTERVALS, rows)


def _held(path: Path, kind: str) -> list[dict[str, str]]:
    """The rows that a file of a profile holds already. Raises BadData for one that cannot be read."""
    if not path.exists():
        return []
    rows, bad = read_rows(
        read_text(path, "a catalog file", LARGEST_FILE, BadData), str(path), LAYOUTS[kind].columns, LAYOUTS[kind].key
    )
    if bad:
        raise BadData("the profile cannot be read", bad)
    return [dict(row.values) for row in rows]


def _merged(
    held: Sequence[dict[str, str]], rows: Sequence[Mapping[str, str]], key: Sequence[str]
) -> list[dict[str, str]]:
    """Old rows, each under what a new one of its name says, then the new ones, in order."""
    found = {_name(line, key): line for line in held}
    for row in rows:
        said = {column: " ".join(str(text).split()) for column, text in row.items()}
        found[_name(said, key)] = {**found.get(_name(said, key), {}), **said}
    return list(found.values())


def _name(line: Mapping[str, str], key: Sequence[str]) -> tuple[str, ...]:
    return tuple(line.get(column, "").strip().lower() for column in key)


def _csv(columns: Sequence[str], lines: Sequence[Mapping[str, str]]) -> str:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns, restval="", extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def _check(folder: Path, path: Path, text: str) -> None:
    """Raises BadData for a table that the catalog would not read beside the rest of the profile."""
    beside = (folder,) if folder.is_dir() and any(folder.iterdir()) else ()
    with tempfile.TemporaryDirectory() as trial:
        write_whole(Path(trial) / path.name, text.encode(), synced=False)
        try:
            load_catalog((*beside, Path(trial)))
        except BadData as error:
            bad = [_placed(one, trial, folder) for one in error.violations]
            raise BadData(f"{file_name(path)}: not written, the catalog could not read the row", bad) from None


def _placed(one: Violation, trial: str, folder: Path) -> Violation:
    """A complaint about a trial file, at the place that it would have had."""
    return replace(one, where=one.where.replace(trial, str(folder)))


def _write(path: Path, text: str) -> None:
    """A whole file or none. Raises ShardMeterError where none can be, Unavailable where the machine takes none."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        kind = Unavailable if error.errno in REFUSED else ShardMeterError
        raise kind(f"{file_name(path)}: cannot be written ({error.strerror or 'no reason is given'})") from None
    put_file(path, text)
