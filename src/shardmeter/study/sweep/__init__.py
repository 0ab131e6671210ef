"""`sweep`: the figures of `predict` over any fields of a scenario, as columns here or as a file that can be resumed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from shardmeter.core.errors import BadScenario
from shardmeter.core.files import file_name
from shardmeter.core.record import record
from shardmeter.core.sums import plain_sum
from shardmeter.study.sweep.engines import LOCAL, check, evaluated
from shardmeter.study.sweep.figures import FIGURES, Column
from shardmeter.study.sweep.files import FORMATS, json_head, json_rows
from shardmeter.study.sweep.points import FITS, FITS_NOT, ILLEGAL, reasons_of
from shardmeter.study.sweep.space import Space, space_of
from shardmeter.study.sweep.store import Store, chunks_kept, is_joined, refuse_existing
from shardmeter.study.sweep.work import Done

__all__ = [
    "FIGURES",
    "ILLEGAL",
    "Progress",
    "Sweep",
    "Written",
    "chunks_kept",
    "refuse_existing",
    "space_of",
    "sweep",
    "write",
]


@record
class Progress:
    """How far a sweep is: rows of all, rows that were done when it began, seconds since."""

    rows: int
    total: int
    resumed: int
    seconds: float

    @property
    def rate(self) -> float:
        """Rows a second since it began."""
        return (self.rows - self.resumed) / max(self.seconds, 1e-9)


Report = Callable[[Progress], None]


@record
class Sweep:
    """The rows of a sweep as columns: the axes (in the order given, the last one fastest), `status`, and the
    figures."""

    space: Space
    columns: Mapping[str, Column]

    def __len__(self) -> int:
        """Rows."""
        return self.space.points

    def __repr__(self) -> str:
        """One line."""
        fits, fits_not, illegal = self.counts
        return f"<Sweep of {len(self):,} points: {fits:,} fit, {fits_not:,} do not, {illegal:,} are illegal>"

    @property
    def counts(self) -> tuple[int, int, int]:
        """Points that fit, that do not, that are illegal."""
        status = self.columns["status"]
        fits, fits_not = int(np.sum(status == FITS)), int(np.sum(status == FITS_NOT))
        return fits, fits_not, len(status) - fits - fits_not

    @property
    def reasons(self) -> Mapping[str, int]:
        """Why points are illegal, and how many for each."""
        return reasons_of(self.columns["status"])

    def rows(self, first: int = 0, after: int | None = None) -> list[dict[str, Any]]:
        """Some rows as mappings, null for what a point does not have."""
        return json_rows({name: column[first:after] for name, column in self.columns.items()})

    def to_dict(self) -> dict[str, Any]:
        """The `sweep` JSON: the head and all rows."""
        return {**json_head(self.space), "rows": self.rows()}


def sweep(space: Space, *, engine: str = LOCAL, workers: int = 1, report: Report | None = None) -> Sweep:
    """Evaluate a space and keep its columns here.

    Raises BadScenario for an engine or workers that are none, Unavailable for an engine that cannot be reached."""
    check(engine, workers)
    found: dict[int, Done] = {}
    for one in _reported(evaluated(space, range(space.chunks), None, engine, workers), space, 0, report):
        found[one.number] = one
    ordered = [found[number].columns or {} for number in range(space.chunks)]
    return Sweep(space=space, columns={name: np.concatenate([one[name] for one in ordered]) for name in ordered[0]})


@record
class Written:
    """What became of a sweep that goes to a file."""

    out: Path
    complete: bool
    """Whether the file is there; else chunks of other shards are missing."""
    chunks: int
    """Chunks that are done."""
    resumed: int
    """Chunks that were done before."""
    counts: tuple[int, int, int]
    """Points that fit, that do not, that are illegal, among what is done."""
    reasons: Mapping[str, int]
    """Why points are illegal among what is done, and how many for each."""
    missing: tuple[str, ...] = ()
    """Shards whose chunks are not all there, where that is known."""
    idle: bool = False
    """Whether the shard has no chunks: there are fewer than shards."""
    warnings: tuple[str, ...] = ()
    """What was amiss among the chunks: those that were damaged, and files that are none."""


def write(
    space: Space,
    out: Path,
    *,
    engine: str = LOCAL,
    workers: int = 1,
    overwrite: bool = False,
    shard: tuple[int, int] = (1, 1),
    join_only: bool = False,
    report: Report | None = None,
) -> Written:
    """Evaluate a space into a file (.csv, .json, .parquet); chunk by chunk in `OUT.parts`, where the same call goes on.

    `shard` (i, N) evaluates the i-th of N parts of the chunks; whoever finds all chunks done joins them. `join_only`
    evaluates nothing. Raises BadScenario for a file that is there or belongs to another sweep, Unavailable for a disk,
    a folder or an engine that does not do it: chunks that are done are kept. One that is damaged is evaluated again."""
    check(engine, workers)
    store = Store(space, out, suffix(out))
    if shard[0] > space.chunks:  # more parts than chunks: this one has none
        complete = is_joined(out)
        return Written(out=out, complete=complete, chunks=0, resumed=0, counts=(0, 0, 0), reasons={}, idle=True)
    with store.opened(shard, anew=not join_only, overwrite=overwrite):
        mine = range(shard[0] - 1, space.chunks, shard[1])
        store.drop_damaged(mine)
        there = {number: part.counts for number, part in store.parts().items()}
        resumed = len(there)
        todo = [] if join_only else [number for number in mine if number not in there]
        before = sum(map(sum, there.values()))
        reasons = store.reasons()
        for one in _reported(evaluated(space, todo, store.kind, engine, workers), space, before, report):
            if not store.put(one):
                break
            there[one.number] = one.counts
            reasons += one.reasons
        reasons = store.reasons() or reasons
        there = {number: part.counts for number, part in store.parts().items()} or there
        missing = store.missing()
        complete = store.join()
    fits, fits_not, illegal = (plain_sum(counts[i] for counts in there.values()) for i in range(3))
    return Written(
        out=out, complete=complete, chunks=len(there), resumed=resumed, counts=(fits, fits_not, illegal), reasons=reasons,
        missing=() if complete else missing, warnings=tuple(store.warnings),
    )  # fmt: skip


def suffix(out: Path) -> str:
    """The format that the name of a file asks for. Raises BadScenario for none of them, ShardMeterError where it cannot
    be written here."""
    if "\0" in str(out):
        raise BadScenario(f"{file_name(out)}: no file can have this name")
    kind = out.suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        known = ", ".join(f".{name}" for name in FORMATS)
        raise BadScenario(f"{file_name(out)}: the name ends in {out.suffix or 'nothing'}; the formats are {known}")
    FORMATS[kind].check()
    return kind


def _reported(chunks: Iterable[Done], space: Space, before: int, report: Report | None) -> Iterator[Done]:
    start, rows = time.monotonic(), before
    for one in chunks:
        yield one
        rows += plain_sum(one.counts)
        if report is not None:
            report(Progress(rows=rows, total=space.points, resumed=before, seconds=time.monotonic() - start))
