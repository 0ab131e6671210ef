"""Schedules whose turns have no short sum: their own order, run as a max-plus recurrence over numbers or arrays.

A turn begins when the turn before it on its device has ended and what it waits for has come. A send occupies the wire to its
neighbour, one at a time in the order of the turns or, where sending blocks, the device that sends. Over long links (`Boundary`) what was
sent comes later than the wire is free again. Numbers are run turn by turn; of some networks at once, all turns that wait for none of one
another are run together.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shardmeter.core.units import Seconds
from shardmeter.schedules._graph import JOINED, LAST, NONE, Graph, Part, graph_of, known
from shardmeter.schedules._links import Hop, ahead_of, told
from shardmeter.schedules._routes import Traits
from shardmeter.schedules._slots import Op, Slot, stages

Order = Callable[..., tuple[Op, ...]]


class Replayed(NamedTuple):
    """What a run took, and its moments: each array of shape (what it is of, …)."""

    seconds: Seconds
    returns: npt.NDArray[np.float64]
    """When each micro-batch came back to the first device, as long as that had new ones."""
    begins: npt.NDArray[np.float64]
    """When every device began."""
    ends: npt.NDArray[np.float64]
    whole: npt.NDArray[np.float64]
    """When the gradients of the chunks of every device were whole, device by device."""


WIDE, BLOCK = 512, 4096
"""Elements from which on each node is worth a call of its own, and how many of them are then run at a time: what is still needed of a
run stays near the processor."""


def replay(
    order: Order, traits: Traits, slots: Sequence[Slot], micro_batches: int, virtual_stages: int, hop: Hop
) -> Seconds:
    """Duration of a step of so many micro-batches: the longest span of a device on its own clock, else the whole.

    Exact: what the timeline of the same turns takes."""
    return replayed(order, traits, slots, micro_batches, virtual_stages, hop).seconds


def replayed(
    order: Order, traits: Traits, slots: Sequence[Slot], micro_batches: int, virtual_stages: int, hop: Hop
) -> Replayed:
    """The same, with when micro-batches came back."""
    pp = len(stages(slots))
    more = told(ahead_of(hop, pp)) if traits.ahead else ()
    graph = known(order, traits, pp, micro_batches, virtual_stages, *_takes(traits, pp, hop), *more)
    return _run(graph, traits, slots, virtual_stages, hop)


def replayed_rows(
    rows: Sequence[Sequence[Op]], traits: Traits, slots: Sequence[Slot], virtual_stages: int, hop: Hop
) -> Replayed:
    """The same of turns that are given."""
    graph = graph_of(rows, traits, *_takes(traits, len(rows), hop))
    return _run(graph, traits, slots, virtual_stages, hop)


def _run(graph: Graph, traits: Traits, slots: Sequence[Slot], virtual_stages: int, hop: Hop) -> Replayed:
    held = stages(slots)
    parts = [_seconds(held, part, virtual_stages, hop) for part in graph.parts]
    shape = np.broadcast_shapes(*(np.shape(part) for part in parts))
    if not shape:
        end = _scalar(graph, [float(part) for part in parts])
        return _told(traits, graph, np.array([end[node] for node in graph.asked]))
    size = int(np.prod(shape))
    flat: list[Any] = [np.broadcast_to(part, shape).reshape(-1) if np.ndim(part) else part for part in parts]
    found = np.empty((len(graph.asked), size))
    wide = size >= WIDE
    block = BLOCK if wide else size
    for begin in range(0, size, block):
        some = [part[begin : begin + block] if np.ndim(part) else part for part in flat]
        moments = _wide(graph, some) if wide else _level_by_level(graph, some, size)
        for at, node in enumerate(graph.asked):
            found[at, begin : begin + block] = moments[node]
    return _told(traits, graph, found.reshape(-1, *shape))


def _told(traits: Traits, graph: Graph, moments: npt.NDArray[np.float64]) -> Replayed:
    """A run from the moments of what was `asked`."""
    pp, back = len(graph.devices), len(graph.returns)
    begins, ends = moments[: 2 * pp : 2], moments[1 : 2 * pp : 2]
    longest = np.max(ends - begins if traits.own_clock else ends, axis=0)
    seconds: Seconds = longest if longest.ndim else float(longest)
    return Replayed(seconds, moments[2 * pp : 2 * pp + back], begins, ends, moments[2 * pp + back :])


def _takes(traits: Traits, pp: int, hop: Hop) -> tuple[tuple[bool, ...], tuple[bool, ...]]:
    """Which boundaries have a wire that takes time, and which a delay: the others are no part of the graph."""

    def some(value: Seconds) -> bool:
        return np.ndim(value) > 0 or float(value) != 0.0

    if isinstance(hop, tuple):
        wires = (False,) * pp if traits.blocking else tuple(some(link.wire) for link in hop)
        return wires, tuple(some(link.delay) for link in hop)
    return (not traits.blocking and some(hop),) * pp, ()


def _seconds(held: Sequence[Slot], part: Part, virtual_stages: int, hop: Hop) -> Seconds:
    kind, owner, chunk, boundary = part
    if kind == "delay" and isinstance(hop, tuple):
        return hop[boundary].delay
    sent: Seconds = hop[boundary].wire if isinstance(hop, tuple) else hop
    if kind == "send":
        return sent
    slot = held[owner].chunk(chunk, virtual_stages)
    if kind in (JOINED, LAST):
        seconds: Seconds = slot.backward - slot.joined if kind == JOINED else slot.backward + slot.ending
    else:
        seconds = getattr(slot, kind)
    return seconds if boundary == NONE else seconds + sent


def _scalar(graph: Graph, parts: Sequence[float]) -> list[float]:
    """When every node ends."""
    end = [0.0]
    add = end.append
    for part, one, other in zip(*graph.nodes, strict=True):
        left, right = end[one], end[other]
        add((max(right, left)) + parts[part])
    return end


def _wide(graph: Graph, parts: Sequence[Seconds]) -> list[Seconds]:
    """The same, element by element; what neither a later node nor the answer needs is forgotten."""
    end: list[Seconds] = [0.0]
    for part, one, other, spent in zip(*graph.nodes, graph.spent, strict=True):
        ready = np.maximum(end[one], end[other]) if one and other else end[one or other]
        end.append(ready + parts[part])
        for node in spent:
            end[node] = 0.0
    return end


def _level_by_level(graph: Graph, parts: Sequence[Seconds], size: int) -> dict[int, Seconds]:
    """The same of the nodes that the answer is made of: each level in rows of a store in which what nothing needs any more is written
    over."""
    levels = graph.levels
    seconds = np.empty((len(parts), size))
    for at, part in enumerate(parts):
        seconds[at] = part
    end, other = np.zeros((levels.rows, size)), np.empty((levels.widest, size))
    kept: dict[int, Seconds] = {0: 0.0}
    take, maximum, add = functools.partial(np.take, axis=0, mode="clip"), np.maximum, np.add
    for level in levels.each:
        own, beside = end[level.begin : level.end], other[: level.end - level.begin]
        take(end, level.one, out=own)
        take(end, level.other, out=beside)
        maximum(own, beside, out=own)
        take(seconds, level.parts, out=beside)
        add(own, beside, out=own)
        for node, row in level.kept:
            kept[node] = end[row].copy()
    return kept


__all__ = ["Replayed", "replay", "replayed", "replayed_rows"]
