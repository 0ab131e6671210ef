"""Reports that are blocks: a header, and a line a metric below it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from shardmeter.interop.logs.lines import Line, Log
from shardmeter.interop.logs.metrics import Meaning
from shardmeter.interop.logs.record import Step
from shardmeter.interop.logs.values import clock


def blocks(log: Log, word: str, header: re.Pattern[str], metric: re.Pattern[str]) -> Iterator[tuple[Line, dict[str, str]]]:
    """Every header (a line with `word` that `header` is found in) with the metrics under it, by rank: ranks may take turns."""
    open_: dict[str, tuple[Line, dict[str, str]]] = {}
    for line in log.lines:
        if word in line.text and header.search(line.text):
            if line.rank in open_:
                yield open_[line.rank]
            open_[line.rank] = (line, {})
        elif line.rank in open_ and (found := metric.match(line.text)) is not None:
            open_[line.rank][1].setdefault(found[1], found[2])
        elif line.rank in open_ and line.text.strip():
            yield open_.pop(line.rank)
    yield from open_.values()


def step_of(number: int, line: Line, known: Mapping[str, Meaning], metrics: Mapping[str, str]) -> Step:
    """The report of a block."""
    fields: dict[str, float] = {}
    for key, (field, read) in known.items():
        if field not in fields and (value := read(metrics[key])) is not None:
            fields[field] = value
    return Step(number=number, line=line.number, rank=line.rank, **({"at": clock(line.text)} | fields))  # type: ignore[arg-type]
