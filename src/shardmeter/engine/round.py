"""Round scope: inner steps of several cells, and the messages between them, folded into one round.

A cell takes inner steps by itself (an island, or several that a placed axis joins). Every per-cell number has the cells as its
last axis; numbers of the plan broadcast against the axes before it. The seconds of messages come from the price of the network.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from shardmeter.core.record import changed, record
from shardmeter.core.sums import plain_sum
from shardmeter.core.units import Count, Fraction, Number, Seconds
from shardmeter.engine import hide
from shardmeter.specs.estimate import Leaving
from shardmeter.specs.round import Crossing, Round
from shardmeter.sync import parts_of


@record
class Pace:
    """How cells take an inner step, whatever joins them: each field of shape (…, cells)."""

    step: Seconds
    tokens: Count
    leaving: tuple[tuple[Leaving, ...], ...] = ((Leaving(),),)
    """Of every line: when the gradients that pass over it are whole, in the order in which they are."""
    late: Seconds = 0.0
    """What of a cell's own reduction shows after the last backward: the last piece leaves so much later."""
    update: Seconds = 0.0
    """The outer update of the cell's parameters, once a round."""
    start: Seconds = 0.0
    """What the last piece of its gradients takes to be through, however small it is: round trips, of which those of the pieces before
    pass behind what follows."""


@record
class Folded:
    """One round. Fields without cells have the shape (…), the others (…, cells)."""

    seconds: Seconds
    """From one synchronisation to the next; of methods that wait for nobody, that of the fastest cell."""
    inner: Seconds
    """(…, cells): what each computes of it."""
    steps: Count
    """(…, cells): inner steps that each takes in it."""
    counted: Fraction
    """(…, cells): share of its steps that the others get to see."""
    tokens: Count
    """That count, of all cells together."""
    exposed: tuple[Seconds, ...]
    """Of every crossing, on the critical cell."""
    hidden: tuple[Seconds, ...]
    update: Seconds
    """Of the critical cell."""
    wait: Seconds
    """(…, cells): what each waits for slower cells."""
    critical: Count
    """Index of the cell that sets the round."""
    exchanges: Count = 1.0
    """(…, cells): how often each sends its messages in it."""


def fold(round_: Round, pace: Pace, across: Sequence[Seconds], grace: Seconds = 0.0, *, apart: bool = False) -> Folded:
    """A round in the steady state. `across` holds, per crossing, the seconds of one message: of shape (…) where all cells take
    part in one collective (pace barrier), (…, cells) where each has a message of its own (deadline, own). Where cells go on by
    themselves (own), one of them is critical for all numbers of a plan, or for each by itself: `apart`.

    Leaves out: the first round and the last, jitter of steps beyond what a cell's own step holds, several crossings that
    share a link (each is taken alone), what of a message hides behind the outer update."""
    pace = _spread(pace)
    if round_.pace == "deadline":
        return _deadline(round_, pace, across, grace)
    if round_.pace == "own":
        return _own(round_, pace, across, apart=apart)
    return _barrier(round_, pace, across)


def _barrier(round_: Round, pace: Pace, across: Sequence[Seconds]) -> Folded:
    """All cells take H steps and meet. What a message hides behind are the steps of the slowest."""
    critical = np.argmax(pace.step, axis=-1)
    slow = _at(pace, critical)
    compute = round_.steps * slow.step
    exposed, hidden = [], []
    for crossing, seconds in zip(round_.crossings, across, strict=True):
        shown = exposure(crossing, round_.steps, slow, seconds)
        exposed.append(shown)
        hidden.append(crossing.messages * seconds - shown)
    update = np.max(pace.update, axis=-1)
    total = compute + plain_sum(exposed) + update
    steps = _along(round_.steps) * np.ones_like(pace.step)
    inner = steps * pace.step
    wait = _along(compute) - inner + _along(update) - pace.update
    return Folded(
        seconds=total, inner=inner, steps=steps, counted=np.ones_like(inner), tokens=seen_by_all(steps * pace.tokens, round_.parts),
        exposed=tuple(exposed), hidden=tuple(hidden), update=update, wait=np.maximum(wait, 0.0), critical=critical,
    )  # fmt: skip


def exposure(crossing: Crossing, steps: Count, pace: Pace, seconds: Seconds) -> Seconds:
    """What a round waits for the messages of one crossing, `seconds` each, at the pace of one cell."""
    if crossing.behind == "backward":
        return released(seconds, pace)
    spacing = steps / crossing.messages * pace.step
    window = (crossing.window + crossing.lead) * pace.step
    return crossing.messages * hide.periodic(seconds, spacing, window)


def released(seconds: Seconds, pace: Pace) -> Seconds:
    """What shows of gradients that leave as they become whole, beyond what the cell's own reduction shows: as
    `hide.tail`, on the line that is done last, with the last piece leaving only when that reduction is done. Nothing
    for nothing. Leaves out: that collectives which follow one another on one communicator begin when the one before is through, so
    that each pays for its own round trips."""
    shown: Seconds = 0.0
    start = np.minimum(pace.start, seconds)
    for line in pace.leaving:
        last = line[-1]
        piece = last.share * (seconds - start) / last.pieces + start - last.left - last.due
        shown = np.maximum(shown, np.maximum(piece, alone(seconds, line, start) - pace.late))
    return shown


def _deadline(round_: Round, pace: Pace, across: Sequence[Seconds], grace: Seconds) -> Folded:
    """Rounds of H steps of the fastest cell and its outer update. Nobody waits: a slower cell takes as many steps as the time holds
    beside its own update, what it is in the middle of goes on in the next round, and what it sends counts if its messages come within
    their window and `grace`."""
    critical = np.argmin(pace.step, axis=-1)
    fast = _at(pace, critical)
    total = round_.steps * fast.step + fast.update
    steps = np.maximum(_along(total) - pace.update, 0.0) / pace.step
    counted: Number = np.ones_like(steps)
    for crossing, seconds in zip(round_.crossings, across, strict=True):
        spacing = _along(round_.steps / crossing.messages * fast.step)
        window = _along((crossing.window + crossing.lead) * fast.step + grace)
        in_time = np.less_equal(seconds, np.minimum(window, spacing))
        counted = np.where(in_time, counted, 0.0)
    none = tuple(0.0 * total for _ in across)
    sent = tuple(c.messages * np.max(s, axis=-1) for c, s in zip(round_.crossings, across, strict=True))
    return Folded(
        seconds=total, inner=steps * pace.step, steps=steps, counted=counted, tokens=seen_by_all(counted * steps * pace.tokens, round_.parts),
        exposed=none, hidden=sent, update=fast.update, wait=np.zeros_like(steps), critical=critical,
    )  # fmt: skip


def _own(round_: Round, pace: Pace, across: Sequence[Seconds], *, apart: bool) -> Folded:
    """Every cell goes on when its own exchange is done. A slower one takes fewer steps between two of them, in proportion and at
    least one (Liu 2024, dynamic local updates); tokens are those of all cells in the time of the fastest cell's round: of several
    the one whose exchanges take longest, so that it is no server."""
    fast = _at(pace, np.argmin(pace.step, axis=-1))
    steps = np.maximum(np.floor(_along(round_.steps * fast.step) / pace.step + ROUNDING), 1.0)
    lasts = steps * pace.step + pace.update
    shown = []
    for crossing, seconds in zip(round_.crossings, across, strict=True):
        often, ahead = _along(crossing.messages), _along(crossing.window + crossing.lead)
        shown.append(often * hide.periodic(seconds, steps / often * pace.step, ahead * pace.step))
        lasts = lasts + shown[-1]
    equal = np.less_equal(pace.step, _along(fast.step) * (1.0 + ROUNDING))
    long = lasts if apart else np.sum(lasts, axis=tuple(range(np.ndim(lasts) - 1)))
    critical = np.argmax(np.where(equal, long, -1.0), axis=-1)
    total = _pick(lasts, critical)
    rounds = _along(total) / lasts
    exposed = tuple(_pick(np.broadcast_to(one, lasts.shape), critical) for one in shown)
    hidden = tuple(
        _pick(np.broadcast_to(_along(c.messages) * s, lasts.shape), critical) - e
        for c, s, e in zip(round_.crossings, across, exposed, strict=True)
    )
    return Folded(
        seconds=total, inner=rounds * steps * pace.step, steps=rounds * steps, counted=np.ones_like(lasts),
        tokens=seen_by_all(rounds * steps * pace.tokens, round_.parts), exposed=exposed, hidden=hidden,
        update=_pick(np.broadcast_to(pace.update, lasts.shape), critical),
        wait=np.zeros_like(lasts), critical=critical, exchanges=rounds,
    )  # fmt: skip


def seen_by_all(tokens: Count, parts: Count) -> Count:
    """(…, cells) → (…): tokens that count. Of a model whose parts are trained apart those that every part has seen: as many as the
    part that falls behind, whatever the others do meanwhile."""
    every = np.asarray(tokens)
    groups = parts_of(every.shape[-1], int(parts))
    least: Count = np.min(np.stack([np.sum(every[..., list(group)], axis=-1) for group in groups]), axis=0)
    return least


ROUNDING = 1e-9
"""So that a cell exactly as fast as the fastest takes all its steps."""


def _spread(pace: Pace) -> Pace:
    """Every field with the cells as its last axis."""
    numbers = [getattr(pace, name) for name in _FIELDS]
    numbers += [getattr(one, name) for line in pace.leaving for one in line for name in _TRAIN]
    shape = np.broadcast_shapes(*map(np.shape, numbers))
    return _each_number(pace, lambda one: np.broadcast_to(np.asarray(one, dtype=float), shape))


_FIELDS = ("step", "tokens", "late", "update", "start")
_TRAIN = ("left", "window", "pieces", "share", "due")


def alone(seconds: Seconds, line: Sequence[Leaving], start: Seconds = 0.0) -> Seconds:
    """What shows of gradients that leave over one line, so many seconds of which the last piece takes `start` whatever its size,
    after the last backward."""
    trains = [(one.left, one.window, one.pieces, one.share, one.due - start) for one in line]
    return hide.tail(seconds - start, trains)


def scaled(one: Leaving, times: Number) -> Leaving:
    """Gradients of a step that lasts so many times as long."""
    return changed(one, left=one.left * times, window=one.window * times, due=one.due * times)


def _each_number(pace: Pace, made: Callable[[Number], Number]) -> Pace:
    """A pace with something made of every number."""
    lines = tuple(
        tuple(changed(one, **{name: made(getattr(one, name)) for name in _TRAIN}) for one in line)
        for line in pace.leaving
    )
    return Pace(leaving=lines, **{name: made(getattr(pace, name)) for name in _FIELDS})


def beside(cells: Sequence[Sequence[Sequence[Leaving]]]) -> tuple[tuple[Leaving, ...], ...]:
    """The lines of several cells as lines with the cells as the last axis: the shorter ones are filled up with trains
    of nothing, and cells of fewer lines have their last one again."""
    count = max(map(len, cells))
    lines = []
    for at in range(count):
        own = [cell[min(at, len(cell) - 1)] for cell in cells]
        length = max(map(len, own))
        rows = [(*(NO_TRAIN,) * (length - len(line)), *line) for line in own]
        lines.append(tuple(_together(trains) for trains in zip(*rows, strict=True)))
    return tuple(lines)


def _together(trains: Sequence[Leaving]) -> Leaving:
    """One train of every cell."""
    columns = {name: np.broadcast_arrays(*(getattr(one, name) for one in trains)) for name in _TRAIN}
    return changed(trains[0], **{name: np.stack(column, axis=-1) for name, column in columns.items()})


def in_order(line: Sequence[Leaving]) -> tuple[Leaving, ...]:
    """The trains of a line in the order of their release: where all stages wait for one end they are. Stages with
    clocks of their own release gradients side by side: these are put in order one by one, each a train."""
    if len({one.stage for one in line}) == 1 or not any(np.any(one.due) for one in line):
        return tuple(line)
    apart = [
        changed(
            one,
            left=one.left + one.window * (1.0 - at / one.pieces),
            window=0.0,
            pieces=1.0,
            share=one.share / one.pieces,
        )
        for one in line
        for at in range(1, round(float(one.pieces)) + 1)
    ]
    rows = np.broadcast_arrays(*(getattr(one, name) for name in _TRAIN for one in apart))
    columns = {name: np.stack(rows[at * len(apart) :][: len(apart)]) for at, name in enumerate(_TRAIN)}
    order = np.argsort(-columns["left"], axis=0, kind="stable")
    moved = {name: np.take_along_axis(column, order, axis=0) for name, column in columns.items()}
    return tuple(changed(one, **{name: moved[name][at] for name in _TRAIN}) for at, one in enumerate(apart))


NO_TRAIN = Leaving(left=np.inf, share=0.0)
"""Nothing, long before."""


def shortest(windows: Sequence[Leaving], longest: Seconds) -> tuple[tuple[Leaving, ...], ...]:
    """Lines on which gradients show no more than by any of some trains, of which none has a piece that is whole
    `longest` before the end: all but the smallest piece leaves then."""
    least = min(float(np.min(one.share / one.pieces)) for one in windows)
    return ((Leaving(left=longest, share=1.0 - least), Leaving(share=least)),)


def of_cell(pace: Pace, cell: int) -> Pace:
    """The pace of the cell at a place."""
    return _each_number(pace, lambda one: np.asarray(one)[..., cell])


def _at(pace: Pace, index: Number) -> Pace:
    """The pace of one cell, without the axis."""
    return _each_number(pace, lambda one: _pick(one, index))


def _pick(values: Number, index: Number) -> Number:
    """One cell of the last axis."""
    where = np.broadcast_to(np.asarray(index), np.shape(values)[:-1])[..., None]
    return np.take_along_axis(np.asarray(values), where, axis=-1)[..., 0]


def _along(number: Number) -> Number:
    """A number of the plan, ready to broadcast against cells."""
    return np.asarray(number)[..., None]
