"""Where chunks are evaluated: in this process, in local processes, on a Dask cluster. All give the same bytes."""

from __future__ import annotations

import functools
import logging
import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import islice
from multiprocessing.process import BaseProcess
from typing import Any

import numpy as np

from shardmeter import __version__
from shardmeter.core.errors import BadScenario, ShardMeterError, Unavailable, shown
from shardmeter.core.record import record
from shardmeter.study.sweep.figures import Column
from shardmeter.study.sweep.files import FORMATS, axis_columns
from shardmeter.study.sweep.points import FITS, FITS_NOT, Evaluator
from shardmeter.study.sweep.space import Space

LOCAL, DASK, SCHEME = "local", "dask", "dask://"
PATIENCE = 10.0
"""Seconds to wait for a scheduler, and for workers."""
AHEAD = 3
"""Chunks that wait for every worker."""
NO_DASK = "the engine dask needs dask.distributed: pip install 'shardmeter[dask]'; or leave --engine out"


@record
class Done:
    """An evaluated chunk: its fragment of the file (or, where no format was asked, its columns), and how its rows turned out."""

    number: int
    fragment: bytes
    columns: dict[str, Column] | None
    counts: tuple[int, int, int]
    """Rows that fit, that do not, that are illegal."""


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
    )


def check(engine: str) -> None:
    """Raises BadScenario for an engine that is none."""
    if engine not in (LOCAL, DASK) and not (engine.startswith(SCHEME) and len(engine) > len(SCHEME)):
        raise BadScenario(
            f"unknown engine {shown(engine)}; local, dask (a cluster on this machine), or dask://HOST:PORT"
        )


def evaluated(space: Space, numbers: Sequence[int], kind: str | None, engine: str, workers: int) -> Iterator[Done]:
    """The chunks of these numbers, in the order in which they are done.

    `workers` processes of this machine, 1 = this process alone. Raises Unavailable for an engine that cannot be reached or
    loses its workers."""
    if engine != LOCAL:
        yield from _on_dask(space, numbers, kind, engine, workers)
    elif workers > 1 and len(numbers) > 1:
        yield from _in_processes(space, numbers, kind, min(workers, len(numbers)))
    else:
        evaluator = Evaluator(space)
        for number in numbers:
            yield done(evaluator, number, kind)


@functools.lru_cache(maxsize=2)
def _evaluator(job: bytes) -> tuple[Evaluator, str | None]:
    """What a worker keeps of a sweep between its chunks: what is resolved, and the format."""
    space, kind = pickle.loads(job)  # noqa: S301  (our own, from the process that started this one)
    return Evaluator(space), kind


def _work(job: bytes, number: int) -> Done:
    evaluator, kind = _evaluator(job)
    return done(evaluator, number, kind)


def _streamed(
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


_JOB: list[bytes] = []
"""The sweep that this worker process is at, pickled."""


def _start(job: bytes) -> None:
    """Begin a worker process: Ctrl-C is the parent's business, and without a parent there is nothing to do."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _JOB[:] = [job]
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)


def _work_here(number: int) -> Done:
    return _work(_JOB[0], number)


def _in_processes(space: Space, numbers: Sequence[int], kind: str | None, workers: int) -> Iterator[Done]:
    pool = ProcessPoolExecutor(
        workers, multiprocessing.get_context("spawn"), initializer=_start, initargs=(pickle.dumps((space, kind)),)
    )
    try:
        yield from _streamed(
            lambda number: pool.submit(_work_here, number), numbers, lambda: AHEAD * workers, lambda: None
        )
    except (BrokenProcessPool, MemoryError):
        raise Unavailable("a worker process has ended (killed, or out of memory): fewer --workers need less") from None
    finally:
        _end(pool)


def _end(pool: ProcessPoolExecutor) -> None:
    """Stop the workers at once: what they are at is not needed."""
    processes = list((getattr(pool, "_processes", None) or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        process.terminate()
    for process in processes:
        process.join()


def _on_dask(space: Space, numbers: Sequence[int], kind: str | None, engine: str, workers: int) -> Iterator[Done]:
    with _client(engine, workers) as client:
        _same_version(client, engine)
        from distributed.scheduler import KilledWorker

        def ahead() -> int:
            threads: int = sum(client.nthreads().values())
            return AHEAD * max(1, threads)

        def check_workers() -> None:
            if client.status != "running" or not client.nthreads():
                raise OSError("no worker is left")

        try:
            job = client.scatter(pickle.dumps((space, kind)), broadcast=True, hash=False)
            executor = client.get_executor(pure=False)
            yield from _streamed(lambda number: executor.submit(_work, job, number), numbers, ahead, check_workers)
        except (KilledWorker, CancelledError, OSError, TimeoutError) as error:
            why = str(error) if type(error) is OSError else type(error).__name__
            raise Unavailable(f"{engine}: its scheduler or its workers have gone ({why})") from None


@contextmanager
def _client(engine: str, workers: int) -> Iterator[Any]:
    """A client of a cluster on this machine, or of the scheduler that is named."""
    try:
        import distributed
    except ImportError:
        raise ShardMeterError(NO_DASK) from None
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    if engine == DASK:
        with (
            distributed.LocalCluster(
                n_workers=workers, threads_per_worker=1, dashboard_address=None, silence_logs=logging.CRITICAL
            ) as cluster,
            distributed.Client(cluster) as client,
        ):
            yield client
        return
    address = engine.removeprefix(SCHEME)
    try:
        client = distributed.Client(f"tcp://{address}", timeout=PATIENCE)
    except (OSError, TimeoutError, ValueError) as error:
        why = str(error).split("\n")[0][:120] or type(error).__name__
        says = f"no scheduler answers within {PATIENCE:g} s ({why})"
        raise Unavailable(f"{engine}: {says}; is it running, on this port?") from None
    with client:
        yield client


def _version() -> str:
    return __version__


def _same_version(client: Any, engine: str) -> None:
    """Refuse workers that have no ShardMeter, or another one: their rows would not be ours."""
    try:
        client.wait_for_workers(1, timeout=PATIENCE)
    except TimeoutError:
        says = "the scheduler has no workers; start some, as in `dask worker HOST:PORT`"
        raise Unavailable(f"{engine}: {says}") from None
    try:
        found = client.run(_version)
    except Exception as error:  # noqa: BLE001  (whatever a worker raises while it imports us)
        says = f"a worker cannot run shardmeter ({type(error).__name__}: {str(error)[:100]})"
        raise Unavailable(f"{engine}: {says}") from None
    other = sorted({version for version in found.values() if version != __version__})
    if other:
        raise Unavailable(f"{engine}: workers have shardmeter {', '.join(other)}, this is {__version__}")
