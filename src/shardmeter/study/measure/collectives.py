"""Collectives by size, over processes of its own on this machine: gloo between CPU processes, NCCL between GPUs."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from shardmeter.core.errors import ShardMeterError
from shardmeter.core.files import write_whole
from shardmeter.study.measure.record import Task, Timing
from shardmeter.study.measure.run import timing
from shardmeter.study.measure.tasks import COLLECTIVES, MESSAGES

WAIT = 300.0
"""Seconds after which ranks that do not answer are given up."""
PAUSE = 0.05
"""Seconds between two looks at the processes."""
LEAST = 5


def messages(kind: str, ranks: int) -> tuple[Task, ...]:
    """What `collectives` is to time."""
    return tuple(_task(name, size, ranks) for name in COLLECTIVES for size in MESSAGES[kind])


def _task(name: str, size: int, ranks: int) -> Task:
    return Task(kind="collective", name=name, sizes={"bytes": size, "ranks": ranks})


def collectives(kind: str, ranks: int, budget: float) -> tuple[Timing, ...]:
    """Time collectives over `ranks` processes for `budget` seconds; what the backend lacks is left out. Raises ShardMeterError where
    they do not find one another or one of them ends early."""
    with tempfile.TemporaryDirectory() as folder:
        _run(Path(folder), [sys.executable, "-m", __name__, folder, kind, str(ranks), str(budget)], ranks)
        found = json.loads((Path(folder) / "timings.json").read_text(encoding="utf-8"))
    return tuple(timing(_task(name, size, ranks), seconds) for name, size, seconds in found)


def _run(folder: Path, command: list[str], ranks: int) -> None:
    """Start a command once a rank and wait for all. None is left behind, whatever comes: too few processes, the first that fails, an
    interruption. Raises ShardMeterError."""
    started: list[subprocess.Popen[bytes]] = []
    until = time.monotonic() + WAIT
    try:
        for rank in range(ranks):
            with (folder / f"{rank}.txt").open("wb") as said:
                started.append(subprocess.Popen([*command, str(rank)], stdout=subprocess.DEVNULL, stderr=said))  # noqa: S603  (our own module)
        while None in (ended := [one.poll() for one in started]) and not any(ended):
            if time.monotonic() > until:
                raise ShardMeterError(f"collectives: {ranks} processes did not end within {WAIT:.0f} s")
            time.sleep(PAUSE)
    except OSError as error:
        raise ShardMeterError(f"collectives: {ranks} processes cannot be started ({error.strerror})") from None
    finally:
        for one in started:
            one.kill()
            one.wait()
    failed = next((rank for rank, code in enumerate(ended) if code), None)
    if failed is not None:
        said_last = (folder / f"{failed}.txt").read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
        raise ShardMeterError(
            f"collectives: the processes ended early ({''.join(said_last)[:200] or 'no reason is given'})"
        )


def _rank(folder: str, kind: str, ranks: int, budget: float, rank: int) -> None:
    """One process: all collectives and sizes, the slowest of whose ranks counts; rank 0 writes."""
    import torch
    import torch.distributed as dist

    if kind == "cuda":
        torch.cuda.set_device(rank)
    else:
        torch.set_num_threads(1)
    backend = "nccl" if kind == "cuda" else "gloo"
    dist.init_process_group(backend, init_method=f"file://{folder}/meet", rank=rank, world_size=ranks)
    found = []
    share = budget / (len(COLLECTIVES) * len(MESSAGES[kind]))
    for name in COLLECTIVES:
        for size in MESSAGES[kind]:
            work = _work(dist, torch, kind, name, size, ranks)
            try:
                taken = _timed(dist, torch, work, kind, share)
            except (RuntimeError, NotImplementedError):  # a collective that the backend has not
                break
            found.append((name, size, taken))
    dist.barrier()
    if rank == 0:
        write_whole(Path(folder) / "timings.json", json.dumps(found).encode(), synced=False)
    dist.destroy_process_group()


def _work(dist: Any, torch: Any, kind: str, name: str, size: int, ranks: int) -> Any:
    count = max(size // 4 // ranks, 1) * ranks
    whole, part = torch.ones(count, device=kind), torch.ones(count // ranks, device=kind)
    return {
        "all_reduce": lambda: dist.all_reduce(whole),
        "all_gather": lambda: dist.all_gather_into_tensor(whole, part),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, whole),
    }[name]


def _timed(dist: Any, torch: Any, work: Any, kind: str, share: float) -> list[float]:
    """Seconds of single runs, each that of the slowest rank; the same number of runs on all."""
    wait = torch.cuda.synchronize if kind == "cuda" else lambda: None
    work()
    wait()
    begin = time.perf_counter()
    work()
    wait()
    runs = torch.tensor([max(share / (time.perf_counter() - begin), LEAST)], device=kind, dtype=torch.float32)
    dist.all_reduce(runs, op=dist.ReduceOp.MIN)
    taken = []
    for _ in range(min(int(runs.item()), 1000)):
        dist.barrier()
        start = time.perf_counter()
        work()
        wait()
        taken.append(time.perf_counter() - start)
    slowest = torch.tensor(taken, device=kind, dtype=torch.float32)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    return [float(one) for one in slowest.cpu()]


if __name__ == "__main__":
    _rank(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5]))
