"""The answer of `plan` for several islands: its plans with their figures, each a scenario that `predict` takes."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from shardmeter.core.errors import BadScenario, ShardMeterError, Violation
from shardmeter.core.record import changed, record
from shardmeter.core.sums import plain_sum
from shardmeter.core.units import GIB
from shardmeter.engine.fleet import Part
from shardmeter.engine.sharing import IndivisibleBatch
from shardmeter.scenario.choices import ANY
from shardmeter.specs import Fleet, Scenario, Stack, Sync
from shardmeter.study import course, intervals, islands, trust
from shardmeter.study.course.totals import has_length
from shardmeter.study.planning import placements
from shardmeter.study.planning.assignments import figures, figures_of, reached
from shardmeter.study.planning.block import complexity
from shardmeter.study.planning.fleet import Answer, Row, search
from shardmeter.study.planning.lengths import amount
from shardmeter.study.planning.objective import Goal, tokens_of
from shardmeter.study.planning.placements import Placements
from shardmeter.study.planning.plans import KWH, MOST_TOP, limits_of, slower
from shardmeter.study.planning.scenarios import plan_document, told
from shardmeter.study.planning.search import Progress, Stop
from shardmeter.study.planning.syncs import ALONE, OTHERS
from shardmeter.study.predict import NO_COST, Prediction, predict
from shardmeter.sync import caution, method

NOTED = 4
"""Islands of one kind that a line names."""


@record
class FleetRanked:
    """One plan of a fleet with its figures. `value` is the first objective, as a number to minimise."""

    prediction: Prediction
    value: float
    behind: float
    """How much more it takes than the best of all, as a share."""
    tie: bool
    """Whether measured runs leave open which of it and the best is ahead."""
    level: int
    """Axes in use, words that are not the usual ones, and plans that differ."""
    document: Mapping[str, Any]

    @property
    def scenario(self) -> Scenario:
        """The plan as a scenario of its own."""
        return self.prediction.scenario

    def to_dict(self, goal: Goal) -> dict[str, Any]:
        """The entry of the JSON answer: a scenario under `scenario`, and its figures. `predict` takes the entry."""
        p, e, whole, run = self.prediction, self.prediction.estimate, self.prediction.whole, self.scenario.run
        own = islands.entries(whole)
        sync = islands.synchronisation(whole, self.scenario)
        spent = course.course(self.scenario, whole)
        each = _each(goal, p, spent)
        sent, _ = islands.egress(whole)
        critical = islands.critical(whole)
        peak, limit = float(e.memory_peak), float(e.memory_limit)
        return {
            "scenario": self.document,
            "plan": self.document["plan"],
            "line": line(self.scenario),
            "islands": [_island(one, part, self.scenario.stack) for one, part in zip(own, whole.parts, strict=True)],
            "gpus": float(e.gpus),
            "seq_len": float(run.seq_len),
            "global_batch": float(run.global_batch),
            "method": None if sync is None else sync["method"],
            **_settings(self.scenario.plan.sync, sync),
            "step_time_s": None if sync is not None and sync["pace"] == islands.WAITS_FOR_NOBODY else p.step_time,
            "tokens_per_s": p.tokens_per_s,
            "tokens_per_s_per_gpu": p.tokens_per_s / float(e.gpus),
            "mfu": p.mfu,
            "utilization": None if sync is None else sync["utilization"],
            "exposed_s": None if sync is None else sync["exposed_s"],
            "sent_bytes": None if sync is None else sync["sent_bytes"],
            "sent_bytes_per_step": sent,
            "loss_effect": islands.loss_effect(whole),
            "sets_the_pace": critical.island.name,
            "waits_s": 0.0 if sync is None else max(one["wait_s"] for one in own),
            "memory_peak_gib": peak / GIB,
            "memory_limit_gib": limit / GIB,
            "fits": p.fits,
            "fits_probability": trust.fits_probability(self.scenario, peak, limit, float(e.memory_exact)),
            "wall_clock_s": None if spent is None else spent["wall_clock_s"],
            "gpu_hours": None if spent is None else spent["gpu_hours"],
            "cost_usd": None if spent is None else spent["cost_usd"],
            "energy_kwh": None if spent is None else spent["energy_kwh"],
            "cost_usd_per_token": each["cost"],
            "energy_j_per_token": each["energy"],
            **limits_of(p),
            "behind": self.behind,
            "tie": self.tie,
            "complexity": self.level,
            "intervals": {name: value for name, value in p.intervals().items() if name in ("level", "step_time_s")},
        }


def _island(one: Mapping[str, Any], part: Part, stack: Stack) -> dict[str, Any]:
    """What an entry says of one island."""
    names = ("gpus", "step_time_s", "tokens_per_s", "wait_s", "sent_bytes", "memory_peak_gib", "memory_limit_gib")
    return {"name": one["name"], "plan": told(part.plan, stack), "global_batch": float(part.run.global_batch)} | {
        name: one.get(name) for name in names
    }


def line(scenario: Scenario) -> str:
    """All plans of a fleet on one line: those that several islands have once, with their names."""
    plans = scenario.plans or (scenario.plan,)
    cells = [cell for _, cells in scenario.plan.placement for cell in cells]
    if cells:
        inside = {name for cell in cells for name in cell}
        alone = [island.name for island in scenario.fleet.islands if island.name not in inside]
        own = next(p for i, p in zip(scenario.fleet.islands, plans, strict=True) if i.name in inside)
        text = told(changed(own, pp=scenario.plan.pp), scenario.stack)
        made = [" → ".join(dict.fromkeys(cell)) for cell in cells] + alone
        return f"{' | '.join(made)}: {text}"
    named: dict[str, list[str]] = {}
    for island, plan in zip(scenario.fleet.islands, plans, strict=True):
        named.setdefault(told(plan, scenario.stack), []).append(island.name)
    if len(named) == 1:
        return next(iter(named))
    return "; ".join(f"{_names(names)}: {text}" for text, names in named.items())


def _names(names: Sequence[str]) -> str:
    more = len(names) - NOTED
    return ", ".join(names[:NOTED]) + (f" and {more} more" if more > 0 else "")


SETTINGS = (
    "sync_every", "num_fragments", "fragment_sync_delay", "bits", "top_k", "blocks", "levels", "rank", "perturbations", "together",
)  # fmt: skip
"""Numbers of a synchronisation that are listed."""


def _settings(sync: Sync, said: Mapping[str, Any] | None) -> dict[str, Any]:
    """The numbers of the synchronisation that count; null where its method does not read them."""
    fields = () if said is None else method(sync.method).FIELDS
    return {name: getattr(sync, name) if name in fields else None for name in SETTINGS}


def _each(goal: Goal, p: Prediction, spent: Mapping[str, Any] | None) -> dict[str, float | None]:
    """Dollars and joules of a token, `spent` over a whole run or of one token alone; null where a price or a rating is not known."""
    if spent is not None:
        scaled = (("cost", spent["cost_usd"], 1.0), ("energy", spent["energy_kwh"], KWH))
        return {word: None if all_ is None else all_ * unit / spent["tokens"] for word, all_, unit in scaled}
    found: dict[str, float | None] = {}
    for word in ("cost", "energy"):
        try:
            asked = changed(goal, objectives=(word,))
            value = float(figures_of(asked, p.whole, 1.0).columns[0])
        except TypeError:
            value = math.nan
        found[word] = value if math.isfinite(value) else None
    return found


@record
class FleetCompared:
    """The user's own plan: where it stands."""

    ranked: FleetRanked
    rank: int | None
    """1 = no plan of the space is better; none where all that are listed are, or where it does not fit."""


@record
class FleetPlans:
    """The answer. `print` shows it as a page; `to_dict` is the JSON."""

    scenario: Scenario
    found: Answer
    ranked: tuple[FleetRanked, ...]
    front: tuple[FleetRanked, ...]
    compared: FleetCompared | None
    miss: FleetRanked | None
    """Where nothing is feasible: the plan that comes nearest."""
    without: tuple[tuple[str, float], ...]
    """Islands of which any one is better left out, with the share that this saves."""
    placed: Placements | None = None
    """Where it is open which islands form pipelines: what was found of that."""

    def __repr__(self) -> str:
        """One line."""
        joined = self.found.joined
        found = f"{len(self.ranked)} of {joined.feasible:,} feasible" if self.ranked else "none feasible"
        return f"<FleetPlans {self.scenario.model.name}: {joined.evaluated:,} evaluated, {found}>"

    def __str__(self) -> str:
        """The page that the command prints, without what was assumed."""
        import shardmeter

        return shardmeter.page(self)

    @property
    def best(self) -> FleetRanked | None:
        """The first of the list; None where nothing is feasible."""
        return self.ranked[0] if self.ranked else None

    @property
    def stopped(self) -> bool:
        """Whether the search was ended before it had seen every plan."""
        return not self.found.whole

    @property
    def gap(self) -> float:
        """By how much the best may be behind what was not looked at, as a share; 0 where it is optimal."""
        if not self.ranked:
            return 0.0
        best, bound = self.ranked[0].value, self.found.joined.bound
        if self.placed is not None:
            bound = min(bound, value_of(self.found, self.placed.bound))
        return 0.0 if reached(np.asarray(best), np.asarray(bound)) else slower(best, bound)

    @property
    def optimal(self) -> bool:
        """Whether no plan of the space is better than the first."""
        return self.found.whole and self.gap == 0.0

    def to_dict(self) -> dict[str, Any]:
        """The `plan` JSON: SI units as each key says, fractions for shares, null for what was not asked or is not known."""
        goal, joined = self.found.goal, self.found.joined
        asked = has_length(self.scenario.run)
        own = [text for text in self.scenario.warnings if asked or NO_COST not in text]
        best = self.best
        return {
            "objective": list(goal.objectives),
            "deadline_s": goal.deadline,
            "budget_usd": goal.budget,
            "space": {
                "evaluated": joined.evaluated + plain_sum(one.evaluated for one in self.found.insides),
                "feasible": joined.feasible,
                **({} if self.placed is None else {"placement": self.placement()}),
                "rejected": dict(sorted(joined.rejected.items(), key=lambda one: (-one[1], one[0]))),
                "seconds": self.found.seconds,
                "optimal": self.optimal,
                **({} if self.optimal or not self.ranked else {"gap": self.gap if self.found.whole else None}),
                "joint": joined.evaluated,
                "ways": plain_sum(way.size for way in self.found.ways),
                "teams": self.found.teams,
                "kinds": [self._kind(one) for one in self.found.insides],
            },
            "plans": [one.to_dict(goal) for one in self.ranked],
            "pareto": [one.to_dict(goal) for one in self.front],
            "yours": None
            if self.compared is None
            else {"rank": self.compared.rank, **self.compared.ranked.to_dict(goal)},
            "nearest_miss": None if self.miss is None else self.miss.to_dict(goal),
            "without": [{"leaves_out": name, "saves": share} for name, share in self.without],
            "assumptions": [*self.scenario.assumptions, *self.assumed()],
            "warnings": list(
                dict.fromkeys([*own, *self._unlike(), *(() if best is None else trust.warnings(best.scenario))])
            ),
        }

    def placement(self) -> dict[str, Any] | None:
        """What was looked at of cells of several islands."""
        if self.placed is None:
            return None
        return {
            "plans": [told(one, self.scenario.stack) for one in self.placed.plans],
            "bounded": self.placed.looked,
            "predicted": self.placed.evaluated,
            "rejected": self.placed.rejected,
            "bound_s": self.placed.bound if math.isfinite(self.placed.bound) else None,
            "seconds": self.placed.seconds,
        }

    def _kind(self, one: Any) -> dict[str, Any]:
        names = [self.scenario.fleet.islands[at].name for at in one.kind.places]
        return {
            "islands": names, "global_batch": list(one.batches), "evaluated": one.evaluated, "feasible": one.feasible,
            "kept": len(one.tables), "fits": one.fits, "methods": list(one.methods),
        }  # fmt: skip

    def _unlike(self) -> tuple[str, ...]:
        """That methods are compared which do not train the same way."""
        says = caution(way.sync.method for way in self.found.ways)
        return (says,) if says else ()

    def assumed(self) -> list[str]:
        """What was chosen from, what was kept, what counts as a tie."""
        said, joint = self.scenario.choices, None
        if said is not None:
            joint = said.joint
        found = [
            (
                "the best plans of every kind of islands are those with the most tokens/s at its part of the batch, with the outer "
                f"state beside them; the search joins the {max((len(one.tables) for one in self.found.insides), default=0)} best of each, shares "
                "the batch as predict does, and is exact over these"
            )
        ]
        if joint is not None and "method" not in joint.sync:
            found.append(
                f"plan.sync.method {ALONE} (none said; other methods change what is trained: a list, or any, asks for them)"
            )
        if (
            joint is not None
            and any(way.sync.method != ALONE for way in self.found.ways)
            and "sync_every" not in joint.sync
        ):
            found.append(
                "plan.sync.sync_every as each method has it: longer rounds are always faster, and what they cost in loss is not counted"
            )
        if joint is not None and ANY in joint.sync.get("method", ()):
            found.append(
                "plan.sync.method any: those that train one model by backpropagation; others ("
                + ", ".join(OTHERS)
                + ") by name"
            )
        if self.placed is not None:
            found.append(
                f"pipelines over islands: {len(self.placed.plans)} inner plans of the islands' best, micro-batches and schedule alike on all "
                "islands, pipelines of one length; the other islands are cells of the same plan, or every island is one of its own"
            )
        if self.found.goal.objectives[0] in ("time", "cost") and self.scenario.run.steps is not None:
            found.append("run.steps count as tokens of the whole batch: methods that lose some take more of them")
        spread = intervals.ratio()
        if spread is not None:
            found.append(f"a tie is within {100 * math.expm1(spread):.0f} % of the best: {intervals.ratio_basis()}")
        return found


def plan_fleet(
    scenario: Scenario,
    *,
    objectives: Sequence[str] = (),
    top: int,
    compare: Scenario | None = None,
    processes: int | None = 1,
    progress: Progress | None = None,
    stop: Stop | None = None,
) -> FleetPlans:
    """Search the choices of several islands. Raises as `plans.plan` does."""
    if not 1 <= top <= MOST_TOP:
        raise ShardMeterError(f"top = {top}: list 1 to {MOST_TOP:,} plans")
    choices = scenario.choices
    own = compare if compare is not None else scenario if choices is not None and choices.stated else None
    open_ = choices is not None and choices.joint is not None and choices.joint.placement
    if open_:
        placements.refuse(scenario, objectives)
    found = search(scenario, objectives, top, processes, progress, stop)
    if open_:
        return _placed(found, top, stop)
    joined, best = found.joined, found.joined.best
    return FleetPlans(
        scenario=scenario,
        found=found,
        ranked=tuple(_ranked(found, row, best) for row in joined.listed),
        front=tuple(_ranked(found, row, best) for row in joined.members()),
        compared=None if own is None else _compared(found, own, best),
        miss=None if joined.rows or joined.miss is None else _ranked(found, joined.miss[2], joined.miss[2].value),
        without=tuple(
            (", ".join(scenario.fleet.islands[at].name for at in left), -slower(row.value, best) if best > 0 else slower(best, row.value))
            for row, left in found.without
        ),
    )  # fmt: skip


def _placed(found: Answer, top: int, stop: Stop | None) -> FleetPlans:
    """The same with cells of several islands beside those of one."""
    placed = placements.search(found, top, stop)
    joined = found.joined
    best = min(joined.best, *(value_of(found, row.step) for row in placed.rows[:1]), math.inf)
    rows = [_ranked(found, row, best) for row in joined.listed]
    for one in placed.rows:
        level = max(int(complexity(plan)) for plan in one.prediction.scenario.plans) + 1
        rows.append(
            _of(one.prediction, value_of(found, one.step), best, level, placed_document(found, one.prediction.scenario))
        )
    ranked = tuple(sorted(rows, key=lambda one: (one.value, one.level)))[:top]
    return FleetPlans(
        scenario=found.scenario, found=found, ranked=ranked, front=ranked[:1], compared=None, without=(), placed=placed,
        miss=None if ranked or joined.miss is None else _ranked(found, joined.miss[2], joined.miss[2].value),
    )  # fmt: skip


def value_of(found: Answer, step: float) -> float:
    """The first objective, as a number to minimise, of so many seconds a step of the whole batch: time or throughput."""
    run = found.scenario.run
    tokens = found.batch * float(run.seq_len)
    whole = amount(run, found.batch)
    return float(figures(found.goal, found.scenario.fleet.islands, whole, step, tokens, 0.0).columns[0])


def placed_document(found: Answer, scenario: Scenario) -> dict[str, Any]:
    """The whole scenario of a choice of cells: as `document_of`, with the placement; islands in pipelines leave `pp` to it."""
    choices, joint = found.choices, found.choices.joint
    said: dict[str, Any] = copy.deepcopy(dict(choices.said[0])) if choices.said else {}
    run = dict(said.get("run") or {}) | {"seq_len": int(scenario.run.seq_len), "global_batch": int(found.batch)}
    axis, cells = scenario.plan.placement[0]
    plan = {"sync": sync_document(scenario.plan.sync), "placement": {axis: [list(cell) for cell in cells]}}
    inside = {name for cell in cells for name in cell}
    if "fleet" in said and joint is not None:
        for at, (island, own) in enumerate(zip(scenario.fleet.islands, scenario.plans, strict=True)):
            placed = island.name in inside
            fields = plan_document(changed(own, pp=scenario.plan.pp) if placed else own)
            said["fleet"]["islands"][joint.items[at]]["plan"] = {
                name: value for name, value in fields.items() if not (placed and name == axis)
            }
    return {**said, "plan": plan, "run": run}


def _compared(found: Answer, own: Scenario, best: float) -> FleetCompared:
    """The user's own plan at the batch of the search. Raises BadScenario where whole micro-batches do not make that up."""
    made = changed(own, run=changed(own.run, global_batch=found.batch), choices=None)
    try:
        p = predict(made)
    except IndivisibleBatch as error:
        near = " or ".join(f"{one:g}" for one in error.near)
        bad = Violation(field="run.global_batch", says=str(error), way_out=f"say {near}")
        raise BadScenario(f"{own.name}: the plan to compare with: 1 problem", [bad]) from None
    tokens = tokens_of(made, p.whole) if made.run.target_loss is not None else amount(made.run, found.batch)
    value = figures_of(found.goal, p.whole, tokens).columns[0]
    ranked = _of(p, float(value), float(value) if math.isinf(best) else best, 0, own_document(made))
    better = sum(1 for row in found.joined.rows if row.value < ranked.value)
    placed = p.fits and (better < len(found.joined.rows) or not better)
    return FleetCompared(ranked=ranked, rank=better + 1 if placed else None)


def _ranked(found: Answer, row: Row, best: float) -> FleetRanked:
    made = scenario_of(found, row)
    return _of(predict(made), row.value, best, row.level, document_of(found, made, row))


def _of(p: Prediction, value: float, best: float, level: int, document: Mapping[str, Any]) -> FleetRanked:
    spread = intervals.ratio()
    behind = slower(value, best) if math.isfinite(value) else 0.0
    return FleetRanked(
        prediction=p, value=value, behind=behind, level=level, document=document,
        tie=spread is not None and abs(math.log1p(behind)) <= spread,
    )  # fmt: skip


def scenario_of(found: Answer, row: Row) -> Scenario:
    """A plan of the search as a scenario with nothing open."""
    team, sync = row.team, row.sync or Sync()
    plans = tuple(changed(table.plan, sync=sync) for table in team.tables(row.chosen))
    alone = len(plans) == 1
    return changed(
        team.scenario, fleet=Fleet(islands=team.islands, wan=None if alone else team.wan), plan=plans[0],
        plans=() if alone else plans, run=changed(found.scenario.run, global_batch=found.batch), choices=None,
    )  # fmt: skip


def document_of(found: Answer, scenario: Scenario, row: Row) -> dict[str, Any]:
    """The whole scenario of a plan: the document it came from with the islands that take part, their plans, the synchronisation,
    sequence and batch. Of a record, which has no document, only the plan and the run."""
    choices, joint = found.choices, found.choices.joint
    said: dict[str, Any] = copy.deepcopy(dict(choices.said[0])) if choices.said else {}
    run = dict(said.get("run") or {}) | {"seq_len": int(scenario.run.seq_len), "global_batch": int(found.batch)}
    plan = {"sync": sync_document(row.sync)} if row.sync is not None else plan_document(scenario.plan)
    if "fleet" in said and joint is not None:
        fleet, plans = said["fleet"], scenario.plans or (scenario.plan,)
        for at, own in zip(row.team.places, plans, strict=True):
            fleet["islands"][joint.items[at]]["plan"] = plan_document(own)
        if len(row.team.places) < len(found.scenario.fleet.islands):
            fleet["use"] = [island.name for island in scenario.fleet.islands]
    return {**said, "plan": plan, "run": run}


def own_document(scenario: Scenario) -> dict[str, Any]:
    """The user's own plan, laid over every island."""
    team = [plan_document(one) for one in scenario.plans]
    return {"plan": {"sync": sync_document(scenario.plan.sync)}, "islands": team}


def sync_document(sync: Sync) -> dict[str, Any]:
    """Every field of a synchronisation that its method reads, as a scenario says it."""
    said: dict[str, Any] = {"method": sync.method}
    for name in method(sync.method).FIELDS:
        value = getattr(sync, name)
        whole = isinstance(value, float) and value == int(value)
        said[name] = f"{value:.15g} s" if name == "grace" else int(value) if whole else value
    return said
