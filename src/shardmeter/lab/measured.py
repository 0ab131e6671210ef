"""What the logs of a run say, as numbers: rounds, steps, exchanges, bytes, losses. No prediction is read here.

A round's time is the mean over the workers that logged it; numbers of a run are medians over its rounds, bytes means. Rounds before the
first that counts, and those from a fault on, are left out.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from shardmeter.core.record import record
from shardmeter.core.units import Bytes, Count, Nats, Seconds
from shardmeter.lab.kept import NOT_FINITE
from shardmeter.lab.reading import Event, Logs, numbers, of
from shardmeter.lab.records import Experiment

HELD_OUT = "held-out"
MOST_POINTS = 200
"""Of a curve of losses that a report keeps."""
TAIL = 0.1
"""Share of the steps at either end whose mean training loss is told where no loss was taken on text held out."""


@record
class Spread:
    """A number of every round, over the rounds that count."""

    middle: float
    """Median; of bytes the mean."""
    low: float
    high: float
    rounds: Count


@record
class Point:
    """One size of a probe."""

    size: Bytes
    seconds: Spread
    wire: Spread | None
    """Bytes, all islands together; None where nothing tells the interfaces apart."""
    paused: Seconds | None = None
    """One that came after a pause, when TCP has let go of its window; None where there was none."""


@record
class Measured:
    """What a run took."""

    round: Spread | None
    """Seconds of a round; None where no round that counts was logged."""
    step: Spread | None
    """Seconds of an inner step, its crossing included where a method has it there."""
    sync: Spread | None
    """Seconds of a round that workers waited for messages; None where none are logged apart."""
    steps: float
    """Inner steps of a round."""
    wire: Spread | None
    """Bytes of a round on the lines, all islands together."""
    payload: Spread | None
    """Bytes of messages that a worker held in a round."""
    before: Nats | None
    """Loss before the first round, and `after` the last."""
    after: Nats | None
    basis: str
    """held-out or training: which loss this is; empty for none."""
    diverged: bool
    """Whether a loss that was logged was no finite number."""
    curve: tuple[tuple[Seconds, Nats], ...]
    """Training loss over seconds since the first round began."""
    peak_memory: Bytes | None
    """Of the worker with the most."""
    others: tuple[tuple[str, int, Nats], ...]
    """(what, rank, loss) of evaluations beside those of text held out."""
    figures: tuple[Mapping[str, Any], ...]
    """Other figures that workers logged: name, value, expected."""
    lost: tuple[Mapping[str, Any], ...]
    """Who went on where a peer was gone: island's rank, round, members, reason."""
    stopped: tuple[Mapping[str, Any], ...]
    """Workers that stopped, and why."""
    points: tuple[Point, ...] = ()


def measured(experiment: Experiment, logs: Logs) -> Measured:
    """What the logs of an experiment's workers say."""
    last = experiment.fault.after_round if experiment.fault is not None else None
    counts: Callable[[Event], bool] = lambda one: _round(one) >= 0 and (last is None or _round(one) < last)  # noqa: E731
    rounds = {rank: [one for one in of(events, "round") if counts(one)] for rank, events in logs.items()}
    syncs = {rank: [one for one in of(events, "sync") if counts(one)] for rank, events in logs.items()}
    inner = {rank: _between(logs[rank], own) for rank, own in rounds.items()}
    whole = len({_round(one) for own in rounds.values() for one in own})
    steps = [len(inner[rank]) / len(own) for rank, own in rounds.items() if own]
    before, after, basis = _losses(logs)
    points = _points(syncs, rounds, experiment) if experiment.method == "all_reduce" else ()
    return Measured(
        round=_added([point.seconds for point in points]) if points else _by_round(rounds, "seconds"),
        step=_spread([seconds for own in inner.values() for seconds in numbers(own, "seconds")], whole),
        sync=_by_round(_summed(_waits(syncs), "seconds"), "seconds"),
        steps=statistics.median(steps) if steps else 0.0,
        wire=_all_wires(points) if points else _wire(rounds, experiment),
        payload=_by_round(_summed(syncs, "bytes"), "bytes"),
        before=before, after=after, basis=basis, curve=_curve(logs),
        diverged=any("loss" in one.get(NOT_FINITE, ()) for events in logs.values() for one in events),
        peak_memory=max((number for events in logs.values() for number in numbers(of(events, "done"), "peak_memory")), default=None),
        others=_others(logs),
        figures=tuple({"rank": rank, **one} for rank, events in logs.items() for one in of(events, "figure")),
        lost=tuple(_told(rank, one, ("round", "members", "says")) for rank, events in logs.items() for one in of(events, "lost")),
        stopped=tuple(_told(rank, one, ("says",)) for rank, events in logs.items() for one in of(events, "stopped")),
        points=points,
    )  # fmt: skip


def _round(one: Event) -> int:
    value = one.get("round")
    return int(value) if isinstance(value, int | float) else -1


def _between(events: tuple[Event, ...], rounds: Sequence[Event]) -> list[Event]:
    """The steps of the rounds that count: those after the round before the first of them, up to the end of the last."""
    if not rounds:
        return []
    first = min(_round(one) for one in rounds)
    since = max((one["t"] for one in of(events, "round") if _round(one) < first), default=0.0)
    until = max(one["t"] for one in rounds)
    return [one for one in of(events, "step") if since < one["t"] <= until]


def _spread(values: Sequence[float], rounds: int) -> Spread | None:
    if not values:
        return None
    return Spread(middle=statistics.median(values), low=min(values), high=max(values), rounds=float(rounds))


def _by_round(found: Mapping[int, Sequence[Event]], field: str) -> Spread | None:
    """A number of every round: the mean over workers."""
    by_round: dict[int, list[float]] = {}
    for own in found.values():
        for one in own:
            by_round.setdefault(_round(one), []).extend(numbers([one], field))
    values = [statistics.fmean(each) for each in by_round.values() if each]
    return _spread(values, len(values))


def _summed(found: Mapping[int, Sequence[Event]], field: str) -> dict[int, list[Event]]:
    """Of every worker and round one event that holds the sum of a field."""
    made: dict[int, list[Event]] = {}
    for rank, own in found.items():
        totals: dict[int, float] = {}
        for one in own:
            for number in numbers([one], field):
                totals[_round(one)] = totals.get(_round(one), 0.0) + number
        made[rank] = [{"event": "sync", "t": 0.0, "round": at, field: total} for at, total in totals.items()]
    return made


def _waits(found: Mapping[int, Sequence[Event]]) -> dict[int, list[Event]]:
    """Exchanges with the seconds that a worker waited for them: where these are told apart, those."""
    return {
        rank: [{**one, "seconds": one.get("waited", one.get("seconds"))} for one in own] for rank, own in found.items()
    }


def _firsts(experiment: Experiment) -> list[int]:
    """Rank of every island's first worker, by whom its interface is read."""
    return [sum(site.workers for site in experiment.sites[:at]) for at in range(len(experiment.sites))]


def _wire(rounds: Mapping[int, Sequence[Event]], experiment: Experiment) -> Spread | None:
    """Bytes of the rounds that all islands have told."""
    firsts = _firsts(experiment)
    by_round: dict[int, list[float]] = {}
    for rank in firsts:
        for one in rounds.get(rank, ()):
            by_round.setdefault(_round(one), []).extend(numbers([one], "sent_bytes"))
    totals = [sum(each) for each in by_round.values() if len(each) == len(firsts)]
    if not totals:
        return None
    return Spread(middle=statistics.fmean(totals), low=min(totals), high=max(totals), rounds=float(len(totals)))


def _losses(logs: Logs) -> tuple[Nats | None, Nats | None, str]:
    """(before, after, which loss), the mean over the workers that told one twice."""
    ends = []
    for events in logs.values():
        found = numbers([one for one in of(events, "eval") if one.get("what") == HELD_OUT], "loss")
        if len(found) > 1:
            ends.append((found[0], found[-1]))
    if ends:
        return statistics.fmean(first for first, _ in ends), statistics.fmean(last for _, last in ends), HELD_OUT
    for events in logs.values():
        found = numbers(of(events, "step"), "loss")
        part = max(int(TAIL * len(found)), 1)
        if len(found) > 1:
            ends.append((statistics.fmean(found[:part]), statistics.fmean(found[-part:])))
    if not ends:
        return None, None, ""
    return statistics.fmean(first for first, _ in ends), statistics.fmean(last for _, last in ends), "training"


def _curve(logs: Logs) -> tuple[tuple[Seconds, Nats], ...]:
    """The training loss of the first worker that tells one, thinned to means of as many steps as leave `MOST_POINTS`."""
    for events in logs.values():
        told = [one for one in of(events, "step") if numbers([one], "loss")]
        if not told:
            continue
        start = told[0]["t"] - (told[0].get("seconds") or 0.0)
        each = -(-len(told) // MOST_POINTS)
        groups = [told[at : at + each] for at in range(0, len(told), each)]
        return tuple((group[-1]["t"] - start, statistics.fmean(numbers(group, "loss"))) for group in groups)
    return ()


def _others(logs: Logs) -> tuple[tuple[str, int, Nats], ...]:
    """The last loss of every other kind that a worker told."""
    found: dict[tuple[str, int], float] = {}
    for rank, events in logs.items():
        for one in of(events, "eval"):
            if one.get("what") != HELD_OUT and numbers([one], "loss"):
                found[str(one.get("what")), rank] = float(one["loss"])
    return tuple((what, rank, loss) for (what, rank), loss in found.items())


def _told(rank: int, one: Event, fields: Iterable[str]) -> dict[str, Any]:
    return {"rank": rank, **{field: one[field] for field in fields if field in one}}


def _added(spans: Sequence[Spread]) -> Spread:
    """The round of a probe: one all-reduce of every size."""
    return Spread(
        middle=sum(one.middle for one in spans), low=sum(one.low for one in spans), high=sum(one.high for one in spans),
        rounds=min(float(one.rounds) for one in spans),
    )  # fmt: skip


def _all_wires(points: Sequence[Point]) -> Spread | None:
    found = [point.wire for point in points if point.wire is not None]
    if len(found) < len(points):
        return None
    return _added(found)


def _points(
    syncs: Mapping[int, Sequence[Event]], rounds: Mapping[int, Sequence[Event]], experiment: Experiment
) -> tuple[Point, ...]:
    """A probe by sizes: a round is one all-reduce, told by the bytes of its exchange."""
    told = [one for own in syncs.values() for one in own if numbers([one], "bytes")]
    size_of = {_round(one): float(one["bytes"]) for one in told if not one.get("paused")}
    after_pause = {
        float(one["bytes"]): float(one["seconds"]) for one in told if one.get("paused") and numbers([one], "seconds")
    }
    made = []
    for size in experiment.said.get("sizes", ()):
        at = {number for number, found in size_of.items() if found == float(size)}
        seconds = _by_round({rank: [one for one in own if _round(one) in at] for rank, own in syncs.items()}, "seconds")
        wire = _wire({rank: [one for one in own if _round(one) in at] for rank, own in rounds.items()}, experiment)
        if seconds is not None:
            paused = after_pause.get(float(size))
            made.append(Point(size=float(size), seconds=seconds, wire=wire, paused=paused))
    return tuple(made)
