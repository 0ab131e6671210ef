"""`plan`: the best plans of a scenario's choices, the front, why the others are out, and the user's own plan among them."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

from shardmeter.core.errors import ShardMeterError
from shardmeter.core.record import changed, record
from shardmeter.core.units import GIB
from shardmeter.scenario.choices import ASIDE
from shardmeter.specs import Scenario
from shardmeter.study import intervals, trust
from shardmeter.study.course import HOUR, course
from shardmeter.study.course.totals import has_length, legs_of
from shardmeter.study.planning import dead_ends
from shardmeter.study.planning.block import Question, complexity
from shardmeter.study.planning.objective import Goal, goal_of, spent_of, tokens_of
from shardmeter.study.planning.relaxed import Relaxed, relaxed, within
from shardmeter.study.planning.scenarios import differing, document_of, told
from shardmeter.study.planning.search import Progress, Stop, search
from shardmeter.study.planning.space import Space, phased, space_of
from shardmeter.study.planning.tally import BAND, Tally
from shardmeter.study.predict import NO_COST, Prediction, predict
from shardmeter.study.relief import Outcome, ways_out

TOP, MOST_TOP = 10, 1000
"""Plans that are listed, and the most that are kept."""
KWH = 3.6e6


@record
class Ranked:
    """One plan with its figures. `value` is the first objective, as a number to minimise."""

    prediction: Prediction
    value: float
    behind: float
    """How much more it takes than the best of all, as a share."""
    tie: bool
    """Whether measured runs leave open which of it and the best is ahead."""
    level: int
    """Axes in use, and words that are not the usual ones."""
    document: Mapping[str, Any]

    @property
    def scenario(self) -> Scenario:
        """The plan as a scenario of its own."""
        return self.prediction.scenario

    def to_dict(self, first: Ranked) -> dict[str, Any]:
        """The entry of the JSON answer: a scenario under `scenario`, its plan again, and its figures. `predict` takes the entry."""
        p, e = self.prediction, self.prediction.estimate
        scenario = self.scenario
        island, run = scenario.fleet.islands[0], scenario.run
        found = spent_of(scenario, p.whole)
        lasts, paid, drawn = float(found.lasts), found.paid, found.drawn
        whole, tokens = has_length(run), tokens_of(scenario, p.whole)
        said = (course(scenario, p.whole) if whole else None) or {}
        peak, limit = float(e.memory_peak), float(e.memory_limit)
        spread = trust.spread(scenario, p.step_time, float(e.tokens), peak, float(e.memory_exact))
        return {
            "scenario": self.document,
            "plan": self.document["plan"],
            "line": told(scenario.plan, scenario.stack),
            "gpus": float(island.gpus),
            "seq_len": float(run.seq_len),
            "global_batch": float(run.global_batch),
            "step_time_s": p.step_time,
            "tokens_per_s": p.tokens_per_s,
            "tokens_per_s_per_gpu": p.tokens_per_s / float(island.gpus),
            "mfu": p.mfu,
            "micro_batches": float(run.global_batch) / float(scenario.plan.dp * scenario.plan.micro_batch),
            "memory_peak_gib": peak / GIB,
            "memory_limit_gib": limit / GIB,
            "fits": p.fits,
            "fits_probability": trust.fits_probability(scenario, peak, limit, float(e.memory_exact)),
            "wall_clock_s": lasts if whole else None,
            "gpu_hours": lasts * float(island.gpus) / HOUR if whole else None,
            "cost_usd": float(paid) if whole and paid is not None else None,
            "energy_kwh": said.get("energy_kwh"),
            "cost_usd_per_token": None if paid is None else float(paid) / tokens,
            "energy_j_per_token": None if drawn is None else float(drawn) / tokens,
            **limits_of(p),
            "behind": self.behind,
            "tie": self.tie,
            "complexity": self.level,
            "differs": differing(first.scenario, scenario),
            "intervals": {"level": spread["level"], "step_time_s": spread["step_time_s"]},
        }


def limits_of(prediction: Prediction) -> dict[str, Any]:
    """`deadline` and `budget` of a plan's run as `predict` answers them, with the chance that each is kept; null where not asked."""
    scenario, names = prediction.scenario, ("deadline", "budget")
    if all(getattr(scenario.run, name) is None for name in names):
        return dict.fromkeys(names)
    found = course(scenario, prediction.whole, trust.paces(scenario)) or {}
    return {name: found.get(name) for name in names}


@record
class Compared:
    """The user's own plan: where it stands."""

    ranked: Ranked
    rank: int | None
    """1 = no feasible plan of the space is better."""


@record
class Plans:
    """The answer. `print` shows it as a page; `to_dict` is the JSON."""

    scenario: Scenario
    space: Space
    goal: Goal
    tally: Tally
    seconds: float
    ranked: tuple[Ranked, ...]
    front: tuple[Ranked, ...]
    compared: Compared | None
    miss: Ranked | None
    """Where nothing is feasible: the plan that comes nearest."""
    ways: tuple[Outcome | Relaxed, ...]
    """What makes that one fit, or keep the deadline and the budget."""
    stopped: bool = False
    """Whether the search was ended before it had seen every plan."""
    shut_out: tuple[dict[str, Any], ...] = ()
    """Sizes of which no plan is legal (`gpus`, `accelerator`), each with why (`says`)."""

    def __repr__(self) -> str:
        """One line."""
        found = f"{len(self.ranked)} of {self.tally.feasible:,} feasible" if self.ranked else "none feasible"
        return f"<Plans {self.scenario.model.name}: {self.tally.evaluated:,} evaluated, {found}>"

    def __str__(self) -> str:
        """The page that the command prints, without what was assumed."""
        import shardmeter

        return shardmeter.page(self)

    @property
    def best(self) -> Ranked | None:
        """The first of the list; None where nothing is feasible."""
        return self.ranked[0] if self.ranked else None

    def to_dict(self) -> dict[str, Any]:
        """The `plan` JSON: SI units as each key says, fractions for shares, null for what was not asked or is not known."""
        tally = self.tally
        first = self.best or self.miss
        rows = [] if first is None else [one.to_dict(first) for one in self.ranked]
        best = self.best
        asked = has_length(self.scenario.run)
        own = [text for text in self.scenario.warnings if asked or NO_COST not in text]
        aside = [text for text in self.scenario.assumptions if text.startswith(ASIDE)]
        barred = [one["says"] for one in self.shut_out]
        warned = [*aside, *own, *barred, *(() if best is None else trust.warnings(best.scenario))]
        return {
            "objective": list(self.goal.objectives),
            "deadline_s": self.goal.deadline,
            "budget_usd": self.goal.budget,
            "space": {
                "evaluated": tally.evaluated,
                "feasible": tally.feasible,
                "rejected": dict(sorted(tally.rejected.items(), key=lambda one: (-one[1], one[0]))),
                "seconds": self.seconds,
                "plans_per_s": tally.evaluated / self.seconds,
                "optimal": not self.stopped,
                "shut_out": list(self.shut_out),
            },
            "plans": rows,
            "pareto": [] if first is None else [one.to_dict(first) for one in self.front],
            "yours": None if self.compared is None or first is None else self._compared(first),
            "nearest_miss": None if self.miss is None else self.miss.to_dict(self.miss),
            "way_out": [one.to_dict() for one in self.ways],
            "assumptions": [*self.scenario.assumptions, *self.assumed()],
            "warnings": list(dict.fromkeys(warned)),
        }

    def _compared(self, first: Ranked) -> dict[str, Any]:
        assert self.compared is not None  # noqa: S101  (the caller asked)
        return {"rank": self.compared.rank, **self.compared.ranked.to_dict(first)}

    def assumed(self) -> list[str]:
        """What was chosen from, what was kept, what counts as a tie."""
        spread = intervals.ratio()
        ties = (
            ""
            if spread is None
            else f"a tie is within {100 * math.expm1(spread):.0f} % of the best: {intervals.ratio_basis()}"
        )
        return [*dead_ends.chosen_from(self.space), *([ties] if ties else [])]


def plan(
    scenario: Scenario,
    *,
    objectives: Sequence[str] = (),
    top: int = TOP,
    compare: Scenario | None = None,
    processes: int | None = 1,
    progress: Progress | None = None,
    stop: Stop | None = None,
) -> Plans:
    """Search the choices of a scenario. `compare` is a scenario whose plan is to be placed among them; a scenario that states a
    plan beside its choices is compared itself.

    Raises BadScenario for pins that leave no legal plan (with the counted reasons), for an unknown objective, a cost without a
    price; ShardMeterError for a space that is too large, and for `top` below 1 or above 1,000. That nothing fits is an answer."""
    if not 1 <= top <= MOST_TOP:
        raise ShardMeterError(f"top = {top}: list 1 to {MOST_TOP:,} plans")
    if scenario.choices is None:
        raise ShardMeterError("nothing is left to choose: say plan: auto")
    space, goal = space_of(scenario), goal_of(scenario, scenario.choices, tuple(objectives))
    dead_ends.undivided(space)
    own = compare if compare is not None else scenario if scenario.choices.stated else None
    stated = None if own is None else _stated(space, own)
    worth = None if stated is None else _value(goal, stated)
    began = time.perf_counter()
    question = Question(space=space, goal=goal, most=top, stated=worth)
    tally, whole = search(question, processes=processes, progress=progress, stop=stop)
    seconds = time.perf_counter() - began
    if whole and not tally.feasible and tally.miss is None:
        raise dead_ends.empty(question, tally)
    rows = tally.pool.rows()
    best = min((found for found, _, _ in rows), default=math.nan)
    rows.sort(key=lambda one: (_band(one[0], best), one[1], one[0], one[2]))
    front = tally.front
    members = [
        (float(values[0]), int(level), int(number))
        for values, level, number in zip(front.points, front.levels, front.numbers, strict=True)
    ]
    miss, ways = _missed(space, goal, tally)
    return Plans(
        scenario=scenario,
        space=space,
        goal=goal,
        tally=tally,
        seconds=seconds,
        ranked=tuple(_of(space, row, best) for row in rows[:top]),
        front=tuple(_of(space, row, best) for row in members),
        compared=None if stated is None else _placed(space, goal, stated, best, tally),
        miss=miss,
        ways=ways,
        stopped=not whole,
        shut_out=dead_ends.shut_out(question),
    )


def _missed(space: Space, goal: Goal, tally: Tally) -> tuple[Ranked | None, tuple[Outcome | Relaxed, ...]]:
    """Where nothing is feasible: the plan that comes nearest, and what makes it fit, or keep the limits."""
    if tally.feasible or tally.miss is None:
        return None, ()
    found = predict(space.point(tally.miss[-1]))
    value = _value(goal, found)
    ways: tuple[Outcome | Relaxed, ...] = (
        relaxed(found, goal, space.choices)
        if found.fits
        else within(ways_out(found.scenario, found.estimate), found.scenario, goal, space.choices)
    )
    return _ranked(space, found, value, value), ways


def _band(found: float, best: float) -> int:
    return math.floor(math.log1p(slower(found, best)) / math.log(BAND) + 1e-9)


def slower(found: float, best: float) -> float:
    """How much worse than the best, as a share; a throughput is a negative number to minimise."""
    return found / best - 1.0 if best > 0.0 else best / found - 1.0


def _of(space: Space, row: tuple[float, int, int], best: float) -> Ranked:
    found, _, number = row
    return _ranked(space, predict(space.point(number)), found, best)


def _ranked(space: Space, prediction: Prediction, found: float, best: float) -> Ranked:
    spread = intervals.ratio()
    behind = slower(found, best)
    return Ranked(
        prediction=prediction,
        value=found,
        behind=behind,
        tie=spread is not None and abs(math.log1p(behind)) <= spread,
        level=int(complexity(prediction.scenario.plan)),
        document=document_of(space, prediction.scenario),
    )


def _value(goal: Goal, prediction: Prediction) -> float:
    """The first objective of one plan, computed as in the search."""
    return float(spent_of(prediction.scenario, prediction.whole).value(goal.objectives[0]))


def _stated(space: Space, own: Scenario) -> Prediction:
    """The user's plan at the batch of the search. Raises BadScenario where it is not legal there."""
    here = [one for one in space.variants if space.island(one).gpus == own.fleet.islands[0].gpus] or space.variants
    run = changed(own.run, global_batch=float(here[0].batches[0, 0]) if here else own.run.global_batch)
    made = changed(own, run=run, choices=None)
    for one in (run, *phased(run)):
        dead_ends.legal(changed(made, run=one))
    return predict(made)


def _fits(stated: Prediction) -> bool:
    """Whether a plan fits, in every phase of the run."""
    legs = legs_of(stated.scenario, stated.whole) or ()
    each = [part.estimate for leg in legs for part in leg.whole.parts]
    return stated.fits and all(bool(one.memory_peak <= one.memory_limit) for one in each)


def _placed(space: Space, goal: Goal, stated: Prediction, best: float, tally: Tally) -> Compared:
    """The rank of the user's plan: one more than the feasible plans that beat it; none if it is not feasible itself."""
    worth = _value(goal, stated)
    found = spent_of(stated.scenario, stated.whole)
    limits = ((found.lasts, goal.deadline), (found.paid, goal.budget))
    feasible = _fits(stated) and all(
        most is None or (used is not None and float(used) <= most) for used, most in limits
    )
    ranked = _ranked(space, stated, worth, worth if math.isnan(best) else best)
    return Compared(ranked=ranked, rank=tally.better + 1 if feasible else None)
