"""Where a deadline or a budget rules out every plan: what would do, evaluated as it is written for the plan that comes nearest."""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any

from shardmeter.core.errors import BadQuantity, BadScenario
from shardmeter.core.quantity import quantity
from shardmeter.core.record import changed, record
from shardmeter.core.units import Seconds
from shardmeter.engine.constraints import violations
from shardmeter.engine.fleet import Whole
from shardmeter.specs import Choices, Plan, Scenario
from shardmeter.study import moves
from shardmeter.study.planning.objective import Goal, spent, spent_of
from shardmeter.study.planning.space import batch_on, phased
from shardmeter.study.predict import Prediction, predict
from shardmeter.study.relief import Outcome

TIMES = (2.0, 4.0, 8.0, 16.0, 32.0)
"""So many times the GPUs are tried."""
HALVINGS = 50
"""Of the interval in which the longest run lies that keeps the limits."""
MARGIN = 1e-9
"""Share by which a limit is kept, so that another order of the same sums keeps it too."""
PERIODS = (("d", 86400.0), ("h", 3600.0), ("min", 60.0))
SUFFIXES = (("T", 1e12), ("B", 1e9), ("M", 1e6), ("k", 1e3))


@record
class Relaxed:
    """One way to an answer: what is changed, and what the run then takes."""

    says: str
    sets: tuple[str, ...]
    wall_clock: Seconds
    cost: float | None

    def to_dict(self) -> dict[str, object]:
        """The entry of the JSON answer."""
        return {"change": self.says, "set": list(self.sets), "wall_clock_s": self.wall_clock, "cost_usd": self.cost}


@record
class _Raised:
    """The limits that a run breaks, raised until it keeps them."""

    says: tuple[str, ...]
    sets: tuple[str, ...]


def relaxed(missed: Prediction, goal: Goal, choices: Choices) -> tuple[Relaxed, ...]:
    """The deadline and the budget that the plan keeps, fewer tokens or steps, and the fewest times the GPUs with which it keeps
    both limits, or the deadline with a larger budget. Each of them mends all that is missed; none is offered that does not."""
    lasts, paid = _spent(missed.scenario, missed.whole)
    raised = _raised(lasts, paid, goal)
    found = [] if raised is None else [_relaxed("", raised, lasts, paid)]
    return (*found, *_shorter(missed, goal), *_larger(missed.scenario, goal, choices))


def within(ways: Iterable[Outcome], scenario: Scenario, goal: Goal, choices: Choices) -> tuple[Outcome, ...]:
    """Changes that make a plan fit, each with the limits that its run then breaks raised; what no limit can hold is left out."""
    if scenario.run.phases and goal != changed(goal, deadline=None, budget=None):
        return ()  # what a change does to every phase is not known
    hsdp = "hsdp" in choices.plan.get("sharding", ())
    found = []
    for one in ways:
        lasts, paid = _of_outcome(one, scenario)
        raised = _raised(lasts, paid, goal)
        if raised is not None:
            says = ", ".join(filter(None, (one.says, " and ".join(raised.says))))
            own = {text.partition("=")[0] for text in one.sets}
            named = hsdp and "plan.dp_shard" in own and "plan.sharding" not in own  # hsdp says dp_shard by itself
            sets = ("plan.sharding=fsdp",) if named else ()
            found.append(changed(one, says=says, sets=(*sets, *one.sets, *raised.sets)))
    return tuple(found)


def _of_outcome(one: Outcome, scenario: Scenario) -> tuple[float, float | None]:
    island = scenario.fleet.islands[0]
    larger = changed(scenario.fleet, islands=(changed(island, nodes=one.gpus / island.gpus_per_node),))
    batch = one.tokens_per_s * one.step_time / scenario.run.seq_len
    made = changed(scenario, fleet=larger, run=changed(scenario.run, global_batch=batch, phases=()))
    found = spent(made, one.step_time, 1.0)
    return float(found.lasts), None if found.paid is None else float(found.paid)


def _raised(lasts: float, paid: float | None, goal: Goal) -> _Raised | None:
    """The limits to raise, none where all are kept; None where one would have to be beyond what can be said."""
    says, sets = [], []
    if not _keeps(lasts, goal.deadline):
        says.append(f"a deadline of {period(lasts)}")
        sets.append(f"run.deadline={period(lasts)}")
    if paid is not None and not _keeps(paid, goal.budget):
        says.append(f"a budget of {dollars(paid)}")
        sets.append(f"run.budget={dollars(paid)}")
    sayable = all(_read(text.partition("=")[2], "time" if "deadline" in text else "money") for text in sets)
    return _Raised(says=tuple(says), sets=tuple(sets)) if sayable else None


def _shorter(missed: Prediction, goal: Goal) -> list[Relaxed]:
    """As many tokens, or steps, as both limits leave time and money for; none where that is not even one, and where a loss or phases
    say how long the run is."""
    run, field = missed.scenario.run, "steps" if missed.scenario.run.steps is not None else "tokens"
    if run.target_loss is not None or run.phases:
        return []
    whole = float(getattr(run, field))

    def of(amount: float) -> tuple[float, float | None]:
        return _spent(changed(missed.scenario, run=changed(run, **{field: amount})), missed.whole)

    low, high = 0.0, whole
    for _ in range(HALVINGS):
        middle = (low + high) / 2.0
        kept = all(map(_keeps, of(middle), (goal.deadline, goal.budget)))
        low, high = (middle, high) if kept else (low, middle)
    left = low * (1.0 - MARGIN)
    if left < 1.0:
        return []
    text = count(left) if field == "tokens" else _digits(math.floor(left), 3, ROUND_FLOOR)
    lasts, paid = of(quantity(text, "count"))
    if not (_keeps(lasts, goal.deadline) and _keeps(paid, goal.budget)):
        return []
    return [Relaxed(says=f"{text} {field}", sets=(f"run.{field}={text}",), wall_clock=lasts, cost=paid)]


def _larger(scenario: Scenario, goal: Goal, choices: Choices) -> list[Relaxed]:
    """The same plan over the fewest times the GPUs with which it keeps both limits; where none of `TIMES` does, those with which it
    keeps the deadline, and the budget that this takes."""
    dearer: list[Relaxed] = []
    for times in TIMES:
        tried = _grown(scenario, times, choices)
        if tried is None or not tried.fits:
            continue
        island = tried.scenario.fleet.islands[0]
        lasts, paid = _spent(tried.scenario, tried.whole)
        raised = _raised(lasts, paid, goal)
        if raised is None or not _keeps(lasts, goal.deadline):
            continue
        text = moves.island_text(island, moves.catalog_row(island.accelerator))
        sets = () if text is None else (*_unpinned(tried.scenario.plan, choices), f"fleet.islands.0={text}")
        says = f"{float(island.gpus):,.0f} GPUs"
        if not raised.sets:
            return [Relaxed(says=says, sets=sets, wall_clock=lasts, cost=paid)]
        dearer.append(_relaxed(says, changed(raised, sets=(*sets, *raised.sets) if sets else ()), lasts, paid))
    before = predict(scenario)
    lasts, _ = _spent(before.scenario, before.whole)
    return [] if _keeps(lasts, goal.deadline) else dearer[:1]


def _grown(scenario: Scenario, times: float, choices: Choices) -> Prediction | None:
    """The plan over so many times the GPUs, at the batch that the search would take there; None where there is no such plan."""
    plan, island = scenario.plan, scenario.fleet.islands[0]
    moved = moves.more_nodes(times)(plan, island)
    if moved is None:
        return None
    grown, larger = moved
    if _copies(plan, choices):
        grown = changed(plan, dp_replicate=float(plan.dp_replicate) * times)
    run = changed(scenario.run, global_batch=batch_on(scenario, choices, larger))
    if any(violations(scenario.model, larger, grown, one, scenario.stack) for one in (run, *phased(run))):
        return None
    try:
        return predict(changed(scenario, plan=grown, run=run, fleet=changed(scenario.fleet, islands=(larger,))))
    except BadScenario:  # more machines fail more often: the run does not end
        return None


def _copies(plan: Plan, choices: Choices) -> bool:
    """Whether more ranks are more copies: where what shards is pinned, and copies are not."""
    sharding = choices.plan.get("sharding", ())
    kept = "dp_shard" in choices.plan or ("hsdp" in sharding and "fsdp" not in sharding)
    return kept and "dp_replicate" not in choices.plan and plan.sharding in ("fsdp", "zero3")


def _unpinned(plan: Plan, choices: Choices) -> tuple[str, ...]:
    """A pin that the plan no longer keeps, said anew."""
    pins = choices.plan.get("dp_shard", ())
    return (f"plan.dp_shard={float(plan.dp_shard):g}",) if pins and plan.dp_shard not in pins else ()


def _relaxed(says: str, raised: _Raised, lasts: float, paid: float | None) -> Relaxed:
    words = " and ".join(filter(None, (says, *raised.says)))
    return Relaxed(says=words, sets=raised.sets, wall_clock=lasts, cost=paid)


def _spent(scenario: Scenario, whole: Whole) -> tuple[float, float | None]:
    """How long a run takes, and what it costs."""
    found = spent_of(scenario, whole)
    return float(found.lasts), None if found.paid is None else float(found.paid)


def _keeps(spent: float | None, most: Any) -> bool:
    return most is None or spent is None or spent <= float(most)


def _read(text: str, dimension: str) -> bool:
    """Whether a scenario can say it."""
    try:
        quantity(text, dimension)
    except BadQuantity:
        return False
    return True


def period(seconds: float) -> str:
    """A time that is at least as long, in four digits: `99.35 d`."""
    name, size = next(((name, size) for name, size in PERIODS if seconds >= 2.0 * size), ("s", 1.0))
    return f"{_digits(seconds * (1.0 + MARGIN) / size, 4, ROUND_CEILING)} {name}"


def dollars(amount: float) -> str:
    """An amount that is at least as large: whole dollars from 1,000 on, four digits below and from a million on: `$1.526M`."""
    amount *= 1.0 + MARGIN
    if 1e3 <= amount < 999_999.0:
        return f"${math.ceil(amount):,}"
    name, size = next(((name, size) for name, size in SUFFIXES[:3] if amount >= 0.999999 * size), ("", 1.0))
    return f"${_digits(amount / size, 4, ROUND_CEILING)}{name}"


def count(number: float) -> str:
    """A whole count that is at most as large, in three digits: `1.2T`."""
    name, size = next(((name, size) for name, size in SUFFIXES if number >= size), ("", 1.0))
    return f"{_digits(number / size if name else math.floor(number), 3, ROUND_FLOOR)}{name}"


def _digits(value: float, digits: int, rounding: str) -> str:
    """So many significant digits of a number, none of them an exponent."""
    exact = Decimal(value)
    rounded = exact.quantize(Decimal(1).scaleb(exact.adjusted() - digits + 1), rounding=rounding)
    return f"{rounded.normalize():f}"
