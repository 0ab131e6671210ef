"""The one published study of the three dimensions together, beside what is found here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

OVER_PRODUCTION, OVER_BASELINE = 0.6462, 0.3759
"""ScaleAcross Explorer (arXiv 2605.24326), abstract: up to so much over a production configuration, and over the best baseline."""


def published(cases: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The published maxima, ours with where they are, how many points reach them, and sentences that say so.

    The published baselines are not public: the best that one dimension alone reaches stands for them here."""
    every = [(number, at, point) for number, case in enumerate(cases) for at, point in enumerate(case["points"])]
    told: dict[str, Any] = {
        "over_production": OVER_PRODUCTION,
        "over_best_baseline": OVER_BASELINE,
        "ours": None,
        "says": [],
    }
    if not every:
        return told
    first = max(every, key=lambda one: one[2]["speedup"]["joint"]["value"])
    second = max(every, key=lambda one: one[2]["over_best_single"])
    reached = {
        "over_production": sum(point["speedup"]["joint"]["value"] >= 1.0 + OVER_PRODUCTION for _, _, point in every),
        "over_best_baseline": sum(point["over_best_single"] >= 1.0 + OVER_BASELINE for _, _, point in every),
        "points": len(every),
    }
    told["ours"] = {
        "over_default": {**first[2]["speedup"]["joint"], "case": first[0], "point": first[1]},
        "over_best_single": {"value": second[2]["over_best_single"], "case": second[0], "point": second[1]},
        "reached": reached,
    }
    told["says"] = [
        _over_production(cases, first, reached),
        _over_single(cases, second, reached),
        _why(first[2]),
        _where_little(cases, every),
    ]
    return told


def _where(cases: Sequence[Mapping[str, Any]], one: tuple[int, int, Mapping[str, Any]]) -> str:
    case, point = cases[one[0]], one[2]
    return (
        f"{case['model']} on {case['gpus']:,} GPUs in {case['buildings']} buildings, {point['distance_km']:,.0f} km apart at "
        f"{point['oversubscription']:.3g}:1"
    )


def _over_production(
    cases: Sequence[Mapping[str, Any]], first: tuple[int, int, Mapping[str, Any]], reached: Mapping[str, int]
) -> str:
    value = first[2]["speedup"]["joint"]["value"] - 1.0
    head = f"{OVER_PRODUCTION:.2%} over production is reached at {reached['over_production']} of {reached['points']} points"
    head = (
        head
        if reached["over_production"]
        else f"{OVER_PRODUCTION:.2%} over production is reached at none of {reached['points']} points"
    )
    return f"{head}; the most here is {value:.1%}, with {_where(cases, first)}"


def _over_single(
    cases: Sequence[Mapping[str, Any]], second: tuple[int, int, Mapping[str, Any]], reached: Mapping[str, int]
) -> str:
    value = second[2]["over_best_single"] - 1.0
    count = reached["over_best_baseline"] or "none"
    return (
        f"{OVER_BASELINE:.2%} over the best baseline (here: the best that one dimension alone reaches, which is ours to define) is reached "
        f"at {count} of {reached['points']} points; the most is {value:.1%}, with {_where(cases, second)}"
    )


def _why(point: Mapping[str, Any]) -> str:
    """What the joint choice takes away at the largest speed-up."""
    removed, joint, usual = point["removed"], point["joint"], point["default"]
    if removed["term"] is None:
        return "production is as fast as any choice there"
    saved = usual["step_s"] - joint["step_s"]
    return (
        f"there production's step of {usual['step_s']:.3g} s has {removed['seconds']:.3g} s of {removed['term']} that the joint choice "
        f"({joint['placement_says']}; {joint['schedule_says']}; {joint['network_says']}) does not have, of {saved:.3g} s saved in all"
    )


def _where_little(cases: Sequence[Mapping[str, Any]], every: Sequence[tuple[int, int, Mapping[str, Any]]]) -> str:
    """How many points have next to nothing to gain, and why."""
    little = [one for one in every if one[2]["speedup"]["joint"]["value"] < 1.02]
    if not little:
        return "every point gains 2 % or more"
    least = min(little, key=lambda one: one[2]["speedup"]["joint"]["value"])
    binds = least[2]["bottleneck"]["default"]
    return (
        f"{len(little)} of {len(every)} points gain less than 2 %: there what crosses hides behind the backward already, and what production "
        f"waits for most is no line between buildings ({binds['term']}, {binds['share']:.1%} of the step, with {_where(cases, least)})"
    )
