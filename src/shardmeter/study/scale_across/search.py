"""The joint search: every placement, schedule and network of one set of degrees, on many networks at once.

A plan on lines that nothing is faster than is no slower than on any: where that is no better than the best so far of every part of the
space that the plan belongs to, it is not asked. Of networks one that is nowhere faster than another and somewhere slower is not asked."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from shardmeter.core.record import changed, record
from shardmeter.core.units import Seconds
from shardmeter.engine.lines import Lines
from shardmeter.engine.links import bounded, links_of
from shardmeter.specs import Estimate, Island, Scenario, Wan
from shardmeter.study.planning.tally import Floats
from shardmeter.study.scale_across.degrees import Degrees
from shardmeter.study.scale_across.networks import PRODUCTION, Network, networked
from shardmeter.study.scale_across.placements import Placement, placed, placements, steps_of
from shardmeter.study.scale_across.schedules import Schedule, crosses, crossings, orders, scheduled
from shardmeter.study.scale_across.steps import at_best, fits, over

Stop: TypeAlias = Callable[[], bool]
Key: TypeAlias = tuple[str, ...]
"""A part of the space: which of DIMENSIONS are free, or ("in", placement) for all of one placement."""
DIMENSIONS = ("placement", "schedule", "network")
SINGLES: tuple[Key, ...] = tuple((one,) for one in DIMENSIONS)
PAIRS: tuple[Key, ...] = (("placement", "schedule"), ("placement", "network"), ("schedule", "network"))
JOINT: Key = DIMENSIONS
USUAL: Key = ()
"""Nothing is free: production's choice."""
SAME = 1e-9
"""Share by which steps are equal: the choice with fewer changes is then the better."""


class Stopped(Exception):
    """The search was asked to end."""


@record
class Candidate:
    """A placement and a schedule as a scenario."""

    placement: Placement
    schedule: Schedule
    scenario: Scenario
    least: Estimate
    """On lines that nothing is faster than; of an order, whatever leaves when."""
    changes: int
    """Fields that production has otherwise."""


@record
class Row:
    """One network to choose for: its lines, and what may use them."""

    wan: Wan
    networks: tuple[Network, ...]
    whole: bool = True
    """Whether every part of the space is asked, or the joint optimum alone."""


@dataclass(slots=True)
class Best:
    """The best of one part of the space on every network: (rows,) each."""

    step: Floats
    changes: npt.NDArray[np.int_]
    candidate: npt.NDArray[np.int_]
    network: npt.NDArray[np.int_]

    @classmethod
    def of(cls, rows: int) -> Best:
        """Nothing known yet."""
        return cls(np.full(rows, np.inf), *(np.full(rows, -1) for _ in range(3)))

    def offer(self, row: int, step: float, changes: int, candidate: int, network: int) -> None:
        """Take what is faster, or as fast with fewer changes."""
        known = float(self.step[row])
        if step < known * (1.0 - SAME) or (step <= known * (1.0 + SAME) and changes < self.changes[row]):
            self.step[row], self.changes[row], self.candidate[row], self.network[row] = step, changes, candidate, network


@dataclass(slots=True)
class Search:
    """The search over one case. `run` fills `best`."""

    degrees: Degrees
    rows: tuple[Row, ...]
    stop: Stop | None = None
    best: dict[Key, Best] = field(default_factory=dict)
    candidates: list[Candidate] = field(default_factory=list)
    looked: int = 0
    """Plans that were asked for, legal or not."""
    evaluated: int = 0
    """Plans on networks that were priced."""
    optimal: bool = False
    seconds: float = 0.0

    def run(self) -> None:
        """Look at every plan, in the order of what each could reach. Ends early where `stop` says so: `optimal` stays false."""
        begun = time.monotonic()
        try:
            self._gather()
            self._go()
            self.optimal = True
        except Stopped:
            pass
        self.seconds = time.monotonic() - begun

    @property
    def production(self) -> Candidate:
        """What production runs."""
        return self.candidates[0]

    @property
    def answered(self) -> bool:
        """Whether every row has an answer."""
        return JOINT in self.best and bool(np.all(np.isfinite(self.best[JOINT].step)))

    # ---- plans -------------------------------------------------------------------------------------------------------------------

    def _gather(self) -> None:
        """Every legal plan that fits, production's first, then its schedule in other places, then by what each could reach."""
        first = self.degrees.schedule
        found = list(self._plans())
        found.sort(key=lambda one: (one.changes > 0, one.schedule != first, float(one.least.step_time), one.changes))
        self.candidates = found

    def _plans(self) -> Iterator[Candidate]:
        base, islands = self.degrees.scenario, self.degrees.scenario.fleet.islands
        steps = steps_of(islands, int(base.plan.pp))
        for placement in placements(islands, base.plan, steps):
            there = placed(base, placement)
            for order in orders(base.plan, float(base.model.layers)):
                if not crosses(order, placement):
                    continue
                self._ask()
                self.looked += 1
                least = at_best(scheduled(there, order))
                if least is None or not fits(least):
                    continue
                for one in crossings(order, placement):
                    yield Candidate(
                        placement=placement, schedule=one, scenario=scheduled(there, one), least=least, changes=self._changes(placement, one),
                    )  # fmt: skip

    def _changes(self, placement: Placement, schedule: Schedule) -> int:
        """Fields that production has otherwise."""
        usual = self.degrees.schedule
        names = ("word", "virtual_stages", "micro_batch", "ahead", "stagger", "release")
        own = sum(getattr(schedule, name) != getattr(usual, name) for name in names)
        return own + (placement.axis != "dp") + placement.turned

    def keys(self, one: Candidate) -> tuple[list[Key], list[Key]]:
        """Parts of the space that a plan belongs to: with production's network, and with any."""
        here, now = one.placement == self.production.placement, one.schedule == self.production.schedule
        fixed: list[Key] = [("placement", "schedule")]
        free: list[Key] = [JOINT, ("in", one.placement.word)]
        fixed += [USUAL] if here and now else []
        fixed += [("placement",)] if now else []
        fixed += [("schedule",)] if here else []
        free += [("placement", "network")] if now else []
        free += [("schedule", "network")] if here else []
        free += [("network",)] if here and now else []
        return fixed, free

    # ---- networks ----------------------------------------------------------------------------------------------------------------

    def _go(self) -> None:
        fronts = [front(row, self.degrees.scenario.fleet.islands) for row in self.rows]
        places = {(r, n): at for at, (r, n) in enumerate((r, n) for r, some in enumerate(fronts) for n in some)}
        lines = Lines(self.degrees.scenario.fleet.islands, [self.wan(r, n) for r, n in places])
        for number, one in enumerate(self.candidates):
            self._ask()
            pairs = self._wanted(one, fronts)
            if pairs:
                self._priced(number, pairs, lines.some([places[pair] for pair in pairs]))
        self._simplest()

    def wan(self, row: int, network: int) -> Wan:
        """A row's lines as one of its networks uses them."""
        own = self.rows[row]
        return networked(own.wan, own.networks[network])

    def _best(self, key: Key) -> Best:
        return self.best.setdefault(key, Best.of(len(self.rows)))

    def _wanted(self, one: Candidate, fronts: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
        """(row, network) pairs on which a plan may be better than what is known."""
        bound = float(one.least.step_time) * (1.0 - SAME)
        fixed, free = self.keys(one)
        found: list[tuple[int, int]] = []
        for number, (row, some) in enumerate(zip(self.rows, fronts, strict=True)):
            own = free if row.whole else [JOINT]
            if any(bound <= self._best(key).step[number] for key in own):
                found += [(number, network) for network in some]
            elif row.whole and any(bound <= self._best(key).step[number] for key in fixed):
                found.append((number, 0))
        return found

    def _priced(self, number: int, pairs: Sequence[tuple[int, int]], lines: Lines) -> None:
        """Price a plan on networks and keep where it is best."""
        one = self.candidates[number]
        if one.schedule.ahead and not self._holds(one):
            return
        fixed, free = self.keys(one)
        found = over(one.scenario, lines).estimate.step_time
        self.evaluated += len(pairs)
        for (row, network), step in zip(pairs, np.broadcast_to(found, (len(pairs),)).tolist(), strict=True):
            own = self.rows[row]
            changes = one.changes + changes_of(own.networks[network])
            for key in free if own.whole else [JOINT]:
                self._best(key).offer(row, step, changes, number, network)
            for key in fixed if own.whole and network == 0 else ():
                self._best(key).offer(row, step, changes, number, network)

    def _holds(self, one: Candidate) -> bool:
        """Whether a plan that keeps more micro-batches is legal, and still fits."""
        least = at_best(one.scenario)
        return least is not None and fits(least)

    def _simplest(self) -> None:
        """Of every best plan the network with the fewest changes among those that are as fast, whether or not another is nowhere slower."""
        wanted: dict[int, set[int]] = {}
        for key in self.best:
            if key[-1:] == ("network",) or key[:1] == ("in",):
                for row, number in enumerate(self.best[key].candidate.tolist()):
                    if number >= 0:
                        wanted.setdefault(number, set()).add(row)
        for number, rows in wanted.items():
            self._ask()
            pairs = [(row, network) for row in sorted(rows) for network in range(len(self.rows[row].networks))]
            lines = Lines(self.degrees.scenario.fleet.islands, [self.wan(*pair) for pair in pairs])
            self._priced(number, pairs, lines)

    def _ask(self) -> None:
        if self.stop is not None and self.stop():
            raise Stopped


def changes_of(network: Network) -> int:
    """Fields of a network that production has otherwise: balance, transport and windows."""
    balance = (network.balance, network.flows) != (PRODUCTION.balance, PRODUCTION.flows)
    window = (network.streams, network.window, network.sends) != (PRODUCTION.streams, PRODUCTION.window, PRODUCTION.sends)
    return balance + (network.transport != PRODUCTION.transport) + window


def front(row: Row, islands: Sequence[Island]) -> list[int]:
    """The networks of a row that may be the best, production's first: of any other, some one is nowhere slower."""
    gpus, apart = [island.gpus for island in islands], ~np.eye(len(islands), dtype=bool)
    told = []
    for one in row.networks:
        wan = networked(row.wan, one)
        links = links_of(bounded(wan, islands, gpus))
        tables = [links.rate, links.capacity, links.first, links.up[:, None] * apart, links.down[:, None] * apart]
        told.append(np.concatenate([np.broadcast_to(table, apart.shape)[apart] for table in tables] + [[one.sends, one.streams * one.window]]))
    kept = [0]
    for at in sorted(range(1, len(told)), key=lambda at: (-float(np.sum(told[at][: apart.sum()])), at)):
        if not any(np.all(told[other] >= told[at]) for other in kept):
            kept.append(at)
    return kept


def step_of(best: Best, row: int) -> Seconds:
    """Of a row."""
    return float(best.step[row])


def alone(scenario: Scenario, wan: Wan) -> Scenario:
    """A scenario on one network."""
    return changed(scenario, fleet=changed(scenario.fleet, wan=wan))
