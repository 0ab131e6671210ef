"""The few memory numbers of a stack, fitted to measured rows: allocated memory is linear in them, so one solve finds them.

Weighted by one over the measured memory, bounded below by nought. Only stacks with `MANY` rows have numbers of their own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shardmeter.core.record import changed
from shardmeter.specs import Scenario
from shardmeter.study.fit.spread import MANY
from shardmeter.study.validate.predictions import predict

NUMBERS = ("whole_bytes", "cut_bytes", "buffer_share")
"""Bytes per token and hidden element beside a layer, whole and cut by tensor parallelism; buffers over parameters held."""


def memory_numbers(rows: Sequence[tuple[Scenario, str, float]]) -> dict[str, float]:
    """Fitted numbers of one stack from (scenario, reading, measured bytes); {} for fewer than `MANY` rows. Needs SciPy."""
    if len(rows) < MANY:
        return {}
    from scipy.optimize import nnls

    def answers(**numbers: float) -> np.ndarray:
        told = [changed(s, stack=changed(s.stack, **{**dict.fromkeys(NUMBERS, 0.0), **numbers})) for s, _, _ in rows]
        return np.array([one.memory(reading) for one, (_, reading, _) in zip(predict(told), rows, strict=True)])

    measured = np.array([bytes_ for _, _, bytes_ in rows])
    bare = answers()
    columns = np.array([answers(**{name: 1.0}) - bare for name in NUMBERS]).T
    found, _ = nnls(columns / measured[:, None], (measured - bare) / measured)
    return dict(zip(NUMBERS, map(float, found), strict=True))
