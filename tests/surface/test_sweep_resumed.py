"""A sweep that was stopped half-way, however it was stopped, goes on and ends in the same file, byte for byte."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import chain

import pytest

from shardmeter.core.interrupts import uninterrupted
from shardmeter.study.sweep import chunks_kept

COMMAND = [sys.executable, "-m", "shardmeter", "sweep", "--model", "llama-3.1-8b", "--gpus", "16xH100-SXM5-80GB"]
SMALL = ("plan.tp=1,2", "plan.recompute=none,full", "run.global_batch=64..1024:+16", "plan.micro_batch=1..48")
MILLION = (
    "plan.tp=1,2,4,8", "plan.recompute=none,selective,full", "fleet.islands.0.nodes=1..64:x2",
    "fleet.islands.0.fabric.bandwidth=1Gbps..400Gbps:log20", "run.seq_len=1024..32768:x2",
    "run.global_batch=256..4096:x2", "plan.micro_batch=1..8:x2", "plan.dp_replicate=1,2,4", "plan.cp=1,2",
)  # fmt: skip
"""1,209,600 points."""
needs_dask = pytest.mark.skipif(find_spec("distributed") is None, reason="dask.distributed is the extra `dask`")
PROCESSES, DASK = pytest.param("local", id="processes"), pytest.param("dask", marks=needs_dask)


def command(out, engine, over=SMALL):
    axes = chain.from_iterable(("--over", axis) for axis in over)
    return [*COMMAND, *axes, "-o", str(out), "--engine", engine, "--workers", "2", "--format", "json"]


def ran(arguments):
    """What became of a sweep that ends by itself."""
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@contextmanager
def begun(out, arguments, chunks):
    """A sweep that has so many chunks done, in a process group of its own; what it says ends up in `said`."""
    process = subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        for _ in range(6000):
            assert process.poll() is None, process.stderr and process.stderr.read()
            if chunks_kept(out) >= chunks:
                break
            time.sleep(0.02)
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def workers_of(process):
    """The processes that a process started, by id."""
    children = subprocess.run(  # it fails where there are none yet
        ["ps", "-ww", "-o", "pid=,args=", "--ppid", str(process.pid)], capture_output=True, text=True, check=False
    )
    return [int(line.split()[0]) for line in children.stdout.splitlines() if "spawn_main" in line]


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The digest of the small sweep that nobody stopped, by one process."""
    out = tmp_path_factory.mktemp("whole") / "a.csv"
    assert ran([*command(out, "local"), "--workers", "1"])["points"] == 11_712
    return digest(out)


@pytest.mark.parametrize(
    ("how", "engine"),
    [(signal.SIGKILL, "local"), pytest.param(signal.SIGINT, "dask", marks=[needs_dask, pytest.mark.slow])],
    ids=["killed", "interrupted"],
)
def test_killed_and_resumed(tmp_path, whole, engine, how):
    out = tmp_path / "a.csv"
    with begun(out, command(out, engine), chunks=2) as process:
        if how == signal.SIGKILL:
            process.kill()
        else:  # Ctrl-C reaches every process of a terminal
            os.killpg(process.pid, how)
        _, said = process.communicate(timeout=60)
    assert process.returncode == (-how if how == signal.SIGKILL else 130)
    assert "Traceback" not in said
    assert not out.exists()
    done = ran(command(out, "local"))
    assert 2 <= done["chunks_resumed"] < done["chunks"]
    assert digest(out) == whole
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize("engine", [PROCESSES, DASK])
def test_interrupted_twice_while_workers_start(tmp_path, engine):
    out = tmp_path / "a.csv"
    with begun(out, command(out, engine), chunks=0) as process:
        while not workers_of(process):
            assert process.poll() is None
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.2)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode in (130, -signal.SIGINT)
    assert "interrupted" in said
    assert "Traceback" not in said


def test_an_interrupt_that_has_to_wait_is_not_lost():
    reached = []

    def start():
        with uninterrupted():
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.05)
            reached.append("the end")

    with pytest.raises(KeyboardInterrupt):
        start()
    assert reached == ["the end"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_worker_that_is_killed(tmp_path, whole):
    out = tmp_path / "a.csv"
    with begun(out, command(out, "local"), chunks=1) as process:
        os.kill(workers_of(process)[0], signal.SIGKILL)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 74
    assert "a worker has ended (killed, or out of memory): fewer --workers need less" in said
    assert ran(command(out, "local"))["chunks_resumed"] >= 1
    assert digest(out) == whole


@pytest.fixture
def cluster(tmp_path):
    """A scheduler with one worker: the scheduler's process, and the engine that reaches it."""
    file = tmp_path / "scheduler.json"
    at, dask, null = ["--scheduler-file", str(file)], [sys.executable, "-m", "dask"], subprocess.DEVNULL
    scheduler = subprocess.Popen(
        [*dask, "scheduler", *at, "--host", "127.0.0.1", "--port", "0", "--no-dashboard"], stdout=null, stderr=null
    )
    worker = subprocess.Popen(
        [*dask, "worker", *at, "--nthreads", "2", "--no-dashboard", "--no-nanny"], stdout=null, stderr=null
    )
    try:
        while not file.exists() or not file.read_text().endswith("}"):
            assert scheduler.poll() is None
            time.sleep(0.05)
        yield scheduler, json.loads(file.read_text())["address"].replace("tcp://", "dask://")
    finally:
        for process in (worker, scheduler):
            process.kill()
            process.wait()


@needs_dask
def test_a_scheduler_that_dies(tmp_path, whole, cluster):
    scheduler, engine = cluster
    out = tmp_path / "a.csv"
    with begun(out, command(out, engine), chunks=1) as process:
        scheduler.kill()
        _, said = process.communicate(timeout=60)
    assert process.returncode == 74
    assert f"{engine}: its scheduler or its workers have gone" in said
    assert "Traceback" not in said
    assert ran(command(out, "local"))["chunks_resumed"] >= 1
    assert digest(out) == whole


@needs_dask
def test_a_scheduler_that_is_not_there(tmp_path):
    done = subprocess.run(
        command(tmp_path / "a.csv", "dask://127.0.0.1:1"), capture_output=True, text=True, check=False
    )
    assert done.returncode == 74
    assert "no scheduler answers" in done.stderr
    assert "Traceback" not in done.stderr


def test_dask_that_is_not_installed(tmp_path):
    hide = "import sys; sys.modules['distributed'] = None; from shardmeter.cli import main; sys.exit(main())"
    arguments = command(tmp_path / "a.csv", "dask", over=("plan.tp=1,2",))[3:]
    done = subprocess.run([sys.executable, "-c", hide, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "pip install 'shardmeter[dask]'" in done.stderr


@pytest.mark.slow
@pytest.mark.skipif(
    "SHARDMETER_MILLION" not in os.environ, reason="minutes of all cores: SHARDMETER_MILLION=1 asks for it"
)
@pytest.mark.parametrize("engine", [PROCESSES, DASK])
def test_a_million_points_killed_half_way(tmp_path, engine):
    out, again = tmp_path / "a.csv", tmp_path / "b.csv"
    with begun(out, command(out, engine, MILLION), chunks=37) as process:
        os.killpg(process.pid, signal.SIGKILL)
    resumed = ran(command(out, engine, MILLION))
    straight = ran(command(again, "local", MILLION))
    assert resumed["points"] == 1_209_600
    assert resumed["chunks_resumed"] >= 37
    assert digest(out) == digest(again)
    assert straight["seconds"] < 600.0
