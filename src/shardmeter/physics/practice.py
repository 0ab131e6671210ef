"""What a run takes beyond its steps, as one factor of a class of runs."""

from __future__ import annotations

import numpy as np

from shardmeter.core.formula import formula
from shardmeter.core.units import Count, Nats, Ratio


@formula(cite="efron1975")
def practice_factor(mean_log: Nats, sources: Count, prior: Count, lowest: Ratio, highest: Ratio) -> Ratio:
    """Hours as counted over hours of the steps: exp of the mean logarithm over `sources`, shrunk towards 1 by `prior` sources that
    lost nothing, kept within bounds.

    Leaves out: how many rows a source has, the size of a run."""
    return np.clip(np.exp(mean_log * sources / (sources + prior)), lowest, highest)
