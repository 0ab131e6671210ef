"""Ranks that are not equally fast: a synchronous step waits for the slowest."""

from __future__ import annotations

import numpy as np

from shardmeter.core.formula import formula
from shardmeter.core.units import Count, Ratio, Seconds

PLOTTING = 0.375
"""Blom's constant: the largest of n normal variates lies where a share (n − 3/8)/(n + 1/4) of them does."""
NUMERATOR, DENOMINATOR = (2.515517, 0.802853, 0.010328), (1.432788, 0.189269, 0.001308)
"""Coefficients of the normal quantile (Abramowitz and Stegun 1964, 26.2.23; off by at most 4.5e-4)."""


@formula(cite="blom1958")
def expected_largest(ranks: Count) -> Ratio:
    """Expected maximum of so many independent standard normal variates: the quantile at (n − 3/8)/(n + 1/4).

    Against numerical integration: 4.5 % above at 2, 2.7 % at 3, within 1 % from 8 to 10^6; exactly 0 for one. See also David
    and Nagaraja (2003, §4.5). Leaves out: tails heavier than a normal's, ranks of one node that are slow together."""
    n = np.maximum(ranks, 1.0)
    above = (1.0 - PLOTTING) / (n + 1.0 - 2.0 * PLOTTING)
    t = np.sqrt(-2.0 * np.log(above))
    over = NUMERATOR[0] + t * (NUMERATOR[1] + t * NUMERATOR[2])
    under = 1.0 + t * (DENOMINATOR[0] + t * (DENOMINATOR[1] + t * DENOMINATOR[2]))
    return np.where(np.greater(n, 1.0), t - over / under, 0.0)


@formula(cite="shardmeter")
def straggler_time(compute: Seconds, jitter: Ratio, largest: Ratio) -> Seconds:
    """How much longer than the mean the slowest rank computes: jitter · expected maximum of standard normal variates.

    `jitter` is the standard deviation of a rank's compute over its mean, `largest` the maximum for the ranks that wait. Leaves out: what a slower rank hides of its transfers meanwhile."""
    return compute * jitter * largest
