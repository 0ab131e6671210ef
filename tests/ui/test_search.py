"""Searches come and go and leave nothing behind; processes that are ended are gone; the line before a lane keeps its order."""

import asyncio
import multiprocessing
import os
import time
from pathlib import Path

import pytest

from shardmeter.core.errors import UnknownName
from shardmeter.ui import search, work
from shardmeter.ui.crew import BusyError, EndedError, Lane, Line, TooLongError, Worker
from shardmeter.ui.search import RunningError, Searches

LARGE = "model=llama-3.1-8b&gpus=64..4096:x2xH100-SXM5-80GB&set=plan.micro_batch%3D1..256&set=plan.recompute%3Dany&set=plan.schedule%3Dany"
SMALL = "model=llama-3.1-8b&gpus=8xH100-SXM5-80GB&set=plan.tp%3D1&set=plan.micro_batch%3D1"
ONE = "model=llama-3.1-8b&gpus=8xH100-SXM5-80GB"


def gone(pid):
    try:
        return "State:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True


def descriptors():
    """What this process has open."""
    return {one.name for one in Path("/proc/self/fd").iterdir()}


def finished(job, seconds=60.0):
    until = time.monotonic() + seconds
    while job.state == "running" and time.monotonic() < until:
        time.sleep(0.02)
    return job.state


@pytest.fixture
def searches():
    made = Searches(work.Setup(), most=4)
    yield made
    made.close()


def test_a_client_has_one_at_a_time(searches):
    name = searches.start("me", LARGE)
    with pytest.raises(RunningError):
        searches.start("me", SMALL)
    searches.start("you", LARGE)
    searches.job(name).cancel()
    assert searches.job(name).state == "cancelled"
    searches.start("me", LARGE)


def test_all_clients_together_have_so_many(searches):
    for number in range(4):
        searches.start(f"client {number}", LARGE)
    with pytest.raises(BusyError):
        searches.start("one more", LARGE)


def test_a_result_is_kept_for_a_while(searches, monkeypatch):
    name = searches.start("me", SMALL)
    assert finished(searches.job(name)) == "done"
    assert b'"plans"' in searches.job(name).text()
    monkeypatch.setattr(search, "KEPT_S", -1.0)
    with pytest.raises(UnknownName):
        searches.job(name)


def test_results_are_bounded(searches, monkeypatch):
    monkeypatch.setattr(search, "MOST_KEPT", 2)
    names = []
    for number in range(4):
        names.append(searches.start(f"client {number}", SMALL))
        assert finished(searches.job(names[-1])) == "done"
        until = time.monotonic() + 10.0
        while searches.job(names[-1]).finished is None and time.monotonic() < until:
            time.sleep(0.01)
    searches.sweep()
    assert list(searches._jobs) == names[2:]


def test_a_search_that_nobody_asks_about_is_ended(searches, monkeypatch):
    name = searches.start("me", LARGE)
    job = searches.job(name)
    pid = job.process.pid
    monkeypatch.setattr(search, "FORSAKEN_S", -1.0)
    searches.sweep()
    assert job.state == "cancelled"
    assert gone(pid)


def test_a_search_has_a_time(monkeypatch):
    made = Searches(work.Setup(), most=2, limit=1.5)
    job = made.job(made.start("me", LARGE))
    pid = job.process.pid
    assert finished(job, 10.0) == "failed"
    assert "narrow an axis" in str(job.error)
    made.close()
    assert gone(pid)


def test_a_search_has_so_much_memory():
    made = Searches(work.Setup(memory=8 * 1024**2), most=2)
    job = made.job(made.start("me", LARGE))
    assert finished(job) == "failed"
    assert "memory" in str(job.error)
    made.close()


def test_a_process_that_is_ended_from_outside_is_a_failed_search(searches):
    job = searches.job(searches.start("me", LARGE))
    os.kill(job.process.pid, 9)
    assert finished(job) == "failed"
    assert "outside" in str(job.error)


def started_and_cancelled(searches, times):
    before, pids, longest = descriptors(), [], 0.0
    for number in range(times):
        name = searches.start("me", LARGE)
        job = searches.job(name)
        pids.append(job.process.pid)
        if number % 3 == 0:  # at different moments of its life
            time.sleep(0.02 * (number % 7))
        began = time.monotonic()
        job.cancel()
        longest = max(longest, time.monotonic() - began)
        assert job.state == "cancelled"
    assert all(map(gone, pids))
    assert len(descriptors() - before) < 8
    assert len(searches._jobs) <= search.MOST_KEPT + 1
    print(f"\n{times:,} searches started and cancelled; the longest end took {1e3 * longest:.0f} ms")
    assert longest < 1.0


def test_searches_come_and_go(searches):
    started_and_cancelled(searches, 40)


@pytest.mark.slow
def test_a_hundred_searches_come_and_go(searches):
    """A thousand were, by hand: nothing was left."""
    started_and_cancelled(searches, 100)


def test_a_worker_answers_and_is_ended():
    worker = Worker(work.Setup())
    pid = worker.process.pid
    try:
        assert worker.ask(work.Question(kind="numbers", query=ONE), 20.0).status == 200
        assert worker.ask(work.Question(kind="numbers", query="modl=x"), 20.0).status == 422
        with pytest.raises(TooLongError):
            worker.ask(work.Question(kind="view", name="predict", query=f"{LARGE}&plan=auto"), 0.5)
        assert gone(pid)
        with pytest.raises(EndedError):
            worker.ask(work.Question(kind="numbers", query=ONE), 20.0)
    finally:
        worker.end()


def test_a_worker_has_so_much_memory():
    worker = Worker(work.Setup(memory=16 * 1024**2))
    try:
        query = f"{ONE}&global_batch=12000&steps=1"
        found = worker.ask(work.Question(kind="view", name="trace", query=query), 60.0)
        assert found.status == 422
        assert b"more memory" in found.body
        assert worker.ask(work.Question(kind="numbers", query=ONE), 20.0).status == 200
    finally:
        worker.end()


def test_a_fault_of_ours_is_no_traceback(monkeypatch, capsys):
    from shardmeter.scenario.catalog import catalog_of
    from shardmeter.ui import answers

    def broken(*_):
        raise ZeroDivisionError("/home/somebody/secret")

    monkeypatch.setattr(answers, "numbers", broken)
    found = work.reply(work.Question(kind="numbers", query=ONE), catalog_of(None))
    assert found.status == 500
    assert b"ZeroDivisionError" in found.body
    assert b"secret" not in found.body
    assert "secret" in capsys.readouterr().err


def test_a_lane_goes_on_when_who_asks_goes_away():
    async def asked():
        lane = Lane(work.Setup(), workers=1, waiting=4, patience=30.0)
        await lane.open()
        try:
            slow = asyncio.ensure_future(
                lane.ask(work.Question(kind="view", name="predict", query=f"{LARGE}&plan=auto"), 60.0)
            )
            await asyncio.sleep(0.5)
            (pid,) = [worker for worker in multiprocessing.active_children() if worker.is_alive()][-1:]
            waits = [asyncio.ensure_future(lane.ask(work.Question(kind="numbers", query=ONE), 20.0)) for _ in range(4)]
            await asyncio.sleep(0)
            with pytest.raises(BusyError):
                await lane.ask(work.Question(kind="numbers", query=ONE), 20.0)
            waits.pop().cancel()
            slow.cancel()
            with pytest.raises(asyncio.CancelledError):
                await slow
            assert [one.status for one in await asyncio.gather(*waits)] == [200] * 3
            return pid
        finally:
            await lane.close()

    asyncio.run(asked())


def test_the_line_keeps_its_order_and_loses_no_place():
    async def stood():
        line, order = Line(1, 16), []
        await line.place(0.0, 5.0)

        async def waits(name, later):
            await line.place(later, 5.0)
            order.append(name)
            line.leave()

        tasks = [
            asyncio.ensure_future(waits(*one)) for one in (("large", 0.2), ("small", 0.0), ("gone", 0.0), ("last", 0.3))
        ]
        await asyncio.sleep(0.01)
        tasks[2].cancel()
        await asyncio.sleep(0.01)
        line.leave()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert order == ["small", "large", "last"]
        assert line.free == 1
        await line.place(0.0, 5.0)
        with pytest.raises(BusyError):
            await line.place(0.0, 0.02)
        line.leave()
        assert line.free == 1
        await line.place(0.0, 5.0)  # given a place and gone in the same moment: it is passed on
        given = asyncio.ensure_future(line.place(0.0, 5.0))
        await asyncio.sleep(0.01)
        line.leave()
        given.cancel()
        await asyncio.gather(given, return_exceptions=True)
        assert line.free == (0 if given.done() and not given.cancelled() and given.exception() is None else 1)

    asyncio.run(stood())
