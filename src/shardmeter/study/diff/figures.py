"""Two answers beside each other: their figures, the terms that these sum from, and the term that rules a difference."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from shardmeter.core.record import record

Answer = Mapping[str, Any]
LOSS = "run.loss"
"""Its unit is that of its law."""
FIGURES = (
    ("step_time_s", "step", "s"), ("tokens_per_s", "throughput", "tokens/s"), ("tokens_per_s_per_gpu", "per GPU", "tokens/s"),
    ("mfu", "MFU", "%"), ("gpus", "GPUs", ""), ("memory.peak_gib", "memory peak", "GiB"), ("fits", "fits", ""),
    ("fits_probability", "chance to fit", "%"), ("run.wall_clock_s", "wall clock", "s"), ("run.tokens", "tokens", "tokens"),
    ("run.steps", "steps", ""), ("run.gpu_hours", "GPU time", "GPU-hours"), ("run.goodput", "goodput", "%"),
    ("run.cost_usd", "cost", "USD"), ("run.energy_kwh", "energy", "kWh"), ("run.carbon_kg", "carbon", "kg"),
    (LOSS, "loss", "nats"),
)  # fmt: skip
"""(key of the `predict` JSON, label, unit) of what is put beside each other."""
INTERVALS = {"memory.peak_gib": "memory_peak_gib"}
"""The key of an interval where it is not the last part of its figure's."""
SAME = 1e-12
"""Share of the larger of two numbers below which they are the same: rounding."""


@record
class Ledger:
    """Terms that sum to a figure."""

    name: str
    figure: str
    """What they sum to, as in `FIGURES`."""
    terms: str
    """Where they stand in the answer."""
    key: str
    """What of a term is summed."""
    unit: str
    noun: str


LEDGERS = (
    Ledger(name="step", figure="step_time_s", terms="ledger", key="seconds", unit="s", noun="step"),
    Ledger(name="hours", figure="run.wall_clock_s", terms="run.hours", key="seconds", unit="s", noun="wall clock"),
    Ledger(name="dollars", figure="run.cost_usd", terms="run.cost_terms", key="usd", unit="USD", noun="cost"),
    Ledger(name="electricity", figure="run.energy_kwh", terms="run.energy", key="kwh", unit="kWh", noun="energy"),
    Ledger(name="memory", figure="memory.peak_gib", terms="memory.terms", key="gib", unit="GiB", noun="memory peak"),
)
"""In the order in which a sentence looks for a difference to tell, behind that of the wall clock."""
ALONE = "productive"
"""The only term of a run that nothing interrupts."""


def of(answer: Answer, path: str) -> Any:
    """What stands at `run.cost_usd` of an answer; None where a part of the way is not there."""
    found: Any = answer
    for step in path.split("."):
        found = None if found is None else found.get(step)
    return found


def figures(a: Answer, b: Answer) -> list[dict[str, Any]]:
    """`figures` of the answer: those that one of the two has."""
    found = []
    for key, label, unit in FIGURES:
        one, other = of(a, key), of(b, key)
        if one is None and other is None:
            continue
        bounds = [(side.get("intervals") or {}).get(INTERVALS.get(key, key.rpartition(".")[2])) for side in (a, b)]
        counted = None not in (one, other) and not isinstance(one, bool)
        found.append({
            "figure": key, "label": label, "unit": _unit_of_loss(a, b) if key == LOSS else unit, "a": one, "b": other, "difference": other - one if counted else None,
            "ratio": other / one if counted and one else None, "interval_a": bounds[0], "interval_b": bounds[1],
            "basis_a": None, "basis_b": None,
        })  # fmt: skip
    return found


def _unit_of_loss(a: Answer, b: Answer) -> str:
    """That of the law of either."""
    return next(str(law["unit"]) for side in (a, b) if (law := of(side, "run.law")) is not None)


def ledgers(a: Answer, b: Answer) -> dict[str, Any]:
    """`ledgers` of the answer: every term of the figures that both have, 0 where one of the two does not have it; the differences sum
    to that of the figure."""
    found = {}
    for ledger in LEDGERS:
        one, other = _terms(a, ledger), _terms(b, ledger)
        if one is None or other is None:
            continue
        terms = [_entry(name, one.get(name, 0.0), other.get(name, 0.0)) for name in dict.fromkeys([*one, *other])]
        total = _entry("together", *(_total(side, ledger, own) for side, own in ((a, one), (b, other))))
        found[ledger.name] = {"figure": ledger.figure, "unit": ledger.unit, "terms": terms, "total": total}
    return found


def _entry(term: str, a: float, b: float) -> dict[str, Any]:
    return {"term": term, "a": a, "b": b, "difference": b - a}


def _terms(answer: Answer, ledger: Ledger) -> dict[str, float] | None:
    """Terms by name, those of one name together; None where what they sum to is not known or not asked."""
    whole, rows = of(answer, ledger.figure), of(answer, ledger.terms)
    if ledger.name == "hours" and whole is not None and rows is None:
        return {ALONE: whole}
    if not rows or (whole is None and ledger.name != "step"):
        return None
    found: dict[str, float] = {}
    for row in rows:
        found[row["term"]] = found.get(row["term"], 0.0) + row[ledger.key]
    return found


def _total(answer: Answer, ledger: Ledger, terms: Mapping[str, float]) -> float:
    """What the terms sum to: the figure itself or, where no step is common to all, that of the island that sets the pace."""
    whole: float | None = of(answer, ledger.figure)
    return math.fsum(terms.values()) if whole is None else whole


def ruling(found: Mapping[str, Any]) -> dict[str, Any] | None:
    """The term that makes most of the difference of the first ledger that differs; None where none does. That of the wall clock is left
    to `clock`."""
    each = (most(name, ledger) for name, ledger in found.items() if name != "hours")
    return next((one for one in each if one is not None), None)


def most(name: str, ledger: Answer) -> dict[str, Any] | None:
    """The term of a ledger that makes most of its difference, in its direction."""
    moved = [one for one in ledger["terms"] if not _same(one["a"], one["b"])]
    if not moved:
        return None
    whole = ledger["total"]["difference"]
    most = max(moved, key=lambda one: one["difference"] if whole >= 0.0 else -one["difference"])
    return {"ledger": name, "term": most["term"], "difference": most["difference"], "of": whole}


def _same(a: float, b: float) -> bool:
    return abs(b - a) <= SAME * max(abs(a), abs(b))


def of_both(a: Sequence[str], b: Sequence[str]) -> list[str]:
    """Sentences of two answers: those of one alone say whose they are."""
    return [
        *(text if text in b else f"A: {text}" for text in a),
        *(f"B: {text}" for text in b if text not in a),
    ]


def warnings(a: Answer, b: Answer) -> list[str]:
    """What a reader of the comparison may overlook."""
    found = []
    steps = [of(one, "step_time_s") for one in (a, b)]
    if None not in steps:
        each, other = (step * one["tokens_per_s"] for step, one in zip(steps, (a, b), strict=True))
        if abs(other - each) > 1e-9 * each:
            found.append(f"a step of B trains {other / each:.4g} times the tokens of one of A: compare the throughput")
    else:
        found.append("no step is common to all islands: the ledger is that of the island that sets the pace")
    if (of(a, "run") is None) != (of(b, "run") is None):
        found.append(
            f"{'A' if a['run'] is None else 'B'} has no length of its run (run.tokens): only the other has one"
        )
    return found
