"""Pipelines whose neighbours are joined by unlike, long links: every boundary between stages has its own wire and delay.

A message occupies its wire, which serves one at a time in each direction, and arrives the propagation delay after it has left.
The delay is paid on the way, not at the wire: a long link that is wide enough costs a filled pipe and, where a stage has to wait
for what it sent to come back, part of a round trip a micro-batch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardmeter.core.sums import plain_sum
from shardmeter.core.units import Count, Seconds
from shardmeter.schedules._links import Boundary, ahead_of
from shardmeter.schedules._replay import replayed
from shardmeter.schedules._routes import Traits, further
from shardmeter.schedules._slots import Op, Slot, stages

TRAITS = Traits(ending=True, ahead=True)
"""Of 1F1B."""
PERIOD = 60
"""Micro-batches after which the steady state of a few stages repeats: a multiple of what 1 to 6 stages hold."""
SETTLED = 2 * PERIOD
"""Micro-batches that are run turn by turn, beside what fills the pipe."""


def boundaries(slots: Sequence[Slot], hop: tuple[Boundary, ...]) -> list[Slot]:
    """The slot of every stage, each a run of one. Raises ValueError unless there is one boundary less than stages."""
    held = stages(slots)
    if len(hop) != len(held) - 1:
        raise ValueError(f"{len(held)} stages have {len(held) - 1} boundaries, not {len(hop)}: name one for each")
    return held


def gpipe(slots: Sequence[Slot], micro_batches: Count, hop: tuple[Boundary, ...]) -> Seconds:
    """Duration of m forwards, then m backwards, through a line of stages and wires; `micro_batches` and all seconds broadcast.

    Each way equal jobs pass the line: the sum of all stages, wires and delays, and m − 1 times the slowest of stages and wires.
    The last backward may be longer (`Slot.ending`): the longest path leaves some stage or wire with it and passes those after.
    Exact for sends beside the compute. Leaves out: what sends hold up (`Boundary.buffered`)."""
    held = boundaries(slots, hop)
    total: Seconds = 0.0
    slowest: Seconds = 0.0
    ending: Seconds = 0.0
    for slot in held:
        total, slowest = total + slot.whole, np.maximum(slowest, slot.forward)
        ending = ending + slot.ending
    for link in hop:
        total, slowest = total + 2.0 * (link.wire + link.delay), np.maximum(slowest, link.wire)
    others = micro_batches - 1.0
    longest: Seconds = ending
    reached: Seconds = 0.0
    for position in reversed(range(len(held))):
        for own, rest in _passed(held, hop, position, ending):
            reached = np.maximum(reached, own)
            longest = np.maximum(longest, others * reached - np.minimum(others, 1.0) * (reached - own) + rest)
        ending = ending - held[position].ending
    return total + others * slowest + longest


def _passed(
    held: Sequence[Slot], hop: tuple[Boundary, ...], position: int, ending: Seconds
) -> list[tuple[Seconds, Seconds]]:
    """Of a stage on the way back, and of the wire that leaves it: (seconds a job, what the last job takes longer from there)."""
    here = [(held[position].backward, ending)]
    return here if position == 0 else [*here, (hop[position - 1].wire, ending - held[position].ending)]


def one_f_one_b(
    slots: Sequence[Slot], micro_batches: Count, hop: tuple[Boundary, ...], *, serial: bool = False
) -> Seconds:
    """Duration of a 1F1B step; seconds broadcast, and `micro_batches` are run for each of their values, parts of one in
    proportion. With `serial` exchanges a gradient waits until the next activation has come: one thing at a time between two
    neighbours.

    Exact for up to SETTLED + 2·pp micro-batches: the turns in their order as a max-plus recurrence; each further one adds what
    the last PERIOD did on average, or what the slowest window does (within 0.3 %). In the steady state n neighbouring stages
    with e ahead of their boundaries hold n + e micro-batches, so that one takes (Σ compute + 2·Σ(wire + delay)) / (n + e) of the worst
    window, or the slowest stage or wire; with serial exchanges compute + 2·(wire + delay) at the worst boundary."""
    held = boundaries(slots, hop)
    if np.ndim(micro_batches) == 0:
        return _counted(held, float(micro_batches), hop, serial)
    counts = np.asarray(micro_batches)
    found: Seconds = 0.0
    for count in np.unique(counts):
        found = np.where(counts == count, _counted(held, float(count), hop, serial), found)
    return found


def _counted(held: Sequence[Slot], micro_batches: float, hop: tuple[Boundary, ...], serial: bool) -> Seconds:
    pp, whole = len(held), int(micro_batches)
    filled = pp + plain_sum(ahead_of(hop, pp))
    settled = SETTLED + 2 * filled
    if micro_batches > settled:
        seconds, ends = _run(held, settled, hop, serial)
        period = ends[SETTLED + filled] - ends[SETTLED + filled - PERIOD]
        return np.maximum(
            seconds + (micro_batches - settled) / PERIOD * period, _steady(held, micro_batches, hop, serial)
        )
    seconds, _ = _run(held, max(whole, 1), hop, serial)
    if micro_batches <= whole or whole < 1:
        return seconds
    return seconds + (micro_batches - whole) * (_run(held, whole + 1, hop, serial)[0] - seconds)


def _steady(held: Sequence[Slot], micro_batches: float, hop: tuple[Boundary, ...], serial: bool) -> Seconds:
    """The first micro-batch's round trip and, for all that follow, the slowest wire, window or serial exchange. What sets in
    late, because its path begins later but is steeper, rules a long step before the turns show it."""
    trip: Seconds = 0.0
    slowest: Seconds = 0.0
    ahead = (*ahead_of(hop, len(held)), *[0] * len(held))
    for slot in held:
        trip = trip + slot.whole
    for link in hop:
        trip = trip + 2.0 * (link.wire + link.delay)
        slowest = np.maximum(slowest, (micro_batches - 1.0) * link.wire)
    for first in range(len(held)):
        window, length = held[first].whole, 1.0
        for last in range(first + 1, len(held)):
            link = hop[last - 1]
            window = window + held[last].whole + 2.0 * (link.wire + link.delay)
            length = length + 1.0 + ahead[last - 1]
            slowest = np.maximum(slowest, (micro_batches - length) / length * window)
    if serial:
        for at, link in enumerate(hop):
            each = held[at].whole + 2.0 * (link.wire + link.delay)
            slowest = np.maximum(slowest, (micro_batches - float(len(held))) * each)
    return trip + slowest


def order(
    position: int, pp: int, micro_batches: int, virtual_stages: int, ahead: tuple[int, ...] = ()
) -> tuple[Op, ...]:  # fmt: skip
    """1F1B's turns of the stage at `position`; micro-batches ahead make the warm-up longer (Zhuang 2022 §4, eager 1F1B)."""
    warm = min(pp - 1 - position + int(further(ahead, position)), micro_batches)
    turns = [Op(kind="forward", micro_batch=k) for k in range(warm)]
    for k in range(micro_batches - warm):
        turns += [Op(kind="forward", micro_batch=warm + k), Op(kind="backward", micro_batch=k)]
    turns += [Op(kind="backward", micro_batch=k) for k in range(micro_batches - warm, micro_batches)]
    return tuple(turns)


def _run(
    held: Sequence[Slot], micro_batches: int, hop: tuple[Boundary, ...], serial: bool
) -> tuple[Seconds, Sequence[Seconds]]:
    """The whole, and when the first stage ends each backward: of many networks whose sends hold nobody up those before its last
    forward."""
    numbers = [*(slot.whole + slot.ending for slot in held), *(link.wire + link.delay for link in hop)]
    waits = serial or any(np.any(np.isfinite(link.buffered)) for link in hop)
    if waits or not any(np.ndim(one) for one in numbers):
        return _by_beats(held, micro_batches, hop, serial)
    done = replayed(order, TRAITS, held, micro_batches, 1, hop)
    return done.seconds, list(done.returns)


def _by_beats(
    held: Sequence[Slot], micro_batches: int, hop: tuple[Boundary, ...], serial: bool
) -> tuple[Seconds, list[Seconds]]:
    """The same turn by turn. All turns go by beats: the stage at place i has forward k at beat
    2·k + i and backward k at beat 2·(k + places) − 1 − i, which is 1F1B's order on every stage and puts a turn after all it waits
    for. (In a beat the forwards come first: a serial gradient waits for one.) A micro-batch ahead of a boundary is a place without
    a stage there."""
    pp, last = len(held), micro_batches - 1
    ahead = (*ahead_of(hop, pp), *[0] * pp)
    places = [at + plain_sum(ahead[:at]) for at in range(pp)]
    filled = places[-1] + 1
    of_beat = [[at for at in range(pp) if places[at] % 2 == parity] for parity in (0, 1)]
    line = _Line(held, hop, serial)
    for beat in range(2 * (micro_batches + filled - 1)):
        for stage in of_beat[beat % 2]:
            if 0 <= beat - places[stage] <= 2 * last:
                line.forward(stage)
        for stage in of_beat[(beat + 1) % 2]:
            twice = beat + places[stage] + 1 - 2 * filled
            if 0 <= twice <= 2 * last:
                line.backward(stage, last=twice == 2 * last)
    longest: Seconds = 0.0
    for free in line.free:
        longest = line.later(longest, free)
    return longest, line.ends


class _Line:
    """The state of a run: when stages and wires are free, and when what was sent last has come."""

    def __init__(self, held: Sequence[Slot], hop: tuple[Boundary, ...], serial: bool) -> None:
        self.serial, self.end = serial, len(held) - 1
        numbers = [(slot.forward, slot.backward, slot.ending) for slot in held]
        links = [(link.wire, link.delay, link.buffered) for link in hop]
        plain = all(isinstance(one, float) for some in (*numbers, *links) for one in some)
        made: Callable[[Any], Seconds] = float if plain else np.asarray
        self.slots = [tuple(map(made, some)) for some in numbers]
        self.links = [tuple(map(made, some)) for some in links]
        self.later: Callable[[Seconds, Seconds], Seconds] = max if plain else np.maximum
        """The later of two moments; numbers skip the array's way."""
        self.free: list[Seconds] = [0.0] * len(held)
        self.wires: tuple[list[Seconds], list[Seconds]] = [0.0] * len(held), [0.0] * len(held)
        """When the wire that leaves a stage is free, to the next one and to the one before."""
        self.activations: list[deque[Seconds]] = [deque() for _ in held]
        self.gradients: list[deque[Seconds]] = [deque() for _ in held]
        self.ends: list[Seconds] = []

    def forward(self, stage: int) -> None:
        """The next forward of a stage, and its send."""
        ready = self.free[stage]
        if stage:
            ready = self.later(ready, self.activations[stage].popleft())
        self.free[stage] = ready = ready + self.slots[stage][0]
        if stage < self.end:
            begin = self.later(ready, self.wires[0][stage])
            self._send(stage, begin, self.links[stage], self.wires[0], self.activations[stage + 1])

    def backward(self, stage: int, *, last: bool) -> None:
        """The next backward of a stage, and its send."""
        ready = self.free[stage]
        if stage < self.end:
            ready = self.later(ready, self.gradients[stage].popleft())
        _, own, ending = self.slots[stage]
        self.free[stage] = ready = ready + (own + (ending if last else 0.0))
        if not stage:
            self.ends.append(ready)
            return
        begin = self.later(ready, self.wires[1][stage])
        if self.serial and self.activations[stage]:
            begin = self.later(begin, self.activations[stage][0])
        self._send(stage, begin, self.links[stage - 1], self.wires[1], self.gradients[stage - 1])

    def _send(
        self, stage: int, begin: Seconds, link: tuple[Seconds, ...], wires: list[Seconds], come: deque[Seconds]
    ) -> None:
        """A message leaves once its wire is free; what of it lies in no buffer holds the stage up."""
        wire, delay, buffered = link
        left = wires[stage] = begin + wire
        come.append(left + delay)
        self.free[stage] = self.later(self.free[stage], left - buffered)


__all__ = ["SETTLED", "boundaries", "gpipe", "one_f_one_b", "order"]
