"""The search: every plan of a space, box by box, in one process or several, with the same answer."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, nullcontext
from dataclasses import dataclass
from multiprocessing import get_context
from typing import TypeAlias

from shardmeter.core.errors import ShardMeterError
from shardmeter.core.interrupts import end_with_parent, ignore_interrupts, uninterrupted
from shardmeter.core.sums import plain_sum
from shardmeter.study.planning import boxes
from shardmeter.study.planning.block import CHUNK, Question, search_box
from shardmeter.study.planning.space import NUMBERS, Picked
from shardmeter.study.planning.tally import Tally

Task: TypeAlias = tuple[int, Picked]


@dataclass(slots=True)
class Done:
    """How far a search is. Not frozen: who shows it asks for no more than attributes."""

    rows: int
    """Points of the space that are done, those that are no plan among them, by the work that they take."""
    total: int
    rate: float
    """A second; 0 where that is not known yet."""


Progress: TypeAlias = Callable[[Done], None]
Stop: TypeAlias = Callable[[], bool]
"""Is asked now and then whether to end with what was found so far."""
LOOK = 0.1
"""Seconds between two such questions while other processes work."""

MOST = 2_000_000_000
"""Plans beyond which a space is refused: some ten minutes."""
PER_SECOND = 4e6
"""Plans a second, to say how long a space would take."""
OVERHEAD = 60_000
"""Points that one variant costs on top, and again for every 16 chunks of a schedule that is run turn by turn."""
REPLAYED = ("interleaved", "zb-v")
"""Schedules that are run turn by turn."""
LARGE = 2e7
"""Work (in points) from which a second process is worth its start."""


def search(
    question: Question, *, processes: int | None = 1, progress: Progress | None = None, stop: Stop | None = None
) -> tuple[Tally, bool]:
    """Every plan of the question's space, and whether these are all: `stop` may end it early. `processes` None takes two where the
    work is worth it.

    The tally does not depend on the number of processes. Raises ShardMeterError for a space beyond `MOST` plans, and where a
    process was ended from outside."""
    check_size(question)
    batches = _batches(question)
    work = plain_sum(_work(question, batch) for batch in batches)
    if processes is None:
        processes = min(2, os.cpu_count() or 1) if work > LARGE else 1
    tally, done, pace, stop = question.tally(), 0.0, _Pace(), stop or _never
    with closing(_run(question, batches, processes, tally, stop)) as parts:
        for batch, part in parts:
            tally.merge(part)
            done += _work(question, batch)
            if progress is not None:
                rows = int(question.space.size * min(done / work, 1.0))
                progress(Done(rows=rows, total=question.space.size, rate=pace.of(rows)))
            if stop():
                break
    return tally, done >= work or not stop()


def _never() -> bool:
    return False


class _Pace:
    """How fast rows are done since the first of them: until then processes start."""

    def __init__(self) -> None:
        self.first: tuple[float, int] | None = None

    def of(self, rows: int) -> float:
        """Rows a second; 0 before there is a second report."""
        now = time.perf_counter()
        if self.first is None:
            self.first = now, rows
        began, before = self.first
        return (rows - before) / (now - began) if now > began else 0.0


def check_size(question: Question) -> None:
    """Refuse what would take too long, with the axes that make it so."""
    space = question.space
    if space.size <= MOST:
        return
    longest: dict[str, int] = {}
    for variant in space.variants:
        for name, values in zip(NUMBERS, variant.axes, strict=True):
            longest[name] = max(longest.get(name, 1), len(values))
    named = sorted(longest.items(), key=lambda one: -one[1])[:3]
    hours = space.size / PER_SECOND / 3600.0
    says = ", ".join(f"{name} has {count:,} values" for name, count in named if count > 1)
    raise ShardMeterError(
        f"{space.size:.3g} plans would take about {hours:,.0f} hours; at most {MOST:.0e} are searched: pin or narrow an axis "
        f"({says}; {len(space.variants):,} combinations of words and stages)"
    )


def _batches(question: Question) -> list[list[Task]]:
    """All boxes of all variants, in runs of about equal work."""
    space = question.space
    tasks = [
        (place, piece)
        for place, variant in enumerate(space.variants)
        for piece in boxes.cut(boxes.whole(variant.shape), CHUNK)
    ]
    tasks.sort(key=lambda task: _overhead(question, task))  # what is cheap sets the bar for what is dear
    total = plain_sum(_work(question, [task]) for task in tasks)
    most = min(max(total / 100.0, 5.0 * OVERHEAD), 4.0 * CHUNK)
    made: list[list[Task]] = []
    load = most
    for task in tasks:
        if load >= most:
            made.append([])
            load = 0.0
        made[-1].append(task)
        load += _work(question, [task])
    return made


def _work(question: Question, batch: Sequence[Task]) -> float:
    """What a batch takes, in points."""
    return plain_sum(_overhead(question, task) + boxes.size(task[1]) for task in batch)


def _overhead(question: Question, task: Task) -> float:
    plan = question.space.variants[task[0]].plan
    return OVERHEAD * (1.0 + plan.pp * plan.virtual_stages / 16.0 if plan.schedule in REPLAYED else 1.0)


def _part(question: Question, batch: list[Task], known: Tally, stop: Stop) -> tuple[list[Task], Tally]:
    """What was searched of one batch, knowing what others have found: all of it, unless `stop` says so."""
    tally = question.tally()
    tally.pool.bar, tally.front = known.pool.bound(), known.front.copy()
    for at, (place, picked) in enumerate(batch):
        if at and stop():
            return batch[:at], tally
        search_box(question, question.space.variants[place], picked, tally)
    return batch, tally


def _run(
    question: Question, batches: Sequence[list[Task]], processes: int, known: Tally, stop: Stop
) -> Generator[tuple[list[Task], Tally], None, None]:
    """Batches as they are done; `known` grows meanwhile. None more once `stop` says so."""
    if processes <= 1:
        for batch in batches:
            yield _part(question, batch, known, stop)
        return
    pool = ProcessPoolExecutor(processes, mp_context=get_context("spawn"), initializer=_begin, initargs=(question,))
    try:
        running: dict[Future[Tally], list[Task]] = {}
        for place, batch in enumerate(batches):
            hint = _hint(question, known)
            with uninterrupted(whole=True) if place < processes else nullcontext():  # later ones start no process
                running[pool.submit(_share, batch, hint)] = batch
            if len(running) >= 2 * processes:
                yield from _finished(running, stop)
            if stop():
                return
        while running and not stop():
            yield from _finished(running, stop)
    except BrokenProcessPool:
        raise ShardMeterError(
            "a process of the search was ended from outside (short of memory?); --processes 1 takes one"
        ) from None
    finally:
        with uninterrupted():
            _end(pool)


def _end(pool: ProcessPoolExecutor) -> None:
    """Stop the workers at once: what they are at is not needed. The pool's thread ends with the last of them."""
    for process in list((getattr(pool, "_processes", None) or {}).values()):
        process.kill()  # one that starts heeds nothing else yet
    pool.shutdown(wait=True, cancel_futures=True)


def _finished(running: dict[Future[Tally], list[Task]], stop: Stop) -> Iterator[tuple[list[Task], Tally]]:
    """Those that are done, once one is or `stop` says so."""
    done, _ = wait(running, timeout=LOOK, return_when=FIRST_COMPLETED)
    while not done and not stop():
        done, _ = wait(running, timeout=LOOK, return_when=FIRST_COMPLETED)
    for future in done:
        yield running.pop(future), future.result()


_QUESTION: list[Question] = []


def _begin(question: Question) -> None:
    """A worker keeps the question; an interrupt is the parent's business, and without a parent there is nothing to do."""
    ignore_interrupts()
    end_with_parent()
    _QUESTION[:] = [question]


def _share(batch: list[Task], known: Tally) -> Tally:
    return _part(_QUESTION[0], batch, known, _never)[1]


def _hint(question: Question, known: Tally) -> Tally:
    """What a worker needs to know of what was found: the bar and the front."""
    tally = question.tally()
    tally.pool.bar, tally.front = known.pool.bound(), known.front
    return tally
