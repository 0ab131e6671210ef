"""Runs of the lab as Chrome's trace events, which Perfetto opens: an experiment a process, a worker a thread, and beside them the round
as it was predicted, repeated. Times in microseconds since the first worker of the run was ready."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

MICRO = 1e6
DIGITS = 1
PREDICTED = "predicted"
SHOWN = {"step": "step", "sync": "exchange", "round": "round"}
"""Kinds of events that last, and what they are called."""


def text(data: Mapping[str, Any], logs: Mapping[str, Mapping[int, tuple[Mapping[str, Any], ...]]]) -> str:
    """The file's text: one event a line. `data` is a report's JSON, `logs` the events of its runs by experiment and rank."""
    found = [
        event
        for number, one in enumerate(data["experiments"], 1)
        for event in _events(number, one, logs.get(one["name"], {}))
    ]
    lines = ",\n".join(json.dumps(event, ensure_ascii=False, allow_nan=False) for event in found)
    other = json.dumps({"study": data["study"], "emulation": data["machine"].get("emulation")})
    return f'{{"displayTimeUnit": "ms", "otherData": {other}, "traceEvents": [\n{lines}\n]}}\n'


def _events(
    number: int, one: Mapping[str, Any], logs: Mapping[int, tuple[Mapping[str, Any], ...]]
) -> Iterator[dict[str, Any]]:
    """All events of one experiment. Rounds and exchanges of a worker have a row of their own beneath its steps: they overlap these."""
    times = [event["t"] for events in logs.values() for event in events]
    if not times:
        return
    start = min(times)
    yield {
        "ph": "M",
        "name": "process_name",
        "pid": number,
        "tid": 0,
        "args": {"name": f"{one['name']} ({one['method']})"},
    }
    for rank, events in logs.items():
        for row, kind in enumerate(SHOWN):
            thread = 3 * rank + row + 2
            own = [event for event in events if event["event"] == kind and event.get("seconds") is not None]
            if own:
                yield _named(number, thread, f"worker {rank} · {SHOWN[kind]}s")
            for event in own:
                yield _lasting(number, thread, event, start)
        for event in events:
            if event["event"] in ("lost", "stopped", "eval"):
                says = {key: value for key, value in event.items() if key not in ("event", "t")}
                at = round((event["t"] - start) * MICRO, DIGITS)
                yield {
                    "ph": "i",
                    "s": "t",
                    "name": event["event"],
                    "cat": "told",
                    "pid": number,
                    "tid": 3 * rank + 2,
                    "ts": at,
                    "args": says,
                }
    yield from _predicted(number, one, logs, start)


def _lasting(number: int, thread: int, event: Mapping[str, Any], start: float) -> dict[str, Any]:
    seconds = float(event["seconds"])
    name = SHOWN[event["event"]]
    label = f"{name} {event[event['event']]}" if event["event"] in event else str(event.get("what") or name)
    args = {key: value for key, value in event.items() if key not in ("event", "t", "seconds")}
    begin = round((event["t"] - seconds - start) * MICRO, DIGITS)
    return {
        "ph": "X", "name": label, "cat": name, "pid": number, "tid": thread, "ts": begin, "dur": round(seconds * MICRO, DIGITS), "args": args,
    }  # fmt: skip


def _predicted(
    number: int, one: Mapping[str, Any], logs: Mapping[int, tuple[Mapping[str, Any], ...]], start: float
) -> Iterator[dict[str, Any]]:
    """The predicted round from where the first that counts began, as often as rounds were logged."""
    seconds = one["round"]["predicted"]
    told = [event for event in next(iter(logs.values()), ()) if event["event"] == "round"]
    rounds = [event for event in told if event.get("round") is not None and event["round"] >= 0]
    if seconds is None or not rounds:
        return
    yield _named(number, 1, PREDICTED)
    begin = rounds[0]["t"] - float(rounds[0].get("seconds") or 0.0) - start
    for at in range(len(rounds)):
        yield {
            "ph": "X", "name": f"round {at}", "cat": PREDICTED, "pid": number, "tid": 1, "ts": round((begin + at * seconds) * MICRO, DIGITS),
            "dur": round(seconds * MICRO, DIGITS), "args": {"waits_s": one["sync"]["predicted"]},
        }  # fmt: skip


def _named(number: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": "thread_name", "pid": number, "tid": thread, "args": {"name": name}}
