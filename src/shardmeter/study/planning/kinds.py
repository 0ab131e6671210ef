"""The islands of a fleet by kind, and the plans that each kind is taken to: the best of its own search, with their steps at every batch.

Islands are of one kind if they are the same machines with the same pins: they have one plan, and it is looked for once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from shardmeter.core.errors import BadScenario
from shardmeter.core.record import changed, record
from shardmeter.core.sums import plain_sum
from shardmeter.core.units import Bytes, Count
from shardmeter.engine.cells import taken
from shardmeter.engine.evaluate import evaluate
from shardmeter.engine.sharing import peak, unit
from shardmeter.specs import Estimate, Fleet, Island, Plan, Run, Scenario
from shardmeter.study.planning import dead_ends
from shardmeter.study.planning.block import Question, complexity
from shardmeter.study.planning.objective import Goal
from shardmeter.study.planning.search import Progress, Stop, search
from shardmeter.study.planning.space import space_of
from shardmeter.study.planning.tally import Floats, Tally

MOST = 8
"""Plans of a kind that are kept for every batch and every size of the state beside them."""
FINER, EQUAL = (1.0, 0.25), (1.0, 0.25, 1.0 / 16.0)
"""Shares of an island's part of the batch: plans that take no more at a time are looked for beside the best; where the batch is
shared in equal parts, which have to be whole, finer ones too."""
BEYOND = 2
"""Units beyond the whole batch up to which steps are known: a part by peak is rounded, and read at two places."""
SPEED = Goal(objectives=("throughput",), deadline=None, budget=None)


@record
class Kind:
    """Islands of one kind."""

    places: tuple[int, ...]
    """In the fleet."""
    island: Island
    pins: Mapping[str, tuple[Any, ...]]
    base: Plan
    """What is not chosen."""


@dataclass(slots=True)
class Table:
    """One plan of a kind at every batch that it can take, up to that of the whole fleet."""

    plan: Plan
    unit: float
    least: float
    level: int
    """Its complexity."""
    batches: Floats
    batch: Estimate
    """Its inner step, of the shape of the batches."""
    steps: Floats
    ends_by: Floats = field(init=False)
    """Of every batch, the seconds by which it or a larger one is done."""
    known: dict[float, Estimate] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Order the steps for `most`."""
        self.ends_by = np.minimum.accumulate(self.steps[::-1])[::-1]

    def at(self, sequences: float) -> int:
        """Place of a batch."""
        return round((sequences - self.least) / self.unit)

    def estimate(self, sequences: float) -> Estimate:
        """The inner step at one batch."""
        if sequences not in self.known:
            self.known[sequences] = taken(self.batch, self.at(sequences)) if len(self.batches) > 1 else self.batch
        return self.known[sequences]

    def most(self, seconds: float) -> float:
        """Sequences that a step of so many seconds takes at most; −inf where it takes none."""
        place = int(np.searchsorted(self.ends_by, seconds, side="right")) - 1
        return float(self.batches[place]) if place >= 0 else -math.inf

    def rate(self) -> float:
        """The most sequences a second, at whatever batch."""
        return float(np.max((self.batches / self.steps)[:-BEYOND]))


@record
class Inside:
    """What the search inside one kind came to."""

    kind: Kind
    batches: tuple[float, ...]
    """Sequences at which its plans were compared."""
    evaluated: int
    feasible: int
    tables: tuple[Table, ...]
    fits: bool
    """Whether any plan of it fits; else the one table is that of the plan that comes nearest."""
    illegal: BadScenario | None = None
    """Why there is no table."""
    methods: tuple[str, ...] = ()
    """Of synchronisation, whose inner step the plans make."""


def kinds_of(scenario: Scenario) -> tuple[Kind, ...]:
    """The kinds of a fleet, in the order of their first islands."""
    choices = scenario.choices
    found: dict[Any, list[int]] = {}
    if choices is None or choices.joint is None:
        raise ValueError("nothing is open of several islands")
    for at, island in enumerate(scenario.fleet.islands):
        pins, base = choices.joint.pins[at], scenario.plans[at]
        key = (
            id(island.accelerator), island.nodes, island.gpus_per_node, island.tiers, tuple(sorted(pins.items())), base,
        )  # fmt: skip
        found.setdefault(key, []).append(at)
    return tuple(
        Kind(places=tuple(ats), island=scenario.fleet.islands[ats[0]], pins=choices.joint.pins[ats[0]], base=scenario.plans[ats[0]])
        for ats in found.values()
    )  # fmt: skip


def batches_of(scenario: Scenario, kind: Kind, batch: float, counts: Sequence[int]) -> tuple[float, ...]:
    """Sequences at which the plans of a kind are compared: the part of one of its islands by peak FLOP/s or, where islands may be
    left out, the whole batch, half of it and so on down to that part (so that more islands to choose from only add some)."""
    islands = scenario.fleet.islands
    share = peak(kind.island) / plain_sum(peak(one) for one in islands)
    if min(counts) == len(islands):
        return (batch * share,)
    return tuple(max(batch / 2.0**halved, 1.0) for halved in range(math.ceil(-math.log2(share) - 1e-9) + 1))


def question(scenario: Scenario, kind: Kind, batch: float, part: float, beside: float, largest: float) -> Question:
    """The fastest plans of one island of a kind at about a `part` of the batch, with `beside` bytes kept for every parameter, of
    those that take no more than the `largest` number of sequences at a time. Members of a population are of all islands: an island is searched
    as if there were one, which shares any batch."""
    choices, probes = scenario.choices, kind.base.probes
    if choices is None:
        raise ValueError("nothing is open")
    base = kind.base if probes is None else changed(kind.base, probes=changed(probes, members=1.0))
    own = changed(
        choices, plan=kind.pins, seq_len=(float(scenario.run.seq_len),), global_batch=((batch, "sequences"),),
        islands=(kind.island,), joint=None,
    )  # fmt: skip
    alone = changed(
        scenario, fleet=Fleet(islands=(kind.island,)), plan=base, plans=(), choices=own,
        run=changed(scenario.run, global_batch=batch),
    )  # fmt: skip
    return Question(space=space_of(alone, (part, largest)), goal=SPEED, most=MOST, beside=beside)


class StoppedError(Exception):
    """A search inside a kind was stopped: nothing is known of the kind."""


class Searches:
    """The searches inside all kinds, with one count of how far they are."""

    def __init__(self, scenario: Scenario, processes: int | None, progress: Progress | None, stop: Stop | None) -> None:
        self.scenario, self.processes, self.progress, self.stop = scenario, processes, progress, stop
        self.total, self.done = 0, 0
        self.whole = True
        self.sizes: dict[Any, tuple[Bytes, Count, Bytes]] = {}

    def inside(
        self,
        kind: Kind,
        batches: Sequence[float],
        besides: Sequence[float],
        most: float,
        finer: Sequence[float] = FINER,
    ) -> Inside:
        """The best plans of a kind for every batch and every size of the state beside them, as tables up to `most` sequences.

        A search is left out where the best plans with less state beside them all fit with more. Where most of the best take more
        than the part at a time, so that a batch may not be made up of them, the best of the finer ones are added, and likewise of those
        that take `finer` shares of it, without which unlike islands could not share the batch by speed. Raises BadScenario for pins that do not
        divide the accelerators, StoppedError."""
        plans: dict[Plan, None] = {}
        tallies: list[tuple[Question, Tally]] = []
        for part in batches:
            best: list[Plan] = []
            for beside in sorted(set(besides)):
                if len(best) >= MOST and all(self._fits(kind, one, part, beside) for one in best):
                    continue
                best = []
                for largest in (most, *(part * share for share in finer)):
                    enough = min(len(best), MOST // 2) if largest < most else math.inf
                    if sum(unit(one)[1] <= largest for one in best) >= enough:
                        continue
                    asked = question(self.scenario, kind, most, part, beside, largest)
                    dead_ends.undivided(asked.space)
                    tally = self._search(asked)
                    rows = sorted(tally.pool.rows(), key=lambda row: (row[0], row[1], row[2]))[:MOST]
                    best = [*best, *(_of_all(asked, number, kind.base) for _, _, number in rows)]
                    tallies.append((asked, tally))
                plans |= dict.fromkeys(best)
        fits, illegal = bool(plans), None
        if not fits:
            near = self._nearest(kind, tallies)
            plans, illegal = ({}, dead_ends.empty(*tallies[0])) if near is None else ({near: None}, None)
        return Inside(
            kind=kind,
            batches=tuple(batches),
            evaluated=plain_sum(tally.evaluated for _, tally in tallies),
            feasible=plain_sum(tally.feasible for _, tally in tallies),
            tables=tuple(table_of(self.scenario, kind, one, most) for one in plans),
            fits=fits,
            illegal=illegal,
        )

    def _nearest(self, kind: Kind, tallies: Sequence[tuple[Question, Tally]]) -> Plan | None:
        """The plan that misses least, where none fits; None where none is legal."""
        missed = [(tally.miss, asked) for asked, tally in tallies if tally.miss is not None]
        if not missed:
            return None
        (_, _, number), asked = min(missed, key=lambda one: one[0])
        return _of_all(asked, number, kind.base)

    def _search(self, asked: Question) -> Tally:
        """One search, counted on from those before it."""
        before = self.done
        self.total += asked.space.size

        def report(now: Any) -> None:
            if self.progress is not None:
                now.rows, now.total = now.rows + before, self.total
                self.progress(now)

        tally, whole = search(asked, processes=self.processes, progress=report, stop=self.stop)
        self.done += asked.space.size
        self.whole = self.whole and whole
        if not whole:
            raise StoppedError
        return tally

    def _fits(self, kind: Kind, plan: Plan, part: float, beside: Bytes) -> bool:
        key = kind.places, plan, part
        if key not in self.sizes:
            step, least = map(float, unit(plan))
            run = changed(self.scenario.run, global_batch=max(round(part / step) * step, least))
            one = evaluate(self.scenario.model, kind.island, plan, run, self.scenario.stack, meets=True)
            self.sizes[key] = one.memory_peak, one.ends.shard, one.memory_limit
        peak_, held, limit = self.sizes[key]
        return bool(peak_ + beside * held <= limit)


def _of_all(asked: Question, number: int, base: Plan) -> Plan:
    """A plan that was searched, with the members that all islands have."""
    return changed(asked.space.point(number).plan, probes=base.probes)


def table_of(scenario: Scenario, kind: Kind, plan: Plan, most: float) -> Table:
    """A plan at every batch from its least up to `most`, and BEYOND."""
    step, least = map(float, unit(plan))
    count = max(math.floor((most - least) / step + 1e-9), 0) + 1 + BEYOND
    batches: Floats = least + step * np.arange(count, dtype=float)
    run: Run = changed(scenario.run, global_batch=batches)
    batch = evaluate(scenario.model, kind.island, plan, run, scenario.stack, meets=True)
    return Table(
        plan=plan, unit=step, least=least, level=int(complexity(plan)), batches=batches, batch=batch,
        steps=np.broadcast_to(np.asarray(batch.step_time, dtype=float), batches.shape).copy(),
    )  # fmt: skip
