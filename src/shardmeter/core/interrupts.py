"""Ctrl-C reaches every process of a terminal; what it means is the business of the first, and so is a request to end (SIGTERM)."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess


class Terminated(KeyboardInterrupt):
    """A request to end has come: whoever cleans up after an interruption does so after this one."""


def terminate(*_: object) -> None:
    """What a command does at a request to end. Raises Terminated."""
    raise Terminated


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Start processes that no interrupt reaches from their first moment on, or end them in peace.

    An interrupt, or a request to end, that comes meanwhile is delivered afterwards. Only the main thread can do this, and only where signals can be
    blocked, which processes and threads inherit; elsewhere nothing is done."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "pthread_sigmask"):
        yield
        return
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()  # it ends with interrupts unblocked, the first time
    came: list[int] = []
    ends = signal.getsignal(signal.SIGTERM) is terminate  # else it ends us there and then, or is not heeded
    kept = {
        number: signal.signal(number, lambda number, _: came.append(number))  # another thread may get it
        for number in ((signal.SIGINT, signal.SIGTERM) if ends else (signal.SIGINT,))
    }
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # a worker heeds requests to end
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in kept.items():
            signal.signal(number, handler)
        if came:
            signal.raise_signal(max(came))  # the request to end, if both came


def ignore_interrupts() -> None:
    """What a worker process does first: no interrupt ends it, a request to end does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def end_with_parent() -> None:
    """What a worker process that waits for work does next: it ends when its parent does, however that ends."""
    import multiprocessing

    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)
