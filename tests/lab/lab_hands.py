"""What workers of the tests do; loaded by worker processes."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from pathlib import Path

from shardmeter.lab.records import Task


def log(task: Task, **event: object) -> None:
    with (Path(task.folder) / f"rank-{task.rank}.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps({"t": time.monotonic(), **event}) + "\n")


def at_once(task: Task) -> None:
    where = Path("/proc/self/ns/net").stat().st_ino
    names = [name for _, name in socket.if_nameindex()]
    log(task, event="ready", pid=os.getpid(), namespace=where, interfaces=names, threads=os.environ["OMP_NUM_THREADS"])


def stops(task: Task) -> int:
    del task
    return 3


def one_fails(task: Task) -> None:
    if task.rank == 1:
        raise ValueError("the sum is odd")
    log(task, event="ready", pid=os.getpid())
    time.sleep(60)


def one_fails_others_stop(task: Task) -> int:
    if task.rank == 1:
        sys.stderr.write("lost the thread\n")
        return 1
    time.sleep(0.3)
    return 3


def sleeps(task: Task) -> None:
    log(task, event="ready", pid=os.getpid())
    time.sleep(60)


def stubborn(task: Task) -> None:
    import signal

    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    log(task, event="ready", pid=os.getpid())
    time.sleep(60)


def rounds(task: Task) -> None:
    """A round each tenth of a second."""
    for number in range(-1, 10):
        time.sleep(0.1)
        log(task, event="round", round=number, seconds=0.1, sent_bytes=None, pid=os.getpid())


def talks(task: Task) -> int:
    """Datagrams to the other island and back, a round each; 3 when they are not answered any more."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        line.bind((task.address, 4000))
        line.settimeout(0.6)
        peer = (task.addresses[1 - task.rank], 4000)
        time.sleep(0.2)
        for number in range(40):
            if task.rank == 0:
                line.sendto(b"%d" % number, peer)
            try:
                came = line.recv(100)
            except TimeoutError:
                log(task, event="stopped", says="no answer")
                return 3
            if task.rank == 1:
                line.sendto(came, peer)
            log(task, event="round", round=number)
    return 0
