"""The front of wall clock against dollars: what no other part of a fleet, size or way to keep it together beats in both."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from shardmeter.core.errors import BadScenario, Violation
from shardmeter.core.record import changed, record
from shardmeter.core.sums import plain_sum
from shardmeter.core.units import Seconds
from shardmeter.scenario import load
from shardmeter.scenario.parts import Rows
from shardmeter.scenario.read import Document
from shardmeter.specs import Scenario
from shardmeter.study import trust
from shardmeter.study.course import course
from shardmeter.study.course.totals import has_length
from shardmeter.study.front.offers import Fleets
from shardmeter.study.planning.fleet import Answer, Row, goal_over_all, search
from shardmeter.study.planning.fleet_plans import sync_document
from shardmeter.study.planning.search import Progress, Stop
from shardmeter.study.planning.tally import Floats
from shardmeter.study.predict import Prediction, predict

OBJECTIVES = ("time", "cost")
DAY: Seconds = 86_400.0
SHOWN = 400
"""Dominated fleets that the answer keeps, evenly over those that there are; all count."""
SAME = 1e-9
"""Share by which a figure is no better than another."""


@record
class Point:
    """One fleet of the front, as `predict` answers its scenario."""

    prediction: Prediction
    document: Mapping[str, Any]
    """The scenario; `predict` takes it."""
    wall_clock: float
    """Seconds."""
    cost: float
    """USD."""
    bounds: Mapping[str, Any]
    """Intervals of the figures of its run."""

    @property
    def scenario(self) -> Scenario:
        """With nothing open."""
        return self.prediction.scenario

    def to_dict(self) -> dict[str, Any]:
        """Its entry of the JSON, without what depends on the others. Seconds, dollars; null where an interval is not known."""
        p, sync = self.prediction, self.document["plan"].get("sync")
        return {
            "islands": [
                {
                    "name": island.name, "accelerator": island.accelerator.name, "nodes": float(island.nodes), "gpus": float(island.gpus),
                    "paid": island.tariff.kind, "usd_per_gpu_hour": None if island.price is None else 3600.0 * float(island.price),
                }
                for island in self.scenario.fleet.islands
            ],
            "gpus": float(self.scenario.fleet.gpus),
            "sync": sync,
            "wall_clock_s": self.wall_clock,
            "cost_usd": self.cost,
            "tokens_per_s": p.tokens_per_s,
            "fits": p.fits,
            "intervals": {name: self.bounds.get(name) for name in ("wall_clock_s", "cost_usd")},
            "scenario": dict(self.document),
        }  # fmt: skip


@record
class Limit:
    """A deadline or a budget against the front."""

    most: float
    at: int
    """Point that keeps it and is best in the other figure; of none, the point that misses least."""
    met: bool
    over: float
    """By how much that one is beyond the limit; 0 where it is kept."""


@record
class Front:
    """The answer. `print` shows it as a page; `to_dict` is the JSON."""

    fleets: Fleets
    found: Answer
    points: tuple[Point, ...]
    """The fastest first."""
    deadline: Limit | None
    budget: Limit | None
    knee: int | None
    """The point farthest below the straight line between the two ends; None where there is none."""
    yours: Point | None
    """All islands whole, as the scenario has them; None where it leaves its plan open, or cannot be."""

    def __repr__(self) -> str:
        """One line."""
        return f"<Front {self.fleets.base.model.name}: {len(self.points)} of {self.found.joined.feasible:,} fleets, {self._ends()}>"

    def __str__(self) -> str:
        """The page that the command prints, without what was assumed."""
        import shardmeter

        return shardmeter.page(self)

    def _ends(self) -> str:
        if not self.points:
            return "none fits"
        first, last = self.points[0], self.points[-1]
        return f"{first.wall_clock / DAY:.3g} d for ${first.cost:,.0f} to {last.wall_clock / DAY:.3g} d for ${last.cost:,.0f}"

    @property
    def met(self) -> bool:
        """Whether some fleet fits, and keeps the deadline and the budget (each by itself)."""
        return bool(self.points) and all(one is None or one.met for one in (self.deadline, self.budget))

    @property
    def both(self) -> tuple[int, ...]:
        """Points that keep every limit that is asked."""
        most = [math.inf if one is None else one.most for one in (self.deadline, self.budget)]
        return tuple(at for at, one in enumerate(self.points) if one.wall_clock <= most[0] and one.cost <= most[1])

    def to_dict(self) -> dict[str, Any]:
        """The `front` JSON: seconds and dollars, null for what was not asked or is not known."""
        joined = self.found.joined
        limits = {"deadline": self.deadline, "budget": self.budget}
        return {
            "met": self.met,
            "points": [one.to_dict() | {"next": self._next(at), "chosen": self._chosen(at)} for at, one in enumerate(self.points)],
            "knee": self.knee,
            **{
                name: None if one is None else {"most": one.most, "met": one.met, "point": one.at, "over": one.over}
                for name, one in limits.items()
            },
            "keeps_both": list(self.both) if all(limits.values()) else None,
            "yours": None if self.yours is None else self.yours.to_dict() | self._against(self.yours),
            "dominated": [[float(x), float(y)] for x, y in self._dominated()],
            "space": {
                "fleets": self.found.teams, "offers": len(self.fleets.offers), "ways": plain_sum(way.size for way in self.found.ways),
                "evaluated": joined.evaluated, "feasible": joined.feasible, "seconds": self.found.seconds,
                "optimal": self.found.whole and math.isinf(joined.bound),
                "rejected": dict(sorted(joined.rejected.items(), key=lambda one: (-one[1], one[0]))),
            },
            "assumptions": [*self.fleets.base.assumptions, *self._assumed()],
            "warnings": list(dict.fromkeys(text for one in self._told() for text in trust.warnings(one.scenario))),
        }  # fmt: skip

    def _told(self) -> list[Point]:
        marked = [one.at for one in (self.deadline, self.budget) if one is not None]
        return [self.points[at] for at in dict.fromkeys([*marked, *([] if self.knee is None else [self.knee])])]

    def _next(self, at: int) -> dict[str, Any] | None:
        """What the next faster point costs more and saves."""
        if at == 0:
            return None
        here, faster = self.points[at], self.points[at - 1]
        saved, more = here.wall_clock - faster.wall_clock, faster.cost - here.cost
        return {"saves_s": saved, "costs_usd": more, "usd_per_day_saved": more / (saved / DAY)}

    def _chosen(self, at: int) -> list[str]:
        names = {"deadline": self.deadline, "budget": self.budget}
        said = [name for name, one in names.items() if one is not None and one.met and one.at == at]
        return [*said, *(["knee"] if at == self.knee else [])]

    def _against(self, own: Point) -> dict[str, Any]:
        """What of the front is faster at no more cost than the user's own fleet, and cheaper in no more time."""
        faster = [at for at, one in enumerate(self.points) if one.cost <= own.cost * (1.0 + SAME)]
        cheaper = [at for at, one in enumerate(self.points) if one.wall_clock <= own.wall_clock * (1.0 + SAME)]
        return {"fastest_for_its_cost": min(faster, default=None), "cheapest_for_its_time": max(cheaper, default=None)}

    def _dominated(self) -> Floats:
        """(seconds, dollars) of fleets behind the front, at most SHOWN."""
        blocks = [found.points()[0] for _, found, *_ in self.found.joined.blocks if found.columns]
        everything = np.concatenate([np.empty((0, 2)), *blocks])
        kept = np.array([[one.wall_clock, one.cost] for one in self.points]).reshape(-1, 2)
        behind = [point for point in everything if not np.any(np.all(np.isclose(point, kept, rtol=1e-6), axis=1))]
        behind.sort(key=tuple)
        return np.array(behind[:: max(1, math.ceil(len(behind) / SHOWN))]).reshape(-1, 2)

    def _assumed(self) -> list[str]:
        found = [
            "every island is left out, taken in part or whole; the global batch stays and is shared by speed, so that fewer nodes take more of it"
        ]
        found += self.fleets.notes
        joint = self.found.choices.joint
        if (
            joint is not None
            and len(self.fleets.base.fleet.islands) > 1
            and all(len(one) < 2 for one in joint.sync.values())
        ):
            found.append(
                "plan.sync as the scenario has it: say several values (plan.sync.sync_every=50,100,200) to choose among them"
            )
        return found


def front(
    document: Document,
    rows: Rows,
    *,
    processes: int | None = 1,
    progress: Progress | None = None,
    stop: Stop | None = None,
) -> Front:
    """The front of a document's fleet. Raises BadScenario where a run has no length, or a price is not known, and as reading does."""
    fleets = Fleets(document, rows)
    base = fleets.base
    if base.choices is None:
        raise ValueError("nothing is open")
    if not has_length(base.run):
        bad = Violation(
            field="run",
            says="no length, so that it takes no time and no money",
            way_out="say --tokens, or run.target_loss",
        )
        raise BadScenario(f"{base.name}: 1 problem", [bad])
    _refuse_many(fleets)
    goal_over_all(base, base.choices, OBJECTIVES, stores=True)
    began = time.perf_counter()
    answer = search(fleets.scenario, OBJECTIVES, 1, processes, progress, stop, fleets.named)
    made = [_point(fleets, row, rows) for row in answer.joined.members()]
    points = _undominated([one for one in made if one is not None])
    choices = base.choices
    answer = changed(answer, seconds=time.perf_counter() - began)
    return Front(
        fleets=fleets, found=answer, points=points, knee=knee([one.wall_clock for one in points], [one.cost for one in points]),
        deadline=_limit(_plain(choices.deadline), [one.wall_clock for one in points], [one.cost for one in points]),
        budget=_limit(_plain(choices.budget), [one.cost for one in points], [one.wall_clock for one in points]),
        yours=_yours(fleets, rows),
    )  # fmt: skip


MOST = 2_000_000
"""Fleets times values of synchronisation."""


def _refuse_many(fleets: Fleets) -> None:
    """Raises BadScenario for more fleets and ways to keep them together than are searched in a minute or two."""
    choices, teams = fleets.base.choices, len(fleets.teams)
    joint = None if choices is None else choices.joint
    ways = 1 if joint is None else math.prod(len(values) for values in joint.sync.values())
    if teams * ways > MOST:
        says = f"{teams:,} fleets · {ways:,} ways to keep each together = {teams * ways:,} points"
        bad = Violation(
            field="plan.sync",
            says=says,
            rule=f"at most {MOST:,}",
            way_out="fewer values of it, or fewer sizes of islands",
        )
        raise BadScenario(f"{fleets.base.name}: 1 problem", [bad])


def _point(fleets: Fleets, row: Row, rows: Rows) -> Point | None:
    """A fleet that was found, written down, read again and predicted."""
    plans = [table.plan for table in row.team.tables(row.chosen)]
    sync = None if row.sync is None else sync_document(row.sync)
    run = {"seq_len": int(fleets.base.run.seq_len), "global_batch": int(row.team.batch)}
    document = fleets.document_of(row.team.places, plans, sync)
    return predicted({**document, "run": {**(document.get("run") or {}), **run}}, rows)


def predicted(document: Mapping[str, Any], rows: Rows) -> Point | None:
    """A scenario as a point; None where its run has no end or no price."""
    p = predict(load(document, catalog=rows))
    found = course(p.scenario, p.whole, trust.paces(p.scenario))
    if found is None or found["cost_usd"] is None or not math.isfinite(found["wall_clock_s"]):
        return None
    return Point(
        prediction=p,
        document=document,
        wall_clock=found["wall_clock_s"],
        cost=found["cost_usd"],
        bounds=found["intervals"],
    )


def _yours(fleets: Fleets, rows: Rows) -> Point | None:
    """All islands whole with the first of the ways of synchronisation, where the plan is stated."""
    base = fleets.base
    plans = base.plans or (base.plan,)
    whole = tuple(next(at for at, one in enumerate(fleets.offers) if one.place == place) for place in range(len(plans)))
    if any(
        len(values) != 1
        for pins in (base.choices.joint.pins if base.choices and base.choices.joint else ())
        for values in pins.values()
    ):
        return None
    sync = sync_document(base.plan.sync) if len(plans) > 1 else None
    run = {"seq_len": int(base.run.seq_len), "global_batch": int(base.run.global_batch)}
    document = fleets.document_of(whole, plans, sync)
    try:
        return predicted({**document, "run": {**(document.get("run") or {}), **run}}, rows)
    except BadScenario:
        return None


def _undominated(points: Sequence[Point]) -> tuple[Point, ...]:
    """Those that fit and that no faster one is as cheap as, the fastest first."""
    kept: list[Point] = []
    for one in sorted((one for one in points if one.prediction.fits), key=lambda one: (one.wall_clock, one.cost)):
        if not kept or one.cost < kept[-1].cost * (1.0 - SAME):
            kept.append(one)
    return tuple(kept)


def _plain(value: Any) -> float | None:
    return None if value is None else float(value)


def _limit(most: float | None, held: Sequence[float], other: Sequence[float]) -> Limit | None:
    """The point that keeps a limit and is best in the other figure, or the one that misses it least."""
    if most is None or not held:
        return None
    within = [at for at, value in enumerate(held) if value <= most]
    if within:
        return Limit(most=most, at=min(within, key=lambda at: other[at]), met=True, over=0.0)
    near = min(range(len(held)), key=lambda at: held[at])
    return Limit(most=most, at=near, met=False, over=held[near] - most)


def knee(seconds: Sequence[float], dollars: Sequence[float]) -> int | None:
    """The point of a falling curve that lies farthest below the straight line between its ends: before it a day saved costs less than
    on the whole, beyond it more. None of fewer than three points, or where none lies below."""
    if len(seconds) < 3:
        return None
    x, y = np.asarray(seconds), np.asarray(dollars)
    below = 1.0 - (x - x[0]) / (x[-1] - x[0]) - (y - y[-1]) / (y[0] - y[-1])
    at = int(np.argmax(below))
    return at if below[at] > 0.0 else None
