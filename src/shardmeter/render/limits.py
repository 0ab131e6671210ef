"""A deadline and a budget, answered yes or no with what is left, as lines of a page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shardmeter.render import cells
from shardmeter.render.document import Fact

Answer = Mapping[str, Any]
LIMITS = (
    ("deadline", "s", "wall_clock_s", "late", "past the deadline"),
    ("budget", "usd", "cost_usd", "over", "over the budget"),
)
"""Of each: its key, the unit of its figures, what it holds, what misses it and how a verdict says that."""
UNITS = {"s": "s", "usd": "USD"}


def facts(answer: Answer, *, classed: bool = True) -> list[Fact]:
    """Of each limit that was asked one line, `yes: 3.2 d to spare (11 %)`, and one of what whole runs took, where nothing is said that
    interrupts this one. Which runs these are the first of them says, unless it is said elsewhere (`classed` false)."""
    run = answer.get("run") or {}
    found = []
    for name, unit, key, word, _ in LIMITS:
        if name in run:
            found.append(Fact(label=name, value=_says(run[name], unit, word), note=_note(answer, run[name], unit, key)))
            beside = _beside(run[name], name, unit, classed=classed)
            found, classed = [*found, *beside], classed and not beside
    return found


def _beside(verdict: Answer, name: str, unit: str, *, classed: bool) -> list[Fact]:
    """`a chance of 62 %: 28.8 d`, as runs of the class went."""
    seen = verdict.get("practice")
    if not seen:
        return []
    took = f"{cells.text(seen[unit], UNITS[unit])}"
    chance = "no chance is told" if seen["probability"] is None else f"a chance of {_chance(seen['probability'])}"
    spread = f"90 % of them {seen['low']:.2f} to {seen['high']:.2f}×"
    note = f"whole runs took {seen['factor']:.2f}× the hours of their steps, {spread}"
    note += f"; of its class: {seen['runs']}" if classed else ""
    return [Fact(label=f"{name} as runs go", value=f"{took}, {chance}", note=note)]


def doubts(answer: Answer) -> list[str]:
    """A sentence for each limit of which two chances are known: that of the steps, and that of whole runs."""
    run = answer.get("run") or {}
    found = []
    for name, *_ in LIMITS:
        verdict = run.get(name) or {}
        seen = verdict.get("practice")
        if seen and verdict["probability"] is not None and seen["probability"] is not None:
            found.append(
                f"Steps alone keep the {name} with a chance of {_chance(verdict['probability'])}; as whole runs went "
                f"({seen['factor']:.2f}× their steps), {_chance(seen['probability'])}."
            )
    return found


def missed(answer: Answer) -> list[str]:
    """A sentence for each limit that the run breaks."""
    run = answer.get("run") or {}
    return [
        f"The run is {_size(run[name], unit)} {says}."
        for name, unit, _, _, says in LIMITS if name in run and not run[name]["met"]
    ]  # fmt: skip


def _says(verdict: Answer, unit: str, word: str) -> str:
    share = cells.text(abs(verdict["margin"]), "%")
    left = "to spare" if verdict["met"] else word
    return f"{'yes' if verdict['met'] else 'no'}: {_size(verdict, unit)} {left} ({share})"


def _size(verdict: Answer, unit: str) -> str:
    return cells.text(abs(verdict[f"margin_{unit}"]), UNITS[unit])


def _note(answer: Answer, verdict: Answer, unit: str, key: str) -> str:
    """The limit and the interval of what it holds; how likely it is kept."""
    said = [f"of {cells.text(verdict[unit], UNITS[unit])}"]
    bounds = (answer.get("intervals") or {}).get(key)
    if bounds:
        said.append(
            f"{100 * answer['intervals']['level']:.0f} % interval {cells.between(bounds[0], bounds[1], UNITS[unit])}"
        )
    if verdict["probability"] is not None:
        said.append(f"a chance of {_chance(verdict['probability'])}")
    if verdict.get("practice"):
        said.append("steps alone: nothing interrupts this run")
    if (answer["run"] or {}).get("other_laws") is not None:
        said.append("no chance is told of the tokens of a loss: laws differ")
    return "; ".join(said)


def _chance(probability: float) -> str:
    return "> 99 %" if probability > 0.99 else "< 1 %" if probability < 0.01 else f"{100 * probability:.0f} %"
