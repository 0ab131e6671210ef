"""Where a function of one number is zero."""

from __future__ import annotations

from collections.abc import Callable

TOLERANCE = 1e-9
"""How short the bracket becomes, in the unit of what is searched."""


def zero(
    function: Callable[[float], float], low: float, high: float, at_low: float, at_high: float, tolerance: float = TOLERANCE
) -> float:  # fmt: skip
    """Where it is zero between two places at which it has unlike signs, `at_low` and `at_high`: secants (the Illinois rule) until the
    bracket is shorter than `tolerance`. The function may be steep or flat, but must not jump."""
    moved = 0
    while high - low > tolerance:
        guess = (low * at_high - high * at_low) / (at_high - at_low)
        guess = min(max(guess, low + tolerance / 2.0), high - tolerance / 2.0)
        value = function(guess)
        if (value > 0.0) == (at_high > 0.0):
            high, at_high = guess, value
            at_low, moved = at_low / (2.0 if moved > 0 else 1.0), 1
        else:
            low, at_low = guess, value
            at_high, moved = at_high / (2.0 if moved < 0 else 1.0), -1
    return (low + high) / 2.0
