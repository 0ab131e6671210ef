"""*add*: what every way to serve has in common: a ledger that is the answer's time, and how many sequences it holds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from shardmeter.core.units import Count, Seconds
from shardmeter.engine import add
from shardmeter.engine.inference.lines import DELAY, WIRE
from shardmeter.engine.inference.servers import CACHE
from shardmeter.engine.layer import Ledger
from shardmeter.physics import decoding
from shardmeter.specs import Term
from shardmeter.specs.serving import Host, Served, Serving

CHUNKS, MIXING = "prompt in chunks", "mixing"
CAUSES: dict[str, str] = {
    "matrix products": "compute",
    "core attention": "compute",
    "memory-bound kernels": "memory bandwidth",
    CACHE: "memory bandwidth",
    MIXING: "memory bandwidth",
    "launch overhead": "launch",
    "dispatch wait": "launch",
    "tensor parallel": "scale-up link",
    "context parallel": "fabric",
    "expert all-to-all": "fabric",
    "contention": "fabric",
    CHUNKS: "pipeline",
    WIRE: "wide-area link",
    DELAY: "wide-area link",
}
"""Ledger order, and the cause of each term."""
CROSSING = (WIRE, DELAY)
"""Terms that the network sets, not the servers."""


def terms(seconds: Ledger) -> tuple[Term, ...]:
    """The ledger in fixed order, without what takes no time. Raises KeyError on a label that has no cause."""
    unknown = set(seconds) - set(CAUSES)
    if unknown:
        raise KeyError(f"ledger terms without a cause: {sorted(unknown)}")
    return tuple(
        Term(label=label, seconds=seconds[label], cause=cause)
        for label, cause in CAUSES.items()
        if label in seconds and _takes_time(seconds[label])
    )


def _takes_time(seconds: Seconds) -> bool:
    """Whether it is above zero, anywhere in an array; a plain number is most often asked for."""
    return seconds > 0.0 if isinstance(seconds, float) else bool(np.any(np.greater(seconds, 0.0)))


def summed(seconds: Ledger) -> Seconds:
    """Seconds of a ledger, summed in its fixed order."""
    return add.total(terms(seconds))


def together(*parts: tuple[Ledger, Count]) -> Ledger:
    """Ledgers, each so many times, in one."""
    total: Ledger = {}
    for ledger, times in parts:
        add.merged(total, ledger, times)
    return total


Resized = Callable[[Count], Sequence[Host]]
"""Hosts with the memory that so many groups of sequences under way take."""


def served(
    asked: Serving,
    ledger: Ledger,
    first: Ledger,
    token: Ledger | None,
    busy: Sequence[tuple[str, Seconds]],
    hosts: Resized,
    notes: Sequence[str] = (),
) -> Served:
    """A way to serve whose single answer is `ledger`, until its `first` token and for each further `token` (None: all come at once).
    `busy`: places, each with the seconds that one batch's answer takes of it (a host's divided among its copies): the busiest bounds
    what passes."""
    parts = terms(ledger)
    latency = add.total(parts)
    place, most = max(busy, key=lambda one: float(one[1]))
    groups = _groups(asked, float(decoding.groups_to_fill(latency, most)), hosts)
    laid = tuple(hosts(groups))
    rate = decoding.flight_rate(asked.batch * asked.output, groups, latency, most)
    return Served(
        how=asked.how, hosts=laid, fits=all(host.fits for host in laid), terms=parts, first=terms(first),
        token=None if token is None else terms(token), in_flight=groups * asked.batch, flight_rate=rate, busiest=place,
        busiest_share=np.minimum(groups * most / latency, 1.0), notes=tuple(notes),
    )  # fmt: skip


def _groups(asked: Serving, wanted: float, hosts: Resized) -> float:
    """Batches under way: as many as are asked for, or the largest number up to `wanted` that fits (1 if none does)."""
    if asked.in_flight is not None:
        return math.ceil(float(asked.in_flight) / float(asked.batch))

    def fit(groups: float) -> bool:
        return all(host.fits for host in hosts(groups))

    if wanted == 1.0 or fit(wanted):
        return wanted
    least, most = 1.0, wanted
    while most - least > 1.0:
        middle = (least + most) // 2.0
        least, most = (middle, most) if fit(middle) else (least, middle)
    return least
