"""Which islands form which pipelines, in which order: all choices best-first by their bounds or, where these are too many, the best that
a climb finds, with a bound of all others."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from shardmeter.core.errors import BadScenario, Violation
from shardmeter.core.record import changed, record
from shardmeter.core.sums import plain_sum
from shardmeter.engine.sharing import IndivisibleBatch
from shardmeter.scenario.sync import method_named
from shardmeter.schedules import holds_all
from shardmeter.specs import Plan, Replica, Scenario
from shardmeter.study.legal import checked
from shardmeter.study.planning import groups
from shardmeter.study.planning.block import INDIVISIBLE, MEMORY
from shardmeter.study.planning.fleet import Answer
from shardmeter.study.planning.lengths import amount
from shardmeter.study.planning.objective import is_simple
from shardmeter.study.planning.pipelines import SLACK, Choice, Lines
from shardmeter.study.planning.search import Stop
from shardmeter.study.planning.syncs import ways_of
from shardmeter.study.planning.tally import Floats
from shardmeter.study.predict import Prediction, predict
from shardmeter.sync import alike, round_of

SCHEDULES = ("1f1b", "gpipe")
"""Of pipelines that are planned."""
MOST_ISLANDS = 8
"""Islands up to which every choice is looked at."""
MOST_CHOICES = 200_000
"""Choices of all plans together that are looked at one by one."""
PRICED = 1_000
"""Choices that are predicted, at most; beyond, the gap is told."""
PLANS = 6
"""Inner plans that are tried, at most."""
CLIMBS, MOVES, KEPT = 12, 24, 3
"""Of fleets of more islands: (plan, length) pairs that are climbed, steps of each climb, choices of each that are predicted."""


@record
class Placement:
    """One choice of cells, predicted."""

    prediction: Prediction
    cells: Choice
    step: float


@dataclass(slots=True)
class Placements:
    """What the search over cells came to."""

    plans: tuple[Plan, ...]
    """Inner plans that were tried."""
    rows: list[Placement] = field(default_factory=list)
    """The best that fit, in order."""
    looked: int = 0
    """Choices whose bound is known."""
    evaluated: int = 0
    rejected: dict[str, int] = field(default_factory=dict)
    bound: float = math.inf
    """Least step of what was not predicted, seconds."""
    seconds: float = 0.0

    def best(self, otherwise: float) -> float:
        """Seconds of the best step."""
        return min(self.rows[0].step if self.rows else math.inf, otherwise)


def inner_plans(scenario: Scenario, answer: Answer) -> tuple[Plan, ...]:
    """Plans of a stage, one stage each: those of the islands' best plans, without pipeline, over all, half and a quarter of the
    accelerators that go evenly into every island; or so many as `dp_shard` is pinned to."""
    if scenario.choices is None:
        return ()
    pins = scenario.choices.plan
    common = math.gcd(*(int(island.gpus) for island in scenario.fleet.islands))
    tables = [inside.tables for inside in answer.insides]
    ranked = [one[place] for place in range(max(map(len, tables), default=0)) for one in tables if place < len(one)]
    made: dict[Plan, None] = {}
    for table, part in itertools.product(ranked, (1, 2, 4)):
        own = table.plan
        others = float(own.tp * own.cp)
        copies = float(pins["dp_replicate"][0]) if "dp_replicate" in pins else 1.0
        shards = [float(one) for one in pins["dp_shard"]] if "dp_shard" in pins else [common / part / others / copies]
        if own.ep > 1:
            continue
        words = pins.get("schedule", (own.schedule if own.pp > 1 and own.schedule in SCHEDULES else SCHEDULES[0],))
        more = [
            (float(ahead), bool(turns))
            for ahead in pins.get("ahead", (0.0,))
            for turns in pins.get("stagger", (False,))
        ]
        for shard, word, (ahead, turns) in itertools.product(shards, words, more):
            if shard >= 1.0 and shard == int(shard) and not common % (others * shard * copies):
                one = changed(own, pp=1, dp_shard=shard, dp_replicate=copies, virtual_stages=1, schedule=str(word),
                              ahead=0.0 if holds_all(str(word)) else ahead, stagger=turns)  # fmt: skip
                made[one] = None
    return tuple(made)[:PLANS]


def refuse(scenario: Scenario, objectives: Sequence[str]) -> None:
    """Raise BadScenario with everything that pipelines over islands are not planned with."""
    choices = scenario.choices
    if choices is None or choices.joint is None:
        raise ValueError("nothing is open of several islands")
    joint, asked = choices.joint, tuple(objectives) or choices.objectives or ("time",)
    several = [name for name, values in joint.sync.items() if len(values) > 1 or "any" in values]
    unknown = ", ".join(str(one) for one in choices.plan.get("schedule", ()) if one not in SCHEDULES)
    said, chosen = (
        [name for name in ("pp", "virtual_stages") if name in choices.plan],
        "is said, and pipelines are to be chosen",
    )
    limits = choices.deadline is not None or choices.budget is not None
    ways = ways_of(joint.sync, float(scenario.model.layers), max(joint.counts))
    hasty = [way.sync.method for way in ways if not several and not waits(changed(scenario.plan, sync=way.at(0)))]
    rows = (
        (asked not in (("time",), ("throughput",)), "run.objective", ", ".join(asked), "time or throughput"),
        (limits, "run", "a deadline or a budget", "leave both out"),
        (not is_simple(scenario), "run", "failures, preemption, checkpoints, a loss to reach, phases or stores",
         "leave them out here, and predict the placement with them"),
        (joint.counts != (len(scenario.fleet.islands),), "fleet.use", "leaves open which islands take part", "name them"),
        (bool(several), "plan.sync", f"several values of {', '.join(several)}", "say one"),
        *((True, "plan.sync.method", f"{name} trains its islands apart", "one that trains one model by backpropagation")
          for name in map(method_named, joint.sync.get("method", ())) if not alike(name)),
        *((True, "plan.sync.method", f"{name} waits for nobody", "one with which all wait for the slowest") for name in hasty),
        *((True, f"plan.{name}", chosen, "leave it out") for name in said),
        (bool(unknown), "plan.schedule", f"{unknown} over islands is not planned", "1f1b or gpipe"),
        (any(dict(pins) != dict(choices.plan) for pins in joint.pins), "fleet.islands", "some have plans of their own",
         "say what all have alike under plan"),
    )  # fmt: skip
    rule = "placement: {pp: auto} looks for the shortest step of all islands"
    found = [Violation(field=at, says=says, way_out=way_out, rule=rule) for bad, at, says, way_out in rows if bad]
    if found:
        raise BadScenario(f"{scenario.name}: {len(found)} problem{'s' if len(found) > 1 else ''}", found)


def waits(plan: Plan) -> bool:
    """Whether all cells wait for the slowest."""
    told = Replica(parameters=1.0, gradient_bytes=4.0, layers=1.0, cells=2.0)
    return round_of(told, plan.sync).pace == "barrier"


def families(scenario: Scenario, plans: Sequence[Plan], batch: float) -> Iterator[Lines]:
    """Every inner plan with every length of pipelines that it can make of the islands."""
    gpus = [float(island.gpus) for island in scenario.fleet.islands]
    for plan in plans:
        steps = tuple(int(one / float(plan.gpus)) for one in gpus)
        sums = {0}
        for one in steps:
            sums |= {one + other for other in sums}
        most = min(float(scenario.model.layers), plain_sum(steps))
        for pp in sorted(one for one in sums if min(steps) < one <= most):
            yield Lines(scenario=scenario, plan=plan, pp=pp, batch=batch, steps=steps)


def laid(lines: Lines, cells: Choice) -> Scenario:
    """A choice as a scenario with nothing open."""
    scenario, names = lines.scenario, [island.name for island in lines.scenario.fleet.islands]
    placed = tuple(tuple(names[at] for at in cell for _ in range(lines.steps[at])) for cell in cells if len(cell) > 1)
    plans = tuple(
        changed(lines.plan, pp=steps, sync=scenario.plan.sync, placement=(("pp", placed),)) for steps in lines.steps
    )
    return changed(
        scenario, plan=changed(plans[0], pp=lines.pp), plans=plans, choices=None,
        run=changed(scenario.run, global_batch=lines.batch),
    )  # fmt: skip


@dataclass(slots=True)
class _Search:
    """The search over all families."""

    lines: list[Lines]
    found: Placements
    alike: tuple[int, ...]
    most: int
    otherwise: float
    """Seconds of the best step with every island a cell."""
    stop: Stop | None
    known: set[tuple[int, Choice]] = field(default_factory=set)

    def expressible(self, lines: Lines, cells: Choice) -> bool:
        """Whether a document can say it: islands of one item are all in pipelines, or all alone, unless they have one stage."""
        choices = lines.scenario.choices
        items = () if choices is None or choices.joint is None else choices.joint.items
        alone = {items[cell[0]] for cell in cells if len(cell) == 1 and items and lines.steps[cell[0]] > 1}
        return not any(items[at] in alone for cell in cells if len(cell) > 1 for at in cell if items)

    def bounds(self, lines: Lines, cells: Choice) -> tuple[Floats, list[list[tuple[int, ...]]]]:
        """The bound of every order of the islands in their cells, and the orders of every cell."""
        each = [groups.orders(cell, self.alike) for cell in cells]
        terms = [
            lines.lines(some) if len(cell) > 1 else lines.single(cell[0])
            for cell, some in zip(cells, each, strict=True)
        ]
        picks = np.indices([len(some) for some in each]).reshape(len(each), -1)
        step = lines.step([(a[pick], r[pick]) for (a, r), pick in zip(terms, picks, strict=True)])
        return lines.joined(step * (1.0 - SLACK), cells), each

    def all_of(self) -> None:
        """Every choice, the lowest bound first, until none that is left can be better."""
        blocks: list[tuple[Floats, list[list[tuple[int, ...]]], Lines]] = []
        floors = [(lines.floor(), number) for number, lines in enumerate(self.lines)]
        for floor, number in sorted(floors):
            lines = self.lines[number]
            if sum(len(step) for step, _, _ in blocks) >= MOST_CHOICES:
                self.found.bound = min(self.found.bound, floor)
                continue
            blocks += [
                (*self.bounds(lines, cells), lines)
                for cells in groups.partitions(lines.steps, lines.pp, self.alike)
                if self.expressible(lines, cells)
            ]
        sizes = [len(step) for step, _, _ in blocks]
        starts = np.concatenate([[0], np.cumsum(sizes)]).astype(int)
        bounds = np.concatenate([step for step, _, _ in blocks]) if blocks else np.zeros(0)
        self.found.looked += len(bounds)
        for at in np.argsort(bounds, kind="stable"):
            if bounds[at] >= self.found.best(self.otherwise):
                break
            if self.found.evaluated >= PRICED or (self.stop is not None and self.stop()):
                self.found.bound = min(self.found.bound, float(bounds[at]))
                break
            block = int(np.searchsorted(starts, at, side="right")) - 1
            _, each, lines = blocks[block]
            places = np.unravel_index(int(at - starts[block]), [len(some) for some in each])
            self.price(lines, tuple(some[int(place)] for some, place in zip(each, places, strict=True)))

    def price(self, lines: Lines, cells: Choice) -> None:
        """Predict one choice and keep it if it fits."""
        key = id(lines), tuple(sorted(cells))
        if key in self.known:
            return
        self.known.add(key)
        self.found.evaluated += 1
        made, why = laid(lines, cells), None
        try:
            p = predict(checked(made))
        except IndivisibleBatch:
            why = INDIVISIBLE
        except BadScenario as error:
            why = error.violations[0].rule or error.violations[0].says
        else:
            why = None if p.fits else MEMORY
        if why is not None:
            self.found.rejected[why] = self.found.rejected.get(why, 0) + 1
            return
        row = Placement(prediction=p, cells=cells, step=float(p.step_time))
        self.found.rows = sorted((*self.found.rows, row), key=lambda one: one.step)[: self.most]

    # ---- fleets of many islands ----------------------------------------------------------------------------------------------------

    def climb(self) -> None:
        """The most promising families one by one, each from islands joined to their nearest to the best that exchanging two reaches."""
        floors = [(lines.floor(), number) for number, lines in enumerate(self.lines)]
        self.found.bound = min((floor for floor, _ in floors), default=math.inf)
        for floor, number in sorted(floors)[:CLIMBS]:
            if floor >= self.found.best(self.otherwise) or (self.stop is not None and self.stop()):
                break
            self._climbed(self.lines[number])

    def _climbed(self, lines: Lines) -> None:
        cells = nearest_joined(lines)
        if all(len(cell) == 1 for cell in cells):
            return
        best = float(lines.step([self._terms_of(lines, [cell]) for cell in cells])[0])
        for _ in range(MOVES):
            near = list(neighbours(cells, lines.steps, self.alike))
            steps = lines.step([self._terms_of(lines, [one[number] for one in near]) for number in range(len(cells))])
            self.found.looked += len(near)
            at = int(np.argmin(steps))
            if not steps[at] < best * (1.0 - SLACK):
                break
            cells, best = near[at], float(steps[at])
        for one in (cells, *(near[int(n)] for n in np.argsort(steps, kind="stable")[: KEPT - 1])):
            if self.expressible(lines, one):
                self.price(lines, one)

    def _terms_of(self, lines: Lines, some: Sequence[tuple[int, ...]]) -> tuple[Floats, Floats]:
        """A and r of one cell of several choices, each different one computed once."""
        places = {cell: number for number, cell in enumerate(dict.fromkeys(some))}
        pick = [places[cell] for cell in some]
        if len(some[0]) > 1:
            constants, slopes = lines.lines(list(places))
        else:
            constants, slopes = (
                np.concatenate(rows) for rows in zip(*(lines.single(*cell) for cell in places), strict=True)
            )
        return constants[pick], slopes[pick]


def nearest_joined(lines: Lines) -> Choice:
    """Pipelines from one island on to the nearest of those left that still goes in, by the wire and the way between them."""
    cost = lines.wire[0, 0] + lines.delay + np.where(np.eye(len(lines.steps), dtype=bool), np.inf, 0.0)
    left, made = set(range(len(lines.steps))), []
    while left:
        first = max(left, key=lambda at: (min((cost[at, o] for o in left if o != at), default=0.0), -at))
        line, filled = [first], lines.steps[first]
        while filled < lines.pp:
            able = [at for at in left if at not in line and filled + lines.steps[at] <= lines.pp]
            if not able:
                break
            last = line[-1]
            line.append(min(able, key=lambda at: (cost[last, at], at)))
            filled += lines.steps[line[-1]]
        line = line if filled == lines.pp else [first]
        left -= set(line)
        made.append(tuple(line))
    return tuple(sorted(made, key=min))


def neighbours(cells: Choice, steps: Sequence[int], alike: Sequence[int]) -> Iterator[Choice]:
    """The same cells with two islands of as many stages exchanged, or a part of one reversed."""
    of = {at: (number, place) for number, cell in enumerate(cells) for place, at in enumerate(cell)}
    for one, other in itertools.combinations(sorted(of), 2):
        same_cell = of[one][0] == of[other][0]
        if alike[one] != alike[other] and (same_cell or steps[one] == steps[other]):
            swapped = {one: other, other: one}
            yield tuple(tuple(swapped.get(at, at) for at in cell) for cell in cells)
    for number, cell in enumerate(cells):
        for begin, end in itertools.combinations(range(len(cell) + 1), 2):
            if end - begin > 2:
                turned = (*cell[:begin], *cell[begin:end][::-1], *cell[end:])
                yield tuple(turned if at == number else one for at, one in enumerate(cells))


def search(answer: Answer, most: int, stop: Stop | None = None) -> Placements:
    """Search the cells of several islands; `answer` is that of every island a cell, of what `refuse` lets pass."""
    began, batch, way = time.perf_counter(), answer.batch, answer.ways[0]
    scenario = changed(answer.scenario, plan=changed(answer.scenario.plan, sync=way.at(0)))
    plans = inner_plans(scenario, answer)
    found = Placements(plans=plans)
    run = _Search(
        lines=list(families(scenario, plans, batch)), found=found, alike=groups.classes(scenario), most=most,
        otherwise=_step(answer), stop=stop,
    )  # fmt: skip
    if len(scenario.fleet.islands) <= MOST_ISLANDS:
        run.all_of()
    else:
        run.climb()
    found.seconds = time.perf_counter() - began
    return found


def _step(answer: Answer) -> float:
    """Seconds of the best step with every island a cell; inf where none fits."""
    value, tokens = answer.joined.best, answer.batch * float(answer.scenario.run.seq_len)
    if not math.isfinite(value):
        return math.inf
    per_token = value / amount(answer.scenario.run, answer.batch) if value > 0.0 else -1.0 / value
    return tokens * per_token
