"""A table of measured runs: one row a run, the columns are fields of a scenario and what was measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from shardmeter.core.errors import BadData, BadQuantity, BadScenario, ShardMeterError, Violation, nearest, printable
from shardmeter.core.files import csv_lines, file_name, read_text
from shardmeter.core.quantity import quantity
from shardmeter.specs import Scenario
from shardmeter.study.calibrate.observation import MOST, Observation

TIME, RATE, ERROR, NAME = "step_time", "tokens_per_s", "error", "run"
MEASURED = (TIME, RATE, ERROR, NAME)
"""Columns that are no field of a scenario: a time with its unit (`3.2 s`) or tokens a second of all accelerators, its standard error
as a share, and what the run is called."""
LARGEST = 8_000_000
LONGEST = 1e9
"""Seconds of a step beyond which a number is a misprint."""
ALIKE = 0.02
"""How far a time and a rate of the same run may be apart."""


def runs_table(path: Path, resolve: Callable[[Sequence[str]], Scenario]) -> tuple[Observation, ...]:
    """The runs of a CSV file. `resolve` makes a scenario of overrides (`plan.tp=8`), which every other column gives where it is filled.

    Raises BadData with everything that is wrong, line by line."""
    name = file_name(path)
    lines = csv_lines(read_text(path, "a table of runs", LARGEST, BadData, (".csv",)), name, BadData)
    if len(lines) < 2:
        raise BadData(
            f"{name}: no run; the first line names the columns ({TIME}, plan.tp, …), each further line is a run"
        )
    columns = lines[0][1]
    bad = _header(columns, name)
    if len(lines) - 1 > MOST:
        bad.append(Violation(field="", says=f"{len(lines) - 1} runs; a calibration takes 1 to {MOST}", where=name))
    found = []
    for number, texts in lines[1:] if not bad else ():
        where = f"{name}:{number}"
        try:
            if len(texts) > len(columns):
                raise BadQuantity(f"{len(texts)} cells under {len(columns)} columns")  # noqa: TRY301  (one of a row's faults)
            found.append(_run(dict(zip(columns, texts, strict=False)), where, name, resolve))
        except BadQuantity as error:
            bad.append(Violation(field="", says=error.message, where=where))
        except BadScenario as error:
            bad += [replace(one, field=one.field or one.where, where=where) for one in error.violations] or [
                Violation(field="", says=error.message, where=where)
            ]
        except ShardMeterError as error:
            bad.append(Violation(field="", says=error.message, where=where))
    if bad:
        raise BadData(f"{name}: not readable as runs", bad)
    return tuple(found)


def _header(columns: Sequence[str], name: str) -> list[Violation]:
    where = f"{name}:1"
    bad = [
        Violation(field=one, says="no such column", where=where,
                  way_out=f"did you mean {', '.join(nearest(one, MEASURED))}, or a field such as plan.{one}?")
        for one in columns
        if one not in MEASURED and "." not in one
    ]  # fmt: skip
    bad += [
        Violation(field=one, says="column is there twice", where=where) for one in dict.fromkeys(columns) if columns.count(one) > 1
    ]  # fmt: skip
    if TIME not in columns and RATE not in columns:
        bad.append(Violation(field=TIME, says="column is missing", way_out=f"or {RATE}", where=where))
    return bad


def _run(said: dict[str, str], where: str, source: str, resolve: Callable[[Sequence[str]], Scenario]) -> Observation:
    scenario = resolve([f"{column}={text}" for column, text in said.items() if column not in MEASURED and text])
    ways = []
    if said.get(TIME):
        ways.append(quantity(said[TIME], "time"))
    if said.get(RATE):
        ways.append(float(scenario.run.global_batch * scenario.run.seq_len) / max(quantity(said[RATE], "count"), 1e-9))
    if not ways:
        raise BadQuantity(f"neither {TIME} nor {RATE} is filled")
    if not all(0.0 < one <= LONGEST for one in ways) or max(ways) > (1.0 + ALIKE) * min(ways):
        takes = " and ".join(f"{one:.4g} s" for one in ways)
        raise BadQuantity(
            f"a step takes {takes}: more than nothing, less than {LONGEST:g} s, and the same by {TIME} and {RATE}"
        )
    seconds = ways[0]
    error = quantity(said[ERROR], "fraction") if said.get(ERROR) else 0.0
    return Observation(
        id=printable(said.get(NAME) or where), scenario=scenario, step_time=seconds, error=error, source=source
    )
