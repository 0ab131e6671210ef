"""Schedules whose turns have no short sum: their own order, run as a max-plus recurrence over numbers or arrays.

A turn begins when the turn before it on its device has ended and what it waits for has come. A send occupies the wire to its
neighbour, one at a time in the order of the turns or, where sending blocks, the device that sends. Over long links (`Boundary`) what was
sent comes later than the wire is free again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from shardmeter.core.units import Seconds
from shardmeter.schedules._long import Hop
from shardmeter.schedules._routes import Key, Traits, content, needs
from shardmeter.schedules._slots import Op, Slot, stages

Order = Callable[[int, int, int, int], tuple[Op, ...]]
Part = tuple[str, int, int, int]
"""What a node lasts: (kind, owner's position, chunk, boundary of the send that is in it or NONE); kind "send" is a send alone, "delay" its
way."""
NONE = -1
JOINED = "joined backward"
"""Kind of a backward that is done together with the forward before it."""
BLOCK = 4096
"""Elements run at a time: what is still needed of a run then stays near the processor."""


class Graph(NamedTuple):
    """A schedule's turns and sends, each after what it needs. Node 0 is the beginning."""

    parts: tuple[Part, ...]
    nodes: tuple[tuple[int, int, int], ...]
    """(index of the part, two nodes that must have ended) of node 1, 2, …"""
    spent: tuple[tuple[int, ...], ...]
    """The nodes that nothing needs any more after node 1, 2, …"""
    devices: tuple[tuple[int, int], ...]
    """(what the first turn waits for, last turn) of every device."""


def replay(
    order: Order, traits: Traits, slots: Sequence[Slot], micro_batches: int, virtual_stages: int, hop: Hop
) -> Seconds:
    """Duration of a step of so many micro-batches: the longest span of a device on its own clock, else the whole.

    Exact: what the timeline of the same turns takes."""
    held = stages(slots)
    long = isinstance(hop, tuple)
    wired = not traits.blocking and (isinstance(hop, tuple) or not (np.ndim(hop) == 0 and float(hop) == 0.0))
    graph = _graph(order, traits, len(held), micro_batches, virtual_stages, wired, long)
    parts = [_seconds(held, part, virtual_stages, hop) for part in graph.parts]
    shape = np.broadcast_shapes(*(np.shape(part) for part in parts))
    if not shape:
        return _longest(traits, graph, _scalar(graph, [float(part) for part in parts]))
    size = int(np.prod(shape))
    flat: list[Any] = [np.broadcast_to(part, shape).reshape(-1) if np.ndim(part) else part for part in parts]
    result = np.empty(size)
    for begin in range(0, size, BLOCK):
        some = [part[begin : begin + BLOCK] if np.ndim(part) else part for part in flat]
        result[begin : begin + BLOCK] = _longest(traits, graph, _vector(graph, some))
    return result.reshape(shape)


def _seconds(held: Sequence[Slot], part: Part, virtual_stages: int, hop: Hop) -> Seconds:
    kind, owner, chunk, boundary = part
    if kind == "delay" and isinstance(hop, tuple):
        return hop[boundary].delay
    sent: Seconds = hop[boundary].wire if isinstance(hop, tuple) else hop
    if kind == "send":
        return sent
    slot = held[owner].chunk(chunk, virtual_stages)
    seconds: Seconds = slot.backward - slot.joined if kind == JOINED else getattr(slot, kind)
    return seconds if boundary == NONE else seconds + sent


def _scalar(graph: Graph, parts: Sequence[float]) -> list[float]:
    """When every node ends."""
    end = [0.0]
    add = end.append
    for part, one, other in graph.nodes:
        left, right = end[one], end[other]
        add((max(right, left)) + parts[part])
    return end


def _vector(graph: Graph, parts: Sequence[Seconds]) -> list[Seconds]:
    """The same, element by element."""
    end: list[Seconds] = [0.0]
    for (part, one, other), spent in zip(graph.nodes, graph.spent, strict=True):
        ready = np.maximum(end[one], end[other]) if one and other else end[one or other]
        end.append(ready + parts[part])
        for node in spent:
            end[node] = 0.0
    return end


def _longest(traits: Traits, graph: Graph, end: Sequence[Seconds]) -> Seconds:
    longest: Seconds = 0.0
    for first, last in graph.devices:
        longest = np.maximum(longest, end[last] - end[first] if traits.own_clock else end[last])
    return longest


@functools.lru_cache(maxsize=256)
def _graph(
    order: Order, traits: Traits, pp: int, micro_batches: int, virtual_stages: int, wired: bool, long: bool
) -> Graph:
    """All turns and, where wired, sends. Raises ValueError if turns wait for each other in a circle."""
    rows = [order(device, pp, micro_batches, virtual_stages) for device in range(pp)]
    keys = [[(device, op.kind, op.micro_batch, op.chunk) for op in row] for device, row in enumerate(rows)]
    comes = _sources(traits.route, pp, keys)
    made = _Made(
        traits,
        pp,
        max(virtual_stages, 2),
        wired=wired,
        long=long,
        goes={source: key[0] for key, source in comes.items() if source is not None},
    )
    moved = True
    at = [0] * pp
    while moved:
        moved = False
        for device, own in enumerate(keys):
            while at[device] < len(own):
                key, source = own[at[device]], comes[own[at[device]]]
                if source is not None and source not in made.arrived:
                    break
                made.turn(key, source, joined=rows[device][at[device]].joined)
                at[device] += 1
                moved = True
    left = sum(len(own) for own in keys) - sum(at)
    if left:
        raise ValueError(f"{left} turns wait for each other in a circle")
    return made.graph()


def _sources(route: str, pp: int, keys: Sequence[Sequence[Key]]) -> dict[Key, Key | None]:
    """For each turn the one on another device whose result it needs, if there is one."""
    turns = {key for own in keys for key in own}
    of = needs(route, pp, turns)
    if any(kind in ("input_grad", "weight_grad") for _, kind, _, _ in turns):
        return {key: next((one for one in of(key) if one[0] != key[0]), None) for key in turns}
    # alike for every micro-batch
    alike: dict[tuple[int, str, int], Key | None] = {}
    found: dict[Key, Key | None] = {}
    for key in turns:
        device, kind, micro_batch, chunk = key
        same = device, kind, chunk
        if same not in alike:
            alike[same] = next((one for one in of(key) if one[0] != device), None)
        one = alike[same]
        found[key] = None if one is None else (one[0], one[1], micro_batch, one[3])
    return found


class _Made:
    """A graph under construction."""

    def __init__(self, traits: Traits, pp: int, chunks: int, *, wired: bool, long: bool, goes: dict[Key, int]) -> None:
        self.traits, self.pp, self.wired, self.long, self.goes = traits, pp, wired, long, goes
        self.owners = {
            (at, chunk): content(traits.route, (at, chunk), pp) for at in range(pp) for chunk in range(chunks)
        }
        self.parts: dict[Part, int] = {}
        self.nodes: list[tuple[int, int, int]] = []
        self.arrived: dict[Key, int] = {}
        """The node after which a turn's result is where it is needed."""
        self.first: dict[int, int] = {}
        self.last: dict[int, int] = {}
        self.wires: dict[tuple[int, int, bool], int] = {}
        """The last send on the wire from a device to another, forward or back."""
        self.waiting: dict[int, list[Key]] = {}
        """Turns of a device whose results are sent together with the next one's."""

    def node(self, part: Part, one: int, other: int) -> int:
        """A node after two others."""
        self.nodes.append((self.parts.setdefault(part, len(self.parts)), one, other))
        return len(self.nodes)

    def turn(self, key: Key, source: Key | None, *, joined: bool) -> None:
        """The next turn of a device, and the sends that follow it. What it needs of its own device is an earlier turn."""
        device, kind, _, chunk = key
        come = self.arrived[source] if source else 0
        if device not in self.last:
            self.first[device], self.last[device] = come, 0
        together = JOINED if device in self.waiting else kind
        blocks = self.traits.blocking and key in self.goes
        part = together, self.owners[device, chunk], chunk, self.boundary(device, key) if blocks else NONE
        done = self.last[device] = self.node(part, self.last[device], come)
        if joined:
            self.waiting.setdefault(device, []).append(key)
            return
        for one in (*self.waiting.pop(device, ()), key):
            self.arrived[one] = done
            if one not in self.goes:
                continue
            boundary = self.boundary(device, one)
            if self.wired:
                wire = (device, self.goes[one], one[1] == "forward")
                self.arrived[one] = self.wires[wire] = self.node(
                    ("send", 0, 0, boundary), done, self.wires.get(wire, 0)
                )
            if self.long:
                self.arrived[one] = self.node(("delay", 0, 0, boundary), self.arrived[one], 0)

    def boundary(self, device: int, key: Key) -> int:
        """What a turn's result crosses: the boundary behind the earlier of two neighbours, or behind the last stage; 0 where all
        are alike."""
        if not self.long:
            return 0
        low, high = sorted((device, self.goes[key]))
        return low if high == low + 1 else high

    def graph(self) -> Graph:
        """All of it."""
        devices = tuple((self.first[device], self.last[device]) for device in range(self.pp))
        uses = {node: at for at, (_, *two) in enumerate(self.nodes) for node in two}
        kept = {0, *(node for pair in devices for node in pair)}
        spent: list[list[int]] = [[] for _ in self.nodes]
        for node, at in uses.items():
            if node not in kept:
                spent[at].append(node)
        return Graph(tuple(self.parts), tuple(self.nodes), tuple(map(tuple, spent)), devices)


__all__ = ["replay"]
