"""Carries packets between islands: a process that is all of their lines.

Every island has a TUN device; what its workers send is read here, waits as long as its line would have it wait, and is written to
the device of the island it is for. This file is run as a script of its own and needs nothing but the standard library, so that it
starts at once and stays small. It is told by its standard input what the lines are (one JSON object, then orders, one a line), answers on
its standard output, and ends when its input closes: with whoever started it, however that ended.
"""

from __future__ import annotations

import ctypes
import gc
import heapq
import json
import math
import os
import random
import select
import signal
import time
from collections import deque
from typing import Any

BATCH = 32
"""Packets that are read from one island before those that are due are looked at again."""
KNOTS = 8.0
"""Standard deviations of the jitter, as a time, between two draws: late enough that order is hardly ever what holds a packet back."""
LEAD = 2e-4
"""Seconds before their time, at most, at which packets are looked for: as long as it takes to wake, which is learned."""
PEERS = 254
"""Islands of a network at most: the last number of their addresses tells them apart."""


class Way:
    """One direction of one line, as a law over a clock that never goes back (seconds; bytes; bytes per second).

    A packet waits for those before it, takes its size over the rate, and arrives a delay later, in the order in which it was sent. What
    would wait in more than `queue` bytes is dropped. `jitter`: the delay wanders between draws from a normal distribution (cut at three
    standard deviations, and where the delay would be negative), straight from one to the next. `loss`: of the packets that took their time on
    the line, drawn one by one.
    Leaves out: packets that overtake each other; losses in bursts; other users of the line.
    """

    __slots__ = (
        "carried", "cut", "delay", "draw", "dropped", "due", "every", "free", "jitter", "left", "loss", "queue", "rate", "right", "span", "waiting",
    )  # fmt: skip

    def __init__(
        self, *, rate: float, delay: float, queue: float, jitter: float = 0.0, loss: float = 0.0, seed: int = 0
    ) -> None:
        self.rate, self.delay, self.queue, self.loss = rate, delay, queue, loss
        self.jitter = jitter * math.sqrt(1.5)  # a straight line between two draws has two thirds of their variance
        self.every = max(1e-3, KNOTS * jitter)
        self.draw = random.Random(seed)  # noqa: S311  (losses that can be had again)
        self.free = self.due = 0.0
        self.span = -2
        self.left = self.right = 0.0
        self.cut = False
        self.waiting: deque[tuple[float, bytes]] = deque()
        self.carried = self.dropped = 0

    def admit(self, now: float, size: int) -> float | None:
        """When a packet of so many bytes, sent now, arrives; None if it never does."""
        if self.cut:
            self.dropped += 1
            return None
        free = self.free
        if free > now:
            if (free - now) * self.rate + size > self.queue:
                self.dropped += 1
                return None
        else:
            free = now
        self.free = free = free + size / self.rate
        if self.loss and self.draw.random() < self.loss:
            self.dropped += 1
            return None
        self.carried += 1
        due = free + self.delay
        if self.jitter:
            due = max(due + self.wander(free), self.due)
            self.due = due
        return due

    def wander(self, when: float) -> float:
        """Seconds by which the delay is longer than its mean at a time; times asked for never go back."""
        place = when / self.every
        span = int(place)
        if span != self.span:
            self.left = self.right if span == self.span + 1 else self._knot()
            self.right = self._knot()
            self.span = span
        share = place - span
        return self.left + share * (self.right - self.left)

    def _knot(self) -> float:
        bound = 3.0 * self.jitter
        return max(-self.delay, min(bound, max(-bound, self.draw.gauss(0.0, self.jitter))))


class Forwarder:
    """The ways out of some islands, and the devices of all."""

    def __init__(self, devices: list[int], ways: dict[tuple[int, int], Way]) -> None:
        """`devices`: file descriptors, island by island. `ways`: by place of the sender and of the receiver."""
        self.devices = devices
        self.ways = ways
        self.order = list(ways.items())
        self.senders = sorted({sender for sender, _ in ways})
        self.heads: list[tuple[float, int]] = []
        self.refused = 0
        self.late_most = self.late_sum = self.lead = 0.0
        self.delivered = 0

    def run(self, orders: int, answers: int) -> None:
        """Forward until the input `orders` closes; each order is answered in one line."""
        tables = {self.devices[sender]: self._table(sender) for sender in self.senders}
        heads, now = self.heads, time.monotonic
        inputs = [*tables, orders]
        text = b""
        while True:
            self._deliver(now())
            ready, _, _ = select.select(inputs, (), (), max(0.0, heads[0][0] - self.lead - now()) if heads else None)
            if not ready:
                self._learn(now())
            for source in ready:
                if source != orders:
                    self._take(source, tables[source])
                    continue
                came = os.read(orders, 65536)
                if not came:
                    return
                *lines, text = (text + came).split(b"\n")
                for line in lines:
                    os.write(answers, json.dumps(self.obey(line.decode().split())).encode() + b"\n")

    def _table(self, sender: int) -> list[tuple[Way, int] | None]:
        """The way, and its place, by the last number of an address."""
        table: list[tuple[Way, int] | None] = [None] * 256
        for place, ((one, other), way) in enumerate(self.order):
            if one == sender:
                table[other + 1] = (way, place)
        return table

    def _take(self, source: int, table: list[tuple[Way, int] | None]) -> None:
        """Read what an island has sent."""
        read, now = os.read, time.monotonic
        try:
            for _ in range(BATCH):
                packet = read(source, 65535)
                if packet[0] >> 4 != 4:
                    continue
                found = table[packet[19]]
                if found is None:
                    self.refused += 1
                    continue
                way, place = found
                due = way.admit(now(), len(packet))
                if due is None:
                    continue
                if not way.waiting:
                    heapq.heappush(self.heads, (due, place))
                way.waiting.append((due, packet))
        except BlockingIOError:
            pass

    def _learn(self, now: float) -> None:
        """Woken for a packet: wake the sooner, the later this was."""
        self.lead = min(LEAD, max(0.0, self.lead + 0.05 * (now - self.heads[0][0])))

    def _deliver(self, now: float) -> None:
        """Write what is due; packets of one way are due in order, so that only the first of each is compared."""
        heads, until = self.heads, now + self.lead
        while heads and heads[0][0] <= until:
            _, place = heads[0]
            (_, other), way = self.order[place]
            waiting, device = way.waiting, self.devices[other]
            while waiting and waiting[0][0] <= until:
                due, packet = waiting.popleft()
                try:
                    os.write(device, packet)
                except (
                    OSError
                ):  # an interface that is down, or a packet that its kernel does not like: lost, and counted
                    way.dropped += 1
                    continue
                self.delivered += 1
                late = now - due
                self.late_sum += late
                self.late_most = max(self.late_most, late)
            if waiting:
                heapq.heapreplace(heads, (waiting[0][0], place))
            else:
                heapq.heappop(heads)

    def obey(self, words: list[str]) -> Any:
        """`cut ONE OTHER`: nothing of that way arrives any more. `count`: packets by way, and how late they were written."""
        if words[:1] == ["cut"]:
            way = self.ways.get((int(words[1]), int(words[2])))
            if way is not None and not way.cut:
                way.cut = True
                way.dropped += len(way.waiting)
                way.carried -= len(way.waiting)
                way.waiting.clear()
                self.heads[:] = [(way.waiting[0][0], k) for k, (_, way) in enumerate(self.order) if way.waiting]
                heapq.heapify(self.heads)
            return "done"
        return {
            "ways": [[one, other, way.carried, way.dropped] for (one, other), way in self.order],
            "refused": self.refused,
            "delivered": self.delivered,
            "late_most": self.late_most,
            "late_sum": self.late_sum,
            "processor": time.process_time(),
        }


def ways_of(said: dict[str, Any]) -> dict[tuple[int, int], Way]:
    """The ways of a description: `lines`, pairs of islands with the numbers of both directions; `senders`, whose ways out are meant."""
    ways = {}
    for line in said["lines"]:
        for one, other in ((line["one"], line["other"]), (line["other"], line["one"])):
            if one in said["senders"]:
                seed = (said["seed"] * 256 + one) * 256 + other
                ways[one, other] = Way(**line["way"], seed=seed)
    return ways


def hurry() -> str:
    """Ask to run before others, because a packet that is late is a wrong measurement; what was granted, in a word."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except OSError:
        try:
            os.nice(-10)
        except OSError:
            return "usual"
        return "nice"
    return "real time"


def main() -> None:
    """Read what the lines are, forward, end with the input."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process of a terminal: the first one decides
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    text = b""
    while not text.endswith(b"\n"):
        came = os.read(0, 1)  # the orders after it are read elsewhere
        if not came:
            return
        text += came
    said = json.loads(text)
    process = ctypes.CDLL(None)
    process.prctl(15, said["title"].encode(), 0, 0, 0)  # PR_SET_NAME
    process.prctl(29, 1, 0, 0, 0)  # PR_SET_TIMERSLACK: wake on time, not up to 50 microseconds later
    for device in said["devices"]:
        os.set_blocking(device, False)
    forwarder = Forwarder(said["devices"], ways_of(said))
    priority = hurry()
    gc.disable()  # nothing here refers to itself
    os.write(1, json.dumps({"ready": priority}).encode() + b"\n")
    forwarder.run(0, 1)


if __name__ == "__main__":
    main()
