"""Whether a run as it was said fits into memory at all: one that was measured did."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shardmeter.specs import Scenario
from shardmeter.study import relief_islands, trust
from shardmeter.study.doctor.world import World
from shardmeter.study.relief import Outcome, ways_out

GIB = 2.0**30
RECOMPUTED = "plan.recompute="
"""What a run that fits and was said not to most often does without a word."""


def room(scenario: Scenario, base: World) -> dict[str, Any]:
    """`memory` of the answer, in GiB: peak and limit of the fullest GPU, whether it fits, how likely; where it does not, the change that
    makes it fit as `otherwise`: recomputation where that suffices, else the fastest.

    Leaves out: changes together, unless no single one suffices (then two, or all that save)."""
    e = base.estimate
    peak, limit = float(e.memory_peak), float(e.memory_limit)
    ways = () if peak <= limit else _ways(scenario, base)
    return {
        "peak_gib": peak / GIB,
        "limit_gib": limit / GIB,
        "fits": peak <= limit,
        "fits_probability": trust.fits_probability(scenario, peak, limit, float(e.memory_exact)),
        "otherwise": _likeliest(ways).to_dict() if ways else None,
    }


def has_room(there: World, base: World) -> bool:
    """Whether another run can be made beside the one that was: it fits, or needs no more than that one does."""
    most = max(float(there.estimate.memory_limit), float(base.estimate.memory_peak))
    return float(there.estimate.memory_peak) <= most


def _ways(scenario: Scenario, base: World) -> Sequence[Outcome]:
    if len(scenario.fleet.islands) == 1:
        return ways_out(scenario, base.estimate)
    return relief_islands.ways_out(scenario, base.whole)


def _likeliest(ways: Sequence[Outcome]) -> Outcome:
    recomputed = (one for one in ways if one.sets and all(text.startswith(RECOMPUTED) for text in one.sets))
    return next(recomputed, ways[0])
