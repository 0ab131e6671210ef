"""What a plan is compared with: all other plans of its machines, and other machines with its plan."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from shardmeter.core.errors import BadScenario, ShardMeterError
from shardmeter.core.record import record
from shardmeter.scenario import ranges
from shardmeter.scenario.choices import left_open
from shardmeter.scenario.parts import Rows
from shardmeter.scenario.read import Document
from shardmeter.scenario.resolve import resolve
from shardmeter.scenario.together import reason
from shardmeter.specs import Scenario
from shardmeter.study import islands, trust
from shardmeter.study.course import course
from shardmeter.study.planning.automatic import settled
from shardmeter.study.planning.fleet_plans import FleetPlans, plan_fleet
from shardmeter.study.planning.plans import Plans, plan
from shardmeter.study.planning.search import Done, Progress
from shardmeter.study.predict import Prediction, predict
from shardmeter.study.returns.axis import GPUS, ISLANDS, WAN, Axis
from shardmeter.study.returns.curve import Curve
from shardmeter.study.returns.words import STRONG, axis_of, scaled
from shardmeter.study.sweep.space import Space

TOP = 8
"""Plans that a report lists."""
LARGEST, MOST_POINTS = 1_000_000, 3_000_000
"""Points of one search, and of all of one question, beyond which no search is made unless it is asked for: about half a minute. Points and
not seconds, so that the same scenario gives the same report on every machine."""
LEFT_OUT = "the search was left out, as asked"
LATER = "the search of all of them takes minutes: --search makes it, or `shardmeter plan`"
PLACED = f"which islands form pipelines is open here, and {LATER}"
CLOCKED = ("seconds", "plans_per_s")
"""Keys of a search that differ from one run to the next."""


def plans(
    document: Document, rows: Rows, *, search: bool | None, progress: Progress | None = None, processes: int | None = 1
) -> dict[str, Any]:
    """The `plan` JSON of the scenario, whose plan is one among all that its machines allow, without what the clock says; `why` where there is
    none. `search` None makes no search of more than MOST_POINTS points, or of pipelines over islands; True makes any."""
    if search is False:
        return unsearched(LEFT_OUT)
    mine = copy.deepcopy(document)
    size = _Size()

    def report(now: Done) -> None:
        size.grow(now.total)
        if progress is not None and not size.over:
            progress(now)

    def stop() -> bool:
        return search is None and size.over

    try:
        scenario = resolve(mine, rows, left_open(mine, planning=True))
        joint = None if scenario.choices is None else scenario.choices.joint
        if joint is not None and joint.placement and search is None:
            return unsearched(PLACED)
        searched = plan if joint is None else plan_fleet
        found = searched(scenario, top=TOP, processes=processes, progress=report, stop=stop)
    except ShardMeterError as error:  # the plan itself is answered; that others cannot be compared with it is said
        return unsearched(str(error))
    if stop():
        return unsearched(f"its machines allow {size.total:,} points of plans or more, and {LATER}")
    return told(found)


@dataclass(slots=True)
class _Size:
    """How large a search is, as far as it has told."""

    total: int = 0
    largest: int = 0

    def grow(self, total: int) -> None:
        """Searches are told one after the other, in one sum."""
        self.largest = max(self.largest, total - self.total)
        self.total = max(self.total, total)

    @property
    def over(self) -> bool:
        return self.largest > LARGEST or self.total > MOST_POINTS


def told(found: Plans | FleetPlans) -> dict[str, Any]:
    """The JSON of a search, the same every time."""
    answer = found.to_dict()
    space = {name: value for name, value in answer["space"].items() if name not in CLOCKED}
    if isinstance(space.get("placement"), Mapping):
        space["placement"] = {name: value for name, value in space["placement"].items() if name not in CLOCKED}
    return {**answer, "space": space, "islands": isinstance(found, FleetPlans), "why": None}


def unsearched(why: str) -> dict[str, Any]:
    """Why no plans are listed."""
    return {"why": why, "plans": [], "pareto": [], "yours": None}


@record
class _Base:
    """What other machines stand in place of."""

    document: Document
    rows: Rows
    own: Scenario
    """As it is said, its plan left open where it is."""


def size_of(scenario: Scenario) -> str:
    """What a fleet grows by: islands where it has several of one node each, else the nodes of every island."""
    every = scenario.fleet.islands
    return ISLANDS if len(every) > 1 and all(float(one.nodes) == 1.0 for one in every) else GPUS


def _size(base: _Base, times: float) -> Scenario:
    axis = scaled(axis_of(base.document, base.own, size_of(base.own)), base.document, base.own, STRONG)
    return _along(base, axis, times)


def _lines(base: _Base, times: float) -> Scenario | None:
    if len(base.own.fleet.islands) == 1:
        return None
    if base.own.choices is not None:
        raise ShardMeterError("the plan is found for lines that fields say: state it, and it is answered")
    return _along(base, axis_of(base.document, base.own, WAN), times)


def _along(base: _Base, axis: Axis, times: float) -> Scenario:
    if axis.whole and not (axis.own * times).is_integer():
        here = f"{axis.x(axis.own):,.0f} {axis.one}s grow and shrink by {axis.step_title or axis.one}"
        raise ShardMeterError(f"{here}: {times:g} times as many are no whole number of these")
    return Curve(base.document, base.rows, axis, settled).scenario(axis.own * times)


def _fabric(base: _Base, _: float) -> Scenario | None:
    """The next faster fabric of the catalog in the place of every island's, of its kind where there is one."""
    joined = [one for one in base.own.fleet.islands if float(one.nodes) > 1.0 and one.outside is not None]
    names = {one.outside.name for one in joined if one.outside is not None}
    faster = next_fabric(next(iter(names)), base.rows) if len(names) == 1 else None
    if faster is None:
        return None
    fleet = base.document.data.get("fleet")
    entries = len(fleet.get("islands") or ()) if isinstance(fleet, Mapping) else 0
    fields = [f"fleet.islands.{at}.fabric" for at in range(entries)] or ["fabric"]
    return _with(base, dict.fromkeys(fields, faster))


def next_fabric(name: str, rows: Rows) -> str | None:
    """The least of those that are faster than a fabric: of its kind (the first part of its name), else of InfiniBand; None for the
    fastest, and where the catalog lists no names."""
    listed = getattr(rows, "names", None)
    if listed is None:
        return None
    every = [rows.fabric(one) for one in listed("fabrics")]
    own = next((one for one in every if one.name == name), None)
    if own is None:
        return None
    above = [one for one in every if float(one.bandwidth) > 1.01 * float(own.bandwidth)]
    for kind in (re.split(r"[-0-9]", name)[0], "ib"):
        alike = [one for one in above if re.split(r"[-0-9]", one.name)[0] == kind]
        if alike:
            return min(alike, key=lambda one: float(one.bandwidth)).name
    return None


def _with(base: _Base, fields: Mapping[str, Any]) -> Scenario:
    axes = (ranges.Axis(fields=tuple(fields), points=(tuple(fields.values()),)),)
    document = Space(document=base.document, rows=base.rows, axes=axes, columns=()).at((0,))
    made = resolve(document, base.rows, left_open(document, planning=False))
    return made if made.choices is None else settled(made)


Other = tuple[str, str, Callable[[_Base, float], Scenario | None], float]
OTHERS: tuple[Other, ...] = (
    ("size_twice", "twice the {size}", _size, 2.0),
    ("size_half", "half the {size}", _size, 0.5),
    ("fabric_next", "the next fabric", _fabric, 1.0),
    ("lines_twice", "twice the bandwidth between islands", _lines, 2.0),
    ("size_four_times", "four times the {size}", _size, 4.0),
    ("size_quarter", "a quarter of the {size}", _size, 0.25),
)
"""Names of other machines, what they are, how the scenario looks on them (None where there is no such thing), and how many times as much."""


def alternatives(document: Document, rows: Rows, given: Scenario, here: Prediction, most: int) -> dict[str, Any]:
    """`own`, the figures of the scenario; `others`, those of the first `most` other machines that there are, each with the scenario's
    plan (found anew where it is left open), at its global batch, for its tokens; `why` where one is not legal.

    Leaves out: what a faster fabric costs, for no row says it."""
    base = _Base(document=document, rows=rows, own=given)
    found: list[dict[str, Any]] = []
    size = "islands" if size_of(given) == ISLANDS else "GPUs"
    for name, says, made, times in OTHERS:
        if len(found) == most:
            break
        why = ""
        prediction = None
        try:
            scenario = made(base, times)
            if scenario is None:
                continue
            prediction = predict(scenario)
        except BadScenario as error:
            why = reason(error)
        except ShardMeterError as error:
            why = str(error)
        what = (
            f"{says}, {_outside(prediction)}" if made is _fabric and prediction is not None else says.format(size=size)
        )
        found.append({"name": name, "says": what, "why": why or None, **figures(prediction)})
    return {"own": figures(here), "others": found}


def _outside(one: Prediction) -> str:
    fabric = next(island.outside for island in one.scenario.fleet.islands if island.outside is not None)
    return fabric.name


FIGURES = (
    "gpus", "fits", "fits_probability", "step_time_s", "tokens_per_s", "mfu", "memory_peak_gib", "memory_limit_gib", "wall_clock_s", "cost_usd",
    "energy_kwh", "intervals", "deadline", "budget",
)  # fmt: skip


def figures(one: Prediction | None) -> dict[str, Any]:
    """The figures of `predict` that are set beside each other; null where there is no prediction."""
    if one is None:
        return dict.fromkeys(FIGURES)
    scenario, e = one.scenario, one.estimate
    run = course(scenario, one.whole, trust.paces(scenario)) or {}
    bounds = run.get("intervals") or {}
    peak, limit = float(e.memory_peak), float(e.memory_limit)
    return {
        "gpus": float(e.gpus), "fits": one.fits,
        "fits_probability": trust.fits_probability(scenario, peak, limit, float(e.memory_exact)),
        "step_time_s": None if islands.nobody_waits(one.whole) else one.step_time, "tokens_per_s": one.tokens_per_s, "mfu": one.mfu,
        "memory_peak_gib": peak / 2.0**30, "memory_limit_gib": limit / 2.0**30, "wall_clock_s": run.get("wall_clock_s"),
        "cost_usd": run.get("cost_usd"), "energy_kwh": run.get("energy_kwh"),
        "intervals": {name: bounds.get(name) for name in ("wall_clock_s", "cost_usd")}, "deadline": run.get("deadline"),
        "budget": run.get("budget"),
    }  # fmt: skip
