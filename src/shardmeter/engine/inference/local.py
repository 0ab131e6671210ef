"""Whole models on single islands: nothing crosses. The baseline, where the model fits."""

from __future__ import annotations

from collections.abc import Sequence

from shardmeter.core.record import changed
from shardmeter.core.sums import plain_sum
from shardmeter.engine.inference.pipeline import pipeline
from shardmeter.engine.inference.servers import Server
from shardmeter.engine.links import Links
from shardmeter.specs.serving import Served, Serving


def local(servers: Sequence[Server], links: Links | None, asked: Serving) -> Served:
    """Every island by itself. The latency is that of the fastest one that holds the model; the rates of all that do add up, and so
    do the sequences under way. Sequences that are asked for are shared out in equal parts."""
    del links  # nothing crosses
    share = None if asked.in_flight is None else max(asked.in_flight / len(servers), asked.batch)
    alone = [pipeline((one,), None, changed(asked, in_flight=share)) for one in servers]
    able = [one for one in alone if one.fits] or alone
    best = min(able, key=lambda one: float(one.output_time))
    return changed(
        best, how=asked.how, hosts=tuple(host for one in alone for host in one.hosts),
        in_flight=plain_sum((one.in_flight for one in able), 0.0), flight_rate=plain_sum((one.flight_rate for one in able), 0.0),
        notes=(f"latency is that of {best.hosts[0].name}, the fastest of {len(able)} islands that hold the whole model",) if best.fits else (),
    )  # fmt: skip
