"""The work of a sweep: one chunk, and a stream of chunks through any executor."""

from __future__ import annotations

import functools
import pickle
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from itertools import islice

import numpy as np

from shardmeter.core.record import record
from shardmeter.study.sweep.figures import Column
from shardmeter.study.sweep.files import FORMATS, axis_columns
from shardmeter.study.sweep.points import FITS, FITS_NOT, Evaluator, reasons_of
from shardmeter.study.sweep.space import Space

PATIENCE = 10.0
"""Seconds to wait for a scheduler, for workers, and for a chunk before asking whether any can still come."""
AHEAD = 3
"""Chunks that are submitted for every worker."""


@record
class Done:
    """An evaluated chunk: its fragment of the file (or, where no format was asked, its columns), and how its rows
    turned out."""

    number: int
    fragment: bytes
    columns: dict[str, Column] | None
    counts: tuple[int, int, int]
    """Rows that fit, that do not, that are illegal."""
    reasons: Counter[str]
    """Why rows are illegal, and how many for each."""


def done(evaluator: Evaluator, number: int, kind: str | None) -> Done:
    """Evaluate one chunk."""
    figures = evaluator.chunk(number)
    columns = axis_columns(evaluator.space, evaluator.places(number)) | figures
    status = figures["status"]
    fits, fits_not = int(np.sum(status == FITS)), int(np.sum(status == FITS_NOT))
    return Done(
        number=number,
        fragment=b"" if kind is None else FORMATS[kind].fragment(evaluator.space, columns),
        columns=columns if kind is None else None,
        counts=(fits, fits_not, len(status) - fits - fits_not),
        reasons=reasons_of(status),
    )


@functools.lru_cache(maxsize=2)
def _evaluator(pickled: bytes) -> tuple[Evaluator, str | None]:
    """What a worker keeps of a sweep between its chunks: what is resolved, and the format."""
    space, kind = pickle.loads(pickled)  # noqa: S301  (our own, from the process that started this one)
    return Evaluator(space), kind


def job(space: Space, kind: str | None) -> bytes:
    """A sweep as a worker gets it."""
    return pickle.dumps((space, kind))


def work(pickled: bytes, number: int) -> Done:
    """One chunk, in a worker that keeps what it has resolved for the last."""
    evaluator, kind = _evaluator(pickled)
    return done(evaluator, number, kind)


def streamed(
    submit: Callable[[int], Future[Done]], numbers: Sequence[int], ahead: Callable[[], int], check: Callable[[], None]
) -> Iterator[Done]:
    """Chunks as they come, with so many `ahead` in the queue; `check` raises where none can come any more."""
    rest = iter(numbers)
    waiting: set[Future[Done]] = set()
    while True:
        waiting |= {submit(number) for number in islice(rest, max(0, ahead() - len(waiting)))}
        if not waiting:
            return
        ready, waiting = wait(waiting, timeout=PATIENCE, return_when=FIRST_COMPLETED)
        if not ready:
            check()
        for future in ready:
            yield future.result()
