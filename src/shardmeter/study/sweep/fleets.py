"""Points of several islands: inner steps once for all that share them, the numbers of their synchronisation as arrays.

What a point says of the method, its numbers and the network leaves the islands' inner steps as they are, so that a sweep over
these evaluates them once, and resolves a network alone where its numbers are all that is new; where an axis of the mesh crosses
islands the inner steps of all networks are evaluated at once. Whatever else a point says (nodes, batch, plan) makes a fleet of its own,
resolved point by point.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from shardmeter.core.errors import ShardMeterError, UnknownName
from shardmeter.core.record import changed, stacked, structure
from shardmeter.engine.fleet import Part, Whole, evaluate_fleet, joined
from shardmeter.engine.networks import parts_over
from shardmeter.scenario.between import SyncInput
from shardmeter.scenario.grammar import SYNC_ALIASES
from shardmeter.scenario.network import is_number_of_network, network
from shardmeter.scenario.parts import Findings
from shardmeter.scenario.ranges import Axis
from shardmeter.scenario.read import Document
from shardmeter.scenario.sync import method_named, resolve_sync
from shardmeter.scenario.together import reason
from shardmeter.specs import Scenario, Sync, Wan
from shardmeter.study import islands
from shardmeter.study.course import legs_of
from shardmeter.study.course.phases import Leg
from shardmeter.study.sweep.figures import Column, Point, refusals
from shardmeter.study.sweep.space import Space
from shardmeter.sync import alike

if TYPE_CHECKING:
    from shardmeter.scenario.fleet import Entry

Rows = npt.NDArray[np.int64]
Place: TypeAlias = tuple[int, ...]
Known: TypeAlias = dict[Place, "Sync | str | None"]
"""What was found of the synchronisation, by its place on those axes."""
SYNC = ("plan", "sync")
SPLIT, METHOD = "plan.sync.split", "plan.sync.method"
INNER = tuple(f"plan.sync.{name}" for name in ("blocks", "levels", "rank", "perturbations", "together", "experts"))
"""Fields of the synchronisation that may change what an inner step computes."""
"""The field of a synchronisation that changes inner steps: by it the batch is shared."""
_OWN = ("model", "plan", "plans", "run", "stack")
"""Of a scenario, beside its islands, what their inner steps depend on."""
_KEPT = 256
"""Fleets whose inner steps are remembered."""


class Fleets:
    """Evaluates the points of a space that have several islands; it remembers inner steps."""

    def __init__(self, space: Space, before: Fleets | None = None) -> None:
        """`before` evaluated others: the inner steps that it remembers are known."""
        self.space = space
        self.sync = [at for at, axis in enumerate(space.axes) if _of_the_round(axis)]
        """Axes of the synchronisation that leave the islands' inner steps as they are."""
        self.network = [at for at, axis in enumerate(space.axes) if all(map(is_number_of_network, axis.fields))]
        """Axes of numbers of the network."""
        self.round = [*self.sync, *self.network]
        self.inner: dict[Any, tuple[Part, ...]] = {} if before is None else before.inner
        """Inner steps that were evaluated, by all that they depend on."""
        self._before: tuple[Scenario, tuple[Part, ...]] | None = None
        """The last fleet and its parts: most have the same as the one before."""
        self._placed: dict[int, tuple[Wan, tuple[Part, ...]]] = {}
        """Of the fleets that are looked at, whose inner steps an axis across islands makes depend on the network: by that."""
        self._alike: tuple[tuple[Part, ...], Sync, Whole] | None = None
        """The last parts that were joined, by which synchronisation, and to what."""

    def points(self, rows: Rows, places: Sequence[Rows], status: Column, illegal: str) -> list[tuple[Rows, Point]]:
        """The legal ones of some rows and their figures; the status of the others is written."""
        groups: dict[Place, dict[Place, list[tuple[int, Place]]]] = {}
        for row, at in zip(rows.tolist(), np.stack([one[rows] for one in places], axis=1).tolist(), strict=True):
            key = tuple(0 if axis in self.round else one for axis, one in enumerate(at))
            lines = tuple(at[axis] for axis in self.network)
            groups.setdefault(key, {}).setdefault(lines, []).append((row, tuple(at)))
        return [point for some in groups.values() for point in self._group(list(some.values()), status, illegal)]

    def _group(
        self, networks: Sequence[Sequence[tuple[int, Place]]], status: Column, illegal: str
    ) -> list[tuple[Rows, Point]]:
        """Points that differ in their network and in their synchronisation alone, those of each network together."""
        made: list[tuple[Rows, Point]] = []
        first = networks[0][0][1]
        base = self.space.at([0 if at in self.sync else one for at, one in enumerate(first)])
        fleet: Scenario | None = None
        everyone: Sequence[Entry] = ()
        known: Known = {}
        found: list[tuple[Scenario, list[tuple[int, Sync]]]] = []
        for some in networks:
            own = None
            if fleet is not None:
                everyone = everyone or self._everyone(first)
                names = [island.name for island in fleet.fleet.islands]
                wan = network(self.space.at(some[0][1]), everyone, names, self.space.rows) if everyone else None
                own = None if wan is None else changed(fleet, fleet=changed(fleet.fleet, wan=wan))
            own, syncs = self._legal(some, base, status, illegal, own, known)
            fleet = fleet or own
            if own is not None:
                found.append((own, syncs))
        self._ask([own for own, _ in found])
        groups: dict[Any, list[tuple[list[int], Sync]]] = {}
        for own, syncs in found:
            key = tuple(id(sync) for _, sync in syncs)
            if key not in groups:
                groups[key] = [(same, _together([syncs[at][1] for at in same])) for same in _alike(syncs)]
            for same, sync in groups[key]:
                made += self._evaluated(own, [syncs[at] for at in same], sync)
        return made

    def _ask(self, fleets: Sequence[Scenario]) -> None:
        """Evaluate the inner steps of fleets that differ in their network alone, where that is part of them."""
        self._placed = {}
        asked = [one for one in fleets if one.plan.placement and _alike_inside(one, fleets[0])]
        wans = [one.fleet.wan for one in asked if one.fleet.wan is not None]
        if len(wans) > 1:
            first = asked[0]
            every = parts_over(first.model, first.fleet, first.plan, first.run, first.stack, wans, first.plans)
            self._placed = {id(wan): (wan, parts) for wan, parts in zip(wans, every, strict=True)}

    def _everyone(self, place: Place) -> Sequence[Entry]:
        """All islands that are described, whether or not they take part; none where the parts cannot be read."""
        parts = self.space.parts(place)
        return () if isinstance(parts, str) else parts.everyone

    def _legal(
        self,
        some: Sequence[tuple[int, Place]],
        base: Document,
        status: Column,
        illegal: str,
        fleet: Scenario | None,
        known: Known,
    ) -> tuple[Scenario | None, list[tuple[int, Sync]]]:
        """Points that differ in their synchronisation alone: the `fleet` of all of them, or the scenario of the first legal one, and
        what each says of that. `base` is a document with all else of a plan; what is found is kept in `known`."""
        faulty = ""
        syncs: list[tuple[int, Sync]] = []
        for row, place in some:
            asked: Sync | str | None = None
            if fleet is not None:
                at = tuple(place[axis] for axis in self.sync)
                if at not in known:
                    known[at] = self._synchronised(place, base, fleet)
                asked = known[at]
            elif faulty:
                asked = self._synchronised(place, base, None)
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

    def _evaluated(self, fleet: Scenario, same: Sequence[tuple[int, Sync]], sync: Sync) -> list[tuple[Rows, Point]]:
        """The figures of points whose synchronisation differs in numbers alone; `sync` is that of all of them."""
        if len(same) > 1 and fleet.run.target_loss is not None:  # each method's numbers cost a loss of their own
            return [found for one in same for found in self._evaluated(fleet, [one], one[1])]
        rows, parts = np.array([row for row, _ in same]), self.parts(fleet)
        alike = self._alike is not None and self._alike[0] is parts and self._alike[1] is sync
        known = self._alike[2] if alike and self._alike is not None else None
        whole = joined(fleet.model, parts, fleet.fleet.wan, changed(fleet.plan, sync=sync), known)
        self._alike = parts, sync, whole
        kinds = _kinds(whole, sync, len(rows))
        if len(kinds) > 1:
            apart = [[same[at] for at in some] for some in kinds]
            return [
                one for some in apart for one in self._evaluated(fleet, some, _together([sync for _, sync in some]))
            ]
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
            return own, whole if len(same) == 1 else joined(fleet.model, self.parts(fleet), fleet.fleet.wan, own.plan)

        return refusals(fleet.run, legs, len(same), one)

    def parts(self, fleet: Scenario) -> tuple[Part, ...]:
        """The islands with their inner steps, evaluated once for all points that share them."""
        placed = self._placed.get(id(fleet.fleet.wan))
        if placed is not None:
            return placed[1]
        before = self._before
        if before is None or fleet.plan.placement or not _alike_inside(fleet, before[0]):
            self._before = before = (fleet, self._known(fleet))
        return before[1]

    def _known(self, fleet: Scenario) -> tuple[Part, ...]:
        plans = tuple(changed(plan, sync=Sync(split=fleet.plan.sync.split)) for plan in fleet.plans)
        lines = repr(fleet.fleet.wan) if fleet.plan.placement else None
        key = (repr(fleet.model), repr(fleet.fleet.islands), repr(plans), repr(fleet.run), repr(fleet.stack), lines)
        found = self.inner.get(key)
        if found is None:
            whole = evaluate_fleet(fleet.model, fleet.fleet, fleet.plan, fleet.run, fleet.stack, fleet.plans)
            if len(self.inner) >= _KEPT:
                self.inner.clear()
            found = tuple(changed(part, estimate=e) for part, e in zip(whole.parts, whole.inner, strict=True))
            self.inner[key] = found
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


def _alike_inside(fleet: Scenario, other: Scenario) -> bool:
    """Whether two fleets of which one was made from the other have the same inner steps."""
    return fleet.fleet.islands is other.fleet.islands and all(getattr(fleet, n) is getattr(other, n) for n in _OWN)


def _together(syncs: Sequence[Sync]) -> Sync:
    """Several of equal structure as one of arrays."""
    made: Sync = stacked(list(syncs)) if len(syncs) > 1 else syncs[0]
    return made


def _alike(syncs: Sequence[tuple[int, Sync]]) -> list[list[int]]:
    """The places of points whose synchronisation has the same words and lengths."""
    groups: dict[Any, list[int]] = {}
    for at, (_, sync) in enumerate(syncs):
        groups.setdefault(structure(sync), []).append(at)
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
