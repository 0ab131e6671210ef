"""The chunks of a sweep on a Dask cluster: one on this machine, or the scheduler that is named."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager
from typing import Any

import distributed
from distributed.scheduler import KilledWorker

from shardmeter import __version__
from shardmeter.core.errors import Unavailable
from shardmeter.core.interrupts import ignore_interrupts, uninterrupted
from shardmeter.core.sums import plain_sum
from shardmeter.study.sweep.engines import DASK, SCHEME
from shardmeter.study.sweep.space import Space
from shardmeter.study.sweep.work import AHEAD, PATIENCE, Done, job, streamed, work

_TALKS = ("distributed", "tornado", "asyncio")
"""Loggers of what goes wrong: here that is an exception, which says it."""


def on_dask(space: Space, numbers: Sequence[int], kind: str | None, engine: str, workers: int) -> Iterator[Done]:
    """The chunks as they come from `engine`: dask (a cluster of so many `workers` here) or dask://HOST:PORT.

    Raises Unavailable for a scheduler that does not answer or goes, and for workers that are none of ours."""
    with _quiet(), _client(engine, workers) as client:
        _check_workers(client, engine)

        def ahead() -> int:
            threads: int = plain_sum(client.nthreads().values())
            return AHEAD * max(1, threads)

        def check() -> None:
            if client.status != "running" or not client.nthreads():
                raise OSError("no worker is left")

        try:
            pickled = client.scatter(job(space, kind), broadcast=True, hash=False)
            executor = client.get_executor(pure=False)
            yield from streamed(lambda number: executor.submit(work, pickled, number), numbers, ahead, check)
        except (KilledWorker, CancelledError, OSError, TimeoutError) as error:
            why = str(error) if type(error) is OSError else type(error).__name__
            raise Unavailable(f"{engine}: its scheduler or its workers have gone ({why})") from None


@contextmanager
def _quiet() -> Iterator[None]:
    """Nothing of what Dask logs reaches standard error."""
    names = [name for name in logging.root.manager.loggerDict if name.partition(".")[0] in _TALKS]
    loggers = {name: logging.getLogger(name) for name in (*_TALKS, *names)}
    before = {name: logger.level for name, logger in loggers.items()}
    for logger in loggers.values():
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for name, level in before.items():
            loggers[name].setLevel(level)


@contextmanager
def _client(engine: str, workers: int) -> Iterator[Any]:
    if engine == DASK:
        with ExitStack() as held:
            with uninterrupted():
                cluster = distributed.LocalCluster(
                    n_workers=workers, threads_per_worker=1, dashboard_address=None, silence_logs=logging.CRITICAL
                )
                held.callback(_close, cluster)
                client = distributed.Client(cluster)
                held.callback(_close, client)
                client.run(ignore_interrupts)
            yield client
        return
    try:
        client = distributed.Client(f"tcp://{engine.removeprefix(SCHEME)}", timeout=PATIENCE)
    except (OSError, TimeoutError, ValueError) as error:
        why = str(error).split("\n")[0][:120] or type(error).__name__
        says = f"no scheduler answers within {PATIENCE:g} s ({why})"
        raise Unavailable(f"{engine}: {says}; is it running, on this port?") from None
    try:
        yield client
    finally:
        _close(client)


def _close(what: Any) -> None:
    """Close a client or a cluster, whatever else is pressed meanwhile."""
    with uninterrupted():
        what.close()


def _version() -> str:
    return __version__


def _check_workers(client: Any, engine: str) -> None:
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
