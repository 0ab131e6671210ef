"""`plan` for several islands: the plan of every kind of island, how they are kept together, and which of them take part."""

from __future__ import annotations

import bisect
import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from shardmeter.core.errors import BadScenario, ShardMeterError, Violation
from shardmeter.core.record import changed, record
from shardmeter.core.sums import plain_sum
from shardmeter.engine.rules import Case
from shardmeter.engine.rules_of_probes import members_says, members_slack
from shardmeter.engine.split import in_sequences
from shardmeter.families import matrices, parameters
from shardmeter.scenario.sync import under
from shardmeter.scenario.used import among
from shardmeter.specs import Choices, Inner, Replica, Scenario, Sync
from shardmeter.study.planning import assignments, subsets
from shardmeter.study.planning.assignments import Found
from shardmeter.study.planning.kinds import EQUAL, FINER, Inside, Kind, Searches, StoppedError, batches_of, kinds_of
from shardmeter.study.planning.lengths import least
from shardmeter.study.planning.objective import Goal, goal_of
from shardmeter.study.planning.search import Done, Progress, Stop
from shardmeter.study.planning.subsets import Named
from shardmeter.study.planning.syncs import Way, ways_of
from shardmeter.study.planning.tally import Front
from shardmeter.study.planning.team import Bound, Chosen, Team
from shardmeter.sync import faults, inner_of, optimizer_of

MOST_WAYS = 100_000
"""Points of the synchronisation's axes that are searched."""
HINTS = 16
"""Choices of plans that are tried for what may be left out, which is a hint and no search."""
NEIGHBOURHOODS = 64
"""Teams whose neighbours are tried where there are too many teams."""
ALIKE = 1e-6
"""Share of the first objective by which listed plans of the same islands and synchronisation differ at least."""
PRICED_NAMED = 20_000
"""Choices of plans that are priced for all teams that are named together; at least one for each."""
CELLS = "the method does not join so many islands"
ALONE = Way(sync=Sync(), shape=(), legal=np.ones((), dtype=bool))
"""Of one island: there is nothing to synchronise."""


@record
class Row:
    """One plan of a fleet, found."""

    value: float
    """The first objective, as a number to minimise."""
    level: int
    """Axes in use, words that are not the usual ones, and plans that differ."""
    order: tuple[int, ...]
    """Tells equal ones apart."""
    team: Team
    chosen: Chosen
    sync: Sync | None
    """None of one island."""


@dataclass(slots=True)
class Joined:
    """All that is kept of the search over teams, ways and plans."""

    goal: Goal
    most: int
    rows: list[Row] = field(default_factory=list)
    """The best of all, the best first; of choices that come to the same the simplest."""
    firsts: dict[int, Row] = field(default_factory=dict)
    """The best of every way: a method with its words, at its best numbers."""
    front: Front = field(init=False)
    blocks: list[tuple[int, Found, int, npt.NDArray[np.intp], npt.NDArray[np.intp]]] = field(default_factory=list)
    """(first number, what was found, its number, leaf and point of every number) of what was offered to the front."""
    rejected: Counter[str] = field(default_factory=Counter)
    evaluated: int = 0
    feasible: int = 0
    bound: float = math.inf
    """Least value of what was not looked at."""
    miss: tuple[int, float, Row] | None = None

    def __post_init__(self) -> None:
        """Nothing is found yet."""
        self.front = Front.empty(len(self.goal.objectives))

    def bar(self, way: Way) -> float:
        """The value beyond which nothing of a way is listed; with several objectives the front may still want it."""
        first = self.firsts.get(id(way))
        if len(self.goal.objectives) > 1 or len(self.rows) < self.most or (first is None and way is not ALONE):
            return math.inf
        return max(self.rows[self.most - 1].value, -math.inf if first is None else first.value)

    @property
    def listed(self) -> list[Row]:
        """The best of every way, as far as there is room, and the best of all: the best first."""
        firsts = sorted(self.firsts.values(), key=_place)[: self.most]
        others = [row for row in self.rows if row not in firsts]
        return sorted((*firsts, *others[: self.most - len(firsts)]), key=_place)

    @property
    def best(self) -> float:
        """Of the best so far."""
        return self.rows[0].value if self.rows else math.inf

    def add(self, found: Found, number: int) -> None:
        """Take in what was found of one team and one way, the `number`-th."""
        self.evaluated += found.evaluated
        self.feasible += found.feasible
        self.rejected.update(found.rejected)
        self.bound = min(self.bound, found.bound)
        if found.miss is not None and not self.rows:
            kind, ratio, chosen, point = found.miss
            row = _row(found, math.inf, chosen, point, number)
            if self.miss is None or (kind, ratio) < self.miss[:2]:
                self.miss = kind, ratio, row
        fresh = [_row(found, value, chosen, point, number) for value, chosen, point in found.rows()]
        self.rows = _unlike(sorted((*self.rows, *fresh), key=_place), self.most)
        for row in sorted(fresh, key=_place)[:1]:
            if found.way is not ALONE:
                self.firsts[id(found.way)] = min(row, self.firsts.get(id(found.way), row), key=_place)
        self._onto_front(found, number)

    def _onto_front(self, found: Found, number: int) -> None:
        points, leaves, places = found.points()
        last = self.blocks[-1] if self.blocks else None
        first = 0 if last is None else last[0] + len(last[3])
        self.blocks.append((first, found, number, leaves, places))
        levels = np.array(found.levels, dtype=np.int64)
        if len(points):
            self.front.add(points, levels[leaves], first + np.arange(len(points), dtype=np.int64))

    def members(self) -> list[Row]:
        """The front."""
        made = []
        for name, values in zip(self.front.numbers, self.front.points, strict=True):
            first, found, number, leaves, places = self.blocks[
                bisect.bisect_right(self.blocks, name, key=lambda one: one[0]) - 1
            ]
            at = int(name) - first
            made.append(_row(found, float(values[0]), found.leaves[int(leaves[at])], int(places[at]), number))
        return made


def _place(row: Row) -> tuple[float, int, tuple[int, ...]]:
    return row.value, row.level, row.order


def _unlike(rows: Sequence[Row], most: int) -> list[Row]:
    """The first rows, without those of the same islands and synchronisation that come to the same as one before: plans of islands
    that do not set the pace."""
    kept: list[Row] = []
    for row in rows:
        alike = (one for one in kept if one.team is row.team and one.sync == row.sync)
        if len(kept) < most and all(row.value - one.value > ALIKE * abs(one.value) for one in alike):
            kept.append(row)
    return kept


def _row(found: Found, value: float, chosen: Chosen, point: int, number: int) -> Row:
    level = found.team.level(chosen)
    sync = None if found.way is ALONE else found.way.at(point)
    return Row(value=value, level=level, order=(number, point, *chosen), team=found.team, chosen=chosen, sync=sync)


@record
class Answer:
    """What a search over a fleet came to, before its plans are predicted."""

    scenario: Scenario
    choices: Choices
    goal: Goal
    batch: float
    insides: tuple[Inside, ...]
    ways: tuple[Way, ...]
    teams: int
    """That were looked at."""
    joined: Joined
    without: tuple[tuple[Row, tuple[int, ...]], ...]
    """Where all islands take part: what is faster with some left out (which)."""
    seconds: float
    whole: bool
    """Whether the search came to its end."""


def batch_of(scenario: Scenario, choices: Choices) -> float:
    """Sequences of an inner step of all islands; one in tokens is moved to a number that divides well. Raises BadScenario where
    several batches or sequences are open."""
    found = [
        Violation(field=f"run.{name}", says=f"{len(values)} values", rule="several islands are planned at one",
                  way_out="ask once for each")
        for name, values in (("seq_len", choices.seq_len), ("global_batch", choices.global_batch)) if len(values) > 1
    ]  # fmt: skip
    if found:
        raise BadScenario(f"{scenario.name}: {len(found)} problem{'s' if len(found) > 1 else ''}", found)
    amount, word = choices.global_batch[0]
    if word == "sequences":
        return amount
    common = float(math.gcd(*(int(island.gpus) for island in scenario.fleet.islands)))
    return in_sequences(amount, float(choices.seq_len[0]), common)


def search(
    scenario: Scenario, objectives: Sequence[str], most: int, processes: int | None, progress: Progress | None, stop: Stop | None,
    named: Named | None = None,
) -> Answer:  # fmt: skip
    """Search the choices of several islands, of the teams that are `named` where some are. Raises as `plans.plan` does."""
    choices = scenario.choices
    if choices is None or choices.joint is None:
        raise ShardMeterError("nothing is left to choose: say plan: auto")
    goal = goal_over_all(scenario, choices, tuple(objectives), stores=named is not None)
    began = time.perf_counter()
    batch = batch_of(scenario, choices)
    joint = choices.joint
    ways = ways_of(joint.sync, float(scenario.model.layers), max(joint.counts))
    _check_ways(ways)
    joined, whole = Joined(goal=goal, most=most), True
    insides: list[Inside] = []
    without: list[tuple[Row, tuple[int, ...]]] = []
    teams = 0
    groups = _by_inner_step(scenario, ways)
    _check_members(groups, batch)
    for one, some in groups:
        searches, kinds = Searches(one, processes, progress, stop), kinds_of(one)
        own = _insides(searches, kinds, some, batch, joint.counts)
        insides += own
        whole = whole and searches.whole and len(own) == len(kinds)
        if not whole:
            break
        found = _Teams(one, batch, tuple(own), kinds, some, goal, most, stop)
        whole = found.all_of(joint.counts, joined) if named is None else found.each_of(named, joined, progress)
        teams += found.tried
        if whole and named is None and joint.counts == (len(scenario.fleet.islands),):
            without += found.without(joined)
    return Answer(
        scenario=scenario, choices=choices, goal=goal, batch=batch, insides=tuple(insides), ways=ways, teams=teams,
        joined=joined, without=tuple(sorted(without, key=lambda one: one[0].value)),
        seconds=time.perf_counter() - began, whole=whole,
    )  # fmt: skip


def _by_inner_step(scenario: Scenario, ways: Sequence[Way]) -> list[tuple[Scenario, tuple[Way, ...]]]:
    """The ways by what a cell computes in an inner step and by the optimizer that comes with them, each with the scenario as its cells
    train it."""
    groups: dict[tuple[Inner, str], list[Way]] = {}
    for way in ways:
        groups.setdefault((inner_of(way.sync), optimizer_of(way.sync)), []).append(way)
    return [
        (_with_optimizer(under(scenario, some[0].sync), optimizer), tuple(some))
        for (_, optimizer), some in groups.items()
    ]


def _with_optimizer(scenario: Scenario, brought: str) -> Scenario:
    """With the optimizer that a method brings, on the islands where none is named."""
    choices = scenario.choices
    if not brought or choices is None or choices.joint is None:
        return scenario
    named = ["optimizer" in pins for pins in choices.joint.pins]
    plans = tuple(
        plan if is_named else changed(plan, optimizer=brought)
        for plan, is_named in zip(scenario.plans, named, strict=True)
    )
    return changed(scenario, plan=scenario.plan if named[0] else changed(scenario.plan, optimizer=brought), plans=plans)


def _insides(
    searches: Searches, kinds: Sequence[Kind], ways: Sequence[Way], batch: float, counts: Sequence[int]
) -> list[Inside]:
    """What the search inside every kind comes to; fewer than the kinds where it was stopped."""
    blocks = inner_of(ways[0].sync).blocks
    besides = _besides(searches.scenario, ways, max(counts))
    finer = EQUAL if all(way.sync.split == "equal" for way in ways) else FINER
    found: list[Inside] = []
    for kind in kinds:
        compared = [min(one, batch) for one in batches_of(searches.scenario, kind, batch * blocks, counts)]
        try:
            inside = searches.inside(kind, tuple(dict.fromkeys(compared)), besides, batch, finer)
        except StoppedError:
            break
        found.append(changed(inside, methods=tuple(dict.fromkeys(way.sync.method for way in ways))))
    return found


def _besides(scenario: Scenario, ways: Sequence[Way], cells: int) -> tuple[float, ...]:
    """Bytes that ranks keep for every parameter they update, by any of the ways that join the most cells."""
    able = [way for way in ways if not faults(way.sync, cells)] if cells > 1 else []
    told = Replica(
        parameters=parameters(scenario.model), gradient_bytes=4.0, layers=float(scenario.model.layers), cells=float(cells),
        matrices=matrices(scenario.model),
    )  # fmt: skip
    return tuple(dict.fromkeys(one for way in able for one in way.beside(told))) or (0.0,)


def goal_over_all(scenario: Scenario, choices: Choices, objectives: tuple[str, ...], *, stores: bool = False) -> Goal:
    """As `goal_of`; a cost of several islands needs the price of what is sent between them. `stores`: every team is known to keep what it keeps."""
    goal, run, joint = goal_of(scenario, choices, objectives), scenario.run, choices.joint
    wan = scenario.fleet.wan
    found = []
    if run.phases:
        says, way_out = (
            "phases of several islands, each of which shares every batch anew",
            "one batch; predict has phases",
        )
        found.append(Violation(field="run.phases", says=says, way_out=way_out))
    if (
        (run.stocks or run.hauls)
        and not stores
        and joint is not None
        and joint.counts != (len(scenario.fleet.islands),)
    ):
        says = "what is kept and brought depends on which islands take part, and that is open"
        found.append(
            Violation(field="fleet.use", says=says, way_out="name them, or leave out run.storage and run.dataset")
        )
    if found:
        raise BadScenario(f"{scenario.name}: {len(found)} problem{'s' if len(found) > 1 else ''}", found)
    if wan is not None and ("cost" in goal.objectives or goal.budget is not None):
        lacking = np.isnan(np.broadcast_to(wan.egress, (len(wan.islands),) * 2)) & ~np.eye(len(wan.islands), dtype=bool)
        if lacking.any():
            says = "a cost is asked for, and no price is known of what is sent between islands"
            bad = Violation(field="fleet.wan", says=says, way_out="say fleet.wan.default.egress: $0.02/GB")
            raise BadScenario(f"{scenario.name}: 1 problem", [bad])
    return goal


def _check_ways(ways: Sequence[Way]) -> None:
    """Refuse more points of synchronisation than can be searched."""
    points = plain_sum(way.size for way in ways)
    if points > MOST_WAYS:
        raise ShardMeterError(
            f"{points:,} ways to keep islands together; at most {MOST_WAYS:,} are searched: narrow plan.sync "
            f"({len(ways):,} combinations of methods and words, {max(way.size for way in ways):,} points of numbers each)"
        )


def _check_members(groups: Sequence[tuple[Scenario, tuple[Way, ...]]], batch: float) -> None:
    """Refuse a batch that the members of a population do not share. Raises BadScenario."""
    found = []
    for scenario, _ in groups:
        case = Case(
            model=scenario.model, island=scenario.fleet.islands[0], plan=scenario.plan,
            run=changed(scenario.run, global_batch=batch), stack=scenario.stack,
        )  # fmt: skip
        if np.any(np.less(members_slack(case), 0.0)):
            where, says, way_out = members_says(case)
            found.append(Violation(field=where, says=says, way_out=way_out))
    if found:
        raise BadScenario(f"{groups[0][0].name}: {len(found)} problem{'s' if len(found) > 1 else ''}", found)


@dataclass(slots=True)
class _Teams:
    """The search over teams."""

    scenario: Scenario
    batch: float
    insides: tuple[Inside, ...]
    kinds: tuple[Kind, ...]
    ways: tuple[Way, ...]
    goal: Goal
    most: int
    stop: Stop | None
    tried: int = 0
    seen: dict[tuple[int, ...], Team] = field(default_factory=dict)

    @property
    def blocks(self) -> int:
        """Parts of the model that islands train apart: alike for all its ways."""
        return inner_of(self.ways[0].sync).blocks

    def kind(self, place: int) -> int:
        """Of an island."""
        return next(number for number, kind in enumerate(self.kinds) if place in kind.places)

    def team(self, places: tuple[int, ...], named: Named | None = None) -> Team:
        """Some islands."""
        if places not in self.seen:
            numbers = [self.kind(at) for at in places]
            used = list(dict.fromkeys(numbers))
            islands, wan = self.scenario.fleet.islands, self.scenario.fleet.wan
            if named is None:
                of = self.scenario, None if wan is None else among(wan, [islands[at].name for at in places])
            else:
                run, across = named.of(places)
                of = changed(self.scenario, run=changed(run, global_batch=self.batch)), across
            self.seen[places] = Team(
                scenario=of[0], places=places, insides=tuple(self.insides[number] for number in used),
                kind=tuple(used.index(number) for number in numbers), batch=self.batch, blocks=self.blocks, wan=of[1],
            )  # fmt: skip
        return self.seen[places]

    def all_of(self, counts: Sequence[int], joined: Joined) -> bool:
        """Every team of so many islands, the most promising first; False if it was stopped."""
        able = [at for at in range(len(self.scenario.fleet.islands)) if self.insides[self.kind(at)].tables]
        groups = subsets.classes(self.scenario, self.kind, able)
        counts = [count for count in counts if count <= len(able)]
        if not counts:
            raise next(one.illegal for one in self.insides if one.illegal is not None)
        if counts == [len(able)]:
            return self._try(
                self.team(tuple(able)), joined, max(1, math.ceil(self.most / plain_sum(way.size for way in self.ways)))
            )
        if subsets.number(groups) <= subsets.MOST:
            teams = [self.team(places) for places in subsets.every(groups, counts)]
            each = max(1, math.ceil(self.most / max(1, len(teams) * plain_sum(way.size for way in self.ways))))
            bounds = sorted(
                ((self._least(team), number, team) for number, team in enumerate(teams)), key=lambda one: one[:2]
            )
            return all(self._try(team, joined, each) for _, _, team in bounds)
        return self._climb(groups, counts, joined)

    def each_of(self, named: Named, joined: Joined, progress: Progress | None) -> bool:
        """Every team that is named and of which each island has a plan; False if it was stopped."""
        began, leaves = time.perf_counter(), max(PRICED_NAMED // max(len(named.teams), 1), 1)
        for number, places in enumerate(named.teams):
            if any(not self.insides[self.kind(at)].tables for at in places):
                continue
            if progress is not None:
                pace = number / max(time.perf_counter() - began, 1e-9)
                progress(Done(rows=number, total=len(named.teams), rate=pace))
            if not self._try(self.team(places, named), joined, 1, leaves):
                return False
        return True

    def _climb(self, groups: Sequence[Sequence[int]], counts: Sequence[int], joined: Joined) -> bool:
        """Where there are too many teams: from the largest one and the smallest ones on to whichever neighbour is best, as long as
        one is better. What is left is bounded by the inner steps of all islands without messages, or the cheapest of them."""
        for near in subsets.ends(groups, counts):
            if not self._try(self.team(near), joined, 1, HINTS):
                return False
        for _ in range(NEIGHBOURHOODS):
            if not joined.rows:
                break
            before = joined.best
            for near in subsets.neighbours(groups, joined.rows[0].team.places, counts):
                if near not in self.seen and not self._try(self.team(near), joined, 1, HINTS):
                    return False
            if not joined.best < before:
                break
        whole = not joined.rows or self._try(self.team(joined.rows[0].team.places), joined, 1)
        joined.bound = min(joined.bound, self._least_of_all())
        return whole

    def _ways(self, team: Team) -> Sequence[Way]:
        """How a team may be kept together. An island alone trains the whole model by itself, so that methods with another inner step
        have no team of one."""
        if len(team.places) == 1:
            return (ALONE,) if inner_of(self.ways[0].sync) == Inner() else ()
        return [way for way in self.ways if not faults(way.sync, len(team.places))]

    def _least(self, team: Team) -> float:
        """A value that no way of a team falls below."""
        found = [float(np.min(assignments.floor(Bound(team, way), self.goal, ()))) for way in self._ways(team)]
        return min(found, default=math.inf)

    def _least_of_all(self) -> float:
        """A value that no team falls below: the inner steps of all islands, nothing sent; of costs, those of the cheapest island."""
        places = tuple(range(len(self.scenario.fleet.islands)))
        everyone = Team(
            scenario=self.scenario, places=places, insides=self.insides, batch=self.batch, wan=None,
            kind=tuple(map(self.kind, places)), blocks=self.blocks,
        )  # fmt: skip
        whole = least(self.scenario, self.batch)
        if self.goal.objectives[0] in ("time", "throughput"):
            step = min(everyone.least_step(()), self.batch / everyone.most_rate(()))
            return float(assignments.figures(self.goal, everyone.islands, whole, step, everyone.tokens, 0.0).columns[0])
        return assignments.cheapest(self.goal, everyone, whole)

    def without(self, joined: Joined) -> tuple[tuple[Row, tuple[int, ...]], ...]:
        """Teams of all islands but one that are better than the best of all, the best first, with what they leave out."""
        if not joined.rows:
            return ()
        everyone, found = tuple(range(len(self.scenario.fleet.islands))), list[tuple[Row, tuple[int, ...]]]()
        for members in subsets.classes(self.scenario, self.kind, everyone):
            team = self.team(tuple(at for at in everyone if at != members[-1]))
            other = Joined(goal=self.goal, most=1)
            for way in self._ways(team):
                other.add(assignments.search(team, way, self.goal, 1, joined.best, HINTS), 0)
            if other.best < joined.best:
                found.append((other.rows[0], members[-1:]))
        return tuple(sorted(found, key=lambda one: one[0].value))

    def _try(self, team: Team, joined: Joined, each: int, leaves: int | None = None) -> bool:
        """One team under every way; False if it was stopped."""
        self.tried += 1
        ways = self._ways(team)
        if (len(ways) < len(self.ways) and len(team.places) > 1) or not ways:
            joined.rejected[CELLS] += plain_sum(way.size for way in self.ways) - plain_sum(way.size for way in ways)
        for way in ways:
            if self.stop is not None and self.stop():
                return False
            joined.add(assignments.search(team, way, self.goal, each, joined.bar(way), leaves), self.tried)
        return True
