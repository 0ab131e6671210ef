"""Tables of metrics: rows of a CSV, sparse and with several rows a step, as reports."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping

from shardmeter.interop.logs.lines import Log
from shardmeter.interop.logs.metrics import Meaning
from shardmeter.interop.logs.record import Step
from shardmeter.interop.logs.values import whole

Row = Mapping[str, str]
LONGEST = 20_000
"""Characters of a row that are read."""


def rows(log: Log) -> tuple[tuple[str, ...], Iterator[tuple[int, Row]]]:
    """The header, and every row with the number of its line; a cut last row has the cells that it has."""
    lines = [line[:LONGEST] for line in log.text.split("\n")]
    reader = csv.reader(lines)
    header = tuple(cell.strip() for cell in _next(reader) or ())

    def told() -> Iterator[tuple[int, Row]]:
        while (cells := _next(reader)) is not None:
            if cells:
                yield reader.line_num, dict(zip(header, (cell.strip() for cell in cells), strict=False))

    return header, told()


def _next(reader: Iterator[list[str]]) -> list[str] | None:
    """The next row; None at the end, and where the rest is no table."""
    try:
        return next(reader, None)
    except csv.Error:
        return None


def steps(
    table: Iterable[tuple[int, Row]], count: str, meanings: Mapping[str, Meaning], *, from_zero: bool = False
) -> tuple[Step, ...]:
    """A report a step: the rows with one number in a row of rows are put together, the first value of every field counting."""
    made: list[tuple[int, int, dict[str, float]]] = []
    for place, row in table:
        number = whole(row.get(count))
        if number is None:
            continue
        fields: dict[str, float] = {}
        for key, (field, read) in meanings.items():
            if (text := row.get(key)) and field not in fields and (value := read(text)) is not None:
                fields[field] = value
        if made and made[-1][0] == number:
            made[-1] = (number, made[-1][1], fields | made[-1][2])
        else:
            made.append((number, place, fields))
    return tuple(
        Step(number=number + from_zero, line=place, **fields)  # type: ignore[arg-type]
        for number, place, fields in made
        if fields
    )
