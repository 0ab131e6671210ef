"""The sentences of a report: the question, the answer, how sure it is, what is better, what holds it back."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any

from shardmeter.core.alike import kinds
from shardmeter.render import cells, limits, prediction

Answer = Mapping[str, Any]
DAY = 86_400.0
NOTEWORTHY = 0.01
"""Share by which another plan must be better to be told."""


def question(answer: Answer) -> str:
    """What is asked, in words."""
    found = answer["prediction"]
    model, run = found["model"], found["run"]
    size = amount(model["parameters"])
    active = model["active_parameters"]
    some = f", {amount(active)} of them active" if active and active < 0.99 * model["parameters"] else ""
    what = f"{model['name']} ({size} parameters{some})"
    where = fleet(answer["machines"])
    if not run:
        return f"How fast does the training of {what} go on {where}, and does it fit?"
    asked = [
        f"How long does it take to train {what} on {cells.text(run['tokens'], 'tokens')} with {where}, and what does it cost?"
    ]
    if "deadline" in run:
        asked.append(f"Is it done within {cells.text(run['deadline']['s'], 's')}?")
    if "budget" in run:
        asked.append(f"Does it cost no more than {cells.text(run['budget']['usd'], 'USD')}?")
    return " ".join(asked)


def amount(count: float) -> str:
    """`8.03 billion`, `124 million`, `32,768`."""
    for size, word in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million")):
        if float(f"{count:.3g}") >= size:
            return f"{count / size:.3g} {word}"
    return f"{count:,.0f}"


def fleet(islands: Sequence[Answer]) -> str:
    """`64 × H100-SXM5-80GB`, `14 islands of 8 × H100-SXM5-80GB`."""
    groups = kinds(islands, lambda one: (one["gpus"], one["accelerator"]))
    each = [f"{some[0]['gpus']:,.0f} × {some[0]['accelerator']}" for some in groups]
    if len(groups) == 1:
        return each[0] if len(islands) == 1 else f"{len(islands)} islands of {each[0]}"
    counted = [f"{len(some)} of {one}" if len(some) > 1 else one for some, one in zip(groups, each, strict=True)]
    return f"{len(islands)} islands: {' + '.join(counted)}"


def answers(answer: Answer) -> tuple[str, ...]:
    """What the answer is: done when, for how much, how sure."""
    found = answer["prediction"]
    run, said = found["run"], []
    if run:
        cost = run["cost_usd"]
        dear = (
            f"costs {cells.text(cost, 'USD')}{between(found, 'cost_usd', 'USD')}"
            if cost is not None
            else "its cost is not known, for a price is missing"
        )
        said.append(
            f"The run takes {cells.text(run['wall_clock_s'], 's')}{between(found, 'wall_clock_s', 's')} and {dear}."
        )
        said += [*_ends(answer["date"], found), *limits_kept(run)]
    else:
        said.append("No length of the run was said, so that neither its days nor its dollars are known.")
    speed = f"{cells.text(found['tokens_per_s'], 'tokens/s')}{between(found, 'tokens_per_s', 'tokens/s')}"
    step = "" if found["step_time_s"] is None else f", a step every {cells.text(found['step_time_s'], 's')}"
    said.append(f"It trains at {speed}{step}, with an MFU of {cells.text(found['mfu'], '%')}.")
    if not found["fits"]:
        said.append(
            "As it stands it does not fit: all other figures are those of a plan that would have to be changed first."
        )
        said += [f"The first change that makes it fit: {one['change']}." for one in found["way_out"][:1]]
    return tuple(said)


def short(found: Answer) -> tuple[str, ...]:
    """The whole run in a breath: how long, how much, whether its limits are kept."""
    run = found["run"]
    if not run:
        return ()
    cost = "" if run["cost_usd"] is None else f", {cells.text(run['cost_usd'], 'USD')}"
    kept = [
        f"The {name} is {'kept' if run[name]['met'] else 'missed'}{_as_runs_go(run[name])}."
        for name, *_ in limits.LIMITS
        if name in run
    ]
    return (f"{cells.text(run['wall_clock_s'], 's')}{cost}.", *kept)


def _as_runs_go(verdict: Answer) -> str:
    """How likely it is as whole runs went, where that is doubtful."""
    seen = verdict.get("practice")
    if not seen or seen["probability"] is None or seen["probability"] >= prediction.SURE or not verdict["met"]:
        return ""
    return f" by its steps alone; as whole runs went, with a chance of {percent(seen['probability'])}"


def kept_surely(found: Answer) -> bool:
    """Whether every limit that was asked is kept with a high chance, what whole runs took beside their steps counted."""
    run = found["run"] or {}
    chances = [
        chance
        for name, *_ in limits.LIMITS
        if name in run and run[name]["met"]
        for chance in (run[name]["probability"], (run[name].get("practice") or {}).get("probability"))
    ]
    return all(chance is None or chance >= prediction.SURE for chance in chances)


def between(found: Answer, key: str, unit: str) -> str:
    """` (90 %: 22.2 to 28.5 d)`, or nothing."""
    told = prediction.interval_text(found, key, unit)
    return f" ({told})" if told else ""


def limits_kept(run: Answer) -> list[str]:
    """A sentence for every limit that was asked."""
    found = []
    for name, unit, _, word, _ in limits.LIMITS:
        verdict = run.get(name)
        if verdict is None:
            continue
        shown = limits.UNITS[unit]
        margin = cells.text(abs(verdict[f"margin_{unit}"]), shown)
        chance = verdict["probability"]
        sure = "" if chance is None else f", with a chance of {percent(chance)}"
        how = f"is kept with {margin} to spare" if verdict["met"] else f"is missed: {margin} {word}"
        seen = verdict.get("practice")
        as_runs_go = ""
        if seen and seen["probability"] is not None:
            as_runs_go = f" (steps alone; as whole runs went, with a chance of {percent(seen['probability'])})"
        found.append(f"The {name} of {cells.text(verdict[unit], shown)} {how}{sure}{as_runs_go}.")
    return found


def percent(chance: float) -> str:
    """`92 %`, and no more certainty than there is."""
    return "over 99 %" if chance > 0.99 else "below 1 %" if chance < 0.01 else f"{100 * chance:.0f} %"


def _ends(date: str | None, found: Answer) -> list[str]:
    """On which day a run ends that begins on the document's."""
    if not date:
        return []
    bounds = (found["intervals"] or {}).get("wall_clock_s")
    try:
        ends = _after(date, found["run"]["wall_clock_s"])
        range_ = "" if not bounds else f" (90 %: {_after(date, bounds[0])} to {_after(date, bounds[1])})"
    except OverflowError:
        return [f"Begun on {date}, it ends beyond the calendar."]
    return [f"Begun on {date}, it ends on {ends}{range_}."]


def _after(date: str, seconds: float) -> str:
    return (dt.date.fromisoformat(date) + dt.timedelta(days=-(-seconds // DAY))).isoformat()


def better(answer: Answer) -> str:
    """What the search found beside this plan."""
    plans = answer["plans"]
    if plans["why"]:
        return f"It was not set beside other plans: {plans['why']}."
    if not plans["plans"]:
        return "Of all plans that were tried none is feasible."
    best, own = plans["plans"][0], plans["yours"]
    count = f"{plans['space']['feasible']:,} feasible plans of {plans['space']['evaluated']:,}"
    word = plans["objective"][0]
    name = best.get("line") or best["scenario"]["plan"]
    if own is None:
        return f"It is the best plan by {word} of {count}."
    if not own["fits"]:
        return f"This plan does not fit; the best by {word} of {count} is {name}."
    behind = own["behind"]
    if behind < NOTEWORTHY:
        return f"No plan that was tried is better by {word} than this one ({count})."
    tie = ", which measured runs could not tell apart" if own["tie"] else ""
    return f"By {word} it is {100 * behind:.0f} % behind the best plan of the same machines, {name} (of {count}{tie})."


def held_back(found: Answer) -> str:
    """What takes most of the step, and what would relieve it most."""
    bottleneck = found["bottleneck"]
    if not bottleneck.get("term"):
        return ""
    cause = bottleneck.get("cause") or bottleneck["term"]
    share = bottleneck["cause_share"] if bottleneck.get("cause") else bottleneck["share"]
    worth = [one for one in bottleneck.get("relief") or () if one["fits"] and one["gain"] >= NOTEWORTHY]
    first = next((one for one in (*(one for one in worth if one["kind"] == "plan"), *worth)), None)
    relief = "" if first is None else f"; {first['change']} would save {cells.text(first['gain'], '%')}"
    return f"{cause}, {100 * share:.0f} % of the step{relief}"


def sureness(answer: Answer) -> str:
    """How far predictions of this kind were off, in a sentence."""
    block = answer["validation"]
    stack, every = block["stack"], block["everything"]
    off = f"{100 * every['mape']:.0f} % in the mean over all sources"
    unseen = block["unseen"]
    if unseen:
        return f"No measured run had {' or '.join(unseen)}, so that nothing was checked; steps of other runs, their sources left out, were missed by {off}."
    if stack is None:
        return f"No measured run taught this stack: steps of sources that a fit had not seen were missed by {off}."
    own = stack["step_time"]
    left = "" if own["loso_mape"] is None else f"{100 * own['loso_mape']:.0f} % with their source left out, "
    return (
        f"Steps of {own['n']} measured runs of this stack were missed by {left}{100 * own['mape']:.0f} % in sample; those of all stacks, "
        f"sources left out, by {off}."
    )


def practice(answer: Answer, *, classed: bool) -> str:
    """What whole runs took beside their steps, and what that makes of this one; empty where it is counted, or not known. `classed`: with
    the class of runs, which the document says once."""
    seen, run = answer["practice"], answer["prediction"]["run"]
    if seen is None or not run:
        return ""
    hours = cells.text(run["wall_clock_s"] * seen["factor"], "s")
    spread = f"90 % of them {seen['low']:.2f} to {seen['high']:.2f}"
    went = f"Whole runs took {seen['factor']:.2f} times the hours of their steps ({spread}): {hours} here."
    if not classed:
        return f"Nothing is said of them, and nothing of them is in these figures. {went}"
    return (
        f"Nothing is said of what interrupts it, and nothing of that is in these figures. {went} "
        f"Counted are runs of its class: {seen['runs']}."
    )
