"""Runs that are interrupted, drawn event by event: the oracle that `engine.course` is held to.

No closed form of it is used: clocks are drawn, what strikes first happens, work is kept or lost by the rules of the machine. A course is
drawn until the work is done; the mean of many draws is what the fold should give.
"""

from __future__ import annotations

import math

import numpy as np

from shardmeter.core.record import record
from shardmeter.core.sums import plain_sum


@record
class Machine:
    """What runs, and what strikes it; plain seconds."""

    interval: float
    """Of work between two checkpoints."""
    write: float = 0.0
    blocking: bool = True
    losing: float = math.inf
    """Mean time between failures that come without notice enough."""
    announced: float = math.inf
    """Mean time between preemptions that are announced as long before as a checkpoint takes."""
    restart: float = 0.0
    wait: float = 0.0
    """Before a restart, until there is a machine."""


@record
class Islands:
    """Islands that go on without one another, each with its share of the tokens of a second."""

    round_: float
    """From one exchange to the next."""
    weights: tuple[float, ...]
    mtbf: tuple[float, ...]
    restart: float = 0.0
    wait: float = 0.0
    joins: bool = True
    """Whether who is back waits for the next round."""


def seconds(machine: Machine, work: float, draws: int, seed: int) -> float:
    """Mean wall clock of so much work; every course ends with a checkpoint."""
    rng = np.random.default_rng(seed)
    return float(np.mean([_course(machine, work, rng) for _ in range(draws)]))


def present(islands: Islands, lasts: float, seed: int) -> float:
    """Share of the tokens that count over so long a time."""
    rng = np.random.default_rng(seed)
    own = [_counted(islands, mtbf, lasts, rng) for mtbf in islands.mtbf]
    return plain_sum(weight * one for weight, one in zip(islands.weights, own, strict=True))


def _course(machine: Machine, work: float, rng: np.random.Generator) -> float:
    """The wall clock of one course."""
    now, safe = 0.0, 0.0
    while True:
        until, announced = _next(rng, machine.losing, machine.announced)
        left = work - safe
        needed = left + (math.ceil(left / machine.interval - ROUNDING) * machine.write if machine.blocking else 0.0)
        if needed <= until:
            return now + needed
        done, stored = _reached(machine, until)
        now += until + (machine.write if announced else 0.0)
        safe += done if announced else stored
        now += _away(machine.restart, machine.wait, machine.losing, machine.announced, rng)


def _reached(machine: Machine, until: float) -> tuple[float, float]:
    """(work done, work that is written) after so long without interruption."""
    if not machine.blocking:
        written = math.floor((until - machine.write) / machine.interval)
        return until, max(written, 0) * machine.interval
    whole, rest = divmod(until, machine.interval + machine.write)
    return whole * machine.interval + min(rest, machine.interval), whole * machine.interval


def _away(restart: float, wait: float, losing: float, announced: float, rng: np.random.Generator) -> float:
    """From an interruption until work goes on: what strikes a restart makes it begin anew."""
    gone = wait
    while True:
        until, _ = _next(rng, losing, announced)
        if until >= restart:
            return gone + restart
        gone += until + wait


def _next(rng: np.random.Generator, losing: float, announced: float) -> tuple[float, bool]:
    """(time until the next interruption, whether it is announced)."""
    first, second = (rng.exponential(mean) if math.isfinite(mean) else math.inf for mean in (losing, announced))
    return min(first, second), second < first


def _counted(islands: Islands, mtbf: float, lasts: float, rng: np.random.Generator) -> float:
    """Share of the time of one island that ends up in an exchange."""
    now, counted = 0.0, 0.0
    while now < lasts:
        until, _ = _next(rng, mtbf, math.inf)
        begins = math.ceil(now / islands.round_) * islands.round_ if islands.joins else now
        counted += max(math.floor((now + until - begins) / islands.round_), 0) * islands.round_
        now += until + _away(islands.restart, islands.wait, mtbf, math.inf, rng)
    return counted / now


ROUNDING = 1e-9
"""So that work that is a whole number of intervals needs no checkpoint more."""
