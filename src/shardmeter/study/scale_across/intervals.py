"""How sure a speed-up is: both plans in the same worlds, fast and slow ones, and what ratios of plans are known to miss."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from shardmeter.core.record import changed
from shardmeter.core.units import Ratio, Seconds
from shardmeter.specs import Wan
from shardmeter.specs.assumed import RANGES
from shardmeter.study import intervals
from shardmeter.study.planning.tally import Floats
from shardmeter.study.scale_across.networks import PRODUCTION, farther, slowed, widened
from shardmeter.study.trust import ACROSS

GOOD_IF_LESS = ("hashing", "collisions", "go_back", "selective", "drops", "incast")
GOOD_IF_MORE = ("spray", "planned")
SLOWEST, LOSS = (0.0, 1.0), (0.0, 1e-6)
"""Weight of the most loaded uplink, and packets lost of healthy and of suspicious lines: (good, bad)."""
CHANNELS = 2.0
"""So many times NCCL's usual channels: it makes 2 to 4 for an adapter, by what it finds of the machine."""
MOVED = 2.0
"""By which round trips and oversubscription are moved for an elasticity: what hides behind the backward today may show at twice."""


def worlds(wan: Wan) -> list[Wan]:
    """A network in the corners of what is not known of it: what balances and transports take at their good and their bad ends, NCCL's
    window twice as large at the good one, and all messages at 0.77 and at 2.0 times what is predicted (how outer all-reduces of INTELLECT-1 spread)."""
    return [slowed(_ends(wan, bad), across) for bad in (0, 1) for across in ACROSS]


def _ends(wan: Wan, bad: int) -> Wan:
    numbers = {name: RANGES[name][bad] for name in GOOD_IF_LESS} | {
        name: RANGES[name][1 - bad] for name in GOOD_IF_MORE
    }
    loss = np.maximum(wan.loss, LOSS[1]) if bad else wan.loss
    usual = np.equal(wan.streams, PRODUCTION.streams) & np.equal(wan.window, PRODUCTION.window)
    streams = wan.streams if bad else np.where(usual, CHANNELS * wan.streams, wan.streams)
    return changed(wan, assumed=changed(wan.assumed, **numbers), slowest=SLOWEST[bad], loss=loss, streams=streams)


def moved(wan: Wan) -> list[Wan]:
    """Round trips MOVED times as long, then lines as much narrower."""
    return [farther(wan, MOVED), widened(wan, 1.0 / MOVED)]


def elasticities(step: Seconds, moved: Sequence[Seconds]) -> dict[str, float]:
    """Of a step in round trips and oversubscription, from here to its seconds on `moved` networks."""
    each = zip(("rtt", "oversubscription"), moved, strict=True)
    return {name: math.log(float(there) / float(step)) / math.log(MOVED) for name, there in each}


def ratio(value: Ratio, each: Floats, *, unlike: bool) -> dict[str, Any]:
    """A speed-up with its interval: the widest that the worlds make it (`each`, one a world) and, of plans that are `unlike`, the spread of
    measured ratios of good plans, added as independent (root of the sum of the squares, of logarithms)."""
    spread = (intervals.ratio() or 0.0) if unlike else 0.0
    apart = np.log(each / value)
    low, high = min(float(np.min(apart)), 0.0), max(float(np.max(apart)), 0.0)
    return {
        "value": float(value), "low": float(value * math.exp(-math.hypot(low, spread))), "high": float(value * math.exp(math.hypot(high, spread))),
    }  # fmt: skip
