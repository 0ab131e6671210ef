"""One chunk of a sweep as columns: rows that share their names are evaluated as arrays, whatever illegal is a row with
its reason, and every row is what `predict` says of that point alone, bit for bit."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shardmeter.core.errors import ShardMeterError
from shardmeter.core.record import changed, field_names, record, structure
from shardmeter.engine.evaluate import evaluate
from shardmeter.engine.fleet import Whole, alone
from shardmeter.scenario.layout import Parts
from shardmeter.scenario.links import linked
from shardmeter.scenario.resolve import whole_run
from shardmeter.scenario.together import Array, lay_out, reason
from shardmeter.specs import Fleet, Island, Model, Plan, Run, Scenario, Stack
from shardmeter.study.course import legs_of
from shardmeter.study.sweep.figures import TEXTS, TRUTHS, Column, Point, figure, refusals
from shardmeter.study.sweep.fleets import Fleets
from shardmeter.study.sweep.space import Space

FITS, FITS_NOT, ILLEGAL = "ok", "does not fit", "illegal"
"""What `status` starts with."""
BLOCK = 8192
"""Points of one evaluation: arrays that stay in the cache."""
_KEPT = 20_000
"""Parts that a worker remembers from chunk to chunk."""
Rows = npt.NDArray[np.int64]


@record
class _Lot:
    """Points of one set of names: their rows in the chunk, and records with one number for all of them or one for
    each."""

    rows: Rows
    model: Model
    island: Island
    plan: Plan
    run: Run
    stack: Stack
    assembled: Model | None = None


class Evaluator:
    """Evaluates the chunks of one space; it remembers what it has resolved."""

    def __init__(self, space: Space, before: Evaluator | None = None) -> None:
        """`before` evaluated other values of the same axes of the same document: what these do not change is known."""
        self.space = space
        self.moving = space.moving()
        self.links = space.links()
        self.fleets: Fleets = Fleets(space, None if before is None else before.fleets)
        self.resolved: dict[tuple[bool, tuple[int, ...]], Parts | str] = {}
        """Parts that were read, or why they are illegal, by their place on axes that are no arrays."""
        if before is not None and len({*self.moving, *self.links}) == len(space.axes):
            self.resolved = before.resolved

    def chunk(self, number: int) -> dict[str, Column]:
        """The figures of one chunk by column, `status` first; NaN and None stand for null.

        The columns of the axes are not among them: they follow from the row's number (`places`)."""
        status, found = self.points(number)
        count = len(status)
        columns: dict[str, Column] = {"status": status}
        for name in self.space.columns:
            words = name in TEXTS | TRUTHS
            columns[name] = np.full(count, None, dtype=object) if words else np.full(count, np.nan)
        for rows, point in found:
            legal = np.delete(np.arange(len(rows)), list(point.refused))
            for name in self.space.columns:
                columns[name][rows[legal]] = figure(name, point)[legal]
        return columns

    def points(self, number: int) -> tuple[Column, list[tuple[Rows, Point]]]:
        """(status of every row of one chunk, the points that are evaluated with their rows; those that a point calls refused are
        illegal)."""
        places = self.places(number)
        status = np.full(len(places[0]), "", dtype=object)
        lots, several = self._lots(places, status)
        found = [one for same in self._grouped(lots) for one in _evaluated(same)]
        found += self.fleets.points(several, places, status, ILLEGAL)
        for rows, point in found:
            status[rows] = np.where(point.fits, FITS, FITS_NOT)
            for at, why in point.refused.items():
                status[rows[at]] = f"{ILLEGAL}: {why}"
        return status, found

    def places(self, number: int) -> tuple[Rows, ...]:
        """The place on every axis of every row of a chunk."""
        first, after = self.space.span(number)
        return tuple(np.unravel_index(np.arange(first, after), self.space.shape))

    def _lots(self, places: Sequence[Rows], status: Column) -> tuple[list[_Lot], Rows]:
        """The legal points of one island in lots, and the rows of several islands; the status of illegal ones is written."""
        moving = {
            field: column[places[position]]
            for position, columns in self.moving.items()
            for field, column in columns.items()
        }
        arrays = self.moving.keys() | self.links.keys() | set(self.fleets.round)
        key = np.stack([np.zeros_like(at) if i in arrays else at for i, at in enumerate(places)])
        if "plan.tp" in moving:
            position = next(i for i, columns in self.moving.items() if "plan.tp" in columns)
            tp = self.moving[position]["plan.tp"]
            key[position] = np.where(moving["plan.tp"] == 1.0, np.argmax(tp == 1.0), np.argmax(tp != 1.0))
        made: list[_Lot] = []
        several: list[Rows] = []
        for rows in _alike(key):
            for some, parts in self._of_methods(rows, key, places):
                if isinstance(parts, str):
                    status[some] = f"{ILLEGAL}: {parts}"
                    continue
                if not parts.is_one:
                    several.append(some)
                    continue
                here = {field: column[some] for field, column in moving.items()}
                found = self._together(parts, self._island(parts, [at[some] for at in places]), some, here, status)
                made += self._one_by_one(some, places, status) if found is None else found
        return made, np.sort(np.concatenate(several)) if several else np.array([], dtype=np.int64)

    def _of_methods(self, rows: Rows, key: Rows, places: Sequence[Rows]) -> Iterator[tuple[Rows, Parts | str]]:
        """Rows of one key with their parts: those of one island by what is said of a round, to which each is held."""
        sync = self.fleets.round
        parts = self._resolved(key[:, rows[0]], exact=not sync)
        if not sync or isinstance(parts, str) or not parts.is_one:
            yield rows, parts
            return
        own = key[:, rows]
        own[sync] = np.stack(places)[:, rows][sync]
        for at in _alike(own):
            yield rows[at], self._resolved(own[:, at[0]], exact=True)

    def _island(self, parts: Parts, places: Sequence[Rows]) -> Island:
        """The island of rows of the same parts, with the numbers of links and prices that they have."""
        return linked(
            parts,
            [
                changed(one, values=one.values[places[position]])
                for position, columns in self.links.items()
                for one in columns
            ],
        )

    def _resolved(self, key: Rows, *, exact: bool) -> Parts | str:
        """The parts at these places on the axes, read once."""
        places = tuple(map(int, key))
        found = self.resolved.get((exact, places))
        if found is None:
            if len(self.resolved) >= _KEPT:
                self.resolved.clear()
            found = self.resolved[exact, places] = self.space.parts(places, exact=exact)
        return found

    def _together(
        self, parts: Parts, island: Island, rows: Rows, moving: Mapping[str, Array], status: Column
    ) -> list[_Lot] | None:
        """The legal rows of some parts on an island, or None if their numbers cannot be laid out as arrays."""
        laid = lay_out(parts, moving)
        if laid is None or parts.model is None or parts.stack is None:
            return None
        reasons = np.broadcast_to(laid.reasons, rows.shape)
        course = changed(parts, found=parts.found.apart())
        run = whole_run(course, (island,), laid.plan, (), laid.run)
        if course.found.violations:
            first = course.found.violations[0]
            reasons = np.where(reasons == "", f"{first.field}: {first.says}", reasons)
        illegal = reasons != ""
        status[rows[illegal]] = [f"{ILLEGAL}: {text}" for text in reasons[illegal]]
        if np.all(illegal):
            return []
        return [
            _Lot(
                rows=rows[~illegal],
                model=parts.model,
                island=_where(island, ~illegal),
                plan=_where(laid.plan, ~illegal),
                run=_where(run, ~illegal),
                stack=parts.stack,
                assembled=parts.assembled,
            )
        ]

    def _one_by_one(self, rows: Rows, places: Sequence[Rows], status: Column) -> list[_Lot]:
        made = []
        for row in rows:
            try:
                one = self.space.scenario([int(at[row]) for at in places])
            except ShardMeterError as error:
                status[row] = f"{ILLEGAL}: {reason(error)}"
                continue
            island = one.fleet.islands[0]
            made.append(
                _Lot(
                    rows=np.array([row]),
                    model=one.model,
                    island=island,
                    plan=one.plan,
                    run=one.run,
                    stack=one.stack,
                    assembled=one.assembled,
                )
            )
        return made

    @staticmethod
    def _grouped(lots: Sequence[_Lot]) -> list[list[_Lot]]:
        """Lots whose names are equal, so that their numbers can be arrays together."""
        groups: dict[Any, list[_Lot]] = {}
        for lot in lots:
            names = tuple(structure(_plain(one)) for one in (lot.island, lot.plan, lot.run))
            groups.setdefault((repr(lot.model), repr(lot.stack), names), []).append(lot)
        return list(groups.values())


def reasons_of(status: Column) -> Counter[str]:
    """Why rows are illegal, and how many for each reason."""
    counted = Counter(text for text in status.tolist() if text.startswith(ILLEGAL))
    return Counter({text.partition(": ")[2]: count for text, count in counted.items()})


def _alike(key: Rows) -> list[Rows]:
    """The positions of equal columns."""
    _, group = np.unique(key, axis=1, return_inverse=True)
    order = np.argsort(group, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(group[order])) + 1)


def _evaluated(lots: Sequence[_Lot]) -> list[tuple[Rows, Point]]:
    """The lots of one set of names, evaluated block by block: the rows and the points of each."""
    counts = [len(lot.rows) for lot in lots]
    rows = np.concatenate([lot.rows for lot in lots])
    island, plan, run = (_joined([getattr(lot, name) for lot in lots], counts) for name in ("island", "plan", "run"))
    made = []
    for first in range(0, len(rows), BLOCK):
        block = slice(first, first + BLOCK)
        here: dict[str, Any] = {"island": _where(island, block), "plan": _where(plan, block), "run": _where(run, block)}
        first_lot = lots[0]
        estimate = evaluate(model=first_lot.model, stack=first_lot.stack, **here)
        scenario = Scenario(
            name="", model=first_lot.model, assembled=first_lot.assembled, stack=first_lot.stack, plan=here["plan"],
            run=here["run"], fleet=Fleet(islands=(here["island"],)),
        )  # fmt: skip
        legs, count = legs_of(scenario, alone(estimate=estimate, **here)), len(rows[block])
        refused = refusals(here["run"], legs, count, functools.partial(_one, scenario))
        point = Point(estimate=estimate, count=count, legs=legs, refused=refused, scenario=scenario, **here)
        made.append((rows[block], point))
    return made


def _one(several: Scenario, at: int) -> tuple[Scenario, Whole]:
    """One of the points that a scenario of arrays holds, evaluated by itself."""
    scenario = _where(several, at)
    here: dict[str, Any] = {"island": scenario.fleet.islands[0], "plan": scenario.plan, "run": scenario.run}
    return scenario, alone(estimate=evaluate(model=scenario.model, stack=scenario.stack, **here), **here)


def _where(instance: Any, some: Any) -> Any:
    """A record with every array cut to some of its numbers."""
    return _each(instance, lambda value: value[some] if isinstance(value, np.ndarray) else value)


def _plain(instance: Any) -> Any:
    """A record with a number in the place of every array."""
    return _each(instance, lambda value: 0.0 if isinstance(value, np.ndarray) else value)


def _each(instance: Any, made: Any) -> Any:
    """A record with a function applied to its values, those of records and tuples of records inside it too."""
    changes: dict[str, Any] = {}
    for name in field_names(type(instance)):  # type: ignore[arg-type]
        value = getattr(instance, name)
        if is_dataclass(value):
            inner: Any = _each(value, made)
        elif isinstance(value, tuple) and value and is_dataclass(value[0]):
            inner = tuple(_each(one, made) for one in value)
            inner = value if all(new is old for new, old in zip(inner, value, strict=True)) else inner
        else:
            inner = made(value)
        if inner is not value:
            changes[name] = inner
    return changed(instance, **changes) if changes else instance


def _joined(records: Sequence[Any], counts: Sequence[int]) -> Any:
    """Records of equal structure as one whose numbers are arrays over the points of all; what is equal stays one
    number."""
    if len(records) == 1:
        return records[0]
    merged: dict[str, Any] = {}
    for name in field_names(type(records[0])):  # type: ignore[arg-type]
        values = [getattr(one, name) for one in records]
        head = values[0]
        if all(value is head for value in values):
            continue
        if any(isinstance(value, np.ndarray) for value in values):
            wide = [np.broadcast_to(np.asarray(v, dtype=float), (n,)) for v, n in zip(values, counts, strict=True)]
            merged[name] = np.concatenate(wide)
        elif is_dataclass(head):
            merged[name] = _joined(values, counts)
        elif isinstance(head, tuple) and head and is_dataclass(head[0]):
            merged[name] = tuple(_joined(column, counts) for column in zip(*values, strict=True))
        elif all(value == head for value in values):
            continue
        else:
            merged[name] = np.repeat(np.array(values, dtype=float), counts)
    return changed(records[0], **merged)
