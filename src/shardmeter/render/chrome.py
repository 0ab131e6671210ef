"""A timeline as Chrome's trace-event JSON, which Perfetto and chrome://tracing open: a process per island, a thread per rank
and stream, times in microseconds."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from typing import Any

from shardmeter.study.trace import Drawn

MICRO = 1e6
DIGITS = 3
"""Decimals of a microsecond that are written."""


def text(traced: Drawn, ranks: Collection[int] | None = None) -> str:
    """The file's text: one event a line. `ranks` keeps only these."""
    lines = ",\n".join(json.dumps(event, ensure_ascii=False, allow_nan=False) for event in events(traced, ranks))
    other = json.dumps({"model": "ShardMeter", "scenario": traced.scenario.name, "step_time_s": traced.step_time})
    return f'{{"displayTimeUnit": "ms", "otherData": {other}, "traceEvents": [\n{lines}\n]}}\n'


def events(traced: Drawn, ranks: Collection[int] | None = None) -> Iterator[dict[str, Any]]:
    """Names of processes and threads, then every task that takes time and every wait of a compute stream.

    Events of one thread nest: a collective that others interrupt encloses them."""
    timeline = traced.timeline
    streams = timeline.program.streams
    yield {"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "args": {"name": traced.title}}
    shown = set(traced.ranks if ranks is None else ranks)
    used = {task.stream for task in timeline.program.tasks if task.seconds}
    for index, stream in enumerate(streams):
        if stream.rank in shown and (index in used or stream.name == "compute"):
            name = {"name": f"{traced.name_of(stream.rank)} · {stream.name}"}
            yield {"ph": "M", "name": "thread_name", "pid": 1, "tid": index + 1, "args": name}
            yield {"ph": "M", "name": "thread_sort_index", "pid": 1, "tid": index + 1, "args": {"sort_index": index}}
    for task, begin, end in zip(timeline.program.tasks, timeline.begin, timeline.end, strict=True):
        if task.seconds and streams[task.stream].rank in shown:
            args = {term: round(each * MICRO, DIGITS) for term, each in (task.terms or {}).items()}
            yield _event(task.label, task.kind or "other", begin, end, task.stream, args)
    for index, stream in enumerate(streams):
        if stream.name == "compute" and stream.rank in shown:
            for gap in traced.gaps(stream.rank):
                args = {gap.term: round((gap.end - gap.begin) * MICRO, DIGITS)}
                yield _event(f"wait: {gap.term}", "wait", gap.begin, gap.end, index, args)


def _event(name: str, kind: str, begin: float, end: float, stream: int, args: dict[str, float]) -> dict[str, Any]:
    start = round(begin * MICRO, DIGITS)
    return {
        "ph": "X", "name": name, "cat": kind, "pid": 1, "tid": stream + 1, "ts": start,
        "dur": max(round(round(end * MICRO, DIGITS) - start, DIGITS), 0.0), "args": args,
    }  # fmt: skip
