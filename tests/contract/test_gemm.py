"""The fill of a product against its own search: the depth is cut as often as is best, and nothing jumps where cutting begins."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmeter.physics.gemm import TILE, WAVE_LOSS, gemm_fill

sizes = st.floats(16.0, 1e5)


@given(sizes, sizes, sizes, st.floats(1.0, 200.0), st.floats(16.0, 1000.0))
def test_the_depth_is_cut_into_the_best_number_of_parts(
    m: float, n: float, k: float, processors: float, depth: float
) -> None:
    """Try parts from 1 to 10⁶ by steps of a thousandth: none beats the closed form, and one comes as near as the steps allow."""
    short, idle = depth / k, WAVE_LOSS * TILE * processors / (m * n)
    parts = np.concatenate(([1.0], np.exp(np.linspace(0.0, np.log(1e6), 14_000))))
    tried = ((1.0 + parts * short) * (1.0 + idle / parts)).min()
    found = gemm_fill(m, n, k, 1.0, processors, depth)
    assert found <= tried * (1.0 + 1e-12)
    assert found == pytest.approx(tried, rel=1e-5)


def test_cutting_begins_where_both_losses_are_equal_without_a_jump() -> None:
    m = n = 1024.0
    even = 300.0 * m * n / (WAVE_LOSS * TILE * 132.0)
    near, far = (gemm_fill(m, n, even * by, 1.0, 132.0, 300.0) for by in (1.0 - 1e-9, 1.0 + 1e-9))
    assert near == pytest.approx(far, rel=1e-8)


def test_a_weight_gradient_over_many_tokens_is_not_slow_for_its_small_matrix() -> None:
    """768 × 768 over 10⁵ tokens has 18 tiles for 108 processors: whole depths would leave five of six idle."""
    whole = 1.0 + WAVE_LOSS * TILE * 108.0 / (768.0 * 768.0)
    assert gemm_fill(768.0, 768.0, 1e5, 1.0, 108.0, 256.0) < 1.0 + (whole - 1.0) / 4.0
