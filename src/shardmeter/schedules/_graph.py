"""A schedule's turns and sends as a graph: each after the two that it needs, in an order in which it may be run.

For many networks at once the graph is cut into levels: the nodes of one wait for none of one another.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shardmeter.core.sums import plain_sum
from shardmeter.schedules._routes import Spot, Traits, content, crossed, previous
from shardmeter.schedules._slots import Op

Part = tuple[str, int, int, int]
"""What a node lasts: (kind, owner's position, chunk, boundary of the send that is in it or NONE); kind "send" is a send alone, "delay" its
way."""
NONE = -1
JOINED = "joined backward"
"""Kind of a backward that is done together with the forward before it."""
LAST = "last backward"
"""Kind of the backward after which a stage's gradients are whole."""
Nodes = tuple[list[int], list[int], list[int]]
"""Of node 1, 2, …: index of the part, and the two nodes that must have ended."""
Rows = npt.NDArray[np.intp]


class Level(NamedTuple):
    """Nodes that are run together: rows `begin` to `end` of the store, and of each the rows of what it needs."""

    begin: int
    end: int
    one: Rows
    other: Rows
    parts: Rows
    kept: tuple[tuple[int, int], ...]
    """(node, row) of those that the answer is made of."""


class Levels(NamedTuple):
    """All of a graph, and the store that it needs."""

    each: tuple[Level, ...]
    rows: int
    widest: int


class Graph:
    """Node 0 is the beginning; of node 1, 2, … `nodes` has what it lasts and needs. `devices`: what the first turn of each waits for,
    and its last turn. `returns`: the turns with which micro-batches come back to the first device before it runs out of new ones.
    `whole`: of every device, the turns after which the gradients of its chunks are whole."""

    def __init__(
        self,
        parts: tuple[Part, ...],
        nodes: Nodes,
        devices: tuple[tuple[int, int], ...],
        returns: tuple[int, ...],
        whole: tuple[tuple[int, ...], ...] = (),
    ) -> None:
        self.parts, self.nodes, self.devices, self.returns, self.whole = parts, nodes, devices, returns, whole

    @functools.cached_property
    def asked(self) -> list[int]:
        """The nodes of which the answer is made."""
        return [*itertools.chain.from_iterable((*self.devices, self.returns, *self.whole))]

    @functools.cached_property
    def spent(self) -> list[list[int]]:
        """The nodes that nothing needs any more after node 1, 2, …"""
        spent: list[list[int]] = [[] for _ in self.nodes[0]]
        last = {node: at for at, two in enumerate(zip(*self.nodes[1:], strict=True)) for node in two}
        for node in last.keys() - {0, *self.asked}:
            spent[last[node]].append(node)
        return spent

    @functools.cached_property
    def levels(self) -> Levels:
        """The nodes level by level."""
        return _levels(self)


def graph_of(
    rows: Sequence[Sequence[Op]], traits: Traits, wired: tuple[bool, ...], delayed: tuple[bool, ...]
) -> Graph:  # fmt: skip
    """All turns of every device and, at boundaries whose wire takes time, sends; `delayed` says the same of delays and is empty where all
    boundaries are alike. Raises ValueError if turns wait for each other in a circle."""
    return _Made(traits, rows, wired, delayed).run()


@functools.lru_cache(maxsize=32)
def known(
    order: Callable[..., tuple[Op, ...]],
    traits: Traits,
    pp: int,
    micro_batches: int,
    virtual_stages: int,
    wired: tuple[bool, ...],
    delayed: tuple[bool, ...],
    *ahead: tuple[int, ...],
) -> Graph:
    """The same of an order that is known by its function."""
    rows = [order(device, pp, micro_batches, virtual_stages, *ahead) for device in range(pp)]
    return graph_of(rows, traits, wired, delayed)


class _Way(NamedTuple):
    """What is alike for every micro-batch of a device's chunk, forward or back."""

    needs: tuple[int, bool, int] | None
    """The way of another device whose result it needs: (device, whether forward, chunk)."""
    boundary: int
    """What its own result crosses; NONE where it stays."""
    wire: tuple[int, int, bool]
    """Which wire that occupies."""


class _Made:
    """A graph under construction."""

    def __init__(
        self, traits: Traits, rows: Sequence[Sequence[Op]], wired: Sequence[bool], delayed: Sequence[bool]
    ) -> None:
        self.traits, self.rows, self.wired, self.delayed = traits, rows, wired, delayed
        self.pp = len(rows)
        self.parts: dict[Part, int] = {}
        self.nodes: Nodes = ([], [], [])
        spots = {(device, op.chunk) for device, row in enumerate(rows) for op in row}
        before = {spot: previous(traits.route, spot, self.pp) for spot in spots}
        after = {source: spot for spot, source in before.items() if source is not None}
        self.ways = {
            (*spot, forward): self._way(spot, forward, source.get(spot), target.get(spot))
            for forward, source, target in ((True, before, after), (False, after, before))
            for spot in spots
        }
        self.arrived: dict[tuple[int, bool, int, int], int] = {}
        """(device, whether forward, chunk, micro-batch) → the node after which a turn's result is where it is needed."""
        self.wires: dict[tuple[int, int, bool], int] = {}
        """The last send on a wire."""

    def _way(self, spot: Spot, forward: bool, source: Spot | None, target: Spot | None) -> _Way:
        device = spot[0]
        needs = None if source is None or source[0] == device else (source[0], forward, source[1])
        if target is None or target[0] == device:
            return _Way(needs, NONE, (device, device, forward))
        boundary = crossed(self.traits.route, device, target[0], forward=forward) if self.delayed else 0
        # of a line that is crossed both ways by either kind there is one wire each way
        alone = bool(self.delayed) and self.traits.route != "ring"
        return _Way(needs, boundary, (device, target[0], forward or alone))

    def run(self) -> Graph:
        """All turns, each device's in order as soon as what they wait for is there."""
        made = [_Device(self, device, row) for device, row in enumerate(self.rows)]
        moved = True
        while moved:
            moved = False
            for device in made:
                done = device.at
                device.run()
                moved = moved or device.at > done
        left = plain_sum(len(device.turns) - device.at for device in made)
        if left:
            raise ValueError(f"{left} turns wait for each other in a circle")
        devices = tuple((device.first or 0, device.last) for device in made)
        whole = tuple(tuple(device.whole[chunk] for chunk in sorted(device.whole)) for device in made)
        return Graph(tuple(self.parts), self.nodes, devices, tuple(made[0].returns), whole)

    def node(self, part: Part, one: int, other: int) -> int:
        """A node after two others."""
        parts, ones, others = self.nodes
        parts.append(self.parts.setdefault(part, len(self.parts)))
        ones.append(one)
        others.append(other)
        return len(parts)

    def sent(self, way: _Way, done: int) -> int:
        """The node after which a result that is done has crossed its boundary."""
        if self.wired[way.boundary]:
            done = self.wires[way.wire] = self.node(("send", 0, 0, way.boundary), done, self.wires.get(way.wire, 0))
        if self.delayed and self.delayed[way.boundary]:
            done = self.node(("delay", 0, 0, way.boundary), done, 0)
        return done


class _Device:
    """One device's turns, those done so far, and results that are sent together with the next one's."""

    def __init__(self, made: _Made, position: int, turns: Sequence[Op]) -> None:
        self.made, self.position, self.turns = made, position, turns
        self.at, self.last = 0, 0
        self.first: int | None = None
        self.waiting: list[Op] = []
        self.returns: list[int] = []
        self.whole: dict[int, int] = {}
        self.newest = max(at for at, op in enumerate(turns) if op.kind == "forward")
        chunks = {op.chunk for op in turns}
        self.blocks = made.traits.blocking
        self.owners = {chunk: content(made.traits.route, (position, chunk), made.pp) for chunk in chunks}
        last = {op.chunk: at for at, op in enumerate(turns) if op.kind == "backward"} if made.traits.ending else {}
        self.endings = frozenset(last.values())

    def run(self) -> None:
        """All turns up to one that waits for what is not there yet. What a turn needs of its own device is an earlier turn."""
        made, position, arrived = self.made, self.position, self.made.arrived
        while self.at < len(self.turns):
            op = self.turns[self.at]
            forward, come = op.kind == "forward", 0
            way = made.ways[position, op.chunk, forward]
            if way.needs is not None and op.kind != "weight_grad":
                found = arrived.get((*way.needs, op.micro_batch))
                if found is None:
                    return
                come = found
            self._turn(op, way, come)
            self.at += 1

    def _turn(self, op: Op, way: _Way, come: int) -> None:
        """One turn, and the sends that follow it."""
        made, kind = self.made, op.kind
        if self.first is None:
            self.first = come
        inside = way.boundary if self.blocks and kind != "weight_grad" else NONE
        if self.waiting or self.at in self.endings:
            kind = JOINED if self.waiting else LAST
        self.last = made.node((kind, self.owners[op.chunk], op.chunk, inside), self.last, come)
        if op.kind in ("backward", "weight_grad"):
            self.whole[op.chunk] = self.last
        if op.chunk == 0 and op.kind in ("backward", "input_grad") and self.at < self.newest:
            self.returns.append(self.last)
        if op.joined:
            self.waiting.append(op)
            return
        if self.waiting:
            for one in self.waiting:
                self._sent(one, made.ways[self.position, one.chunk, one.kind == "forward"])
            self.waiting = []
        if op.kind != "weight_grad":
            self._sent(op, way)

    def _sent(self, op: Op, way: _Way) -> None:
        """A turn's result, on its way to where it is needed."""
        done = self.last if way.boundary == NONE else self.made.sent(way, self.last)
        self.made.arrived[self.position, op.kind == "forward", op.chunk, op.micro_batch] = done


def _levels(graph: Graph) -> Levels:
    """Nodes sorted by how many lie on the longest way to them, and for each a row of a store that is written round and round."""
    depth = [0]
    for one, other in zip(*graph.nodes[1:], strict=True):
        depth.append(1 + max(depth[one], depth[other]))
    of = np.array(depth, dtype=np.intp)
    order = np.argsort(of, kind="stable")
    begins = np.searchsorted(of[order], np.arange(1, of.max() + 2))
    table = np.array([[0, *some] for some in graph.nodes], dtype=np.intp)
    rows, size = _rows(order, begins, of, table)
    kept = np.zeros(len(of), dtype=bool)
    kept[graph.asked] = True
    kept[0] = False
    each = []
    parts, ones, others = table[0][order], rows[table[1][order]], rows[table[2][order]]
    asked = np.flatnonzero(kept[order])
    at = 0
    for begin, end, until in zip(begins, begins[1:], np.searchsorted(asked, begins[1:]), strict=False):
        first = int(rows[order[begin]])
        some = tuple((int(order[place]), int(rows[order[place]])) for place in asked[at:until])
        cut, at = slice(begin, end), until
        each.append(Level(first, first + int(end - begin), ones[cut], others[cut], parts[cut], some))
    return Levels(tuple(each), size, int(np.max(np.diff(begins))))


def _rows(order: Rows, begins: Rows, of: Rows, table: Rows) -> tuple[Rows, int]:
    """The row of every node, and how many there are. Row 0 is the beginning. A level lies in one piece: rows are given in a ring as long
    as what is needed later, and begin anew where a level would not fit."""
    until = np.zeros(len(of), dtype=np.intp)
    for needed in (1, 2):
        np.maximum.at(until, table[needed, 1:], of[1:])
    widths = np.diff(begins)
    # from a node's own place to the end of the level that needs it last
    alive = begins[until[order]] - np.arange(len(order))
    ring = int(alive[1:].max()) + 2 * int(widths.max()) + 1
    rows, free = np.zeros(len(of), dtype=np.intp), 1
    for begin, width in zip(begins, widths, strict=False):
        if free + width > ring + 1:
            free = 1
        rows[order[begin : begin + width]] = np.arange(free, free + width)
        free += int(width)
    return rows, ring + 1


__all__: Any = ["JOINED", "LAST", "NONE", "Graph", "Part", "graph_of", "known"]
