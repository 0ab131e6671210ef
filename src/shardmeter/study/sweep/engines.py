"""Where chunks are evaluated: in this process, in local processes, on a Dask cluster. All give the same bytes."""

from __future__ import annotations

import multiprocessing
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

from shardmeter.core.errors import BadScenario, ShardMeterError, Unavailable, shown
from shardmeter.core.interrupts import end_with_parent, ignore_interrupts, uninterrupted
from shardmeter.study.sweep.points import Evaluator
from shardmeter.study.sweep.space import Space
from shardmeter.study.sweep.work import AHEAD, Done, done, job, streamed, work

LOCAL, DASK, SCHEME = "local", "dask", "dask://"
NO_DASK = "the engine dask needs dask.distributed: pip install 'shardmeter[dask]'; or leave --engine out"


_ADDRESS = re.compile(r"(?:\[[0-9A-Fa-f:.]+(?:%\w+)?\]|[^\s\[\]:/@?#]+):([0-9]{1,5})")
"""HOST:PORT, an IPv6 address in brackets."""
MOST_WORKERS = 1024


def check(engine: object, workers: object = 1) -> None:
    """Raises BadScenario for an engine that is none, and for a number of workers that no machine has."""
    if not isinstance(engine, str) or not (engine in (LOCAL, DASK) or engine.startswith(SCHEME)):
        raise BadScenario(
            f"unknown engine {shown(engine)}; local, dask (a cluster on this machine), or dask://HOST:PORT"
        )
    address = _ADDRESS.fullmatch(engine.removeprefix(SCHEME)) if engine.startswith(SCHEME) else None
    if engine.startswith(SCHEME) and (address is None or not 1 <= int(address[1]) <= 65535):
        raise BadScenario(f"the engine {shown(engine)} is no dask://HOST:PORT; as in dask://10.0.0.1:8786")
    if isinstance(workers, bool) or not isinstance(workers, int) or not 1 <= workers <= MOST_WORKERS:
        raise BadScenario(f"workers: {shown(workers)} is no whole number from 1 to {MOST_WORKERS}")


def evaluated(space: Space, numbers: Sequence[int], kind: str | None, engine: str, workers: int) -> Iterator[Done]:
    """The chunks of these numbers, in the order in which they are done.

    `workers` processes of this machine, 1 = this process alone. Raises Unavailable for an engine that cannot be reached
    or loses its workers, and where memory is short."""
    try:
        yield from _evaluated(space, numbers, kind, engine, workers)
    except (BrokenProcessPool, MemoryError):
        raise Unavailable("a worker has ended (killed, or out of memory): fewer --workers need less") from None


def _evaluated(space: Space, numbers: Sequence[int], kind: str | None, engine: str, workers: int) -> Iterator[Done]:
    if not numbers:
        return
    if engine != LOCAL:
        try:
            from shardmeter.study.sweep.on_dask import on_dask
        except ImportError:
            raise ShardMeterError(NO_DASK) from None
        yield from on_dask(space, numbers, kind, engine, min(workers, len(numbers)))
    elif workers > 1 and len(numbers) > 1:
        yield from _in_processes(space, numbers, kind, min(workers, len(numbers)))
    else:
        evaluator = Evaluator(space)
        for number in numbers:
            yield done(evaluator, number, kind)


_JOB: list[bytes] = []
"""The sweep that this worker process is at, pickled."""


def _start(pickled: bytes) -> None:
    """Begin a worker process: Ctrl-C is the parent's business, and without a parent there is nothing to do."""
    ignore_interrupts()
    _JOB[:] = [pickled]
    end_with_parent()


def _work_here(number: int) -> Done:
    return work(_JOB[0], number)


def _in_processes(space: Space, numbers: Sequence[int], kind: str | None, workers: int) -> Iterator[Done]:
    pool = ProcessPoolExecutor(
        workers, multiprocessing.get_context("spawn"), initializer=_start, initargs=(job(space, kind),)
    )

    def submit(number: int) -> Future[Done]:
        with uninterrupted(whole=True):  # it may start a process
            return pool.submit(_work_here, number)

    try:
        yield from streamed(submit, numbers, lambda: AHEAD * workers, lambda: None)
    finally:
        with uninterrupted():
            _end(pool)


def _end(pool: ProcessPoolExecutor) -> None:
    """Stop the workers at once: what they are at is not needed."""
    processes = list((getattr(pool, "_processes", None) or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        process.kill()  # one that starts heeds nothing else yet
    for process in processes:
        process.join()
