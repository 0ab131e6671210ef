"""Where a function of one number changes its sign: brackets that close, one evaluation at a time."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TypeAlias

Closing: TypeAlias = Generator[float, float, tuple[float, float]]
"""Asks for the function at a place, is sent its value there, and returns the two ends of what is left."""


def closing(low: float, high: float, at_low: float, at_high: float, tolerance: float) -> Closing:
    """Secants (the Illinois rule) between two places of unlike signs until they are not further apart than `tolerance`; zero counts as
    below. Whoever runs many of them evaluates what all ask for together."""
    moved = 0
    while high - low > tolerance:
        guess = (low * at_high - high * at_low) / (at_high - at_low)
        guess = min(max(guess, low + tolerance / 2.0), high - tolerance / 2.0)
        value = yield guess
        if (value > 0.0) == (at_high > 0.0):
            high, at_high = guess, value
            at_low, moved = at_low / (2.0 if moved > 0 else 1.0), 1
        else:
            low, at_low = guess, value
            at_high, moved = at_high / (2.0 if moved < 0 else 1.0), -1
    return low, high


def zero(
    function: Callable[[float], float], low: float, high: float, at_low: float, at_high: float, tolerance: float
) -> float:
    """The place between two of unlike signs where a function is zero, to half a `tolerance`."""
    steps = closing(low, high, at_low, at_high, tolerance)
    try:
        guess = next(steps)
        while True:
            guess = steps.send(function(guess))
    except StopIteration as found:
        low, high = found.value
    return (low + high) / 2.0
