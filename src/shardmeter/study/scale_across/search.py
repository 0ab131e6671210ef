"""The joint search: every placement, schedule and network of one set of degrees, on many networks at once.

A plan on lines that nothing is faster than is no slower than on any: where that is no better than the best so far of every part of the
space that the plan belongs to, it is not asked; what is asked is priced on every network of every row, as arrays."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from shardmeter.core.record import changed, record
from shardmeter.core.units import Seconds
from shardmeter.engine.wans import Networks
from shardmeter.specs import Estimate, Scenario, Wan
from shardmeter.study.planning.tally import Floats
from shardmeter.study.scale_across.degrees import Degrees
from shardmeter.study.scale_across.networks import PRODUCTION, Network, networked
from shardmeter.study.scale_across.placements import PP, Placement, placed, placements, steps_of
from shardmeter.study.scale_across.schedules import Schedule, aheads, crossings, orders, scheduled
from shardmeter.study.scale_across.steps import Stopped, at_best, fits, legal, over

Stop: TypeAlias = Callable[[], bool]
Report: TypeAlias = Callable[[float], None]
"""Is told the share of a search that is done."""
Places: TypeAlias = npt.NDArray[np.int_]
Key: TypeAlias = tuple[str, ...]
"""A part of the space: which of DIMENSIONS are free, or ("in", placement) for all of one placement."""
DIMENSIONS = ("placement", "schedule", "network")
SINGLES: tuple[Key, ...] = tuple((one,) for one in DIMENSIONS)
PAIRS: tuple[Key, ...] = (("placement", "schedule"), ("placement", "network"), ("schedule", "network"))
JOINT: Key = DIMENSIONS
USUAL: Key = ()
"""Nothing is free: production's choice."""
BLOCK = 256
"""Networks on which a plan is priced at once."""
SAME = 1e-9
"""Share by which steps are equal: the choice with fewer changes is then the better."""


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


@record
class _Pairs:
    """Rows with their networks, side by side: (pairs,) each."""

    networks: Networks
    row: Places
    network: Places
    changes: Places
    whole: npt.NDArray[np.bool_]
    """Whether every part of the space is asked there."""

    @classmethod
    def of(cls, search: Search, pairs: Sequence[tuple[int, int]]) -> _Pairs:
        """Some (row, network) pairs of a search."""
        return cls(
            networks=Networks(search.degrees.scenario.fleet.islands, [search.wan(*pair) for pair in pairs]),
            row=np.array([row for row, _ in pairs], dtype=int), network=np.array([network for _, network in pairs], dtype=int),
            changes=np.array([changes_of(search.rows[row].networks[network]) for row, network in pairs], dtype=int),
            whole=np.array([search.rows[row].whole for row, _ in pairs], dtype=bool),
        )  # fmt: skip


@record
class _Asked:
    """A plan on networks: (pairs,) each."""

    row: Places
    network: Places
    step: Floats
    changes: Places
    candidate: int

    def on(self, some: npt.NDArray[np.bool_]) -> _Asked:
        """Some of the pairs."""
        return changed(self, **{name: getattr(self, name)[some] for name in ("row", "network", "step", "changes")})


@dataclass(slots=True)
class Best:
    """The best of one part of the space on every network: (rows,) each."""

    step: Floats
    changes: Places
    candidate: Places
    network: Places

    @classmethod
    def of(cls, rows: int) -> Best:
        """Nothing known yet."""
        return cls(np.full(rows, np.inf), *(np.full(rows, -1) for _ in range(3)))

    def offer(self, asked: _Asked) -> None:
        """Take what is faster on any row, or as fast with fewer changes."""
        least = np.full(self.step.shape, np.inf)
        np.minimum.at(least, asked.row, asked.step)
        alike = asked.step <= least[asked.row] * (1.0 + SAME)
        for at in np.flatnonzero(alike & (asked.step <= self.step[asked.row] * (1.0 + SAME))).tolist():
            row, step, changes = asked.row[at], asked.step[at], asked.changes[at]
            if step < self.step[row] * (1.0 - SAME) or changes < self.changes[row]:
                self.step[row], self.changes[row] = step, changes
                self.candidate[row], self.network[row] = asked.candidate, asked.network[at]


@dataclass(slots=True)
class Search:
    """The search over one case. `run` fills `best`."""

    degrees: Degrees
    rows: tuple[Row, ...]
    stop: Stop | None = None
    report: Report | None = None
    most: float = np.inf
    """Seconds of a joint step beyond which nothing is asked for."""
    best: dict[Key, Best] = field(default_factory=dict)
    candidates: list[Candidate] = field(default_factory=list)
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
            if self.report is not None:
                self.report(1.0)
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
        for placement in placements(islands, base.plan, base.plans, steps):
            there = placed(base, placement)
            for order in orders(base.plan, float(base.model.layers)):
                self._ask()
                least = at_best(scheduled(there, order))
                if least is None or not fits(least):
                    continue
                ahead = aheads(self._trip, _each(there, order, least)) if placement.axis == PP else ()
                for one in crossings(order, placement, ahead):
                    yield Candidate(
                        placement=placement, schedule=one, scenario=scheduled(there, one), least=least, changes=self._changes(placement, one),
                    )  # fmt: skip

    @property
    def _trip(self) -> Seconds:
        """The longest round trip of any row."""
        return max(float(np.max(row.wan.rtt)) for row in self.rows)

    def _changes(self, placement: Placement, schedule: Schedule) -> int:
        """Fields that production has otherwise."""
        usual = self.degrees.schedule
        names = ("word", "virtual_stages", "micro_batch", "ahead", "stagger", "release")
        own = [getattr(schedule, name) != getattr(usual, name) for name in names]
        return sum([*own, placement.axis != "dp", placement.turned])

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
        pairs = [(row, network) for row, own in enumerate(self.rows) for network in range(len(own.networks))]
        every = self._blocks(pairs)
        usual = self._blocks([pair for pair in pairs if self.rows[pair[0]].whole and pair[1] == 0])
        whole = np.array([own.whole for own in self.rows])
        for number, one in enumerate(self.candidates):
            self._ask(number / len(self.candidates))
            fixed, free = self.keys(one)
            if self._wanted(one, free, whole):
                self._price(number, every, fixed, free)
            elif self._wanted(one, fixed, whole):
                self._price(number, usual, fixed, [])

    def _blocks(self, pairs: Sequence[tuple[int, int]]) -> list[_Pairs]:
        """Pairs in blocks of whole rows, after each of which the search can be ended."""
        rows = sorted({row for row, _ in pairs})
        each = max(1, BLOCK * len(rows) // max(len(pairs), 1))
        groups = [set(rows[at : at + each]) for at in range(0, len(rows), each)]
        return [_Pairs.of(self, [pair for pair in pairs if pair[0] in group]) for group in groups]

    def _price(self, number: int, blocks: Sequence[_Pairs], fixed: Sequence[Key], free: Sequence[Key]) -> None:
        """Price a plan on networks, and keep where it is best and fits. Raises Stopped."""
        one = self.candidates[number]
        if one.schedule.ahead and not legal(one.scenario):
            return
        for pairs in blocks:
            if self.stop is not None and self.stop():
                raise Stopped
            if not self._price_block(number, pairs, fixed, free):
                return

    def _price_block(self, number: int, pairs: _Pairs, fixed: Sequence[Key], free: Sequence[Key]) -> bool:
        """Price a plan on some networks; gives whether it fits."""
        one = self.candidates[number]
        found = over(one.scenario, pairs.networks).estimate
        self.evaluated += len(pairs.row)
        if one.schedule.ahead and not bool(np.all(found.memory_peak <= found.memory_limit)):
            return False
        step = np.broadcast_to(found.step_time, pairs.row.shape)
        asked = _Asked(
            row=pairs.row, network=pairs.network, step=step, changes=pairs.changes + one.changes, candidate=number
        )
        for key in free:
            self._best(key).offer(asked.on(pairs.whole | (key == JOINT)))
        for key in fixed:
            self._best(key).offer(asked.on(pairs.whole & (pairs.network == 0)))
        return True

    def wan(self, row: int, network: int) -> Wan:
        """A row's lines as one of its networks uses them."""
        own = self.rows[row]
        return networked(own.wan, own.networks[network])

    def _best(self, key: Key) -> Best:
        return self.best.setdefault(key, Best.of(len(self.rows)))

    def _wanted(self, one: Candidate, keys: Sequence[Key], whole: npt.NDArray[np.bool_]) -> bool:
        """Whether a plan may be better than what is known, on any network of some parts of the space."""
        bound = float(one.least.step_time) * (1.0 - SAME)
        known = [self._best(key).step[slice(None) if key == JOINT else whole] for key in keys]
        return min(float(np.max(np.concatenate(known), initial=-np.inf)), self.most) >= bound

    def _ask(self, done: float = 0.0) -> None:
        """Say how far the search is, and end it where that is asked. Raises Stopped."""
        if self.report is not None:
            self.report(done)
        if self.stop is not None and self.stop():
            raise Stopped


def _each(there: Scenario, order: Schedule, least: Estimate) -> Seconds:
    """What a stage computes for a micro-batch at least, of a step of a plan whose pipelines cross."""
    ((_, cells),) = there.plan.placement
    passes = float(least.samples) / (len(cells) * float(there.plan.dp) * order.micro_batch)
    return float(least.compute_seconds) / max(passes, 1.0)


def changes_of(network: Network) -> int:
    """Fields of a network that production has otherwise: balance, transport and windows."""
    balance = (network.balance, network.flows) != (PRODUCTION.balance, PRODUCTION.flows)
    window = (network.streams, network.window, network.sends) != (
        PRODUCTION.streams,
        PRODUCTION.window,
        PRODUCTION.sends,
    )
    return balance + (network.transport != PRODUCTION.transport) + window
