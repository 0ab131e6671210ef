"""From which length of output one traversal of blocks beats those that write token by token, for several round trips: a pipeline over
all islands, and a whole model on one of them."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from shardmeter.core.record import changed
from shardmeter.engine.inference import Server, lines
from shardmeter.engine.inference.block_train import laid, traversed
from shardmeter.engine.inference.pipeline import passed, prompted
from shardmeter.engine.inference.pipeline import rows as rows_of
from shardmeter.specs import Scenario
from shardmeter.specs.serving import Serving
from shardmeter.study.roots import zero

Both: TypeAlias = Callable[[float], tuple[float, float]]
"""Tokens of output → seconds of two ways, a traversal the second."""
RTTS = (1e-3, 3e-3, 10e-3, 30e-3, 100e-3, 300e-3)
"""Round trips between every pair of islands."""
OUTPUTS = (1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0)
LONGEST = 1e6
"""Tokens of an output up to which a crossover is sought."""
STEP = 4.0
"""Factor between lengths at which signs are taken."""
TOLERANCE = 1e-9
"""Of the logarithm of the length that is found."""


def rows(
    scenario: Scenario, asked: Serving, servers: Sequence[Server], rtts: Sequence[float] = RTTS
) -> tuple[dict[str, Any], ...]:
    """A row a round trip, which all pairs of islands then have, and last one of the fleet's own (`fleet`; `rtt_s` is their mean, beside
    the least and the most): seconds of all ways at every length of OUTPUTS; the length at which pipeline and traversal are equal (null
    where one is faster at every length), who is faster beyond it, and the length at which they are equal again (null: at none up to
    LONGEST); the same of `local` and traversal, all null where no island holds the whole model. Needs a network; none: one row of no
    round trip."""
    wan, own = scenario.fleet.wan, alone(asked, servers)
    if wan is None:
        return (_row(times(scenario, asked, servers, 0.0), own, (0.0, 0.0, 0.0)),)
    apart = np.broadcast_to(wan.rtt, (len(servers),) * 2)[~np.eye(len(servers), dtype=bool)]
    ways = ((times(scenario, asked, servers, rtt), (rtt, rtt, rtt), False) for rtt in rtts)
    fleet = (times(scenario, asked, servers), tuple(float(f(apart)) for f in (np.mean, np.min, np.max)), True)
    return tuple(_row(both, own, rtt, fleet=whose) for both, rtt, whose in (*ways, fleet))


def _row(
    both: Both, own: Callable[[float], float] | None, rtt: tuple[float, ...], *, fleet: bool = False
) -> dict[str, Any]:
    lengths, faster = crossings(both)
    first, again = (*lengths, None, None)[:2]
    found: dict[str, Any] = {"fleet": fleet, "rtt_s": rtt[0], "rtt_least_s": rtt[1], "rtt_most_s": rtt[2]}
    found |= {"output_at": first, "faster_beyond": faster, "output_until": again}
    found |= dict.fromkeys(("local_at", "local_faster_beyond", "local_until"))
    if own is not None:
        lengths, faster = crossings(lambda output: (own(output), both(output)[1]), other="local")
        first, again = (*lengths, None, None)[:2]
        found |= {"local_at": first, "local_faster_beyond": faster, "local_until": again}
    cells = []
    for output in OUTPUTS:
        pipelined, traversed = both(output)
        cells.append({
            "output": output, "pipeline_s": pipelined, "block_train_s": traversed, "local_s": own(output) if own else None,
            "ratio": pipelined / traversed,
        })  # fmt: skip
    return {**found, "cells": cells}


def alone(asked: Serving, servers: Sequence[Server]) -> Callable[[float], float] | None:
    """Seconds of a whole model on one island for an output of so many tokens: the island that is soonest with the output that was asked
    for, of those that hold it; None where none does."""
    single = changed(asked, in_flight=asked.batch)
    found = [(line, passed(line, None, single)) for one in servers for line in rows_of((one,), None, single)]
    able = [(float(served.output_time), at) for at, (_, served) in enumerate(found) if served.fits]
    if not able:
        return None
    line = found[min(able)[1]][0]
    written = prompted(line, None, single)
    return functools.cache(
        lambda output: float(passed(line, None, changed(single, output=output), written).output_time)
    )


def times(scenario: Scenario, asked: Serving, servers: Sequence[Server], rtt: float | None = None) -> Both:
    """Seconds of (pipeline, one traversal) for an output of so many tokens, all round trips being `rtt`, or those of the fleet. Layers
    and blocks lie as for the output that was asked for."""
    islands, wan = scenario.fleet.islands, scenario.fleet.wan
    if wan is not None and rtt is not None:
        wan = changed(wan, rtt=rtt)
    links = lines(wan, islands, [one.plan.tp for one in servers])
    line = min(rows_of(servers, links, asked), key=lambda one: float(passed(one, links, asked).output_time))
    blocks, written = laid(servers, links, asked), prompted(line, links, asked)
    known: dict[float, tuple[float, float]] = {}

    def both(output: float) -> tuple[float, float]:
        if output not in known:
            own = changed(asked, output=output, in_flight=asked.batch)
            known[output] = (
                float(passed(line, links, own, written).output_time),
                float(traversed(blocks, links, own).output_time),
            )
        return known[output]

    return both


def crossings(both: Both, longest: float = LONGEST, *, other: str = "pipeline") -> tuple[list[float], str]:
    """(lengths of output at which `both`, an `other` way and a traversal, are equal, who is faster beyond the first of them, or
    everywhere).

    Short outputs that many traversals make too dear can be cheap in a pipeline, and long ones again, as all positions of a
    traversal attend to all: so signs are taken at steps of STEP from 1 to `longest`, and each pair of unlike ones is cut down."""

    def advantage(at: float) -> float:
        written, traversed = both(math.exp(at))
        return math.log(written / traversed)

    last = math.log(longest)
    places = [math.log(STEP) * step for step in range(math.ceil(last / math.log(STEP)))] + [last]
    values = [advantage(at) for at in places]
    found = [
        math.exp(zero(advantage, *ends, *signs, TOLERANCE))
        for ends, signs in zip(itertools.pairwise(places), itertools.pairwise(values), strict=True)
        if (signs[0] > 0.0) != (signs[1] > 0.0)
    ]
    first = values[0] > 0.0
    return found, "block_train" if first != bool(found) else other
