"""How long a run lasts, for how long it holds its accelerators, and what these hours are made of."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from shardmeter.core.errors import BadScenario, Violation
from shardmeter.core.quantity import show
from shardmeter.core.sums import plain_sum
from shardmeter.core.units import Count, Fraction, Number, Seconds
from shardmeter.engine import add
from shardmeter.engine.course import BUSY, Course, courses, is_apart, is_elastic, is_interrupted, step_times
from shardmeter.engine.fleet import Whole
from shardmeter.specs.course import AUTO, STEPS

__all__ = ["HOUR", "answer", "check", "durations", "held", "is_apart", "step_times", "step_tokens", "warnings"]
HOUR = 3600.0
ENDLESS = 1e-4
"""Goodput below which a run does not end."""
STRAGGLERS = "stragglers"


def step_tokens(whole: Whole) -> Number:
    """Tokens that a step adds to a run: those that count or, of models that are trained apart, those of a step of each."""
    return add.folded(part.estimate.tokens for part in whole.parts) if is_apart(whole) else whole.estimate.tokens


def held(whole: Whole, steps: Count) -> list[Seconds]:
    """For how long a run of so many steps holds each island, whatever interrupts it."""
    return [one.seconds for one in courses(whole, steps)]


def durations(whole: Whole, steps: Count) -> tuple[Seconds, Seconds]:
    """(wall clock, that of every accelerator added up) of a run of so many steps. Models that are trained apart let their island
    go when they are done: the slowest one sets the wall clock."""
    own = held(whole, steps)
    if not is_apart(whole):
        return own[0], own[0] * whole.estimate.gpus
    return functools.reduce(np.maximum, own), add.folded(
        lasts * part.estimate.gpus for lasts, part in zip(own, whole.parts, strict=True)
    )


def slowest(legs: Sequence[tuple[Whole, Count]]) -> list[Course]:
    """The courses, leg by leg, of the island that is done last with all of them: those of all where they run together. Models that are
    trained apart begin a leg when they are done with the one before, whatever the others do. Plain numbers."""
    each = [courses(whole, steps) for whole, steps in legs]
    last = max(range(len(each[0])), key=lambda at: plain_sum(float(own[at].seconds) for own in each))
    return [own[last] for own in each]


def goodput(legs: Sequence[tuple[Whole, Count]]) -> Fraction:
    """Productive over all seconds, of whichever island is done last in every leg. Numbers may be arrays."""
    work, wall = [], []
    for whole, steps in legs:
        first, *others = courses(whole, steps)
        productive, seconds = first.productive, first.seconds
        for one in others:
            later = np.greater(one.seconds, seconds)
            productive, seconds = np.where(later, one.productive, productive), np.where(later, one.seconds, seconds)
        work.append(productive)
        wall.append(seconds)
    return add.folded(work) / add.folded(wall)


def answer(legs: Sequence[tuple[Whole, Count]]) -> dict[str, Any]:
    """`goodput`, `hours[]`, `checkpoints` and `interruptions` of the answer, all phases together; a goodput of None where nothing is said
    that could interrupt the run."""
    if not is_interrupted(legs[0][0]):
        return {"goodput": None}
    each = slowest(legs)
    names = [name for name, _ in each[0].terms]
    totals = {name: float(add.folded(dict(one.terms)[name] for one in each)) for name in names}
    wall = add.folded(totals.values())
    said = _bases(legs[0][0], each)
    return {
        "goodput": float(goodput(legs)),
        "hours": [
            {"term": name, "seconds": seconds, "share": seconds / wall, "basis": said[name]}
            for name, seconds in totals.items()
            if seconds > 0.0
        ],
        "checkpoints": _written(each[0]),
        "interruptions": float(add.folded(one.strikes for one in each)),
    }


def _written(one: Course) -> dict[str, Any] | None:
    writing = one.writing
    if writing is None or not np.any(writing.write):
        return None
    return {
        "interval_s": float(writing.interval),
        "write_s": float(writing.write),
        "exposed_s": float(writing.shown),
    }


def _bases(whole: Whole, each: Sequence[Course]) -> dict[str, str]:
    """What every term rests on."""
    run, first = whole.parts[0].run, each[0]
    late = next((t.seconds / whole.estimate.step_time for t in whole.estimate.terms if t.label == STRAGGLERS), 0.0)
    waits = f"; {100.0 * float(late):.1f} % of it for the slowest rank of each step" if np.any(late) else ""
    asked = run.evaluation
    pauses = ""
    if asked is not None:
        often = f"{asked.every:,.0f} steps" if asked.unit == STEPS else show(float(asked.every), "s")
        pauses = f"{show(float(asked.lasts), 's')} every {often}"
    strikes = add.folded(one.strikes for one in each)
    often = f"{float(strikes):,.{0 if float(strikes) >= 10.0 else 2}f} interruptions"
    if float(first.rate) > 0.0:
        often += f", one every {show(1.0 / float(first.rate), 's')} of running"
    goes_on = is_elastic(whole)
    weighted = "; by its tokens, for the other islands go on" if goes_on else ""
    return {
        "productive": f"steps that count{waits}",
        "evaluation": pauses,
        "checkpoints": _rhythm(whole, first),
        "lost work": f"back to the last {'round' if goes_on else 'checkpoint'}{_behind(whole, first)}{weighted}",
        "restarts": f"{often}{weighted}",
        "waits for capacity": f"until there are machines for all again{weighted}",
        "waits for the next round": f"an island that is back joins at a round's beginning{weighted}",
    }


def _behind(whole: Whole, one: Course) -> str:
    """When checkpoints are written that nobody waits for."""
    writing = one.writing
    return "" if writing is None or not np.any(writing.behind) else f", {_rhythm(whole, one)}"


def _rhythm(whole: Whole, one: Course) -> str:
    """`46 s every 23 min (Daly's interval)`."""
    asked, writing = whole.parts[0].run.checkpoint, one.writing
    if asked is None or writing is None or not np.any(writing.write):
        return "written when capacity is taken away"
    how = "as said"
    if asked.unit == AUTO:
        how = "Daly's interval" if asked.blocking else _unhurried(one)
    behind = "" if asked.blocking else ", behind the steps"
    return f"{show(float(writing.write), 's')} every {show(float(writing.interval), 's')} ({how}){behind}"


def _unhurried(one: Course) -> str:
    """What sets the distance between checkpoints that nobody waits for."""
    share = float(np.max(np.asarray(one.writing.write / one.writing.interval))) if one.writing is not None else 0.0
    ours = ", a choice of ours: say every: 15 min" if np.isclose(share, BUSY) else ""
    return f"{100.0 * share:.2g} % of the store's time{ours}"


def ends(whole: Whole, steps: Count) -> Any:
    """Whether a run comes to its end, or is interrupted too often for that. Numbers may be arrays."""
    return functools.reduce(np.logical_and, [_ends(one) for one in courses(whole, steps)])


def _ends(one: Course) -> Any:
    """Whether interruptions leave enough of an island's time to what it does: steps, and the pauses and checkpoints that are asked for."""
    said = dict(one.terms)
    useful = add.folded(said.get(name, 0.0) for name in ("productive", "evaluation", "checkpoints"))
    return np.less_equal(one.rate, 0.0) | (np.isfinite(one.seconds) & np.greater_equal(useful, ENDLESS * one.seconds))


def check(whole: Whole, steps: Count) -> None:
    """Raise BadScenario for a run that is interrupted so often that it does not end. Pauses and checkpoints that are asked for do not
    count: they end."""
    for part, one in zip(whole.parts, courses(whole, steps), strict=True):
        if np.all(_ends(one)):
            continue
        causes = ["run.failures"] if part.run.failures is not None else []
        causes += [f"fleet.islands.{part.island.name}.preemption"] if part.island.preemption is not None else []
        says = f"one interruption every {show(1.0 / float(one.rate), 's')}: less than {100 * ENDLESS:g} % of the time would train"
        apart = "" if is_elastic(whole) else "islands that go on without one another (plan.sync: diloco), "
        raise BadScenario(
            "the run does not end",
            [
                Violation(
                    field=" and ".join(causes),
                    says=says,
                    rule="a restart must end before the next interruption",
                    way_out=f"{apart}fewer units, a shorter restart",
                )
            ],
        )


def warnings(whole: Whole, steps: Count | None) -> list[str]:
    """What a reader of the hours may overlook."""
    if steps is None:
        return []
    run, found = whole.parts[0].run, []
    spot = [
        part.island.name for part in whole.parts if part.island.tariff.kind == "spot" and part.island.preemption is None
    ]
    if spot:
        says = f"{', '.join(spot[:3])}: rented on the spot market, and nothing is said of how it is taken away"
        found.append(f"{says} (say preemption: aws-spot of the island; shardmeter catalog failures)")
    writing, asked = slowest([(whole, steps)])[0].writing, run.checkpoint
    if asked is not None and writing is not None and asked.unit != AUTO and not asked.blocking:
        step = float(max(np.max(one) for one in step_times(whole)))
        wanted = float(asked.every) * (step if asked.unit == STEPS else 1.0)
        if wanted < float(writing.write):
            found.append(
                f"checkpoints take {show(float(writing.write), 's')}: one every {show(wanted, 's')} cannot be written, one follows the other"
            )
    return found
