"""Some islands that train together: their inner steps and the round around them for any choice of their plans, and bounds."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from shardmeter.core.record import changed
from shardmeter.core.sums import plain_sum
from shardmeter.core.units import Number, Seconds
from shardmeter.engine import crossing
from shardmeter.engine import round as rounds
from shardmeter.engine.fleet import Part, Whole, alone, joined, outer_update
from shardmeter.engine.links import bounded
from shardmeter.engine.round import Pace
from shardmeter.engine.sharing import IndivisibleBatch, parted, peak
from shardmeter.families import matrices
from shardmeter.specs import Island, Replica, Round, Scenario, Wan
from shardmeter.strategies.precision import WIDTH
from shardmeter.study.planning.kinds import Inside, Table
from shardmeter.study.planning.lengths import Length, length_of
from shardmeter.study.planning.objective import is_simple
from shardmeter.study.planning.syncs import Way
from shardmeter.sync import parts_of, round_of

Chosen: TypeAlias = tuple[int, ...]
"""For every kind the place of its plan among its tables."""
MOST_KNOWN = 5_000
"""Choices of which the parts are kept."""


@dataclass(slots=True)
class Curve:
    """How many sequences a step of so many seconds takes at most: of one plan, or of the best of several."""

    ends_by: list[float]
    batches: list[float]

    @classmethod
    def of(cls, tables: Sequence[Table]) -> Curve:
        """That of the best of some plans."""
        ends, batches = np.concatenate([t.ends_by for t in tables]), np.concatenate([t.batches for t in tables])
        order = np.argsort(ends, kind="stable")
        return cls(ends[order].tolist(), np.maximum.accumulate(batches[order]).tolist())

    def most(self, seconds: float) -> float:
        """−inf where it takes none."""
        place = bisect.bisect_right(self.ends_by, seconds) - 1
        return self.batches[place] if place >= 0 else -math.inf


@dataclass(slots=True)
class Team:
    """Islands of a fleet, with the plans that each kind of them may have."""

    scenario: Scenario
    places: tuple[int, ...]
    """In the fleet, ascending."""
    insides: tuple[Inside, ...]
    """Of its kinds."""
    kind: tuple[int, ...]
    """Of every island."""
    batch: float
    """Sequences of an inner step."""
    wan: Wan | None
    blocks: int = 1
    """Parts of the model that its islands train apart, each with the whole batch."""
    known: dict[tuple[Chosen, str], tuple[Part, ...] | None] = field(default_factory=dict)
    curves: list[list[Curve]] = field(default_factory=list)
    """Of every plan of every kind."""
    best: list[Curve] = field(default_factory=list)
    """Of the best plan of every kind."""
    ends: list[float] = field(default_factory=list)
    """All seconds that a step may take, of any plan, ascending."""

    def __post_init__(self) -> None:
        """Order the steps of the plans."""
        self.curves = [[Curve.of([table]) for table in inside.tables] for inside in self.insides]
        self.best = [Curve.of(inside.tables) for inside in self.insides]
        self.ends = sorted({end for curve in self.best for end in curve.ends_by})

    @property
    def islands(self) -> tuple[Island, ...]:
        """In the order of the fleet."""
        return tuple(self.scenario.fleet.islands[at] for at in self.places)

    @property
    def counts(self) -> tuple[int, ...]:
        """Islands of every kind."""
        return tuple(self.kind.count(number) for number in range(len(self.insides)))

    @property
    def tokens(self) -> float:
        """Of one inner step of all islands."""
        return self.batch * float(self.scenario.run.seq_len)

    def tables(self, chosen: Chosen) -> tuple[Table, ...]:
        """Of every island the plan that it has."""
        return tuple(self.insides[number].tables[chosen[number]] for number in self.kind)

    def level(self, chosen: Chosen) -> int:
        """Axes in use, words that are not the usual ones, and plans that differ."""
        tables = [inside.tables[place] for inside, place in zip(self.insides, chosen, strict=True)]
        return plain_sum(table.level for table in tables) + len({table.plan for table in tables}) - 1

    def parts(self, chosen: Chosen, split: str) -> tuple[Part, ...] | None:
        """The islands with their parts of the batch, as `predict` shares it; None where no whole micro-batches make it up."""
        key = chosen, split
        if key not in self.known:
            if len(self.known) >= MOST_KNOWN:
                self.known.clear()
            self.known[key] = self._parts(chosen, split)
        return self.known[key]

    def _parts(self, chosen: Chosen, split: str) -> tuple[Part, ...] | None:
        shares: dict[int, float] = {}
        try:
            for group in parts_of(len(self.places), self.blocks):
                shares |= zip(group, self._shares(group, chosen, split), strict=True)
        except IndivisibleBatch:
            return None
        return tuple(
            Part(island=island, plan=table.plan, run=changed(self.scenario.run, global_batch=shares[at]), cell=at,
                 estimate=table.estimate(shares[at]))
            for at, (island, table) in enumerate(zip(self.islands, self.tables(chosen), strict=True))
        )  # fmt: skip

    def _shares(self, group: Sequence[int], chosen: Chosen, split: str) -> tuple[float, ...]:
        """Sequences of every island of those that share the batch. Raises IndivisibleBatch."""
        everyone = self.tables(chosen)
        tables, islands = [everyone[at] for at in group], [self.islands[at] for at in group]
        rows = [(id(i.accelerator), i.tiers, i.nodes, t.plan) for i, t in zip(islands, tables, strict=True)]
        alike = split == "equal" or all(row == rows[0] for row in rows)

        def times(batches: Sequence[Sequence[float]]) -> list[list[float]]:
            return [[float(t.steps[t.at(b)]) for t, b in zip(tables, some, strict=True)] for some in batches]

        speeds = None if alike else ([peak(island) for island in islands], times)
        return parted(self.batch, [(t.unit, t.least) for t in tables], speeds, split)

    def whole(self, chosen: Chosen, way: Way) -> Whole | None:
        """The round, for all numbers of a way at once; None where no whole micro-batches make up the batch."""
        parts = self.parts(chosen, way.sync.split)
        if parts is None:
            return None
        if len(parts) == 1:
            only = parts[0]
            return alone(only.island, only.plan, only.run, only.estimate)
        return joined(self.scenario.model, parts, self.wan, changed(parts[0].plan, sync=way.sync))

    # ---- bounds ------------------------------------------------------------------------------------------------------------------

    def least_step(self, chosen: Chosen) -> Seconds:
        """Seconds below which no slowest island ends, however the batch is shared: of the first kinds the plans are chosen, the
        others have whichever is best."""
        curves = [self.curves[at][chosen[at]] if at < len(chosen) else one for at, one in enumerate(self.best)]
        counted, needed = list(zip(curves, self.counts, strict=True)), self.batch * self.blocks

        def taken(seconds: float) -> float:
            return math.fsum(count * curve.most(seconds) for curve, count in counted)

        place = bisect.bisect_left(self.ends, needed, key=taken)
        return self.ends[min(place, len(self.ends) - 1)]

    def most_rate(self, chosen: Chosen) -> float:
        """Sequences a second that no share of the batch exceeds, where nobody waits."""
        rates = [
            inside.tables[chosen[at]].rate() if at < len(chosen) else max(table.rate() for table in inside.tables)
            for at, inside in enumerate(self.insides)
        ]
        return plain_sum(count * rate for count, rate in zip(self.counts, rates, strict=True)) / self.blocks


@dataclass(slots=True)
class Bound:
    """What no choice of plans falls below, for all numbers of a way: of the slowest step, or of the rate of all."""

    team: Team
    way: Way
    asked: Round | None = None
    across: tuple[Any, ...] = ()
    egress: Number = 0.0
    """USD of an inner step."""
    hides: dict[str, Any] = field(default_factory=dict)
    """Of the plan that hides most: when its gradients leave, what of its own reduction shows."""
    update: Number = 0.0
    """(…, islands): the least that an outer update takes."""
    length: Length = field(init=False)
    """Of the run."""

    def __post_init__(self) -> None:
        """Price the messages of the least that the plans send."""
        team, way = self.team, self.way
        self.length = length_of(team.scenario, len(team.places), team.batch, way)
        if len(team.places) < 2 or team.wan is None:
            return
        first = team.insides[team.kind[0]].tables
        cells = [[at] for at in range(len(team.places))]
        told = Replica(
            parameters=min(float(np.min(table.batch.ends.trained)) for table in first),
            gradient_bytes=min(WIDTH[table.plan.reduce_dtype] for table in first),
            layers=float(team.scenario.model.layers),
            cells=float(len(cells)),
            matrices=matrices(team.scenario.model),
        )
        self.asked = round_of(told, way.sync)
        ends = [table.batch.ends for inside in team.insides for table in inside.tables]
        least = [
            np.minimum.reduce(
                [np.asarray(outer_update(self.asked, table.batch, inside.kind.island)) for table in inside.tables]
            )
            for inside in team.insides
        ]
        self.update = np.stack([least[number] for number in team.kind], axis=-1)
        trains = [train for one in ends for train in one.leaving]
        self.hides = {
            "leaving": rounds.shortest(trains, max(float(np.max(one.left + one.window + one.due)) for one in trains)),
            "late": max(float(np.max(one.late)) for one in ends),
        }
        gpus = [island.gpus for island in team.islands]
        own = self.asked.pace != "barrier"
        wan = bounded(team.wan, team.islands, gpus)
        priced = [crossing.price(one, wan, cells, way.sync, own=own, accelerators=gpus) for one in self.asked.crossings]
        self.across = tuple(one.seconds for one in priced)
        if not own:
            for one, charge in zip(self.asked.crossings, priced, strict=True):
                self.egress = self.egress + np.asarray(one.messages) * charge.egress / self.asked.steps

    @property
    def least(self) -> Number:
        """Tokens that no run falls below; infinite where it has no end."""
        found = self.length.of(self.team.tokens if self.waits else 0.0)
        return np.where(np.isnan(found), np.inf, found)[()]

    @property
    def waits(self) -> bool:
        """Whether all islands wait for the slowest."""
        return self.asked is None or self.asked.pace == "barrier"

    @property
    def apart(self) -> bool:
        """Whether islands train models of their own, each as long as it needs."""
        return self.asked is not None and self.asked.alone

    @property
    def agrees(self) -> bool:
        """Whether the faster of two choices is the better one by every objective: what is sent is the same for all."""
        plain = is_simple(self.team.scenario)
        return (
            plain
            and self.waits
            and len({t.plan.reduce_dtype for inside in self.team.insides for t in inside.tables}) == 1
        )

    def key(self, chosen: Chosen) -> float:
        """Seconds of an inner step of all, messages left out: nodes are taken in this order."""
        return float(self.team.least_step(chosen)) if self.waits else self.team.batch / self.team.most_rate(chosen)

    def step(self, key: float) -> Number:
        """The same with the messages that no plan hides: seconds an inner step, of the shape of the way.

        A longer inner step never makes a round shorter, so what holds of the least holds of all."""
        if self.asked is None or not self.waits:
            return key
        cells = len(self.team.places)
        pace = Pace(
            step=np.full(cells, key), tokens=np.full(cells, self.team.tokens / cells), update=self.update, **self.hides
        )
        return rounds.fold(self.asked, pace, self.across).seconds / self.asked.steps
