"""One scenario as a point of a sweep: any figure of it by its name."""

from __future__ import annotations

import numpy as np

from shardmeter.engine.fleet import Whole
from shardmeter.specs import Scenario
from shardmeter.study import islands
from shardmeter.study.course.phases import Leg
from shardmeter.study.sweep.figures import Point, figure


def point_of(scenario: Scenario, whole: Whole, legs: tuple[Leg, ...] | None) -> Point:
    """A scenario that has been evaluated, and its run where figures of that are asked."""
    part = islands.critical(whole)
    return Point(
        island=part.island, plan=part.plan, run=part.run, estimate=whole.estimate, count=1, whole=whole, legs=legs,
        scenario=scenario,
    )  # fmt: skip


def number(name: str, point: Point) -> float | None:
    """A figure that is a number; None where it is null."""
    value = float(figure(name, point)[0])
    return value if np.isfinite(value) else None
