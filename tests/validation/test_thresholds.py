"""Published thresholds and curves, which are formulas and simulations: found by evaluating whole steps, with the error that is promised."""

from __future__ import annotations

import numpy as np
import pytest

from shardmeter.study.validate import shipped
from shardmeter.study.validate.geo import bandwidth
from shardmeter.study.validate.thresholds import THRESHOLDS, Threshold, found

OFF = 0.015
"""Largest error of a threshold on an ideal machine."""


@pytest.mark.parametrize("one", THRESHOLDS, ids=lambda one: one.slug)
def test_the_scaling_books_thresholds(one: Threshold) -> None:
    """On an ideal machine the crossing is the formula's, without what that leaves out; on a real one products are slower and ask for less
    of a link than the peak would."""
    ours = found(one.ideal, one.axis, one.each)
    assert ours == pytest.approx(one.exact, rel=OFF)
    if one.real is not None:
        real = found(one.real, one.real_axis)
        assert real is not None
        assert real < one.exact


def test_the_books_own_numbers() -> None:
    said = {one.slug: round(one.book) for one in THRESHOLDS if one.unit == "tokens"}
    assert said == {
        "v5p-one-axis": 2550, "v5p-three-axes": 850, "h100-node": 2200, "h100-nodes": 2475, "h100-two-nodes": 1238, "b200-nodes": 5625,
    }  # fmt: skip


def test_utilisation_over_a_link() -> None:
    """Streaming DiLoCo's table, 75 bandwidths on a grid of steps of 1.207: most are met exactly, all but one within a step."""
    rows = [
        row for row in shipped.geo().rows if "Table 4" in row.text("source") and bandwidth.target_of(row) is not None
    ]
    ours = np.array([bandwidth.wan_bandwidth(row) for row in rows])
    printed = np.array([float(row.text("value")) * bandwidth.GBIT for row in rows])
    steps = np.array(
        [bandwidth.grid_step(one) - bandwidth.grid_step(other) for one, other in zip(ours, printed, strict=True)]
    )
    assert len(rows) == 75
    assert np.sum(steps == 0) >= 66
    assert np.sum(np.abs(steps) <= 1) >= 74
    assert np.mean(np.abs(ours / printed - 1.0)) < 0.025
