"""Points of a space read for what rules them: seconds by regime, communication against compute, memory and throughput, as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from shardmeter.core.record import changed, record
from shardmeter.core.sums import plain_sum
from shardmeter.engine.evaluate import priced, timed
from shardmeter.engine.fleet import Part, joined
from shardmeter.scenario.parts import Rows
from shardmeter.scenario.ranges import Axis
from shardmeter.scenario.read import Document
from shardmeter.specs import Fleet, Scenario, Wan
from shardmeter.specs.estimate import Estimate
from shardmeter.specs.wan import PAIRS, SITES
from shardmeter.study.sweep.figures import Column, Point
from shardmeter.study.sweep.fleets import Fleets
from shardmeter.study.sweep.points import ILLEGAL, Evaluator
from shardmeter.study.sweep.space import Space
from shardmeter.study.transitions import regimes

Array: TypeAlias = npt.NDArray[np.float64]


@record
class Reading:
    """Points in the order of their space, the last axis fastest; NaN where one is illegal."""

    status: Column
    """"ok", "does not fit", or "illegal: why"."""
    seconds: Array
    """(regimes, points): seconds of the step, rows in the order of `regimes.REGIMES`."""
    step: Array
    under_way: Array
    """Seconds of a step that communication is under way, hidden or not."""
    exposed: Array
    """Seconds of a step that it shows."""
    compute: Array
    """Seconds of a step in which the device that sets the pace computes."""
    room: Array
    """Memory that is left on the fullest device, as a share of what it has; negative where the plan does not fit."""
    rate: Array
    """Tokens a second."""

    @property
    def legal(self) -> npt.NDArray[np.bool_]:
        """Which points mean something."""
        return np.isfinite(self.step)

    @property
    def ruling(self) -> npt.NDArray[np.int64]:
        """Place in REGIMES of what takes most of each step; of points that are illegal, −1."""
        largest = np.argmax(np.nan_to_num(self.seconds, nan=-1.0), axis=0)
        return np.where(self.legal, largest, -1)

    def lead(self, regime: Array | int) -> Array:
        """Seconds by which one regime of each point is ahead of all others there."""
        places = np.arange(len(self.step))
        own = self.seconds[regime, places]
        others = np.array(self.seconds)
        others[regime, places] = -np.inf
        return np.asarray(own - np.max(others, axis=0))


class Reader:
    """Reads points of one document; it keeps what islands take without limits of bandwidth."""

    def __init__(self, document: Document, rows: Rows) -> None:
        self.document = document
        self.rows = rows
        self._evaluators: dict[tuple[str, ...], Evaluator] = {}
        """The last one of every set of axes."""
        self._wide: dict[tuple[int, int, int], tuple[Scenario, tuple[Part, ...]]] = {}
        self._joined: dict[Any, tuple[Scenario, Estimate]] = {}

    def read(self, axes: Sequence[Axis]) -> Reading:
        """All points of the product of some axes."""
        space = Space(document=self.document, rows=self.rows, axes=tuple(axes), columns=())
        space = changed(space, chunk=space.points)
        evaluator = Evaluator(space, self._evaluators.get(space.fields))
        self._evaluators[space.fields] = evaluator
        status, found = evaluator.points(0)
        columns = np.full((len(regimes.REGIMES) + len(_FIGURES), space.points), np.nan)
        read = [(rows, one, self._without_limits(one, evaluator.fleets), _room(one)) for rows, one in found]
        for one in _together(read):
            columns[:, one[0]] = _columns(*one[1:])
        columns[:, [text.startswith(ILLEGAL) for text in status]] = np.nan
        few = len(regimes.REGIMES)
        return Reading(status=status, seconds=columns[:few], **dict(zip(_FIGURES, columns[few:], strict=True)))

    def _without_limits(self, point: Point, fleets: Fleets) -> Estimate:
        """The same points on links without limits; of several islands these are evaluated once for all whose network is then alike."""
        scenario = point.scenario
        if scenario is None:
            raise ValueError("a point without its scenario cannot be evaluated again")
        if scenario.fleet.wan is None:
            asked = scenario.model, regimes.wide_island(point.island), point.plan, point.run, scenario.stack
            return changed(point.estimate, terms=timed(priced(*asked), point.plan, point.run, scenario.stack)[0])
        network = regimes.wide_network(scenario.fleet.wan)
        key = (*self._of_islands(scenario), id(scenario.plan.sync), _text_of(network))
        if key not in self._joined:
            parts = self._parts(scenario, fleets, network)
            self._joined[key] = scenario, joined(scenario.model, parts, network, scenario.plan).estimate
        return self._joined[key][1]

    @staticmethod
    def _of_islands(scenario: Scenario) -> tuple[int, int, int]:
        return id(scenario.fleet.islands), id(scenario.plans), id(scenario.run)

    def _parts(self, scenario: Scenario, fleets: Fleets, network: Any) -> tuple[Part, ...]:
        key = self._of_islands(scenario)
        if scenario.plan.placement or key not in self._wide:
            islands = tuple(regimes.wide_island(island) for island in scenario.fleet.islands)
            wide = changed(scenario, fleet=Fleet(islands=islands, wan=network))
            self._wide[key] = scenario, fleets.parts(wide)
        return self._wide[key][1]


_FIGURES = ("step", "under_way", "exposed", "compute", "room", "rate")
"""Rows below those of the regimes."""


Read: TypeAlias = tuple[npt.NDArray[np.int64], Point, Estimate, Array]
"""Rows, their points, the same points without limits of bandwidth, and the memory that is left."""


def _together(read: Sequence[Read]) -> list[Read]:
    """Points of the same plan and the same terms as one: of many networks each has points of its own."""
    groups: dict[Any, list[Read]] = {}
    for one in read:
        _, point, wide, _ = one
        labels = tuple(tuple(term.label for term in each.terms) for each in (point.estimate, wide))
        several = point.whole is not None and not point.plan.placement
        groups.setdefault((id(point.whole.parts), labels) if several and point.whole else id(point), []).append(one)
    return [some[0] if len(some) == 1 else _joined(some) for some in groups.values()]


def _joined(some: Sequence[Read]) -> Read:
    """Points whose islands are the same as one, every number of theirs as an array over all."""
    counts = [point.count for _, point, _, _ in some]

    def wide(numbers: Sequence[Any]) -> Array:
        return np.concatenate(
            [
                np.broadcast_to(np.asarray(one, dtype=float), (count,))
                for one, count in zip(numbers, counts, strict=True)
            ]
        )

    def all_of(estimates: Sequence[Estimate]) -> Estimate:
        terms = tuple(
            changed(each[0], seconds=wide([one.seconds for one in each]), hidden=wide([one.hidden for one in each]))
            for each in zip(*(one.terms for one in estimates), strict=True)
        )
        names = ("step_time", "tokens", "compute_seconds")
        return changed(estimates[0], terms=terms, **{n: wide([getattr(one, n) for one in estimates]) for n in names})

    first = changed(some[0][1], estimate=all_of([point.estimate for _, point, _, _ in some]), count=plain_sum(counts))
    limitless = all_of([one for _, _, one, _ in some])
    rows, room = (np.concatenate([one[at] for one in some]) for at in (0, 3))
    return rows, first, limitless, room


def _room(point: Point) -> Array:
    """Memory that is left on the fullest device, as a share of what it has."""
    parts = [point.estimate] if point.whole is None else [part.estimate for part in point.whole.parts]
    left = [point.wide((one.memory_limit - one.memory_peak) / one.memory_limit) for one in parts]
    return np.asarray(np.min(left, axis=0), dtype=float)


def _columns(point: Point, wide: Estimate, room: Array) -> Array:
    """(regimes and figures, points)."""
    one, count = point.estimate, point.count
    by = regimes.seconds(one, wide, point.plan)
    under_way, exposed = regimes.communication(one, point.plan)
    figures = (one.step_time, under_way, exposed, one.compute_seconds, room, one.tokens / one.step_time)
    rows = [*(by.get(name, 0.0) for name in regimes.REGIMES), *figures]
    return np.stack([np.broadcast_to(np.asarray(row, dtype=float), (count,)) for row in rows])


def _text_of(network: Wan) -> tuple[Any, ...]:
    """All of a network that sets a time, to compare it."""
    words = network.islands, network.transport, network.balance, network.backend, network.assumed
    numbers = (np.asarray(getattr(network, name), dtype=float) for name in (*PAIRS, *SITES))
    return (*words, *(one.tobytes() for one in numbers))
