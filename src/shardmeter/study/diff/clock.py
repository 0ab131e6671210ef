"""Why one wall clock is longer than another: more tokens, a longer step, more interruptions; the three sum to the difference."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from shardmeter.core.sums import plain_sum
from shardmeter.study.diff.figures import ALONE, SAME, Answer, of

INTERRUPTIONS = "interruptions"
SAME_STEP = 1e-9
"""Share within which the tokens of a step are the same."""
WORDS = {
    "tokens": ("more tokens", "fewer tokens"),
    "step": ("a longer step", "a shorter step"),
    "time a token": ("more time a token", "less time a token"),
}
"""By term: what it is that makes a run longer, and shorter."""


def decomposed(a: Answer, b: Answer) -> dict[str, Any] | None:
    """`wall_clock` of the answer; None where not both have a run.

    Wall clock = tokens · seconds a token + interruptions. What tokens and seconds a token make together goes half to either, so that the
    terms sum to the difference and B against A has the other sign. Where a step has the same tokens in both, seconds a token are told
    as the step that they are in proportion to, else as they are: of unlike batches neither steps nor their number compare."""
    walls = [of(one, "run.wall_clock_s") for one in (a, b)]
    if None in walls:
        return None
    work = [_productive(one) for one in (a, b)]
    tokens = [float(one["run"]["tokens"]) for one in (a, b)]
    paces = [seconds / count for seconds, count in zip(work, tokens, strict=True)]
    each = [_step_tokens(one) for one in (a, b)]
    one, other = each
    alike = one is not None and other is not None and abs(other - one) <= SAME_STEP * one
    slow = [pace * (own or 1.0) for pace, own in zip(paces, each, strict=True)] if alike else paces
    more = (tokens[1] - tokens[0]) * 0.5 * (paces[0] + paces[1])
    longer = (paces[1] - paces[0]) * 0.5 * (tokens[0] + tokens[1])
    rest = [wall - done for wall, done in zip(walls, work, strict=True)]
    return {
        "figure": "run.wall_clock_s",
        "unit": "s",
        "terms": [
            _term("tokens", "tokens", tokens, more),
            _term("step" if alike else "time a token", "s", slow, longer),
            _term(INTERRUPTIONS, "s", rest, rest[1] - rest[0]),
        ],
        "total": _term("together", "s", walls, walls[1] - walls[0]),
    }


def _term(name: str, unit: str, sides: list[float], difference: float) -> dict[str, Any]:
    return {"term": name, "unit": unit, "a": sides[0], "b": sides[1], "difference": difference}


def _productive(answer: Answer) -> float:
    """Seconds of steps that count: all of them where nothing interrupts."""
    rows = of(answer, "run.hours")
    if rows is None:
        return float(of(answer, "run.wall_clock_s"))
    return float(plain_sum(row["seconds"] for row in rows if row["term"] == ALONE))


def _step_tokens(answer: Answer) -> float | None:
    """Of a step; None where steps are unlike, by phases or because islands are trained apart."""
    step = of(answer, "step_time_s")
    return None if step is None or of(answer, "run.phases") else float(step * answer["tokens_per_s"])


def ruling(found: Answer, hours: Answer | None) -> dict[str, Any] | None:
    """The term that makes most of the difference of the wall clock, in its direction; of interruptions which one. None where none
    differs."""
    whole = found["total"]["difference"]
    sign = 1.0 if whole >= 0.0 else -1.0
    least = SAME * max(found["total"]["a"], found["total"]["b"])
    moved = [(name, change) for name, change in _changes(found, hours) if abs(change) > least]
    if not moved:
        return None
    name, change = max(moved, key=lambda one: sign * one[1])
    return {"ledger": "wall_clock", "term": name, "difference": change, "of": whole}


def _changes(found: Answer, hours: Answer | None) -> Iterator[tuple[str, float]]:
    for one in found["terms"]:
        if one["term"] != INTERRUPTIONS:
            yield WORDS[one["term"]][one["difference"] < 0.0], one["difference"]
    for one in hours["terms"] if hours is not None else ():
        if one["term"] != ALONE:
            yield one["term"], one["difference"]
