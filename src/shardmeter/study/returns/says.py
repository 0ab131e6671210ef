"""What was held fixed, and what was found, in sentences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shardmeter.core.quantity import show
from shardmeter.scenario.read import Document
from shardmeter.specs import Scenario
from shardmeter.study.predict import Prediction
from shardmeter.study.returns import said
from shardmeter.study.returns.axis import Axis
from shardmeter.study.returns.knee import NOTHING
from shardmeter.study.returns.words import STRONG, WEAK

Answer = Mapping[str, Any]


def held(axis: Axis, own: Scenario, here: Prediction | None, scaling: str, document: Document) -> list[str]:
    """What stays as it is along the axis: the batch, the length of the run, the plan, and all else."""
    run = own.run if here is None else here.scenario.run
    batch = f"{float(run.global_batch):,.0f} sequences"
    unsaid = said.said(document, "run.global_batch") is None
    if scaling == STRONG:
        made = [
            f"strong scaling: the global batch stays at {batch}, as {'it comes out at the scenario itself' if unsaid else 'the scenario says'}"
        ]
    elif scaling == WEAK:
        way = "follows the plan, which fills the machines" if axis.batch is None else "grows with them"
        made = [f"weak scaling: the global batch is {batch} at the scenario itself and {way}"]
    else:
        made = [] if axis.name == "run.global_batch" else [f"the global batch is {batch} at the scenario itself"]
    made.append(_length(run))
    plan = (
        "the plan is the best one at every point (plan: auto)"
        if own.choices is not None
        else "the plan is the scenario's"
    )
    filled = (
        ", dp_shard filling what its other degrees leave, where it says none"
        if axis.is_size and own.choices is None
        else ""
    )
    return [*made, f"{plan}{filled}; all else is as the scenario says"]


def _length(run: Any) -> str:
    if run.target_loss is not None:
        return f"the run goes to a loss of {float(run.target_loss):g}"
    if run.steps is not None:
        return f"the run is {float(run.steps):,.0f} steps, whatever they hold"
    return f"the run is {show(run.tokens, 'tokens')}"


def found(answer: Answer) -> list[str]:
    """The sentences of the page, the first one the verdict."""
    axis = answer["axis"]
    made = [_knee(answer)]
    made += [text for one in answer["next"][:1] if (text := _next(one, axis))]
    made += _further(answer)
    made += _of_the_run(answer)
    last = [point for point in answer["points"] if point["why"]]
    good = [point for point in answer["points"] if point["fits"]]
    if last and good and last[-1]["x"] > good[-1]["x"]:
        beyond = next(point for point in last if point["x"] > good[-1]["x"])
        made.append(
            f"Beyond {size(good[-1]['x'], axis)} no point is legal: at {size(beyond['x'], axis)} {beyond['why']}."
        )
    return made


def _further(answer: Answer) -> list[str]:
    """What the next point of the curve buys beside the scenario itself, where that is not the next unit."""
    axis, own, one = answer["axis"], answer["own"], answer["next"][0] if answer["next"] else None
    after = next((point for point in answer["points"] if point["fits"] and point["x"] > own["x"]), None)
    if not own["fits"] or after is None or (one is not None and one["to"] == after["x"]):
        return []
    rate = after["tokens_per_s"] - own["tokens_per_s"]
    text = f"From {size(own['x'], axis)} to {size(after['x'], axis)}: {rate:+,.0f} tokens/s ({100 * rate / own['tokens_per_s']:+.1f} %)"
    for key, unit in (("wall_clock_s", "s"), ("cost_usd", "USD")):
        if own[key] is not None and after[key] is not None:
            text += f", {_signed(after[key] - own[key], unit)}"
    return [f"{text}{'' if axis['is_size'] or own['cost_usd'] is None else ', what it costs left out'}."]


LESS = 0.99
"""Share of a step's tokens a second below which it is said what the run makes of them."""


def _of_the_run(answer: Answer) -> list[str]:
    """What interruptions, checkpoints, evaluation and phases leave of the rate of steps, which the curve and its knee are of."""
    axis = answer["axis"]
    good = [point for point in answer["points"] if point["fits"] and point["run_tokens_per_s"] is not None]
    shares = [point["run_tokens_per_s"] / point["tokens_per_s"] for point in good]
    if not shares or min(shares) >= LESS:
        return []
    ends = dict.fromkeys((0, len(good) - 1))
    left = " and ".join(f"{100 * shares[at]:.2g} % at {size(good[at]['x'], axis)}" for at in ends)
    best = max(good, key=lambda point: point["run_tokens_per_s"])
    most = "" if best is good[-1] else f"; the run makes most headway at {size(best['x'], axis)}"
    return [
        f"Over the whole run (interruptions, checkpoints, evaluation, phases) {left} of these tokens/s are left{most}."
    ]


MANY = 1e6
"""From here on a count is written with a letter, as in 16T."""


def size(x: float, axis: Answer) -> str:
    """A place on the axis: `256 GPUs`, `80 Gbit/s`, `micro_batch = 4`."""
    if axis["unit"] == "B/s":
        return show(8.0 * x, "bit/s")
    if axis["unit"]:
        return show(x, axis["unit"])
    number = show(x, "") if x >= MANY and not axis["is_size"] else f"{x:,.0f}" if float(x).is_integer() else f"{x:,.4g}"
    return f"{number} {axis['one']}{'' if x == 1.0 else 's'}" if axis["is_size"] else f"{axis['one']} {number}"


def _knee(answer: Answer) -> str:
    axis, one = answer["axis"], answer["knee"]
    good = [point for point in answer["points"] if point["fits"]]
    if not good:
        return "No point fits."
    ends = f"from {size(good[0]['x'], axis)} to {size(good[-1]['x'], axis)}"
    rates = [point["tokens_per_s"] for point in good]
    if len(good) == 1:
        return f"One point fits, {size(good[0]['x'], axis)}: there is no curve."
    if max(rates) < (1.0 + NOTHING) * min(rates):
        return f"It makes no difference {ends}: {answer['own']['regime']} rules the step."
    if rates[0] == max(rates):
        return f"More of it only slows the run: {rates[0]:,.0f} tokens/s at {size(good[0]['x'], axis)}, {rates[-1]:,.0f} at {size(good[-1]['x'], axis)}."
    if one is None:
        return f"There is no knee {ends}: a step ahead always buys at least half of what a unit bought on average."
    if one["at_start"]:
        return f"The knee lies at {size(one['x'], axis)} or before: from there on more buys less than half of what a unit bought on average."
    lost = f"; {_loses(one['lost'][0]['regime'], one['lost'][0]['share'], axis)} up to there" if one["lost"] else ""
    bought = f"beyond it more buys less than half of what it bought on average so far ({100 * max(one['of_average'], 0.0):.0f} % right behind it)"
    if axis["is_size"]:
        more = one["next_x"] - one["x"]
        many = f"{more:,.0f} {axis['one']}{' buys' if more == 1.0 else 's buy'}"
        bought = f"beyond it the next {many} {100 * max(one['of_first'], 0.0):.0f} % of what the first did"
    return f"The knee is at {size(one['x'], axis)}: {bought}{lost}."


def _loses(regime: str, share: float, axis: Answer) -> str:
    """What rules the loss: of machines what takes more of them, of a number what it does not shorten."""
    return (
        f"{regime} takes {100 * share:.0f} % of what is lost"
        if axis["is_size"]
        else f"{regime} is {100 * share:.0f} % of the time that it does not shorten"
    )


def span(one: Answer, axis: Answer) -> str:
    """A regime of returns in a sentence."""
    ends = f"{size(one['from'], axis)} to {size(one['to'], axis)}"
    rules = "" if one["rules"] is None else f"; {_loses(one['rules'], one['rules_share'], axis)}"
    return f"{one['returns'].capitalize()} from {ends} (exponent {one['exponent']:.2f}){rules}."


def _next(one: Answer, axis: Answer) -> str:
    if one["tokens_per_s"] is None:
        return f"At the scenario itself ({size(one['from'], axis)}) nothing follows: {one['why']}."
    text = f"From {size(one['from'], axis)} to {size(one['to'], axis)}: {one['tokens_per_s']:+,.0f} tokens/s"
    if one["wall_clock_s"] is not None:
        text += f", {_signed(one['wall_clock_s'], 's')}"
    if one["cost_usd"] is not None:
        text += f", {_signed(one['cost_usd'], 'USD')}"
    return f"{text}; a unit buys {100 * one['of_average']:.0f} % of the average."


def _signed(value: float, unit: str) -> str:
    return f"{'-' if value < 0.0 else '+'}{show(abs(value), unit)}"
