"""One case of the question: a model on so many GPUs in so many buildings, over every network that is asked."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from shardmeter.core.record import changed, record
from shardmeter.core.sums import plain_sum
from shardmeter.core.units import Ratio
from shardmeter.engine.wans import Networks
from shardmeter.scenario.parts import Rows
from shardmeter.scenario.read import Document
from shardmeter.specs import Estimate, Island, Scenario, Wan
from shardmeter.study.causes import cause_of
from shardmeter.study.scale_across import intervals, purchases
from shardmeter.study.scale_across.crossings import crossings
from shardmeter.study.scale_across.degrees import Degrees, degrees_of
from shardmeter.study.scale_across.documents import document_of
from shardmeter.study.scale_across.networks import Network, lined, networks
from shardmeter.study.scale_across.question import line
from shardmeter.study.scale_across.search import JOINT, PAIRS, SINGLES, USUAL, Key, Report, Row, Search, Stop
from shardmeter.study.scale_across.steps import Stopped, between, over

BUSY = ("compute", "memory bandwidth", "optimizer", "software", "launch")
"""Causes of terms that are work; the largest of the others is what binds."""
STOPPED = "stopped before any degrees were known"
OTHER_SETS = 1
"""Sets of degrees beside the best one whose joint optimum is looked for."""


@record
class Case:
    """What is asked."""

    document: Document
    model: str
    buildings: int
    gpus: int
    network: tuple[tuple[Ratio, float], ...]
    """(oversubscription, metres) of every point."""
    own: tuple[Ratio, float] | None
    """Of the point that has the document's own network or, where it says none, that the page is about."""
    said: bool = True
    """Whether the document says its network."""


def wan_of(wan: Wan, island: Island, over: Ratio, distance: float) -> Wan:
    """The network of a point: lines between any two buildings, and what leaves one."""
    return lined(wan, *line(island, over, distance))


@dataclass(slots=True)
class Cluster:
    """A case that is answered: `run` searches, `to_dict` tells."""

    case: Case
    rows: Rows
    stop: Stop | None = None
    report: Report | None = None
    why: str = ""
    sets: tuple[Degrees, ...] = ()
    search: Search | None = None
    bought: tuple[purchases.Purchase, ...] = ()
    beside: tuple[tuple[Degrees, Search], ...] = ()
    cut: bool = False
    """Whether the own point alone is told."""

    @property
    def own(self) -> int:
        """The point at which purchases and other degrees are asked."""
        case = self.case
        return case.network.index(case.own) if case.own in case.network else len(case.network) // 2

    def owns(self, at: int) -> bool:
        """Whether a point has the network that the document says."""
        return self.case.said and self.case.network[at] == self.case.own

    @property
    def scenario(self) -> Scenario | None:
        """Production's; None where no degrees fit."""
        return self.sets[0].scenario if self.sets else None

    @property
    def stopped(self) -> bool:
        """Whether it was asked to end before it was done."""
        asked = [one for one in (self.search, *(other for _, other in self.beside)) if one is not None]
        return self.cut or self.why == STOPPED or not all(one.optimal for one in asked)

    def point(self, scenario: Scenario, at: int) -> Wan:
        """The network of a point; the document's own as it is."""
        said, (over_, far) = between(scenario), self.case.network[at]
        return said if self.owns(at) else wan_of(said, scenario.fleet.islands[0], over_, far)

    def run(self) -> None:
        """Degrees, then everything else. Ends early where it is asked to."""
        over_, _ = self.case.network[self.own]
        try:
            self.sets, self.why = degrees_of(self.case.document, self.rows, self._network, self.stop)
        except Stopped:
            self.why = STOPPED
        if not self.sets:
            return
        scenario = self.sets[0].scenario
        points = [Row(wan=self.point(scenario, at), networks=networks()) for at in range(len(self.case.network))]
        self.bought = purchases.purchases(points[self.own].wan, over_)
        self.search = Search(self.sets[0], (*points, *(one.row for one in self.bought)), self.stop, self.report)
        self.search.run()
        if not self.search.optimal:
            return
        row, most = changed(points[self.own], whole=False), float(self.search.best[JOINT].step[self.own])
        self.beside = tuple((one, Search(one, (row,), self.stop, most=most)) for one in self.sets[1 : 1 + OTHER_SETS])
        for _, other in self.beside:
            other.run()

    def _network(self, wan: Wan, island: Island) -> Wan:
        """That of the own point, from a document's."""
        over_, far = self.case.network[self.own]
        return wan if self.owns(self.own) else wan_of(wan, island, over_, far)

    # ---- the answer --------------------------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Its entry of the JSON."""
        case, search = self.case, self.search
        head = {
            "model": case.model,
            "buildings": case.buildings,
            "gpus": case.gpus,
            "feasible": bool(self.sets),
            "why": self.why or None,
        }
        if search is None or not search.answered:
            empty: dict[str, Any] = dict.fromkeys(("degrees", "default", "own", "open_degrees"))
            empty |= {name: [] for name in ("points", "crossings", "purchases", "plans")}
            return {**head, **empty, "sensitivity": None, "space": _space(None)}
        points = self._points(search)
        at = 0 if self.cut else self.own
        own = points[at]
        return {
            **head,
            "degrees": self.sets[0].to_dict() | {"pinned": self.sets[0].pinned},
            "default": {name: value for name, value in own["default"].items() if name in SAID},
            "points": points,
            "crossings": crossings(points),
            "own": at,
            "purchases": [] if self.cut else self._purchases(search, own),
            "sensitivity": own["sensitivity"],
            "open_degrees": self._open(own),
            "plans": [{"point": told, **self._plan(search, asked)} for told, asked in self._saved(points)],
            "space": _space(search),
        }

    def _points(self, search: Search) -> list[dict[str, Any]]:
        """Every point; the own one alone where it was asked to end, so that an answer comes at once."""
        if search.optimal:
            try:
                return _points(self, search, range(len(self.case.network)), self.stop)
            except Stopped:
                pass
        self.cut = True
        return _points(self, search, [self.own], None)

    def _saved(self, points: Sequence[Mapping[str, Any]]) -> list[tuple[int, int]]:
        """The points whose joint plans are told as scenarios, the own one and that of most gain: their places among those told and asked."""
        if self.cut:
            return [(0, self.own)]
        return [(at, at) for at in dict.fromkeys((self.own, _most(points)))]

    def _plan(self, search: Search, at: int) -> dict[str, Any]:
        """The joint optimum of a point as a scenario."""
        best = search.best[JOINT]
        one, network = search.candidates[best.candidate[at]], search.rows[at].networks[best.network[at]]
        said = document_of(self.case.document.data, one.scenario, search.wan(at, int(best.network[at])), network)
        return {"scenario": said, "step_s": float(best.step[at])}

    def _purchases(self, search: Search, own: Mapping[str, Any]) -> list[dict[str, Any]]:
        """What may be had, at the own point."""
        best, first = search.best[JOINT], len(self.case.network)
        paid = self.sets[0].scenario.fleet.islands[0].price
        price = None if paid is None else float(paid)
        joint, found = float(own["joint"]["step_s"]), []
        for number, one in enumerate(self.bought, first):
            step = float(best.step[number])
            pairs = [(self.own, JOINT), (number, JOINT)]
            old, new = pairs if not one.backwards else pairs[::-1]
            interval = _ratio(search, old, new)
            choice = choice_of(search, number, JOINT) if not one.backwards else own["joint"]
            found.append(purchases.bought(one, joint if one.backwards else step, choice, interval, price))
        return found

    def _open(self, own: Mapping[str, Any]) -> dict[str, Any] | None:
        """The best of a few other sets of degrees."""
        found = [(float(search.best[JOINT].step[0]), one, search) for one, search in self.beside if search.answered]
        least = min(found, key=lambda one: one[0], default=None)
        if least is None or least[0] >= float(own["joint"]["step_s"]):
            return {"degrees": self.sets[0].to_dict(), "choice": own["joint"], "speedup": own["speedup"]["joint"]}
        step, one, search = least
        value = float(own["default"]["step_s"]) / step
        interval = intervals.ratio(value, np.array([value]), unlike=True)
        return {"degrees": one.to_dict(), "choice": choice_of(search, 0, JOINT), "speedup": interval}


SAID = (
    "placement",
    "placement_says",
    "axis",
    "groups",
    "rank_order",
    "schedule",
    "schedule_says",
    "network",
    "network_says",
)


def choice_of(search: Search, row: int, key: Key) -> dict[str, Any]:
    """A choice with its figures."""
    best = search.best[key]
    one, network = search.candidates[best.candidate[row]], search.rows[row].networks[best.network[row]]
    names = [island.name for island in one.scenario.fleet.islands]
    step, least = float(best.step[row]), one.least
    return {
        "placement": one.placement.word, "placement_says": one.placement.says, "axis": one.placement.axis,
        "groups": [list(group) for group in one.placement.groups(names)],
        "rank_order": list(one.scenario.plan.rank_order) if one.placement.turned else None,
        "schedule": {
            "word": one.schedule.word, "virtual_stages": one.schedule.virtual_stages, "micro_batch": int(one.schedule.micro_batch),
            "ahead": int(one.schedule.ahead), "stagger": one.schedule.stagger, "release": one.schedule.release,
        },
        "schedule_says": one.schedule.says,
        "network": _network(network), "network_says": network.says,
        "changes": int(best.changes[row]), "step_s": step, "tokens_per_s": float(least.tokens) / step,
        "mfu": float(least.model_flops) / (step * float(least.peak_flops)), "memory_peak": float(least.memory_peak), "fits": True,
    }  # fmt: skip


def _network(one: Network) -> dict[str, Any]:
    return {
        "balance": one.balance, "flows": int(one.flows), "transport": one.transport, "streams": int(one.streams),
        "window_bytes": float(one.window), "sends_bytes": float(one.sends),
    }  # fmt: skip


def _space(search: Search | None) -> dict[str, Any]:
    if search is None:
        return {"evaluated": 0, "feasible": 0, "seconds": 0.0, "optimal": False, "plans": 0, "networks": 0}
    rows = sum(len(row.networks) for row in search.rows)
    return {
        "evaluated": search.evaluated, "feasible": len(search.candidates) * rows, "seconds": search.seconds, "optimal": search.optimal,
        "plans": len(search.candidates), "networks": rows,
    }  # fmt: skip


# ---- points ----------------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Told:
    """Steps of the choices of all points in other worlds, each plan asked once: by (row, key, place of the network)."""

    search: Search
    wanted: dict[int, dict[tuple[int, int], list[Wan]]] = field(default_factory=dict)
    estimates: dict[int, tuple[dict[tuple[int, int], int], Estimate]] = field(default_factory=dict)

    def want(self, row: int, key: Key, base: Wan) -> None:
        """Ask a choice on a network, in its worlds and moved."""
        candidate, network = self.place(row, key)
        self.wanted.setdefault(candidate, {})[row, network] = [base, *intervals.worlds(base), *intervals.moved(base)]

    def place(self, row: int, key: Key) -> tuple[int, int]:
        """(plan, network) of a choice."""
        best = self.search.best[key]
        return int(best.candidate[row]), int(best.network[row])

    def ask(self, stop: Stop | None = None) -> None:
        """Evaluate everything that is wanted. Raises Stopped."""
        for number, each in self.wanted.items():
            if stop is not None and stop():
                raise Stopped
            one = self.search.candidates[number]
            lines = Networks(one.scenario.fleet.islands, [wan for wans in each.values() for wan in wans])
            starts = np.concatenate([[0], np.cumsum([len(wans) for wans in each.values()])]).astype(int).tolist()
            self.estimates[number] = dict(zip(each, starts[:-1], strict=True)), over(one.scenario, lines).estimate

    def steps(self, row: int, key: Key) -> list[float]:
        """Seconds of a choice as predicted, in the worlds, and moved."""
        candidate, network = self.place(row, key)
        starts, estimate = self.estimates[candidate]
        first = starts[row, network]
        return [float(one) for one in np.asarray(estimate.step_time)[first : first + WORLDS]]

    def ledger(self, row: int, key: Key) -> list[tuple[str, str, float]]:
        """(term, cause, seconds) of a choice."""
        candidate, network = self.place(row, key)
        starts, estimate = self.estimates[candidate]
        one = self.search.candidates[candidate].scenario
        at = starts[row, network]
        return [
            (term.label, cause_of(term.label, term.cause, one.plan, one.fleet.islands[0]), float(np.asarray(term.seconds)[at]))
            for term in estimate.terms
        ]  # fmt: skip


CORNERS = 4
WORLDS = 1 + CORNERS + 2
"""A network as predicted, its worlds, and moved."""


def _points(cluster: Cluster, search: Search, rows: Sequence[int], stop: Stop | None) -> list[dict[str, Any]]:
    """Some points. Raises Stopped."""
    keys = (USUAL, *SINGLES, *PAIRS, JOINT)
    told = _Told(search)
    for row in rows:
        for key in keys:
            told.want(row, key, search.wan(row, told.place(row, key)[1]))
    told.ask(stop)
    return [_point(cluster, search, told, row) for row in rows]


def _point(cluster: Cluster, search: Search, told: _Told, row: int) -> dict[str, Any]:
    (over_, far), wan = cluster.case.network[row], search.rows[row].wan
    one = {key[0]: choice_of(search, row, key) for key in SINGLES}
    two = {"+".join(key): choice_of(search, row, key) for key in PAIRS}
    usual, joint = choice_of(search, row, USUAL), choice_of(search, row, JOINT)
    ratios = {"joint": _told_ratio(told, row, JOINT)} | {
        "+".join(key): _told_ratio(told, row, key) for key in (*SINGLES, *PAIRS)
    }
    single = min(one, key=lambda name: one[name]["step_s"])
    ledgers = [told.ledger(row, key) for key in (USUAL, JOINT)]
    return {
        "oversubscription": float(over_), "distance_km": float(far) / 1e3, "rtt_s": _longest(wan), "own": cluster.owns(row),
        "default": usual, "joint": joint, "one": one, "two": two, "speedup": ratios,
        "over_best_single": one[single]["step_s"] / joint["step_s"], "best_single": single,
        "placements": {key[1]: _or_none(best.step[row]) for key, best in search.best.items() if key[:1] == ("in",)},
        "winner": joint["placement"],
        "bottleneck": {name: _binds(ledger) for name, ledger in zip(("default", "joint"), ledgers, strict=True)},
        "removed": _removed(*ledgers),
        "sensitivity": _sensitivity(told, row),
    }  # fmt: skip


def _most(points: Sequence[Mapping[str, Any]]) -> int:
    """The point at which the joint choice gains most, the first of several."""
    return max(range(len(points)), key=lambda at: float(points[at]["speedup"]["joint"]["value"]))


def _sensitivity(told: _Told, row: int) -> dict[str, Any]:
    """Elasticities of production's step and of the best one."""
    each = {}
    for name, key in (("default", USUAL), ("joint", JOINT)):
        steps = told.steps(row, key)
        each[name] = intervals.elasticities(steps[0], steps[1 + CORNERS :])
    return {axis: {name: each[name][axis] for name in each} for axis in ("rtt", "oversubscription")}


def _told_ratio(told: _Told, row: int, key: Key) -> dict[str, Any]:
    """Production's step over that of a choice, both in the same worlds."""
    slow, fast = np.array(told.steps(row, USUAL)), np.array(told.steps(row, key))
    unlike = told.place(row, USUAL)[0] != told.place(row, key)[0]
    return intervals.ratio(slow[0] / fast[0], (slow / fast)[1 : 1 + CORNERS], unlike=unlike)


def _ratio(search: Search, old: tuple[int, Key], new: tuple[int, Key]) -> dict[str, Any]:
    """One choice's step over that of another on another network."""
    told = _Told(search)
    for row, key in (old, new):
        told.want(row, key, search.wan(row, told.place(row, key)[1]))
    told.ask()
    slow, fast = np.array(told.steps(*old)), np.array(told.steps(*new))
    unlike = told.place(*old)[0] != told.place(*new)[0]
    return intervals.ratio(slow[0] / fast[0], (slow / fast)[1 : 1 + CORNERS], unlike=unlike)


def _longest(wan: Wan) -> float:
    """Of all round trips."""
    count = len(wan.islands)
    return float(np.broadcast_to(np.asarray(wan.rtt, dtype=float), (count, count))[~np.eye(count, dtype=bool)].max())


def _or_none(step: float) -> float | None:
    return float(step) if math.isfinite(step) else None


def _binds(ledger: Sequence[tuple[str, str, float]]) -> dict[str, Any]:
    """The largest term that is no work, and its share of the step."""
    step = plain_sum(seconds for _, _, seconds in ledger)
    label, cause, seconds = max(
        (one for one in ledger if one[1] not in BUSY), key=lambda one: one[2], default=("", "", 0.0)
    )
    return {"term": label, "cause": cause, "share": seconds / step}


def _removed(usual: Sequence[tuple[str, str, float]], joint: Sequence[tuple[str, str, float]]) -> dict[str, Any]:
    """The term of production's step of which the joint choice has least left."""
    left = {label: seconds for label, _, seconds in joint}
    label, gone = max(((label, seconds - left.get(label, 0.0)) for label, _, seconds in usual), key=lambda one: one[1])
    return {"term": label if gone > 0.0 else None, "seconds": max(gone, 0.0)}
