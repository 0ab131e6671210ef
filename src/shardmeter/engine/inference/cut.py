"""Which host holds what: layers by speed and memory, blocks in equal parts."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence

from shardmeter.engine.inference.servers import Share
from shardmeter.families import family
from shardmeter.specs import Model


def layers(model: Model) -> tuple[str, ...]:
    """The block of every layer, in order."""
    return tuple(name for name, count in family(model.family).order(model) for _ in range(count))


def balanced(seconds: Sequence[float], room: Sequence[float], pieces: int) -> tuple[int, ...]:
    """Pieces of each of several hosts of which one takes `seconds`, and of which `room` fit: the longest host as short as can be
    while every host has one. What fits nowhere goes where it lacks the smallest part of its room.

    The next piece always goes to the host that is done with it first, which is exact for equal pieces."""
    counts = [1] * len(seconds)
    open_hosts = [(2.0 * own, at) for at, own in enumerate(seconds) if room[at] >= 2.0]
    heapq.heapify(open_hosts)
    for _ in range(pieces - len(counts)):
        if open_hosts:
            _, at = heapq.heappop(open_hosts)
            counts[at] += 1
            if counts[at] + 1 <= room[at]:
                heapq.heappush(open_hosts, ((counts[at] + 1) * seconds[at], at))
        else:
            counts[min(range(len(counts)), key=lambda at: (counts[at] + 1) / max(room[at], 1e-9))] += 1
    return tuple(counts)


def shares(model: Model, counts: Sequence[int]) -> tuple[Share, ...]:
    """What hosts hold that take so many layers each, in order; the first has the embedding, the last the head."""
    names, found, first = layers(model), [], 0
    for at, count in enumerate(counts):
        held = Counter(names[first : first + count])
        found.append(Share(embedding=at == 0, layers=tuple(held.items()), head=at == len(counts) - 1))
        first += count
    return tuple(found)


def even(total: int, parts: int) -> tuple[int, ...]:
    """`total` in so many parts as equal as can be, the larger ones first."""
    return tuple(total // parts + (at < total % parts) for at in range(parts))
