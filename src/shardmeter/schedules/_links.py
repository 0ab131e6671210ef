"""The way between neighbouring stages of a pipeline: how long a message occupies it and is under way, and who else uses it."""

from __future__ import annotations

import math

import numpy as np

from shardmeter.core.record import changed, record
from shardmeter.core.units import Count, Seconds


@record
class Boundary:
    """The way between a stage and the next, the same in both directions."""

    wire: Seconds
    """How long one micro-batch's message occupies the wire."""
    delay: Seconds = 0.0
    """How long it is on its way after that: propagation, and what else a message waits for without occupying anything."""
    buffered: Seconds = math.inf
    """How much of the wire's time lies in buffers when a send returns: inf = sends never hold the stage up; 0 = it stands still
    until its message has left."""
    ahead: Count = 0.0
    """Micro-batches more that every stage before it holds because of it."""
    asked: bool = False
    """Whether a message passes when its receiver asks for it (gloo), which it does when its turn has come."""
    others: Seconds = 0.0
    """How long the wire is busy with the same message of other pipelines, which send in turn: the last of them begins so much later."""


Hop = Seconds | tuple[Boundary, ...]
"""One send to a neighbour: the same everywhere and all of it on the wire, or for each of the pp − 1 boundaries its own."""


def ahead_of(hop: Hop, pp: int) -> tuple[int, ...]:
    """Micro-batches ahead of the boundary behind every one of pp stages; empty where there are none. The boundary that leads back to
    the first stage may be left out. Arrays of networks are held ahead of alike: the most of them."""
    if not isinstance(hop, tuple) or not any(np.any(np.greater(link.ahead, 0.0)) for link in hop):
        return ()
    found = [int(np.max(link.ahead)) for link in hop]
    return (*found, *[0] * (pp - len(found)))


def told(ahead: tuple[Count, ...]) -> tuple[tuple[Count, ...], ...]:
    """What a schedule is told of them: nothing where there are none, as not all schedules may hold more."""
    return (ahead,) if any(np.any(np.greater(more, 0.0)) for more in ahead) else ()


def in_turn(links: tuple[Boundary, ...], virtual_stages: int) -> tuple[tuple[Boundary, ...], Seconds]:
    """The boundaries as the first of several pipelines finds them that send over a line in turn, and how much later the last one
    ends (Atlas 2024, temporal sharing). A message has the line for itself, then the same messages of the others keep it busy; all that
    one pipeline does the next does a turn later. Leaves out: turns that other orders than the first message's would take."""
    later: Seconds = 0.0
    for link in links if virtual_stages > 1 else links[:-1]:
        later = np.maximum(later, link.others)
    if not np.any(np.greater(later, 0.0)):
        return links, 0.0
    return tuple(
        changed(link, wire=link.wire + link.others, delay=link.delay - link.others, others=0.0) for link in links
    ), later


__all__ = ["Boundary", "Hop", "ahead_of", "in_turn", "told"]
