"""How noisy estimates of a gradient from losses alone were: N experts probed each by a loss of its own, against all by one loss.

A probe moves θ by c·z either way, z random signs, and sees the slope s = (L(θ + c·z) − L(θ − c·z))/2c; its estimate is s·z. Each of N
experts has a slope s_k of its own loss; the loss of all, L = Σ L_k, has the slope Σ s_k, as the loss of one expert knows nothing of the
parameters of another: the same probes serve both. Squared errors, with g_k the gradient by backpropagation and d_k parameters:

    apart     Σ_k |s_k·z_k − g_k|² = Σ_k (s_k²·d_k − 2·s_k·(z_k·g_k) + |g_k|²)
    together  |s·z − g|²           = s²·d − 2·s·(z·g) + |g|²        with s = Σ s_k, d = Σ d_k, z·g = Σ z_k·g_k, |g|² = Σ |g_k|²

To first order s_k = z_k·g_k, so that a mean of n probes has a relative variance of (d − 1)/n together (SOMA eq. 3) and, with equal d_k =
d/N, (d/N − 1)/n apart: the ratio is (d − N)/(N·(d − 1)), close to 1/N (eq. 4), whatever n and however long the g_k are.

Leaves out: unequal d_k in what is expected (their mean, weighted by |g_k|², is taken).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from shardmeter.core.record import record
from shardmeter.core.units import Count, Ratio

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


@record
class Spread:
    """Relative variances of one probe, and the ratio of them."""

    apart: Ratio
    together: Ratio
    value: Ratio
    """Apart over together."""
    error: Ratio
    """Standard error of the ratio."""
    expected: Ratio
    samples: Count


def spread(slopes: Floats, along: Floats, squares: Floats, sizes: Floats) -> Spread:
    """Of probes × experts `slopes` s_k and `along` z_k·g_k, of each expert `squares` |g_k|² and `sizes` d_k. The error is that of a
    ratio of two means over the same probes. Raises ValueError below two probes."""
    samples = len(slopes)
    if samples < 2:
        raise ValueError(f"{samples} probes")
    apart = np.sum(slopes**2 * sizes - 2.0 * slopes * along + squares, axis=1)
    slope, size, square = slopes.sum(axis=1), float(np.sum(sizes)), float(np.sum(squares))
    together = slope**2 * size - 2.0 * slope * along.sum(axis=1) + square
    ratio = float(apart.mean() / together.mean())
    error = float(np.std(apart - ratio * together, ddof=1) / together.mean() / math.sqrt(samples))
    own = float(np.sum(squares * (sizes - 1.0))) / square
    return Spread(
        apart=float(apart.mean()) / square, together=float(together.mean()) / square, value=ratio, error=error,
        expected=own / (size - 1.0), samples=float(samples),
    )  # fmt: skip
