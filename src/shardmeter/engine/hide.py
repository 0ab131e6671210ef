"""*hide*: the only place that knows overlap.

Releases and deadlines are positions on the compute clock without stalls:
finish_k = max(release_k + stall(release_k), finish of the channel's previous) + work_k; stall_k = max(stall_{k−1},
finish_k − deadline_k). `scan` is that rule as written; `train_stall`, `periodic`, `tail` and `chain` are its closed forms for the patterns
that training makes over and over, held to it by tests. A scope folded by these rules hands a `Fold` to the next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from shardmeter.core.record import record
from shardmeter.core.units import Count, Fraction, Number, Ratio, Seconds


@record
class Fold:
    """What a scope hands to the next one: never one time.

    The next scope pays `prologue` and `epilogue` once and `steady` as often as the scope repeats. `idle` is, per channel
    (compute, scale_up, fabric), what stands unused in the steady part: a window for what an outer scope carries. `work` is
    what the scope gets done: tokens that count."""

    prologue: Seconds = 0.0
    steady: Seconds = 0.0
    epilogue: Seconds = 0.0
    idle: Mapping[str, Seconds]
    work: Count = 0.0

    def repeated(self, times: Count) -> Seconds:
        """Duration of `times` repetitions, ends paid once."""
        return self.prologue + times * self.steady + self.epilogue


def scan(
    release: Sequence[Seconds], deadline: Sequence[Seconds], work: Sequence[Seconds], channel: Sequence[str]
) -> tuple[Seconds, ...]:
    """Exposed seconds of each transfer. Transfers are given in order of deadline; numbers broadcast, channels are names.

    Exact for any windows; costs O(n²) comparisons. Leaves out: contention."""
    busy: dict[str, Seconds] = {}
    stalls: list[tuple[Seconds, Seconds]] = []
    stall: Seconds = 0.0
    exposed: list[Seconds] = []
    for opens, closes, seconds, name in zip(release, deadline, work, channel, strict=True):
        begun: Number = 0.0
        for earlier, accrued in stalls:
            begun = np.maximum(begun, np.where(np.less_equal(earlier, opens), accrued, 0.0))
        finish = np.maximum(opens + begun, busy.get(name, 0.0)) + seconds
        busy[name] = finish
        later = np.maximum(stall, finish - closes)
        exposed.append(later - stall)
        stall = later
        stalls.append((closes, stall))
    return tuple(exposed)


def train_stall(period: Seconds, channels: Sequence[Seconds]) -> Seconds:
    """Steady stall per period of a train of equal pieces, each of whose transfers must pass within one period.

    `channels` holds the work per period of every channel. Exact for windows of one period (one unit prefetched)."""
    longest: Seconds = 0.0
    for work in channels:
        longest = np.maximum(longest, work)
    return np.maximum(longest - period, 0.0)


def periodic(work: Seconds, spacing: Seconds, window: Seconds) -> Seconds:
    """Steady stall per message of an endless train of equal messages of `work` on one channel, one released per `spacing`
    of compute and due `window` of compute after that.

    window < spacing: a message is waited for before the next is released, so each finds the channel idle and shows what
    its window does not hide, work − window. window ≥ spacing: no stall while work ≤ spacing, since each passes before the
    next is released. Else the channel never rests: it does a message per `work`, compute is held to that pace, and every
    message shows work − spacing; a longer window only puts off when that begins. After n messages all have shown
    max(0, n·(work − min(window, spacing)) − max(window − spacing, 0)).
    Leaves out: the messages that pass before the steady state. Of unlike messages the stall of the mean is the least, the
    sum of their own the most."""
    return np.maximum(work - np.minimum(window, spacing), 0.0)


def stall(work: Seconds, period: Seconds, pieces: int) -> tuple[Seconds, Seconds]:
    """(exposed, hidden) seconds of a train of `pieces` layers of `period` each that copies `work` a layer, one layer ahead:
    the first copy shows, the others hide as far as they fit."""
    some, steady = float(min(pieces, 1)), float(max(pieces - 1, 0))
    shown = some * work + steady * train_stall(period, (work,))
    return shown, float(pieces) * work - shown


def tail(work: Seconds, trains: Sequence[tuple[Seconds, Seconds, Count, Fraction, Seconds]]) -> Seconds:
    """Exposed seconds of `work` that leaves in trains before an end: of each train (seconds from the release of its last piece to the
    end, window over which its equal pieces are released one by one, how many, share of the work, seconds from the end to when it is
    due), in the order of their release.

    Exact where no train begins before the one ahead of it is released: as in `chain`, a channel is done with a train of equals after
    the first of them and all that follow, or after the last."""
    shown: Seconds = 0.0
    done: Seconds = -np.inf
    for left, window, pieces, share, due in trains:
        whole = share * work
        first = np.maximum(done, -left - (pieces - 1.0) * (window / pieces)) + whole
        done = np.maximum(first, whole / pieces - left)
        shown = np.maximum(shown, done - due)
    return shown


def chain(groups: Sequence[tuple[Seconds, Seconds, int]]) -> Seconds:
    """Exposed seconds of unlike transfers on one channel: (work, window, how many) in the order of their release, each at the
    start of its window of compute, all due at the end of the last window.

    Exact: the channel ends at the largest, over every transfer, of its release and all work from it on; in a row of equals
    that is at the first or at the last. Read backwards it is transfers released together of which each is due before its
    own compute."""
    longest: Seconds = 0.0
    total: Seconds = 0.0
    for work, window, count in reversed(groups):
        if count:
            longest = np.maximum(longest, total + (work - window))
            total = total + float(count) * (work - window)
            longest = np.maximum(longest, total)
    return longest


def late(work: Seconds, window: Seconds) -> Seconds:
    """Exposed seconds of one transfer released at the start of `window` and due at its end."""
    return np.maximum(work - window, 0.0)


def slowed(contention: Ratio, hidden: Seconds, stall: Seconds) -> Seconds:
    """Seconds that compute loses to communication hidden behind it; what is lost while compute waits anyway costs nothing.

    Compute p beside communication C lasts max(C, p + κ·C): with stall = max(C − p, 0) and hidden = C − stall, the slowing
    adds max(κ·(hidden + stall) − stall, 0). κ stands for processors and memory taken, and for overlap that fails."""
    return np.maximum(contention * (hidden + stall) - stall, 0.0)
