"""What a sweep goes over: the scenario, its axes, and the points of their product in a fixed order (the last axis
fastest)."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any

from shardmeter import __version__
from shardmeter.core.errors import BadScenario, ShardMeterError, Violation, cut, nearest, shown
from shardmeter.core.record import changed, record
from shardmeter.data import DATA_DATE
from shardmeter.scenario.catalog import Catalog
from shardmeter.scenario.choices import left_open
from shardmeter.scenario.grammar import AUTO
from shardmeter.scenario.layout import Parts
from shardmeter.scenario.links import LinkNumbers, link_numbers
from shardmeter.scenario.named import named_files
from shardmeter.scenario.override import apply_overrides, placed, steps_of
from shardmeter.scenario.parts import Findings, Rows
from shardmeter.scenario.ranges import Axis, Over, axes
from shardmeter.scenario.resolve import check_method, read_parts, resolve
from shardmeter.scenario.sync import ALIASES
from shardmeter.scenario.tables import KINDS
from shardmeter.scenario.together import Array, numbers, reason
from shardmeter.study import trust
from shardmeter.study.sweep.figures import DEFAULT, FIGURES
from shardmeter.study.sweep.kinds import telling
from shardmeter.sync import caution

if TYPE_CHECKING:
    from shardmeter.scenario.read import Document
    from shardmeter.specs import Scenario, Stack

MOST = 100_000_000
"""Points of the largest sweep."""
_LEAST_ROWS, _MOST_ROWS, _CHUNKS = 1024, 16384, 32
"""Rows of a chunk, and how many chunks there should be at least where that leaves a chunk enough rows."""


@record
class Space:
    """A sweep, ready to be evaluated chunk by chunk, here or by a worker (it can be pickled)."""

    document: Document
    rows: Rows
    axes: tuple[Axis, ...]
    columns: tuple[str, ...]
    """Figures of every row, in order."""
    chunk: int = 1
    """Rows of one chunk: the same whatever evaluates it."""
    assumptions: tuple[str, ...] = ()
    """What every point takes from a default."""
    warnings: tuple[str, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """Points on every axis."""
        return tuple(len(axis.points) for axis in self.axes)

    @property
    def points(self) -> int:
        """Points of the product."""
        return math.prod(self.shape)

    @property
    def fields(self) -> tuple[str, ...]:
        """What the axes set, in order: the first columns of every row."""
        return tuple(field for axis in self.axes for field in axis.fields)

    def _files(self) -> dict[str, str]:
        """What is in the files, those of checkpoints' folders too, that the scenario (beside it) or an axis (where the
        command runs) names."""
        named = dict(named_files(self.document.data, self.document.folder, self.rows))
        moving = self.moving()  # numbers, which name nothing
        for axis in (axis for at, axis in enumerate(self.axes) if at not in moving):
            for position, field in enumerate(axis.fields):
                for point in axis.points:
                    named |= self._named_by(steps_of(field), point[position])
        return {name: _hash_of(path) for name, path in named.items()}

    def _named_by(self, path: tuple[str, ...], value: Any) -> dict[str, FilePath]:
        """The files that one value of an axis names, by the name as written."""
        value = placed(self.document, path, value)
        for step in reversed(path):
            value = {step: value}
        return dict(named_files(value, self.document.folder, self.rows))

    @property
    def chunks(self) -> int:
        """Chunks of the whole sweep."""
        return math.ceil(self.points / self.chunk)

    def span(self, chunk: int) -> tuple[int, int]:
        """First row of a chunk, and the first after it."""
        return chunk * self.chunk, min((chunk + 1) * self.chunk, self.points)

    def at(self, places: Sequence[int]) -> Document:
        """The document at a point, given by its place on every axis."""
        document = self._copy()
        overrides = {
            field: value
            for axis, place in zip(self.axes, places, strict=True)
            for field, value in zip(axis.fields, axis.points[place], strict=True)
        }
        apply_overrides(document, overrides, "--over", self.rows)
        return document

    def _copy(self) -> Document:
        """The document with everything that an override may change copied."""
        one = self.document
        return dataclasses.replace(
            one, data=_plain_copy(one.data), places=dict(one.places), notes=list(one.notes), warnings=list(one.warnings),
            problems=list(one.problems), unknown=list(one.unknown), gone=list(one.gone),
        )  # fmt: skip

    def scenario(self, places: Sequence[int]) -> Scenario:
        """The scenario at a point. Raises ShardMeterError where it is illegal."""
        return resolve(self.at(places), self.rows)

    def parts(self, places: Sequence[int], *, exact: bool = True) -> Parts | str:
        """The parts of a point that the numbers of its plan and run do not change, or why they are illegal. `exact`: its way of
        synchronisation is the point's own, so that one island can be held to it."""
        found = Findings(self.at(places))
        try:
            made = read_parts(found, self.rows)
            if made.is_one and exact:
                check_method(made)
            found.stop()
        except ShardMeterError as error:
            return reason(error)
        return made

    def moving(self) -> dict[int, dict[str, Array]]:
        """Axes that can be arrays, by position: the numbers of each of their fields."""
        made: dict[int, dict[str, Array]] = {}
        for position, axis in enumerate(self.axes):
            columns = {
                field: numbers(field, [point[i] for point in axis.points]) for i, field in enumerate(axis.fields)
            }
            if all(column is not None for column in columns.values()):
                made[position] = {field: column for field, column in columns.items() if column is not None}
        return made

    def links(self) -> dict[int, tuple[LinkNumbers, ...]]:
        """Axes of numbers of links and prices, by position: those of each of their fields. Empty where two axes reach the
        same one."""
        made: dict[int, tuple[LinkNumbers, ...]] = {}
        for position, axis in enumerate(self.axes):
            columns = [link_numbers(field, [point[i] for point in axis.points]) for i, field in enumerate(axis.fields)]
            if all(column is not None for column in columns):
                made[position] = tuple(column for column in columns if column is not None)
        names = [one.name for columns in made.values() for one in columns]
        return made if len(set(names)) == len(names) else {}

    def identity(self) -> dict[str, Any]:
        """What makes two sweeps the same, in parts, each a text or a hash: the version, the scenario, the files that it
        names, the catalog, the axes in their order."""
        return {
            "version": __version__,
            "data": DATA_DATE,
            "scenario": _hash(json.dumps(self.document.data, sort_keys=True, default=str)),
            "files": self._files(),
            "catalog": _hash(_rows_of(self.rows)),
            "axes": {axis.name: _hash(axis.points) for axis in self.axes},
            "order": list(self.fields),
            "columns": list(self.columns),
            "points": self.points,
            "chunk": self.chunk,
        }


def _plain_copy(value: Any) -> Any:
    """Plain data, copied: dicts and lists anew."""
    if isinstance(value, dict):
        return {key: _plain_copy(one) for key, one in value.items()}
    return [_plain_copy(one) for one in value] if isinstance(value, list) else value


def _hash_of(path: FilePath) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    except (OSError, ValueError):
        return ""


def _hash(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _rows_of(rows: Rows) -> dict[str, Any]:
    """Every row of a catalog as written, by kind."""
    return {kind: rows.rows(kind) for kind in KINDS} if isinstance(rows, Catalog) else {}


def space_of(document: Document, rows: Rows, over: Over, columns: Iterable[str] = ()) -> Space:
    """The space of a document and its axes, after a look at the values of every axis (of many numbers, at their ends).

    Raises BadScenario with everything that is wrong with the scenario, an axis, or a column: unknown fields and names,
    malformed values, what every point would be refused for. What is only illegal together is a row of the answer."""
    made = Space(document=document, rows=rows, axes=axes(over), columns=_columns(columns))
    if left_open(copy.deepcopy(document), planning=False) is not None or _goes_over_open_plans(made):
        says = "plan: auto leaves the plan open, and a sweep predicts one plan at every point"
        raise BadScenario(f"{says}: state it (shardmeter plan finds one), or go over its fields (--over plan.tp=1,2,4)")
    found = _misplaced(made)
    if found:
        raise BadScenario(f"{_problems(len(found))} in what to go over", found)
    assumptions, warnings = _look(made)
    return changed(
        made, chunk=_rows_of_a_chunk(made), assumptions=assumptions, warnings=(*warnings, *_of_unlike_methods(made))
    )


def _of_unlike_methods(made: Space) -> tuple[str, ...]:
    """That methods are compared which do not train the same way."""
    values = (
        str(point[at])
        for axis in made.axes
        for at, field in enumerate(axis.fields)
        if field == "plan.sync.method"
        for point in axis.points
    )
    says = caution(ALIASES.get(value, value) for value in values)
    return (says,) if says else ()


def _goes_over_open_plans(made: Space) -> bool:
    """Whether a value of an axis is a plan that is left open."""
    plans = [
        (axis, at) for axis in made.axes for at, name in enumerate(axis.fields) if name in ("plan", "plan.sharding")
    ]
    texts = [point[at] for axis, at in plans for point in axis.points]
    texts += [one.get("sharding") for one in texts if isinstance(one, dict)]
    return any(isinstance(one, str) and AUTO in map(str.strip, one.split(",")) for one in texts)


def _rows_of_a_chunk(made: Space) -> int:
    """A power of two: so many chunks that work can be shared out and lost, so many rows that arrays pay, and not more
    parts to resolve than take a few seconds."""
    arrays = {*made.moving(), *made.links()}
    together = math.prod(len(axis.points) for i, axis in enumerate(made.axes) if i in arrays)
    most = min(_MOST_ROWS, _LEAST_ROWS * together)
    wanted = 1 << math.ceil(math.log2(max(made.points / _CHUNKS, 1)))
    return min(1 << math.floor(math.log2(most)), max(_LEAST_ROWS, wanted))


def _columns(asked: Iterable[str]) -> tuple[str, ...]:
    if isinstance(asked, str | bytes) or not isinstance(asked, Iterable):
        raise BadScenario(f"columns: {shown(asked)} is no list of figures; as in ['step_time_s', 'mfu']")
    given: list[Any] = list(asked)
    if wrong := [one for one in given if not isinstance(one, str)]:
        raise BadScenario(f"columns: {shown(wrong[0])} is no name of a figure; as in 'mfu'")
    names = tuple(dict.fromkeys(given)) or DEFAULT
    unknown = [name for name in names if name not in FIGURES]
    if unknown:
        raise BadScenario(
            "unknown column",
            [
                Violation(field="columns", says=f"unknown column {shown(name, 40)}", way_out=f"the nearest are {near}")
                for name in unknown
                for near in [", ".join(nearest(name, FIGURES))]
            ],
        )
    return names


def _misplaced(made: Space) -> list[Violation]:
    """Faults of the axes taken together."""
    found = [] if made.axes else [Violation(field="", says="nothing to go over", way_out="as in --over plan.tp=1,2,4")]
    if made.points > MOST:
        sizes = " · ".join(f"{size:,}" for size in made.shape)
        says = f"{sizes} = {made.points:,} points"
        found.append(Violation(field="", says=says, rule=f"at most {MOST:,}", way_out="fewer values, or larger steps"))
    fields = made.fields
    for later, field in enumerate(fields):
        whole = [other for other in fields[later + 1 :] if field.startswith(f"{other}.")]
        found += [
            Violation(field=cut(field), says=f"is a part of {other}, which comes after it", way_out=f"{other} first")
            for other in whole
        ]
    clash = [name for name in made.columns if name in fields]
    found += [
        Violation(field=name, says="is an axis and a column", way_out=f"leave {name} out of --columns")
        for name in clash
    ]
    return found


def _look(made: Space) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Read the parts of the scenario at every value of every axis that differs in kind, the others at their first: what all
    assume, and warn of; and the accelerators on which no stack was fitted, wherever they stand.

    Raises what is malformed in any, and what is wrong in all."""
    malformed: dict[tuple[str, str], Violation] = {}
    assumptions, warnings, wrong = _Common(), _Common(), _Common()
    devices: dict[Stack, dict[str, None]] = {}
    first: ShardMeterError | None = None
    for document in _each_value(made):
        found = Findings(document)
        try:
            parts = read_parts(found, made.rows)
            found.stop()
            if parts.stack is not None:
                named = (entry.island.accelerator.name for entry in parts.entries if entry.island is not None)
                devices.setdefault(parts.stack, {}).update(dict.fromkeys(named))
        except ShardMeterError as error:
            first = first or error
        for one in _malformed(found):
            malformed.setdefault((one.field, one.says), one)
        assumptions.also(found.assumptions)
        warnings.also(found.warnings)
        wrong.also(f"{one.field}: {one.says}" for one in found.violations)
    if malformed:
        raise BadScenario(f"{_problems(len(malformed))} in the scenario or what to go over", list(malformed.values()))
    if first is not None and wrong.texts:
        raise first
    new = (text for stack, names in devices.items() for text in trust.new_devices(stack, names))
    return tuple(assumptions.texts or ()), (*(warnings.texts or ()), *new)


def _each_value(made: Space) -> Iterator[Document]:
    """The document at every value of every axis that differs in kind, the other axes at their first; once of those that
    are arrays."""
    moving = made.moving()
    for position, axis in enumerate(made.axes):
        for place in (0,) if position in moving else telling(axis.points):
            yield made.at([place if other == position else 0 for other in range(len(made.axes))])


class _Common:
    """The texts that are in every list so far, in the order of the first."""

    def __init__(self) -> None:
        self.texts: dict[str, None] | None = None

    def also(self, more: Iterable[str]) -> None:
        """One more list."""
        there = dict.fromkeys(more)
        self.texts = there if self.texts is None else {text: None for text in self.texts if text in there}


def _problems(count: int) -> str:
    return f"{count} problem{'s' if count > 1 else ''}"


def _malformed(found: Findings) -> list[Violation]:
    """Violations of the shape, and names that nothing has: no scenario can be meant."""
    names = {error.message for error in found.unknown}
    return [one for at, one in enumerate(found.violations) if at < found.malformed or one.says in names]
