"""The one published study of the three dimensions together, beside what is found here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

OVER_PRODUCTION, OVER_BASELINE = 0.6462, 0.3759
"""ScaleAcross Explorer (arXiv 2605.24326), abstract: up to so much over a production configuration, and over the best baseline."""
LITTLE = 1.02
"""Speed-up below which a point gains little."""
NONE = 1.01
"""Speed-up below which nothing is worth a change."""
LINES = "wide-area link"
"""Cause of what the lines between buildings hold up."""
Case: TypeAlias = Mapping[str, Any]
At: TypeAlias = tuple[int, int, Mapping[str, Any]]
"""A point with the places of its case and of itself."""


def published(cases: Sequence[Case]) -> dict[str, Any]:
    """The published maxima, ours with where they are, how many points reach them, and rows and sentences that say so.

    The published baselines are not public: the best that one dimension alone reaches stands for them here."""
    every = [(number, at, point) for number, case in enumerate(cases) for at, point in enumerate(case["points"])]
    told: dict[str, Any] = {
        "over_production": OVER_PRODUCTION, "over_best_baseline": OVER_BASELINE, "ours": None, "rows": [], "says": [],
    }  # fmt: skip
    if not every:
        return told
    first = max(every, key=lambda one: _gained(one[2]))
    second = max(every, key=lambda one: one[2]["over_best_single"])
    reached = {
        "over_production": sum(_gained(point) >= 1.0 + OVER_PRODUCTION for _, _, point in every),
        "over_best_baseline": sum(point["over_best_single"] >= 1.0 + OVER_BASELINE for _, _, point in every),
        "points": len(every),
    }
    told["ours"] = {
        "over_default": {**first[2]["speedup"]["joint"], "case": first[0], "point": first[1]},
        "over_best_single": {"value": second[2]["over_best_single"], "case": second[0], "point": second[1]},
        "reached": reached,
    }
    told["rows"] = [
        _row(
            f"{percent(OVER_PRODUCTION)} over production", _reached(reached["over_production"], len(every)),
            _most(cases, first, _gained(first[2])),
        ),
        _row(
            f"{percent(OVER_BASELINE)} over the best baseline", _reached(reached["over_best_baseline"], len(every)),
            f"{_most(cases, second, second[2]['over_best_single'])}; over the best that one dimension alone reaches: their baselines are "
            "not public",
        ),
        _row("why there", *_why(first[2])),
        _row("why not elsewhere", *_where_little(every)),
    ]  # fmt: skip
    told["says"] = [f"{row['label']}: {row['value']}; {row['note']}" for row in told["rows"]]
    return told


def percent(share: float) -> str:
    """64.62 %; what is ours is told with two digits, from 10 % on whole."""
    return f"{100.0 * share:.2f} %"


def _ours(ratio: float) -> str:
    share = 100.0 * (ratio - 1.0)
    return f"{share:.0f} %" if share >= 9.95 else f"{share:.1f} %"


def _row(label: str, value: str, note: str) -> dict[str, str]:
    return {"label": label, "value": value, "note": note}


def _gained(point: Mapping[str, Any]) -> float:
    return float(point["speedup"]["joint"]["value"])


def _reached(count: int, points: int) -> str:
    """At how many networks a maximum is reached."""
    return f"reached at {count:,} of {points:,}" if count else "not reached"


def _most(cases: Sequence[Case], one: At, ratio: float) -> str:
    """What is reached here at most, and where."""
    case, point = cases[one[0]], one[2]
    return (
        f"most here {_ours(ratio)}: {case['model']} on {case['gpus']:,} GPUs in {case['buildings']} buildings, "
        f"{point['oversubscription']:.3g}:1 over {point['distance_km']:,.0f} km"
    )


def _why(point: Mapping[str, Any]) -> tuple[str, str]:
    """What the joint choice takes away at the largest speed-up."""
    removed, joint, usual = point["removed"], point["joint"], point["default"]
    if removed["term"] is None or _gained(point) < NONE:
        return "nothing to gain", "production is within 1 % of the best choice everywhere"
    saved = usual["step_s"] - joint["step_s"]
    by = f"{joint['placement_says']}; {joint['schedule_says']}; {joint['network_says']}"
    of = f"{removed['seconds']:.3g} s less of it, {saved:.3g} s less in all of production's {usual['step_s']:.3g} s"
    return removed["term"], f"{of}, by {by}"


def _where_little(every: Sequence[At]) -> tuple[str, str]:
    """How many points have next to nothing to gain, and what holds production up there most."""
    little = [point["bottleneck"]["default"] for _, _, point in every if _gained(point) < LITTLE]
    if not little:
        return "nowhere", "every network gains 2 % or more"
    terms = Counter(one["term"] for one in little).most_common(3)
    waits = ", ".join(f"{term} ({count:,})" for term, count in terms)
    hides = all(one["cause"] != LINES for one in little)
    rest = ", which no line between buildings changes: what crosses hides behind the backward" if hides else ""
    return f"{len(little):,} of {len(every):,} below 2 %", f"production waits there most for {waits}{rest}"
