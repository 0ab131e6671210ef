"""How long a run lasts, and for how long it holds its accelerators."""

from __future__ import annotations

import functools

import numpy as np

from shardmeter.core.units import Number, Seconds
from shardmeter.engine import add
from shardmeter.engine.fleet import Whole
from shardmeter.physics import money

HOUR = 3600.0


def step_tokens(whole: Whole) -> Number:
    """Tokens that a step adds to a run: those that count or, of models that are trained apart, those of a step of each."""
    return add.folded(part.estimate.tokens for part in whole.parts) if is_apart(whole) else whole.estimate.tokens


def durations(whole: Whole, steps: Number) -> tuple[Seconds, Seconds]:
    """(wall clock, that of every accelerator added up) of a run of so many steps. Models that are trained apart let their island
    go when they are done: the slowest one sets the wall clock."""
    if not is_apart(whole):
        lasts = money.run_time(steps, whole.estimate.step_time)
        return lasts, lasts * whole.estimate.gpus
    own = [money.run_time(steps, one) for one in step_times(whole)]
    return functools.reduce(np.maximum, own), add.folded(
        lasts * part.estimate.gpus for lasts, part in zip(own, whole.parts, strict=True)
    )


def is_apart(whole: Whole) -> bool:
    """Whether islands train models of their own."""
    return whole.round is not None and whole.round.alone


def step_times(whole: Whole) -> list[Seconds]:
    """Seconds that a step needs each island for: its own where models are trained apart, else those of all."""
    common = whole.estimate.step_time
    return [part.estimate.step_time if is_apart(whole) else common for part in whole.parts]
