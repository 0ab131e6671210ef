"""Where a deadline or a budget rules out every plan: what would do, evaluated for the plan that comes nearest."""

from __future__ import annotations

from shardmeter.core.record import changed, record
from shardmeter.core.units import Seconds
from shardmeter.engine.constraints import violations
from shardmeter.specs import Scenario
from shardmeter.study import moves
from shardmeter.study.planning.objective import Goal, cost, duration
from shardmeter.study.predict import Prediction, predict

TIMES = (2.0, 4.0, 8.0, 16.0, 32.0)
"""So many times the GPUs are tried, at the same global batch."""


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


def relaxed(missed: Prediction, goal: Goal) -> tuple[Relaxed, ...]:
    """A later deadline or a larger budget that the plan keeps, fewer tokens, and the fewest times the nodes with which it keeps
    both as they are."""
    scenario = missed.scenario
    lasts, paid = _spent(missed)
    found = []
    shares = [goal.deadline / lasts] if goal.deadline is not None and lasts > goal.deadline else []
    if shares:
        later = f"{lasts * 1.001 / 86400.0:.4g} d"
        found.append(
            Relaxed(says=f"a deadline of {later}", sets=(f"run.deadline={later}",), wall_clock=lasts, cost=paid)
        )
    if goal.budget is not None and paid is not None and paid > goal.budget:
        shares.append(goal.budget / paid)
        more = f"${paid * 1.001:,.0f}"
        found.append(Relaxed(says=f"a budget of {more}", sets=(f"run.budget={more}",), wall_clock=lasts, cost=paid))
    if shares and scenario.run.tokens is not None:
        tokens = float(f"{float(scenario.run.tokens) * min(shares) * 0.999:.3g}")
        share = tokens / float(scenario.run.tokens)
        part = None if paid is None else paid * share
        found.append(
            Relaxed(says=f"{tokens:.3g} tokens", sets=(f"run.tokens={tokens:g}",), wall_clock=lasts * share, cost=part)
        )
    found += filter(None, [_larger(scenario, goal)])
    return tuple(found)


def _larger(scenario: Scenario, goal: Goal) -> Relaxed | None:
    """The same plan over the fewest times the nodes with which it keeps both limits; None where none of `TIMES` does."""
    for times in TIMES:
        moved = moves.more_nodes(times)(scenario.plan, scenario.fleet.islands[0])
        if moved is None:
            continue
        plan, island = moved
        if violations(scenario.model, island, plan, scenario.run, scenario.stack):
            continue
        tried = predict(changed(scenario, plan=plan, fleet=changed(scenario.fleet, islands=(island,))))
        lasts, paid = _spent(tried)
        dear = goal.budget is not None and paid is not None and paid > goal.budget
        if tried.fits and not dear and (goal.deadline is None or lasts <= goal.deadline):
            text = moves.island_text(island, moves.catalog_row(island.accelerator))
            sets = () if text is None else (f"fleet.islands.0={text}",)
            return Relaxed(says=f"{float(island.gpus):,.0f} GPUs", sets=sets, wall_clock=lasts, cost=paid)
    return None


def _spent(prediction: Prediction) -> tuple[float, float | None]:
    """How long a run takes, and what it costs."""
    scenario = prediction.scenario
    lasts = float(duration(scenario.run, prediction.step_time, float(prediction.estimate.tokens)))
    paid = cost(scenario.fleet.islands[0], lasts)
    return lasts, None if paid is None else float(paid)
