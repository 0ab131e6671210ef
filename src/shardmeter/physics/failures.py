"""Runs that are interrupted: how often a machine of many parts fails, how often to write a checkpoint, and what an interruption costs.

Failures come at random and independently, at the same rate at any time (exponential). An MTBF of infinity is a machine that never fails.
"""

from __future__ import annotations

import numpy as np

from shardmeter.core.formula import formula
from shardmeter.core.units import Bytes, BytesPerS, Count, Fraction, PerSecond, Ratio, Seconds

MOST = 300.0
"""Largest exponent: beyond e^300 no run ends."""


def _expm1_share(z: Ratio) -> Ratio:
    """(e^z − 1)/z, which is 1 at 0."""
    inside = np.clip(z, -MOST, MOST)
    safe = np.where(np.equal(inside, 0.0), 1.0, inside)
    return np.where(np.equal(inside, 0.0), 1.0, np.expm1(safe) / safe)


@formula(cite="daly2006")
def failure_rate(units: Count, mtbf: Seconds) -> PerSecond:
    """Failures a second of so many units in series, each with its own MTBF: one that fails stops all.

    Leaves out: failures that come together (a switch, a hall), machines that are worse than others, early failures of new ones."""
    return units / mtbf


@formula(cite="young1974")
def young_interval(write: Seconds, mtbf: Seconds) -> Seconds:
    """Work between two checkpoints that loses the least, to first order: √(2 δ M).

    Leaves out: failures during a checkpoint or a restart; it holds where a checkpoint is short beside the MTBF."""
    return (2.0 * write * mtbf) ** 0.5


@formula(cite="daly2006")
def daly_interval(write: Seconds, mtbf: Seconds) -> Seconds:
    """Work between two checkpoints that loses the least, to higher order: √(2δM)·[1 + ⅓·√(δ/2M) + ⅑·δ/2M] − δ; M from δ = 2M on.

    Leaves out: whole steps; within 0.2 % of the least time of `interrupted_time` where it lies below 2M."""
    half = write / (2.0 * mtbf)
    higher = (2.0 * write * mtbf) ** 0.5 * (1.0 + half**0.5 / 3.0 + half / 9.0) - write
    return np.where(np.less(half, 1.0), higher, mtbf)


@formula(cite="daly2006")
def interrupted_time(
    productive: Seconds, interval: Seconds, write: Seconds, restart: Seconds, mtbf: Seconds
) -> Seconds:
    """Wall clock of so much productive time with a checkpoint after every `interval` of it:
    M·e^(R/M)·(e^((τ+δ)/M) − 1)·T/τ. Failures strike work, checkpoints and restarts alike.

    Leaves out: what is left of the last interval, preemptions with notice (`engine.course` has them)."""
    segment = interval + write
    survives = np.exp(np.clip(restart / mtbf, 0.0, MOST))
    wall: Seconds = segment * _expm1_share(segment / mtbf) * survives * productive / interval
    return wall


@formula(cite="daly2006")
def time_up(duration: Seconds, rate: PerSecond) -> Seconds:
    """Expected time until the next interruption, or until `duration` is over: (1 − e^(−λt))/λ.

    Leaves out: rates that change with time."""
    return duration * _expm1_share(-duration * rate)


@formula(cite="daly2006")
def time_through(duration: Seconds, rate: PerSecond) -> Seconds:
    """Expected time to get through a stage of `duration` that begins anew at every interruption, a restart: (e^(λt) − 1)/λ.

    Leaves out: rates that change with time."""
    return duration * _expm1_share(duration * rate)


@formula(cite="daly2006")
def survival(duration: Seconds, rate: PerSecond) -> Fraction:
    """Probability that nothing interrupts a stage of `duration`: e^(−λt).

    Leaves out: rates that change with time."""
    share: Fraction = np.exp(-np.minimum(duration * rate, MOST))
    return share


@formula(cite="shardmeter")
def complete_share(units: Count, mtbf: Seconds, wait: Seconds) -> Fraction:
    """Share of the time in which none of so many units is away, each of which stays for `mtbf` and is then away for `wait` on average:
    (1 + w/M)^(−n). Units are taken away while others are missed, too; it holds whatever the two times are distributed like.

    Leaves out: units that are taken, or come back, together."""
    share: Fraction = np.exp(-np.minimum(units * np.log1p(wait / mtbf), MOST))
    return share


@formula(cite="shardmeter")
def write_time(size: Bytes, bandwidth: BytesPerS) -> Seconds:
    """Time to write a checkpoint, or to read it again: into a store beside the island, or over the line to one far away.

    Leaves out: opening files, other jobs on the store, what the slowest rank writes last."""
    return size / bandwidth


@formula(cite="shardmeter")
def absent_rounds(round_: Seconds, rate: PerSecond, away: Seconds) -> Ratio:
    """Rounds that an island misses for each that it completes, where it comes back at the beginning of one. A round counts if the island is
    there when it begins, which it is for a share 1/(1 + λ·away) of the time, and stays through it, e^(−λS): (1 + λ·away)·e^(λS) − 1. So
    the round in which it fails is lost, at most its H steps, and it may fail again before the next one begins. `away` is a mean.

    Leaves out: rounds that are shorter while the slowest island is away, all islands away at once."""
    return (1.0 + rate * away) * np.exp(np.minimum(round_ * rate, MOST)) - 1.0


@formula(cite="shardmeter")
def absent_time(round_: Seconds, rate: PerSecond, away: Seconds) -> Ratio:
    """Time that an island misses for each second that counts, where it goes on as soon as it is back and nobody waits: what it did
    since its last exchange is lost, at most H steps: (1 + λ·away)·(e^(λS) − 1)/(λS) − 1.

    Leaves out: all islands away at once."""
    return (1.0 + rate * away) * _expm1_share(round_ * rate) - 1.0
