"""Points of several islands: inner steps once for all that share them, the numbers of their synchronisation as arrays.

What a point says of the method, its numbers and the network leaves the islands' inner steps as they are, so that a sweep over
these evaluates them once; whatever else it says (nodes, batch, plan) makes a fleet of its own, resolved point by point.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from shardmeter.core.errors import ShardMeterError, UnknownName
from shardmeter.core.record import changed, stacked, structure
from shardmeter.engine.fleet import Part, Whole, evaluate_fleet, joined
from shardmeter.scenario.between import SyncInput
from shardmeter.scenario.grammar import SYNC_ALIASES
from shardmeter.scenario.parts import Findings
from shardmeter.scenario.ranges import Axis
from shardmeter.scenario.read import Document
from shardmeter.scenario.sync import method_named, resolve_sync
from shardmeter.scenario.together import reason
from shardmeter.specs import Scenario, Sync
from shardmeter.study import islands
from shardmeter.study.course import legs_of
from shardmeter.study.course.phases import Leg
from shardmeter.study.sweep.figures import Column, Point, refusals
from shardmeter.study.sweep.space import Space
from shardmeter.sync import alike

Rows = npt.NDArray[np.int64]
SYNC = ("plan", "sync")
SPLIT, METHOD = "plan.sync.split", "plan.sync.method"
INNER = tuple(f"plan.sync.{name}" for name in ("blocks", "levels", "rank", "perturbations", "together", "experts"))
"""Fields of the synchronisation that may change what an inner step computes."""
"""The field of a synchronisation that changes inner steps: by it the batch is shared."""
_KEPT = 256
"""Fleets whose inner steps are remembered."""


class Fleets:
    """Evaluates the points of a space that have several islands; it remembers inner steps."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.sync = [at for at, axis in enumerate(space.axes) if _of_the_round(axis)]
        """Axes of the synchronisation that leave the islands' inner steps as they are."""
        self._inner: dict[Any, tuple[Part, ...]] = {}

    def points(self, rows: Rows, places: Sequence[Rows], status: Column, illegal: str) -> list[tuple[Rows, Point]]:
        """The legal ones of some rows and their figures; the status of the others is written."""
        groups: dict[tuple[int, ...], list[tuple[int, tuple[int, ...]]]] = {}
        for row, place in zip(rows.tolist(), np.stack([at[rows] for at in places], axis=1).tolist(), strict=True):
            key = tuple(0 if at in self.sync else one for at, one in enumerate(place))
            groups.setdefault(key, []).append((row, tuple(place)))
        made: list[tuple[Rows, Point]] = []
        for some in groups.values():
            fleet, syncs = self._legal(some, status, illegal)
            for same in _alike(syncs):
                made += [] if fleet is None else self._evaluated(fleet, same)
        return made

    def _legal(
        self, some: Sequence[tuple[int, tuple[int, ...]]], status: Column, illegal: str
    ) -> tuple[Scenario | None, list[tuple[int, Sync]]]:
        """Points that differ in their synchronisation alone: the scenario of the first legal one, and what each says of that."""
        fleet: Scenario | None = None
        faulty, base = "", self.space.at([0 if at in self.sync else one for at, one in enumerate(some[0][1])])
        syncs: list[tuple[int, Sync]] = []
        for row, place in some:
            asked = None if fleet is None and not faulty else self._synchronised(place, base, fleet)
            if isinstance(asked, Sync) and fleet is not None:
                syncs.append((row, asked))
                continue
            if isinstance(asked, Sync) or (isinstance(asked, str) and fleet is not None):
                status[row] = f"{illegal}: {faulty if isinstance(asked, Sync) else asked}"
                continue
            try:
                made = self.space.scenario(place)
            except ShardMeterError as error:
                status[row] = f"{illegal}: {reason(error)}"
                if self.sync and isinstance(self._synchronised(place, base, None), Sync):
                    faulty = reason(error)  # of all that is no synchronisation: the other points have it too
                continue
            fleet = fleet or made
            syncs.append((row, made.plan.sync))
        return fleet, syncs

    def _synchronised(self, place: Sequence[int], base: Document, fleet: Scenario | None) -> Sync | str | None:
        """What a point says of the synchronisation, or why it contradicts itself; None for what cannot be read. `base` is the
        document with all else."""
        plan = base.data.get("plan")
        said = dict(plan.get("sync") or {}) if isinstance(plan, dict) else {}
        for at in self.sync:
            axis = self.space.axes[at]
            for field, value in zip(axis.fields, axis.points[place[at]], strict=True):
                name = field.rpartition(".")[2]
                said[SYNC_ALIASES.get(name, name)] = value
        found = Findings(base)
        try:
            asked = SyncInput.model_validate(said)
        except ValidationError:
            return None
        cells = None if fleet is None else len(fleet.fleet.islands)
        made = resolve_sync(asked, SYNC, None if fleet is None else float(fleet.model.layers), found, cells)
        try:
            found.stop()
        except ShardMeterError as error:
            return reason(error)
        return made

    def _evaluated(self, fleet: Scenario, same: Sequence[tuple[int, Sync]]) -> list[tuple[Rows, Point]]:
        """The figures of points whose synchronisation differs in numbers alone."""
        if len(same) > 1 and fleet.run.target_loss is not None:  # each method's numbers cost a loss of their own
            return [found for one in same for found in self._evaluated(fleet, [one])]
        rows, parts = np.array([row for row, _ in same]), self._parts(fleet)
        sync: Sync = stacked([one for _, one in same]) if len(same) > 1 else same[0][1]
        whole = joined(fleet.model, parts, fleet.fleet.wan, changed(fleet.plan, sync=sync))
        kinds = _kinds(whole, sync, len(rows))
        if len(kinds) > 1:
            return [one for some in kinds for one in self._evaluated(fleet, [same[at] for at in some])]
        part = islands.critical(whole)
        scenario = changed(fleet, plan=changed(fleet.plan, sync=sync))
        legs = legs_of(scenario, whole)
        point = Point(
            refused=self._refused(fleet, same, whole, legs),
            island=part.island,
            plan=part.plan,
            run=part.run,
            estimate=whole.estimate,
            count=len(rows),
            whole=whole,
            legs=legs,
            scenario=scenario,
        )
        return [(rows, point)]

    def _refused(
        self, fleet: Scenario, same: Sequence[tuple[int, Sync]], whole: Whole, legs: tuple[Leg, ...] | None
    ) -> dict[int, str]:
        """Why points are refused once they are evaluated, by their place among the `same`."""

        def one(at: int) -> tuple[Scenario, Whole]:
            own = changed(fleet, plan=changed(fleet.plan, sync=same[at][1]))
            return own, whole if len(same) == 1 else joined(fleet.model, self._parts(fleet), fleet.fleet.wan, own.plan)

        return refusals(fleet.run, legs, len(same), one)

    def _parts(self, fleet: Scenario) -> tuple[Part, ...]:
        """The islands with their inner steps, evaluated once for all points that share them."""
        plans = tuple(changed(plan, sync=Sync(split=fleet.plan.sync.split)) for plan in fleet.plans)
        network = id(fleet.fleet.wan) if fleet.plan.placement else None
        key = (repr(fleet.model), repr(fleet.fleet.islands), repr(plans), repr(fleet.run), repr(fleet.stack), network)
        found = self._inner.get(key)
        if found is None:
            whole = evaluate_fleet(fleet.model, fleet.fleet, fleet.plan, fleet.run, fleet.stack, fleet.plans)
            if len(self._inner) >= _KEPT:
                self._inner.clear()
            found = tuple(changed(part, estimate=e) for part, e in zip(whole.parts, whole.inner, strict=True))
            self._inner[key] = found
        return found


def _of_the_round(axis: Axis) -> bool:
    """Whether all fields of an axis are of the synchronisation, and change nothing of an inner step."""
    before = ".".join(SYNC) + "."
    if not all(name.startswith(before) and name not in (SPLIT, *INNER) for name in axis.fields):
        return False
    methods = [point[axis.fields.index(METHOD)] for point in axis.points] if METHOD in axis.fields else []
    return all(_backward(str(word)) for word in methods)


def _backward(word: str) -> bool:
    """Whether a word means a method that trains one model by backpropagation; what means none is told of elsewhere."""
    try:
        return alike(method_named(word))
    except UnknownName:
        return True


def _alike(syncs: Sequence[tuple[int, Sync]]) -> list[list[tuple[int, Sync]]]:
    """Points whose synchronisation has the same words and lengths."""
    groups: dict[Any, list[tuple[int, Sync]]] = {}
    for row, sync in syncs:
        groups.setdefault(structure(sync), []).append((row, sync))
    return list(groups.values())


def _kinds(whole: Whole, sync: Sync, count: int) -> list[list[int]]:
    """Points apart where an array cannot say both: the fullest island is another one, or a star may have another server, which
    the size of its message decides."""
    full = [np.broadcast_to(one.estimate.memory_peak / one.estimate.memory_limit, count) for one in whole.parts]
    columns = [np.argmax(np.stack(full), axis=0).astype(float)]
    crossings = whole.round.crossings if whole.round is not None else ()
    if sync.topology == "star" or any(one.collective == "star" for one in crossings):
        columns += [np.broadcast_to(np.asarray(one.size, dtype=float), count) for one in crossings]
    groups: dict[tuple[float, ...], list[int]] = {}
    for at, key in enumerate(np.stack(columns, axis=1).tolist()):
        groups.setdefault(tuple(key), []).append(at)
    return list(groups.values())
