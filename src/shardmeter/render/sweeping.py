"""The page of a sweep: how its points turned out, and the first of its rows; or what became of the file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from shardmeter.render.document import Column, Document, Fact, Facts, Notes, Row, Section, Table
from shardmeter.study.sweep import FIGURES, Sweep, Written
from shardmeter.study.sweep.figures import DEFAULT
from shardmeter.study.sweep.space import Space

SHOWN = 100
"""Rows of a table on the page."""
REASONS = 8
"""Reasons on the page."""
TITLES = {
    "step_time_s": "step", "tokens_per_s": "tokens/s", "tokens_per_s_per_gpu": "per GPU", "mfu": "MFU",
    "hfu": "HFU", "memory.peak_gib": "peak", "run.cost_usd": "cost", "bottleneck.term": "longest term",
    "bottleneck.cause": "bottleneck", "run.wall_clock_s": "wall clock", "sync.round_s": "round",
    "sync.utilization": "in inner steps", "sync.exposed_s": "waited", "sync.hidden_s": "hidden", "sync.sent_bytes": "sent",
}  # fmt: skip
"""Heads of the columns that have a shorter name."""
LEAST_MISSED = (
    "bottleneck.term", "tokens_per_s_per_gpu", "run.cost_usd", "bottleneck.cause", "mfu", "memory.peak_gib",
    "tokens_per_s", "step_time_s",
)  # fmt: skip
"""Figures that nobody chose, in the order in which they go where the line is short."""


def document(answer: Sweep, *, full: bool) -> Document:
    """A sweep as a document; `full` has all rows for JSON and CSV, a page the first `SHOWN`."""
    space, total = answer.space, len(answer)
    rows: Sequence[Row] = answer.rows(0, None if full else SHOWN)
    shown = [_read(row, space.fields) for row in rows[:SHOWN]]
    caption = "" if total <= SHOWN else f"The first {SHOWN} of {total:,}: --format csv or -o FILE.csv has all"
    sections: list[Section] = [Table(title="Points", columns=_columns(space), rows=tuple(shown), caption=caption)]
    reasons = _reasons(answer.reasons)
    if reasons:
        sections.append(reasons)
    if space.assumptions:
        sections.append(Notes(title="Assumed at every point", lines=space.assumptions))
    return Document(
        title=f"{total:,} points: {_over(space)}",
        verdict=_verdict(answer.counts),
        good=answer.counts[0] > 0,
        sections=tuple(sections),
        data=answer.to_dict() if full else {},
        flat=tuple(rows),
    )


def _read(row: Row, fields: tuple[str, ...]) -> Row:
    """A row as people read it: points between two ends at four digits (`3.162Gbps`), and how it turned out in a word."""
    points = {
        field: _LONG.sub(lambda found: f"{float(found[0]):.4g}", value)
        for field in fields
        if isinstance(value := row[field], str)
    }
    return {**row, **points, "status": str(row["status"]).partition(":")[0]}


_LONG = re.compile(r"\d{1,3}\.\d{6,}")
"""A number of a point that a range was divided into."""


def written(answer: Written, space: Space, seconds: float) -> Document:
    """What became of a sweep that goes to a file."""
    fits, fits_not, illegal = answer.counts
    facts = [Fact(label="file", value=str(answer.out), note=_state(answer))]
    if not answer.idle:
        facts.append(Fact(label="chunks done", value=f"{answer.chunks:,} of {space.chunks:,}"))
    if answer.resumed:
        facts.append(Fact(label="of those, done before", value=f"{answer.resumed:,}"))
    data: dict[str, Any] = {
        "out": str(answer.out),
        "complete": answer.complete,
        "points": space.points,
        "chunks": space.chunks,
        "chunks_done": answer.chunks,
        "chunks_resumed": answer.resumed,
        "fit": fits,
        "do_not_fit": fits_not,
        "illegal": illegal,
        "seconds": seconds,
        "assumptions": list(space.assumptions),
        "warnings": list(space.warnings),
    }
    reasons = _reasons(answer.reasons)
    facts_of = Facts(title="Sweep", facts=tuple(facts))
    return Document(
        title=f"{space.points:,} points: {_over(space)}",
        verdict=_nothing_to_do(answer, space) if answer.idle else _verdict(answer.counts),
        good=fits > 0 or answer.idle,
        sections=(facts_of,) if reasons is None else (facts_of, reasons),
        data=data,
        flat=({name: value for name, value in data.items() if not isinstance(value, list)},),
    )


def _state(answer: Written) -> str:
    if answer.complete:
        return "already joined" if answer.idle else ""
    return f"missing: shard {', '.join(answer.missing)}" if answer.missing else "when all shards are done"


def _nothing_to_do(answer: Written, space: Space) -> str:
    chunks = "1 chunk, which is" if space.chunks == 1 else f"{space.chunks:,} chunks, all"
    joined = f"; {answer.out} is already joined" if answer.complete else ""
    return f"Nothing to do in this shard: the sweep has {chunks} of shards before it{joined}."


def _reasons(illegal: Mapping[str, int]) -> Table | None:
    """What makes points illegal, the commonest first."""
    if not illegal:
        return None
    commonest = sorted(illegal.items(), key=lambda one: (-one[1], one[0]))[:REASONS]
    rows = [{"points": f"{count:,}", "reason": reason} for reason, count in commonest]
    caption = f"{len(illegal) - REASONS:,} more reasons" if len(illegal) > REASONS else ""
    columns = (Column(key="points", title="points"), Column(key="reason", title="why illegal", wide=True))
    return Table(title="Illegal points", columns=columns, rows=tuple(rows), caption=caption)


def _over(space: Space) -> str:
    return " × ".join(f"{axis.name} ({len(axis.points):,})" for axis in space.axes)


def _verdict(counts: tuple[int, int, int]) -> str:
    fits, fits_not, illegal = counts
    return f"{fits:,} fit, {fits_not:,} do not fit, {illegal:,} are illegal."


def _columns(space: Space) -> tuple[Column, ...]:
    """Axes, figures, status. Of chosen figures the last go first where the line is short."""
    short = _short(space.fields)
    order = LEAST_MISSED if space.columns == DEFAULT else space.columns[::-1]
    made = [Column(key=field, title=short[field]) for field in space.fields]
    for name in space.columns:
        if name != "fits":  # the status says it
            drop = 1 + order.index(name)
            made.append(Column(key=name, title=TITLES.get(name, name), unit=FIGURES[name].unit, drop=drop))
    return (*made, Column(key="status", title="status"))


def _short(fields: tuple[str, ...]) -> dict[str, str]:
    """The last word of every field, or all of it where two end alike."""
    ends = [field.rpartition(".")[2] for field in fields]
    return {field: end if ends.count(end) == 1 else field for field, end in zip(fields, ends, strict=True)}
