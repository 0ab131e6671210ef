"""Rows of text to records: reading catalog files, one cell at a time, with file, line and column in every complaint."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any

from shardmeter.core.errors import BadQuantity, Violation, cut, kind_of, nearest, printable, shown
from shardmeter.core.quantity import quantity
from shardmeter.scenario.bounds import bound, broken

YES_NO = {"yes": True, "no": False, "true": True, "false": False}
DIMENSIONS = {
    "Bytes": "size",
    "BytesPerS": "bandwidth",
    "FlopPerS": "flops_rate",
    "Seconds": "time",
    "Watts": "power",
    "UsdPerS": "price",
    "UsdPerByte": "egress",
    "UsdPerByteS": "storage",
    "UsdPerJoule": "electricity",
    "KilogramsPerJoule": "carbon",
    "Count": "count",
    "Fraction": "fraction",
    "Nats": "count",
    "Ratio": "ratio",
}
"""The dimension of `core.quantity` for each annotated type of the records."""
MOST_ROWS = 100_000
"""Rows of a catalog file; a table of names is far smaller."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row as written: text by column, and where it stands."""

    values: Mapping[str, str]
    file: str
    line: int

    @property
    def where(self) -> str:
        """`file:line`, the prefix of every complaint."""
        return f"{self.file}:{self.line}"

    def aliases(self) -> tuple[str, ...]:
        """Other names of the row; `|` separates them."""
        return split_names(self.values.get("aliases", ""))

    def complaint(self, column: str, says: str, way_out: str = "") -> Violation:
        """A violation that points at this row and one of its columns."""
        return Violation(field=column, says=says, way_out=way_out, where=self.where)


def split_names(text: str) -> tuple[str, ...]:
    """The names in a cell; `|` separates them."""
    return tuple(name for name in (part.strip() for part in text.split("|")) if name)


def read_rows(text: str, file: str, columns: Iterable[str], key: Iterable[str]) -> tuple[list[Row], list[Violation]]:
    """The rows of a CSV text, and what is wrong with its header and shape. `key` columns must be there and filled."""
    known, key = tuple(columns), tuple(key)
    reader = csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline=""), strict=True)
    rows: list[Row] = []
    bad: list[Violation] = []
    try:
        header = [name.strip() for name in next(reader, [])]
        bad += _header_complaints(header, file, known, key)
        if bad:
            return [], bad
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            if len(rows) + len(bad) >= MOST_ROWS:
                says = f"more than {MOST_ROWS} rows are no catalog"
                return [], [Violation(field="", says=says, where=f"{file}:{reader.line_num}")]
            row = Row(dict(zip(header, (cell.strip() for cell in cells), strict=False)), file, reader.line_num)
            if len(cells) != len(header):
                bad.append(row.complaint("", f"{len(cells)} cells under {len(header)} column names",
                                         "quote cells that hold a comma"))  # fmt: skip
                continue
            empty = [name for name in key if not row.values[name]]
            bad += [row.complaint(name, "is empty", "every row needs one") for name in empty]
            if not empty:
                rows.append(row)
    except csv.Error as error:
        bad.append(Violation(field="", says=f"not readable as CSV: {error}", where=f"{file}:{reader.line_num}"))
    return rows, bad


def _header_complaints(header: list[str], file: str, known: tuple[str, ...], key: tuple[str, ...]) -> list[Violation]:
    where = f"{file}:1"
    bad = []
    for name in dict.fromkeys(header):
        if name not in known:
            hint = ", ".join(nearest(name, known))
            bad.append(Violation(field=cut(name), says="no such column", way_out=f"did you mean {hint}?", where=where))
        elif header.count(name) > 1:
            bad.append(Violation(field=name, says="column appears twice", where=where))
    bad += [
        Violation(field=name, says="column is missing", way_out="it names the rows", where=where)
        for name in key
        if name not in header
    ]
    return bad


def native_row(
    values: Mapping[str, Any], file: str, columns: Iterable[str], where: Callable[[str], str]
) -> tuple[Row, list[Violation]]:
    """A row from the mapping in a YAML or JSON file: its values become the text a CSV cell would hold.

    `where` gives the place of a key, or "".
    """
    known = tuple(columns)
    bad: list[Violation] = []
    texts: dict[str, str] = {}
    for name, value in values.items():
        says = way_out = ""
        if name not in known:
            says, way_out = "no such field", f"did you mean {', '.join(nearest(name, known))}?"
        elif value is None:
            continue
        elif isinstance(value, bool):
            texts[name] = "yes" if value else "no"
        elif isinstance(value, int) and value.bit_length() > 200:
            says = f"{shown(value)} is beyond reason"
        elif isinstance(value, (str, int, float)):
            texts[name] = str(value).strip()
        elif isinstance(value, list) and all(isinstance(item, (str, int)) for item in value):
            texts[name] = "|".join(str(item) for item in value)
        else:
            says = f"{kind_of(value)} where a text or a number belongs"
        if says:
            bad.append(Violation(field=name, says=says, way_out=way_out, where=where(name) or file))
    return Row(texts, file, 1), bad


def cell(row: Row, column: str, type_name: str) -> Any:
    """One filled cell as a value of the annotated type; raises BadQuantity with a sentence about the value."""
    text = row.values[column]
    if type_name == "str":
        return printable(text)
    if type_name == "bool":
        if text.lower() not in YES_NO:
            raise BadQuantity(f"{shown(text)} is neither yes nor no")
        return YES_NO[text.lower()]
    if type_name.startswith("tuple[str"):
        return split_names(text)
    if type_name == "Degrees":
        return _degrees(text)
    dimension = "count" if type_name == "int" else DIMENSIONS[type_name]
    value = quantity(text, dimension)
    field = "matmul_share" if column.startswith("matmul_share") else column
    says, way_out = broken(value, bound(field, dimension))
    if says:
        raise BadQuantity(f"{shown(text)}: {says}; {way_out}")
    return int(value) if type_name == "int" else value


def _degrees(text: str) -> float:
    """A latitude or a longitude, south and west below zero."""
    try:
        value = float(text)
    except ValueError:
        raise BadQuantity(f"{shown(text)} is no angle; write it like -33.9") from None
    if not -180.0 <= value <= 180.0:
        raise BadQuantity(f"{shown(text)} is no angle; it lies from -180 to 180")
    return value


def read_fields(
    record: type[Any], row: Row, given: Mapping[str, Any], choices: Mapping[str, tuple[str, ...]]
) -> tuple[dict[str, Any], list[Violation]]:
    """The keyword arguments of a record from a row: blank cells take the record's default or are complained about.

    `given` holds the fields that other code builds; `choices` the words that a text field may hold.
    """
    found: dict[str, Any] = dict(given)
    bad: list[Violation] = []
    for field in fields(record):
        name, type_name = field.name, str(field.type)
        if name in given:
            continue
        if not row.values.get(name):
            if field.default is MISSING and field.default_factory is MISSING:
                if type_name.endswith("| None"):
                    found[name] = None
                elif type_name == "str":
                    found[name] = ""
                else:
                    bad.append(row.complaint(name, "is missing", "every row of this table needs it"))
            continue
        try:
            value = cell(row, name, type_name.removesuffix(" | None"))
        except BadQuantity as error:
            bad.append(row.complaint(name, error.message))
            continue
        allowed = choices.get(name)
        for word in value if isinstance(value, tuple) else (value,):
            if allowed and word not in allowed:
                hint = ", ".join(nearest(str(word), allowed))
                says = f"{shown(word)} is none of {', '.join(allowed)}"
                bad.append(row.complaint(name, says, f"did you mean {hint}?"))
        found[name] = value
    return found, bad
