"""Rows of a sweep as CSV, JSON and Parquet: a chunk becomes a fragment, fragments in order become the file.

A fragment depends on its chunk alone, so the file is the same byte for byte whatever evaluated it, and in what
order."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import IO, Any

import numpy as np

from shardmeter import __version__
from shardmeter.core.errors import ShardMeterError
from shardmeter.core.record import record
from shardmeter.data import DATA_DATE
from shardmeter.study.sweep.figures import TEXTS, TRUTHS, Column
from shardmeter.study.sweep.space import Space

PARQUET = "Parquet needs pyarrow: pip install 'shardmeter[parquet]'; or write .csv or .json"


@record
class Format:
    """One file format: the fragment of a chunk (axes and figures by column, in order), and fragments joined to a
    file."""

    fragment: Callable[[Space, Mapping[str, Column]], bytes]
    join: Callable[[Space, Iterable[bytes], IO[bytes]], None]
    check: Callable[[], None] = lambda: None
    """Raises ShardMeterError where the format cannot be written here."""


def axis_columns(space: Space, places: Sequence[Column]) -> dict[str, Column]:
    """The values of the axes in some rows, by field: as they were given."""
    made: dict[str, Column] = {}
    for axis, at in zip(space.axes, places, strict=True):
        for position, field in enumerate(axis.fields):
            values = np.empty(len(axis.points), dtype=object)
            values[:] = [_told(point[position]) for point in axis.points]
            made[field] = values[at]
    return made


def _told(value: Any) -> Any:
    """A value of an axis as a cell: a number, true, false, or text (null for nothing, lists and mappings as JSON)."""
    if isinstance(value, bool | int | float | str):
        return value
    if hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
        return value.item()
    return json.dumps(value, default=str, ensure_ascii=False)


def _csv_rows(_: Space, columns: Mapping[str, Column]) -> bytes:
    lines = map(",".join, zip(*(_csv_cells(column) for column in columns.values()), strict=True))
    return ("\n".join(lines) + "\n").encode()


def _csv_cells(column: Column) -> list[str]:
    if column.dtype == object:
        known = {value: _csv_cell(value) for value in dict.fromkeys(zip(map(type, column), column, strict=True))}
        return [known[type(value), value] for value in column]
    cells = list(map(repr, column.tolist()))
    for at in np.flatnonzero(np.isnan(column)):
        cells[at] = ""
    return cells


def _csv_cell(typed: tuple[type, Any]) -> str:
    value = typed[1]
    if value is None:
        return ""
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if not isinstance(value, str):
        return repr(value)
    out = io.StringIO()
    csv.writer(out, lineterminator="").writerow([value])
    return out.getvalue()


def _csv_join(space: Space, fragments: Iterable[bytes], out: IO[bytes]) -> None:
    header = io.StringIO()
    csv.writer(header, lineterminator="\n").writerow([*space.fields, "status", *space.columns])
    out.write(header.getvalue().encode())
    for fragment in fragments:
        out.write(fragment)


def json_rows(columns: Mapping[str, Column]) -> list[dict[str, Any]]:
    """Rows as mappings: every number finite, or null."""
    names = list(columns)
    cells = [_plain(column) for column in columns.values()]
    return [dict(zip(names, row, strict=True)) for row in zip(*cells, strict=True)]


def _plain(column: Column) -> list[Any]:
    if column.dtype == object:
        return [bool(value) if isinstance(value, np.bool_) else value for value in column]
    values: list[Any] = column.tolist()
    for at in np.flatnonzero(np.isnan(column)):
        values[at] = None
    return values


def _json_fragment(_: Space, columns: Mapping[str, Column]) -> bytes:
    rows = json_rows(columns)
    return ",\n".join(json.dumps(row, ensure_ascii=False, allow_nan=False) for row in rows).encode()


def json_head(space: Space) -> dict[str, Any]:
    """What the JSON says before its rows."""
    return {
        "version": __version__,
        "data_date": DATA_DATE,
        "assumptions": list(space.assumptions),
        "warnings": list(space.warnings),
        "axes": [{"fields": list(a.fields), "points": len(a.points), "spacing": a.spacing} for a in space.axes],
        "columns": [*space.fields, "status", *space.columns],
    }


def _json_join(space: Space, fragments: Iterable[bytes], out: IO[bytes]) -> None:
    head = json.dumps(json_head(space), ensure_ascii=False, indent=2)
    out.write((head[: head.rindex("\n}")] + ',\n  "rows": [\n').encode())
    for position, fragment in enumerate(fragments):
        out.write((b",\n" if position else b"") + fragment)
    out.write(b"\n]}\n")


def _check_parquet() -> None:
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        raise ShardMeterError(PARQUET) from None


def _schema(space: Space) -> Any:
    """Columns that are numbers throughout are numbers, whole or not; everything else is text."""
    import pyarrow as pa

    kinds: list[tuple[str, Any]] = []
    for axis in space.axes:
        for position, field in enumerate(axis.fields):
            types = {type(_told(point[position])) for point in axis.points}
            kind = pa.bool_() if types == {bool} else pa.int64() if types == {int} else pa.float64()
            kinds.append((field, kind if types <= {int, float} or types == {bool} else pa.string()))
    kinds.append(("status", pa.string()))
    kinds += [
        (name, pa.bool_() if name in TRUTHS else pa.string() if name in TEXTS else pa.float64())
        for name in space.columns
    ]
    return pa.schema(kinds)


def _parquet_rows(space: Space, columns: Mapping[str, Column]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = _schema(space)
    arrays = [
        pa.array(
            [value if value is None or isinstance(value, str) else str(value) for value in _plain(column)], kind.type
        )
        if pa.types.is_string(kind.type)
        else pa.array(_plain(column), kind.type)
        for kind, column in zip(schema, columns.values(), strict=True)
    ]
    out = io.BytesIO()
    pq.write_table(pa.Table.from_arrays(arrays, schema=schema), out)
    return out.getvalue()


def _parquet_join(space: Space, fragments: Iterable[bytes], out: IO[bytes]) -> None:
    import pyarrow.parquet as pq

    with pq.ParquetWriter(out, _schema(space)) as writer:
        for fragment in fragments:
            writer.write_table(pq.read_table(io.BytesIO(fragment)))


FORMATS: Mapping[str, Format] = {
    "csv": Format(fragment=_csv_rows, join=_csv_join),
    "json": Format(fragment=_json_fragment, join=_json_join),
    "parquet": Format(fragment=_parquet_rows, join=_parquet_join, check=_check_parquet),
}
"""By the suffix of the file."""
