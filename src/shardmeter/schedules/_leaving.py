"""When gradients are whole: how long before a step ends every stage has done the last backward of each of its chunks.

Steps whose stages wait for what comes back late, over long links or with weight gradients that fill the waits, are run turn by
turn. Of the others only the drain is looked at, from its end: a stage does the turns that its order has after that backward, and
the micro-batch goes on through the stages before it; the longer of both is what is left of the step. How many turns lie
between is counted in the schedule's own order, once for every structure; their seconds may be arrays.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import NamedTuple

import numpy as np

from shardmeter.core.record import changed, record
from shardmeter.core.units import Count, Number, Seconds
from shardmeter.schedules._links import Boundary, Hop, in_turn
from shardmeter.schedules._prolonged import apart
from shardmeter.schedules._routes import Spot, Traits, previous
from shardmeter.schedules._runs import runs_of
from shardmeter.schedules._slots import Op, Slot, stages

BACK = ("backward", "input_grad")
"""Kinds of turns whose result the stage before waits for."""
GROUPS = 2
"""Rounds of pp micro-batches after which a drain only grows evenly, if at all (breadth first: by turns of the chunks in
between)."""


@record
class Last:
    """The turn after which the gradients of one chunk of a stage are whole."""

    position: int
    chunk: int
    left: Seconds
    """From its end to that of the last stage's last turn."""
    window: Seconds
    """What it lasts."""
    due: Seconds = 0.0
    """From that end to when the stage has to have begun its next step, where devices keep their own clocks: it begins
    as much later than the first one in every step."""


def leaving(
    module: ModuleType, slots: Sequence[Slot], micro_batches: Count, virtual_stages: int, hop: Hop, *, blocking: bool
) -> tuple[Last, ...]:
    """The last turn of every chunk of every stage, in the order in which they end where all turns last equally long.
    `hop` as for a makespan, or of all pp boundaries; `blocking` sends are part of the turn before them. Micro-batches
    may be an array: each number below GROUPS·pp is looked at by itself.

    Exact where all forwards come before all backwards, for 1F1B, and for steps that are run turn by turn: those that part the backward,
    and interleaved over long links, up to as many micro-batches as are run until a step settles. Leaves out, of
    interleaved over short ones: that a stage ends still earlier which waits for a slower one before it; sends that queue. Not
    for two copies of a model."""
    held = stages(slots)
    if _is_run(module, hop):
        return _sorted(_run(module, slots, micro_batches, virtual_stages, hop, blocking=blocking), module)
    pp, least = len(held), len(held) if module.TRAITS.groups else 1
    few = np.clip(np.floor(micro_batches), least, GROUPS * pp)
    few = np.floor(few / least) * least
    more: Count = np.maximum(micro_batches - float(GROUPS * pp), 0.0) / float(pp)
    more = more if np.ndim(more) else float(more)
    parts = [([slot.chunk(at, virtual_stages) for at in range(virtual_stages)], slot.count) for slot in slots]
    own = [chunks for chunks, count in parts for _ in range(count)]
    found: tuple[Last, ...] = ()
    if _is_swept(module, pp, virtual_stages):
        found = _swept(own, np.maximum(micro_batches, 1.0), hop)
    for count in () if found else np.unique(few):
        drain = _drain(module, pp, int(count), virtual_stages)
        here = _lasts(drain, own, more, hop, blocking=blocking)
        here_too = np.equal(few, count)
        found = here if not found else tuple(
            changed(one, left=np.where(here_too, one.left, other.left), due=np.where(here_too, one.due, other.due))
            for one, other in zip(here, found, strict=True)
        )  # fmt: skip
    return _sorted(found, module)


def _sorted(found: Sequence[Last], module: ModuleType) -> tuple[Last, ...]:
    """In the order in which they end where all turns last equally long."""
    by_spot = {(one.position, one.chunk): one for one in found}
    pp, chunks = (1 + max(spot[axis] for spot in by_spot) for axis in (0, 1))
    return tuple(by_spot[spot] for spot in _order(module, pp, chunks))


def _is_run(module: ModuleType, hop: Hop) -> bool:
    """Whether a step has waits that its order alone does not show."""
    return module.TRAITS.split or (module.TRAITS.groups and isinstance(hop, tuple))


def _run(
    module: ModuleType, slots: Sequence[Slot], micro_batches: Count, virtual_stages: int, hop: Hop, *, blocking: bool
) -> tuple[Last, ...]:
    """The moments of steps turn by turn, of each number of micro-batches by itself, device by device and chunk by chunk, the last first."""
    held, chunks = stages(slots), range(virtual_stages)
    pp, own = len(held), changed(module.TRAITS, blocking=blocking)
    links = hop if isinstance(hop, tuple) else (Boundary(wire=hop),) * pp
    links, _ = in_turn((*links, *[Boundary(wire=0.0)] * (pp - len(links))), virtual_stages)
    counts = np.maximum(np.floor(micro_batches), 1.0)
    counts = np.floor(counts / pp) * pp if own.groups else counts
    left: Seconds = 0.0
    for count in np.unique(np.maximum(counts, float(pp)) if own.groups else counts):
        here = np.asarray(_left(module, own, slots, int(count), virtual_stages, links))
        here = here.reshape(*here.shape, *(1,) * (np.ndim(counts) + 1 - here.ndim))
        left = here if np.ndim(left) == 0 else np.where(np.equal(counts, count), here, left)
    rows = [one if np.ndim(one) else float(one) for one in np.asarray(left)]
    kind = "weight_grad" if own.split else "backward"
    parts = [[slot.chunk(chunk, virtual_stages) for chunk in chunks] for slot in held]
    return tuple(
        Last(position=device, chunk=chunk, left=rows[pp + device * virtual_stages + chunk], due=rows[device],
             window=getattr(parts[device][chunk], kind) + parts[device][chunk].ending)
        for device in range(pp) for chunk in reversed(chunks)
    )  # fmt: skip


def _left(
    module: ModuleType, own: Traits, slots: Sequence[Slot], count: int, virtual_stages: int, links: tuple[Boundary, ...]
) -> Number:
    """Of a step of so many micro-batches: when every device is due, then what is left after each turn that makes gradients whole."""

    def of(slots: Sequence[Slot], links: tuple[Boundary, ...]) -> Number:
        runs = runs_of(module, own, slots, count, virtual_stages, links)
        done = runs.run(count if count <= runs.first + runs.unit else runs.first)
        end = np.max(done.ends, axis=0)
        due = done.begins + np.max(done.ends - done.begins, axis=0) - end if own.own_clock else 0.0 * done.begins
        return np.concatenate([due, end - done.whole])

    return apart(of, slots, links) if hasattr(module, "orders") else of(slots, links)


@functools.lru_cache(maxsize=256)
def _is_swept(module: ModuleType, pp: int, virtual_stages: int) -> bool:
    """Whether every device has all forwards before all backwards."""
    if module.TRAITS.split or module.TRAITS.route != "ring":
        return False
    kinds = [[op.kind for op in ops] for ops in _orders(module, pp, GROUPS * pp, virtual_stages)]
    return all(row == sorted(row, reverse=True) for row in kinds)


def _swept(slots: Sequence[Sequence[Slot]], micro_batches: Count, hop: Hop) -> tuple[Last, ...]:
    """All micro-batches back through one chunk on every device, then through the next: as the makespan of such
    schedules, when the first is done at a place and when the last, from where the backwards begin."""
    first: Seconds = 0.0
    last: Seconds = 0.0
    free: dict[tuple[int, bool], Seconds] = {}
    ends: dict[Spot, Seconds] = {}
    later = _later(
        [micro_batches, *(one for row in slots for slot in row for one in (slot.backward, slot.ending))], hop
    )

    def passed(place: tuple[int, bool], seconds: Seconds, ending: Seconds = 0.0) -> None:
        nonlocal first, last
        first = later(first, free.get(place, 0.0)) + seconds
        last = later(last + seconds, first + (micro_batches - 1.0) * seconds) + ending
        free[place] = last

    for chunk in reversed(range(len(slots[0]))):
        for device in reversed(range(len(slots))):
            own = slots[device][chunk]
            passed((device, False), own.backward, own.ending)
            ends[device, chunk] = last
            if device or chunk:
                wire, delay = _link(hop, device, (device or len(slots)) - 1)
                passed((device, True), wire)
                first, last = first + delay, last + delay
    return tuple(
        Last(position=device, chunk=chunk, left=last - ends[device, chunk],
             window=slots[device][chunk].backward + slots[device][chunk].ending)
        for device in range(len(slots)) for chunk in reversed(range(len(slots[0])))
    )  # fmt: skip


class Turns(NamedTuple):
    """So many equal turns of a device, and how many more for every pp micro-batches more."""

    kind: str
    chunk: int
    number: float
    each: float


class Mark(NamedTuple):
    """The last turn of a kind and chunk on a device."""

    device: int
    kind: str
    chunk: int
    after: tuple[Turns, ...]
    """Turns of the device between it and its next mark, both without."""
    target: Spot | None
    """Where its result goes, if it goes anywhere."""


class Drain(NamedTuple):
    """The end of a schedule's order."""

    rows: tuple[tuple[Mark, ...], ...]
    """The marks of every device in the order of its turns."""
    way: tuple[tuple[int, int], ...]
    """(device, place in its row) of the last backward of every chunk, each after those that it waits for on the way to
    the end."""


@functools.lru_cache(maxsize=256)
def _drain(module: ModuleType, pp: int, micro_batches: int, virtual_stages: int) -> Drain:
    """The marks of a step of so many micro-batches."""
    rows = [_row(ops) for ops in _orders(module, pp, micro_batches, virtual_stages)]
    longer: list[list[tuple[str, int, Counter[tuple[str, int]]]]] = rows
    if micro_batches == GROUPS * pp:
        longer = [_row(ops) for ops in _orders(module, pp, micro_batches + pp, virtual_stages)]
    made = tuple(
        tuple(
            Mark(device, kind, chunk, _grown(between, after), _target(module, (device, chunk), kind, pp))
            for (kind, chunk, between), (_, _, after) in zip(row, other, strict=True)
        )
        for device, (row, other) in enumerate(zip(rows, longer, strict=True))
    )
    vee = module.TRAITS.route == "vee"
    spots = [(pp - 1 - d if vee and c % 2 else d, c) for c in range(virtual_stages) for d in range(pp)]
    places = {(m.device, m.chunk): (m.device, at) for row in made for at, m in enumerate(row) if m.kind in BACK}
    return Drain(made, tuple(places[spot] for spot in spots))


def _orders(module: ModuleType, pp: int, micro_batches: int, virtual_stages: int) -> Sequence[Sequence[Op]]:
    """The turns of all devices; of an order that follows from the seconds, where all turns last equally long."""
    if hasattr(module, "orders"):
        even = [Slot(first=0, count=pp, forward=1.0, input_grad=1.0, weight_grad=1.0)]
        found: Sequence[Sequence[Op]] = module.orders(even, micro_batches, 0.0)
        return found
    return [module.order(position, pp, micro_batches, virtual_stages) for position in range(pp)]


def _row(ops: Sequence[Op]) -> list[tuple[str, int, Counter[tuple[str, int]]]]:
    """(kind, chunk, turns until the next one) of the last turn of every kind and chunk."""
    places = sorted({(op.kind, op.chunk): at for at, op in enumerate(ops) if op.kind != "forward"}.values())
    return [
        (ops[at].kind, ops[at].chunk, Counter((op.kind, op.chunk) for op in ops[at + 1 : following]))
        for at, following in zip(places, (*places[1:], len(ops)), strict=True)
    ]


def _grown(between: Counter[tuple[str, int]], after: Counter[tuple[str, int]]) -> tuple[Turns, ...]:
    return tuple(Turns(*key, float(count), float(after[key] - count)) for key, count in between.items())


def _target(module: ModuleType, spot: Spot, kind: str, pp: int) -> Spot | None:
    return previous(module.TRAITS.route, spot, pp) if kind in BACK else None


@functools.lru_cache(maxsize=256)
def _order(module: ModuleType, pp: int, virtual_stages: int) -> tuple[Spot, ...]:
    """The (device, chunk) of the last turns in the order in which they end where all turns last equally long; of several at
    once, the stage last that begins its next step first: gradients that leave together over one line are through
    together."""
    even = Slot(first=0, count=pp, forward=1.0, input_grad=1.0, weight_grad=1.0)
    lasts = _lasts(
        _drain(module, pp, GROUPS * pp, virtual_stages), [[even] * virtual_stages] * pp, 0.0, 0.0, blocking=False
    )
    places = sorted(range(len(lasts)), key=lambda at: (-lasts[at].left, -at))
    return tuple((lasts[at].position, lasts[at].chunk) for at in places)


def _lasts(drain: Drain, slots: Sequence[Sequence[Slot]], more: Count, hop: Hop, *, blocking: bool) -> tuple[Last, ...]:
    """What is left after each last turn; `slots` by device and chunk."""
    windows = [[_window(mark, slots, hop, blocking=blocking) for mark in row] for row in drain.rows]
    after = [[_seconds(mark, slots, more, hop, blocking=blocking) for mark in row] for row in drain.rows]
    numbers = [one for some in (*windows, *after) for one in some]
    later = _later(numbers, hop)
    places: list[list[Seconds]] = [[0.0] * len(row) for row in drain.rows]
    known: dict[Spot, tuple[int, int]] = {}
    for device, at in drain.way:
        row = drain.rows[device]
        left: Seconds = 0.0
        if row[at].target is not None:
            to = known[row[at].target]  # type: ignore[index]
            left = (0.0 if blocking else _way(hop, device, to[0])) + windows[to[0]][to[1]] + places[to[0]][to[1]]
        own: Seconds = 0.0
        for following in range(at + 1, len(row)):
            own = own + after[device][following - 1] + windows[device][following]
            if row[following].kind in BACK:
                left = later(left, own + places[device][following])
                break
        places[device][at] = left
        known[device, row[at].chunk] = device, at
    for row, place, window, between in zip(drain.rows, places, windows, after, strict=True):
        _around(row, place, window, between)
    ends = [between[-1] - place[-1] for place, between in zip(places, after, strict=True)]
    end = functools.reduce(later, ends)
    return tuple(
        Last(position=mark.device, chunk=mark.chunk, left=left + end, window=window)
        for row, place, some in zip(drain.rows, places, windows, strict=True)
        for mark, left, window in zip(row, place, some, strict=True)
        if mark.kind != "input_grad"
    )


def _around(row: Sequence[Mark], place: list[Seconds], window: Sequence[Seconds], after: Sequence[Seconds]) -> None:
    """Put the weight gradients of a device around its backwards, each as late as what follows it lets it. Those after
    the last one lie behind the end of the way back: below nothing."""
    last = max(at for at, mark in enumerate(row) if mark.kind in BACK)
    for at in reversed(range(last)):
        if row[at].kind not in BACK:
            place[at] = place[at + 1] + window[at + 1] + after[at]
    for at in range(last + 1, len(row)):
        place[at] = place[at - 1] - after[at - 1] - window[at]


def _window(mark: Mark, slots: Sequence[Sequence[Slot]], hop: Hop, *, blocking: bool) -> Seconds:
    """The last turn of a kind: gradients that only it reduces make it longer."""
    slot = slots[mark.device][mark.chunk]
    seconds: Seconds = getattr(slot, mark.kind)
    if blocking and mark.target is not None:
        seconds = seconds + _way(hop, mark.device, mark.target[0])
    return seconds if mark.kind == "input_grad" else seconds + slot.ending


def _seconds(mark: Mark, slots: Sequence[Sequence[Slot]], more: Count, hop: Hop, *, blocking: bool) -> Seconds:
    """What a device does between a mark and its next one."""
    total: Seconds = 0.0
    for kind, chunk, count, each in mark.after:
        seconds: Seconds = getattr(slots[mark.device][chunk], kind)
        if blocking and mark.target is not None and kind in BACK and (mark.device or chunk):
            seconds = seconds + _way(hop, mark.device, mark.target[0])
        total = total + (count + each * more if each else count) * seconds
    return total


def _way(hop: Hop, device: int, other: int) -> Seconds:
    """From one device back to another."""
    wire, delay = _link(hop, device, other)
    return wire + delay


def _later(numbers: Sequence[Number], hop: Hop) -> Callable[[Seconds, Seconds], Seconds]:
    """The later of two moments; plain numbers skip the array's way."""
    links = [one for link in hop for one in (link.wire, link.delay)] if isinstance(hop, tuple) else [hop]
    return max if all(isinstance(one, float) for one in (*numbers, *links)) else np.maximum


def _link(hop: Hop, device: int, other: int) -> tuple[Seconds, Seconds]:
    """(seconds on the wire, on the way after that) from one device back to another, over the boundary behind that one."""
    if device == other:
        return 0.0, 0.0
    if not isinstance(hop, tuple):
        return hop, 0.0
    return hop[other].wire, hop[other].delay


__all__ = ["Last", "leaving"]
