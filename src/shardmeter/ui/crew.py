"""Worker processes that answer questions: a lane of a few, a line before it that is bounded, and a time limit that ends the work."""

from __future__ import annotations

import asyncio
import heapq
import multiprocessing
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Any

from shardmeter.ui import work

if TYPE_CHECKING:
    from collections.abc import Callable

WARM = "shardmeter.ui.warm"
FORKED = "forkserver"
ENDS_S = 5.0
"""How long a process that was ended is waited for."""
LONGEST_LIFE = 1000
"""Questions after which a worker makes room for a fresh one."""


class BusyError(Exception):
    """More questions wait than may."""


class TooLongError(Exception):
    """A question took longer than it may; its process is gone."""


class EndedError(Exception):
    """A process ended without an answer: memory, or somebody ended it."""


def context() -> Any:
    """How processes start: forked from one that has everything imported, where the system knows that; else afresh. The server's own
    process is never forked: it has threads."""
    if FORKED not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    found = multiprocessing.get_context(FORKED)
    found.set_forkserver_preload([WARM])
    return found


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def started(target: Callable[..., None], *given: Any) -> tuple[BaseProcess, Connection]:
    """A process that runs `target(link, *given)`, and our end of the link; the other end is the child's alone, so that each notices when
    the other has gone."""
    ways = context()
    ours, theirs = ways.Pipe()
    process = ways.Process(target=target, args=(theirs, *given), daemon=True)
    try:
        process.start()
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    return process, ours


def ended(process: BaseProcess, link: Connection) -> None:
    """End a process whatever it is at, and wait until it is gone."""
    process.kill()
    process.join(ENDS_S)
    link.close()
    with suppress(ValueError):  # it is not gone after all that time: its record goes when it does
        process.close()


class Worker:
    """One process, one question at a time. Its methods block: threads call them."""

    def __init__(self, setup: work.Setup) -> None:
        self.process, self.link = started(work.serve, setup)
        self.answered = 0

    def ask(self, question: work.Question, limit: float) -> work.Reply:
        """The reply. Raises TooLongError after `limit` seconds, EndedError where the process ends; it is gone after both."""
        try:
            self.link.send(question)
            found: work.Reply | None = self.link.recv() if self.link.poll(limit) else None
        except (EOFError, OSError):
            self.end()
            raise EndedError from None
        if found is None:
            self.end()
            raise TooLongError
        self.answered += 1
        return found

    def lives(self) -> bool:
        """Whether the process is there."""
        return self.process.is_alive()

    def end(self) -> None:
        """End the process."""
        with suppress(ValueError):  # it was ended before
            ended(self.process, self.link)

    def kill(self) -> None:
        """Tell the process to end, and do not wait: who waits for its reply is told that it has gone."""
        with suppress(ValueError):
            self.process.kill()


class Line:
    """So many places, and who waits for one, in the order in which they came; small questions pass large ones by, for a while."""

    def __init__(self, places: int, most: int) -> None:
        self.free, self.most = places, most
        self._order = 0
        self._heap: list[tuple[float, int, asyncio.Future[None]]] = []

    async def place(self, later: float, patience: float) -> None:
        """Wait for a place as if one had come so many seconds `later`. Raises BusyError where too many wait, or for too long."""
        if self.free and not self._heap:
            self.free -= 1
            return
        if len(self._heap) >= self.most:
            raise BusyError
        loop = asyncio.get_running_loop()
        mine = loop.create_future()
        self._order += 1
        entry = (loop.time() + later, self._order, mine)
        heapq.heappush(self._heap, entry)
        try:
            async with asyncio.timeout(patience):
                await mine
        except TimeoutError:
            self._leave(entry)
            raise BusyError from None
        except asyncio.CancelledError:
            self._leave(entry)
            raise

    def _leave(self, entry: tuple[float, int, asyncio.Future[None]]) -> None:
        """Stop waiting; who was given a place meanwhile passes it on."""
        if entry in self._heap:
            self._heap.remove(entry)
            heapq.heapify(self._heap)
        elif entry[2].done() and not entry[2].cancelled():
            self.leave()

    def leave(self) -> None:
        """Give a place to the next who waits."""
        while self._heap:
            following = heapq.heappop(self._heap)[2]
            if not following.done():
                following.set_result(None)
                return
        self.free += 1


class Lane:
    """So many workers, and a line of questions before them. To be used in one event loop."""

    def __init__(self, setup: work.Setup, *, workers: int, waiting: int, patience: float) -> None:
        self.setup, self.patience = setup, patience
        self._line = Line(workers, waiting)
        self._idle: list[Worker] = []
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="shardmeter-lane")
        self._workers = workers

    async def open(self) -> None:
        """Start the workers, so that the first question waits for none."""
        loop = asyncio.get_running_loop()
        made = [loop.run_in_executor(self._threads, Worker, self.setup) for _ in range(self._workers)]
        self._idle += await asyncio.gather(*made)

    async def close(self) -> None:
        """End all workers; what they are at is lost."""
        loop = asyncio.get_running_loop()
        await asyncio.gather(*(loop.run_in_executor(None, worker.end) for worker in self._idle))
        self._idle.clear()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def ask(self, question: work.Question, limit: float, later: float = 0.0) -> work.Reply:
        """The reply of the next free worker, in line as if it were asked so many seconds `later`. Whoever stops waiting (a task that is
        cancelled) ends the work too.

        Raises BusyError where the line is full or does not move, TooLongError, EndedError."""
        await self._line.place(later, self.patience)
        try:
            return await self._asked(question, limit)
        finally:
            self._line.leave()

    async def _free(self) -> Worker:
        """A worker that has nothing to do; one that was ended from outside meanwhile makes room for a fresh one."""
        loop = asyncio.get_running_loop()
        while self._idle:
            worker = self._idle.pop()
            if worker.lives():
                return worker
            await loop.run_in_executor(self._threads, worker.end)
        return await loop.run_in_executor(self._threads, Worker, self.setup)

    async def _asked(self, question: work.Question, limit: float) -> work.Reply:
        loop = asyncio.get_running_loop()
        worker = await self._free()
        asked = loop.run_in_executor(self._threads, worker.ask, question, limit)
        try:
            found = await asyncio.shield(asked)
        except asyncio.CancelledError:
            worker.kill()
            with suppress(EndedError, TooLongError, asyncio.CancelledError):
                await asked
            await loop.run_in_executor(self._threads, worker.end)
            raise
        if worker.answered < LONGEST_LIFE:
            self._idle.append(worker)
        else:
            await loop.run_in_executor(self._threads, worker.end)
        return found
