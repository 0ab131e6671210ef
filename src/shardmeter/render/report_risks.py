"""What could make a report wrong: every risk with what is known of its size, the first ones first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from shardmeter.core.record import changed
from shardmeter.core.sums import plain_sum
from shardmeter.render import cells, prediction, report_words, sensitivity
from shardmeter.render.document import Column, Section, Table
from shardmeter.render.figure import Figure
from shardmeter.render.paper import Chapter

Answer = Mapping[str, Any]
MOVERS = 5
"""Numbers of the scenario that are shown with what half and twice of them do."""
FAR = 8.0
"""Distance of the nearest measured run from which on none is called near."""
WARNING = "warning"
Risk = tuple[str, str]
"""What it is of, and what is known of it."""


def chapter(answer: Answer) -> Chapter:
    """All risks, and the numbers that an answer hangs on most."""
    found = tuple(risks(answer))
    table = Table(
        title="Risks",
        columns=(Column(key="of", title="of"), Column(key="says", title="what is known of it", wide=True)),
        rows=tuple({"of": of, "says": says} for of, says in found),
    )
    says = "What is doubtful in this very case stands first, what holds of every such prediction last."
    return Chapter(title="What could make it wrong", says=(says,), sections=(table, *_movers(answer["sensitivity"])))


def first(answer: Answer) -> str:
    """The first risk, as the end of a sentence."""
    found = next(risks(answer), None)
    if found is None:
        return ""
    of, says = found
    return says if of == WARNING else f"{of}. {says}"


def risks(answer: Answer) -> Iterator[Risk]:
    """Every risk: what is doubtful here comes before what is always so."""
    found = answer["prediction"]
    if prediction.doubtful(found):
        chance = report_words.percent(found["fits_probability"])
        yield (
            "memory",
            f"it is borderline: the chance to fit is {chance}; a fuller GPU than predicted ends the run at once.",
        )
    for text in found["warnings"]:
        yield WARNING, text
    practice = report_words.practice(answer, classed=False)
    if practice:
        yield "interruptions", practice
    yield from _of_data(answer)
    yield from _of_run(answer)
    yield from _always(answer)


def _of_data(answer: Answer) -> Iterator[Risk]:
    """Measured runs that are few, far, or were missed more often than an interval says."""
    block = answer["validation"]
    stack, near = block["stack"], block["nearest"]
    if stack is not None:
        coverage = stack["step_time"]["coverage_90"]
        if coverage is not None and coverage < block["level"] - 0.05:
            held = f"{100 * coverage:.0f} % of this stack's measured runs lie inside their 90 % intervals (mean over its sources)"
            yield "intervals", f"{held}: they are too narrow for some sources."
    if near:
        closest = near[0]
        if closest["distance"] >= FAR:
            far = f"{closest['distance']:.0f} factors of two away ({closest['model']} on {closest['gpus']:,.0f} × {closest['accelerator']})"
            yield "extrapolation", f"no measured run is near: the nearest is {far}."
    across = block["islands"]
    if across and "iteration_time" in across:
        one = across["iteration_time"]
        off = f"{100 * one['mape']:.0f} % in the mean, {100 * one['p90_ape']:.0f} % in the worst tenth"
        yield (
            "lines between islands",
            f"measured iterations over slow links ({one['n']} rows) were missed by {off}; what a line gives varies in use.",
        )


def _of_run(answer: Answer) -> Iterator[Risk]:
    """What a run meets beside its steps: prices, electricity, laws."""
    found = answer["prediction"]
    run = found["run"]
    if not run:
        return
    prices = [f"{one['name']}: {one['source']}" for one in answer["sources"] if one["part"] == "price"]
    if run["cost_usd"] is None:
        yield "prices", "one is missing, so that the cost is not known."
    elif prices:
        yield "prices", f"they are those of a day, and move: {'; '.join(prices)}."
    bounds = run.get("energy_range_kwh")
    if bounds:
        yield (
            "energy",
            f"between {cells.text(bounds[0], 'kWh')} and {cells.text(bounds[1], 'kWh')}, the rating of the machines.",
        )
    laws = run.get("other_laws")
    if laws:
        tokens = [one["tokens"] for one in laws]
        ends = f"{cells.text(min(tokens), 'tokens')} to {cells.text(max(tokens), 'tokens')}"
        yield (
            "law of the loss",
            f"other published laws reach the same loss with {ends} instead of {cells.text(run['tokens'], 'tokens')}.",
        )


def _always(answer: Answer) -> Iterator[Risk]:
    """The interval of a step, the effect of a method on the loss, estimates in the memory."""
    found = answer["prediction"]
    told = prediction.interval_text(found, "step_time_s", "s") or prediction.interval_text(
        found, "tokens_per_s", "tokens/s"
    )
    if told:
        yield "speed", f"{told}; it rests on {found['intervals']['basis']}."
    effect = (found["sync"] or {}).get("loss_effect")
    if effect and (effect["nats"] or effect["factor"] not in (None, 1.0) or effect["factor"] is None):
        yield (
            "what is learned",
            f"the way islands are kept together changes the loss ({effect['basis']}): {effect['text']}",
        )
    zero = found["zero_order"]
    if zero:
        yield "what is learned", f"steps without a backward: the loss is not known ({zero['loss_text']})"
    memory = found["memory"]
    guessed = plain_sum(one["gib"] for one in memory["terms"] if one["exactness"] == "estimated")
    if guessed:
        yield (
            "memory",
            f"{guessed:.1f} of {memory['peak_gib']:.1f} GiB are estimated, not counted; nothing of memory is fitted.",
        )


def _movers(block: Answer) -> tuple[Section | Figure, ...]:
    """The numbers of the scenario that the answer hangs on most."""
    if block["why"]:
        return ()
    table = sensitivity.ranked(block, MOVERS)
    filled = tuple(one for one in table.columns if any(row.get(one.key) for row in table.rows))
    table = changed(table, columns=filled)
    return (*sensitivity.figures(block), table)
