"""Pipelines over islands by one inner plan: what every island makes of every stage, and seconds that no step falls below."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from shardmeter.core.record import changed
from shardmeter.engine import crossing
from shardmeter.engine import round as rounds
from shardmeter.engine.evaluate import Priced, ending, ends, priced
from shardmeter.engine.fleet import weights_of
from shardmeter.engine.links import Links, bounded, links_of
from shardmeter.engine.round import Pace
from shardmeter.engine.update import update
from shardmeter.families import matrices
from shardmeter.physics.wan import shared_rate
from shardmeter.schedules import SETTLED
from shardmeter.specs import Leaving, Plan, Replica, Round, Scenario, Wan
from shardmeter.strategies import fsdp
from shardmeter.strategies.pipeline import side_by_side
from shardmeter.strategies.precision import WIDTH
from shardmeter.study.planning.tally import Floats
from shardmeter.sync import round_of

Choice: TypeAlias = tuple[tuple[int, ...], ...]
"""The islands of every cell in the order of its stages, cells by their first island in the fleet."""
BISECTIONS = 48
SLACK = 1e-9
"""By which a bound is taken back for sums in another order."""


@dataclass(slots=True)
class Lines:
    """Cells whose islands run one inner plan: pipelines of `pp` stages over several islands, and islands alone, which have their
    own stages only. Every island takes as many stages as its accelerators hold copies of the inner plan's mesh."""

    scenario: Scenario
    plan: Plan
    """With one stage."""
    pp: int
    batch: float
    steps: tuple[int, ...] = ()
    """Stages of every island."""
    stage: Floats = field(init=False)
    """(island, stage of a pipeline): the least seconds of a micro-batch, whatever the batch of the cell."""
    alone: Floats = field(init=False)
    """(island,): of the slowest of its own stages, where it is a cell by itself."""
    ends: Floats = field(init=False)
    """(island, two): optimizer and what a step takes besides, in a pipeline and alone."""
    windows: tuple[Leaving, ...] = field(init=False)
    """How the gradients of every island leave."""
    late: float = field(init=False)
    trained: float = field(init=False)
    wire: Floats = field(init=False)
    """(neighbours of the one, of the other, island, island): seconds that a micro-batch occupies a link."""
    delay: Floats = field(init=False)
    hop: Floats = field(init=False)
    """(island,): seconds of a send inside an island."""

    def __post_init__(self) -> None:
        """Price every island once for the pipelines and once alone, equal ones together."""
        islands, known = self.scenario.fleet.islands, {}
        for at, island in enumerate(islands):
            key = id(island.accelerator), island.nodes, island.gpus_per_node, island.tiers
            if key not in known:
                known[key] = self._island(at)
        rows = [known[id(i.accelerator), i.nodes, i.gpus_per_node, i.tiers] for i in islands]
        self.stage, self.alone, self.ends, self.hop = (np.array([row[n] for row in rows]) for n in range(4))
        self.windows, self.late = tuple(one for row in rows for one in row[4][0]), max(row[4][1] for row in rows)
        self.trained = rows[0][5]
        self._links(rows[0][6])

    @property
    def passes(self) -> float:
        """Micro-batches of a step of all cells together."""
        return self.batch / float(self.plan.dp * self.plan.micro_batch)

    def _island(self, at: int) -> tuple[Any, ...]:
        """What one island makes of the stages of a pipeline, and of its own; what hides messages; parameters; bytes of a send."""
        line, own = self._least(at, self.pp), self._least(at, self.steps[at])
        windows: list[Leaving] = []
        late = 0.0
        for ready, plan in ((line[0], changed(self.plan, pp=self.pp)), (own[0], changed(self.plan, pp=self.steps[at]))):
            last = ends(ready, plan, ready[0], ending(self.scenario.model, ready, (), plan))
            windows += last.leaving
            shown = max(float(one.exposed.get("gradient reduction", 0.0)) for one in ready[3])
            late = max(late, shown if fsdp.applies(plan) else np.inf)
        work, price, _, _ = line[0]
        size = float(work.send.size) * float(self.plan.tp * self.plan.cp * self.plan.dp)
        hop = float(price.transfer(work.send).seconds)
        return (
            line[1],
            float(own[1].max()),
            np.array([line[2], own[2]]),
            hop,
            (windows, late),
            float(last.trained),
            size,
        )

    def _least(self, at: int, pp: int) -> tuple[Priced, Floats, float]:
        """An island's stages at the most and at the fewest micro-batches, the shorter of both: what is done once a step is spread over
        them, so that a stage is a straight line in one over their number."""
        scenario, plan = self.scenario, changed(self.plan, pp=pp)
        found = []
        for batch in (self.batch, float(self.plan.dp * self.plan.micro_batch)):
            run = changed(scenario.run, global_batch=batch)
            ready = priced(scenario.model, scenario.fleet.islands[at], plan, run, scenario.stack)
            line = [ready[3][kind].slot.whole for kind, _, count in ready[0].runs for _ in range(count)]
            found.append((ready, np.array([float(one) for one in line])))
        ready = found[0][0]
        exposed, _ = update(ready[0], ready[2], ready[1], plan, dict.fromkeys(ready[0].stages, 0.0))
        after = float(exposed["optimizer"]) + float(scenario.stack.step_overhead)
        return ready, np.minimum(found[0][1], found[1][1]), after

    def _links(self, size: float) -> None:
        wan = self._wan()
        links = links_of(wan)
        rate, up, down = (np.asarray(one) for one in (links.rate, links.up, links.down))
        self.delay, count = np.array(links.delay) - _soonest(links, size), len(wan.islands)
        self.wire = np.zeros((2, 2, count, count))
        for one in (1, 2):
            for other in (1, 2):
                there = shared_rate(shared_rate(rate, up[:, None], one), down[None, :], other)
                back = shared_rate(shared_rate(rate.T, up[None, :], other), down[:, None], one)
                self.wire[one - 1, other - 1] = size / np.minimum(there, back)

    # ---- bounds ------------------------------------------------------------------------------------------------------------------

    def lines(self, orders: Sequence[tuple[int, ...]]) -> tuple[Floats, Floats]:
        """(orders, terms) twice: for every order of the islands of a pipeline numbers A and r, of which A + r·m is never more than a
        step of m micro-batches takes.

        Take stage times t, wires w and ways d, and one round trip R = Σt + 2Σ(w + d).
        Stage s computes m micro-batches after the first has come through the stages before it, and its last gradient has still to go back:
        Σ_{i<s}(t + 2(w + d)) + m·t_s. (Beyond what `schedules._long` runs turn by turn it counts no more.)
        A wire passes m messages, of which the first comes after a way there and the last has one back: R + (m − 1)·w.
        Stages f…l hold n micro-batches, as many as they are and what is ahead of the boundaries between (1F1B): between gradient k and
        k + n of stage l lies one loop of Σt + 2Σ(w + d) from f to l and back; the loops fit ⌊(m − pp − e + f)/n⌋ times behind the first
        round trip, e being all that is ahead (GPipe has no such limit). In turn a message takes no less than its part of the wire.
        What is done once a step only comes on top: the optimizer of the quickest of the islands."""
        owners = np.array([[at for at in order for _ in range(self.steps[at])] for order in orders])
        count, pp = len(orders), self.pp
        seconds = self.stage[owners, np.arange(pp)]
        here, there = owners[:, :-1], owners[:, 1:]
        middle = np.array([[(0 < order.index(at) < len(order) - 1) * 1 for at in row]
                           for row, order in zip(owners, orders, strict=True)])  # fmt: skip
        wire = np.where(here == there, self.hop[here], self.wire[middle[:, :-1], middle[:, 1:], here, there])
        delay = np.where(here == there, 0.0, self.delay[here, there])
        turns = side_by_side(self.plan) if self.plan.stagger else 1.0
        own = np.where(here == there, wire, wire / turns)
        passed = np.concatenate(
            [np.zeros((count, 1)), np.cumsum(seconds[:, :-1] + 2.0 * (own + delay), axis=1)], axis=1
        )
        ahead = np.concatenate(
            [np.zeros((count, 1)), np.cumsum(np.where(here == there, 0.0, self.plan.ahead), axis=1)], axis=1
        )
        trip = passed[:, -1] + seconds[:, -1]
        exact = self.passes <= SETTLED + 2 * pp
        terms = [(passed[:, s] if exact else passed[:, s] + seconds[:, s] * (SETTLED + 2 * pp),
                  seconds[:, s] * exact) for s in range(pp)]  # fmt: skip
        terms += [(trip - wire[:, b], wire[:, b]) for b in range(pp - 1)]
        if self.plan.schedule == "gpipe":
            terms += [(trip - seconds[:, s], seconds[:, s]) for s in range(pp)]
            terms += [(trip - 2.0 * wire[:, b], 2.0 * wire[:, b]) for b in range(pp - 1)]
        else:
            for first in range(pp - 1):
                for last in range(first + 1, pp):
                    loop = passed[:, last] - passed[:, first] + seconds[:, last]
                    n = last - first + 1 + ahead[:, last] - ahead[:, first]
                    terms.append((trip + (first - pp - ahead[:, -1] - n + 1) / n * loop, loop / n))
        after = np.array([min(self.ends[at, 0] for at in order) for order in orders])
        return np.stack([one for one, _ in terms], axis=1) + after[:, None], np.stack([one for _, one in terms], axis=1)

    def single(self, at: int) -> tuple[Floats, Floats]:
        """The same of an island by itself: (1, 1) each."""
        return self.ends[at : at + 1, 1:2], self.alone[at : at + 1, None]

    def step(self, cells: Sequence[tuple[Floats, Floats]]) -> Floats:
        """(choices,): seconds below which no slowest cell ends, however the micro-batches are shared. `cells` have A and r of every cell,
        (choices, terms) each.

        A cell that ends within T takes at most min((T − A) / r) micro-batches; all together take all."""
        if len(cells) == 1:
            constant, slope = cells[0]
            return np.asarray(np.max(constant + slope * self.passes, axis=1))
        low = np.zeros(max(len(one) for one, _ in cells))
        high = np.min([np.max(a + r * self.passes, axis=1) * np.ones_like(low) for a, r in cells], axis=0)
        for _ in range(BISECTIONS):
            middle = (low + high) / 2.0
            taken = np.zeros_like(middle)
            for constant, slope in cells:
                with np.errstate(divide="ignore", invalid="ignore"):
                    most = np.where(slope > 0.0, (middle[:, None] - constant) / slope, np.inf)
                taken = taken + np.maximum(np.min(most, axis=1), 0.0)
            enough = taken >= self.passes
            low, high = np.where(enough, low, middle), np.where(enough, middle, high)
        return low

    def joined(self, step: Floats, cells: Choice) -> Floats:
        """The same with the messages between cells, each as small as the least of an island's; the order of the islands
        in a cell does not matter to these."""
        if len(cells) < 2:
            return step
        fleet = self.scenario.fleet
        gpus, members = [island.gpus for island in fleet.islands], [sorted(cell) for cell in cells]
        asked, wan, sync = self._asked(len(cells)), self._wan(), self.scenario.plan.sync
        least = [min(weights_of(members, self.steps))] * len(gpus)
        across = [
            crossing.price(one, wan, members, sync, accelerators=gpus, weights=least).seconds for one in asked.crossings
        ]
        return self._folded(step, asked, across)

    def _asked(self, cells: int) -> Round:
        """What the method asks for of so many cells."""
        told = Replica(
            parameters=self.trained, gradient_bytes=WIDTH[self.plan.reduce_dtype], cells=float(cells),
            layers=float(self.scenario.model.layers), matrices=matrices(self.scenario.model),
        )  # fmt: skip
        return round_of(told, self.scenario.plan.sync)

    def _folded(self, step: Floats, asked: Round, across: Sequence[Any]) -> Floats:
        """Seconds a step: messages hide behind no more than the step."""
        every = np.repeat(step[:, None], 2, axis=1)
        pace = Pace(
            step=every, tokens=np.ones_like(every), leaving=rounds.shortest(self.windows, every), late=self.late
        )
        return np.asarray(rounds.fold(asked, pace, across).seconds / asked.steps)

    def _wan(self) -> Wan:
        """The network with all streams that islands can have at once."""
        fleet = self.scenario.fleet
        if fleet.wan is None:
            raise ValueError("several islands and no network between them")
        return bounded(fleet.wan, fleet.islands, [island.gpus for island in fleet.islands])

    def floor(self) -> float:
        """Seconds below which no step of any cells of this plan and length falls, for fleets of too many choices to look at.

        A cell takes a micro-batch no faster than its slowest stage or wire; the rate of the slowest of `pp` is at most the mean of all
        their rates; every island of a pipeline has a link to a neighbour, at best its best. So the rates of all cells are at most the sum over
        islands of (its stages / pp) / max(its quickest stage, its best wire), or what it does alone. By 1F1B a pipeline takes no more than
        pp − 1 micro-batches and pp for every loop that fits into the step: a loop is the sum over islands of their stages and, of what joins
        them, at least the best way of each once. One pipeline of all islands has the slowest of them and a round trip over the shortest
        tree. Several cells send each other what their method asks for, at best over links all as good as the best."""
        count, steps, after = len(self.steps), np.array(self.steps), float(self.ends.min())
        apart, exact = np.where(np.eye(count, dtype=bool), np.inf, 0.0), self.passes <= SETTLED + 2 * self.pp
        quickest, wire = self.stage.min(axis=1), (self.wire[0, 0] + apart).min(axis=1)
        way = self.wire[0, 0] + self.delay + apart
        looping = self.plan.schedule == "1f1b"
        paced = np.maximum(quickest if exact else 0.0, wire)
        least = self.passes / np.maximum(steps / self.pp / paced, 1.0 / self.alone).sum()
        if looping:
            rates = np.maximum(steps / self.pp / (quickest + way.min(axis=1) / steps), 1.0 / self.alone)
            lines = int(steps.sum()) // self.pp
            least = max(least, (self.passes - lines * (self.pp - 1)) / rates.sum())
        several = range(max(2, -(-int(steps.sum()) // self.pp)), count + 1)
        found = list(map(float, self._between(np.array([least + after]), several)))
        if int(steps.sum()) == self.pp:
            trip = float((steps * quickest).sum()) + 2.0 * tree(way)
            loops = max(math.floor((self.passes - self.pp) / self.pp), 0) if looping else 0
            found.append(after + max(self.passes * float(quickest.max()) * exact, trip + (self.passes - 1.0) * float(wire.max()),
                                     trip * (1.0 + loops)))  # fmt: skip
        return min(found) * (1.0 - SLACK)

    def _between(self, least: Floats, counts: Iterable[int]) -> Iterator[Floats]:
        """The same with what so many cells send each other over the best network, with as many accelerators as the smallest or the largest
        island has, in as many parts at once as the longest pipeline may have islands.
        """
        net, sync, count = self._ideal(), self.scenario.plan.sync, len(self.steps)
        gpus = {float(island.gpus) for island in self.scenario.fleet.islands}
        for cells in counts:
            asked, parts = self._asked(cells), float(min(self.pp // min(self.steps), count))
            members = [[at] for at in range(cells)]
            for each in {min(gpus), max(gpus)}:
                across = [
                    crossing.price(
                        changed(one, size=one.size / parts), net, members, sync, accelerators=[each] * count
                    ).seconds
                    for one in asked.crossings
                ]
                yield self._folded(least, asked, across)[0]

    def _ideal(self) -> Wan:
        """The network with all links and sites as good as the best."""
        wan = self._wan()
        apart = ~np.eye(len(wan.islands), dtype=bool)
        made = {name: pick(np.broadcast_to(np.asarray(getattr(wan, name), dtype=float), apart.shape)[apart])
                for name, pick in (("bandwidth", np.max), ("rtt", np.min), ("loss", np.min), ("window", np.max), ("streams", np.max),
                                   ("lanes", np.max))}  # fmt: skip
        made |= {"hold": np.min(wan.hold), "redundancy": 0.0, "buffer": math.inf, "planes": 1.0, "balance": ()}
        made |= {name: np.full(len(wan.islands), np.max(getattr(wan, name))) for name in ("up", "down")}
        mixed = len(set(wan.transport)) > 1
        return changed(wan, **made, transport=("lossless",) * len(wan.islands) if mixed else wan.transport)


def tree(costs: Floats) -> float:
    """The least sum of links that join all: no line through all has less."""
    joined, total, costs = [0], 0.0, np.minimum(costs, costs.T)
    left = list(range(1, len(costs)))
    while left:
        inner = costs[np.ix_(joined, left)]
        total += float(inner.min())
        joined.append(left.pop(int(np.argmin(inner.min(axis=0)))))
    return total


def _soonest(links: Links, size: float) -> Floats:
    """How much sooner a message has come than windows let the next one go, at most (`network.sooner`)."""
    held = np.where(np.greater(links.held, 0.0), links.held, np.inf)
    binds = links.lines * links.rtt > links.lanes * held
    return np.asarray(np.where(binds, links.rtt * np.minimum(size / held, 1.0), 0.0))
