"""Ctrl-C reaches every process of a terminal; what it means is the business of the first, and so is a request to end (SIGTERM)."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess


class Terminated(KeyboardInterrupt):
    """A request to end has come: whoever cleans up after an interruption does so after this one."""


INTERRUPTED, TERMINATED = 130, 143
"""Exit codes of what was interrupted, and of what was asked to end."""
PATIENCE = 3.0
"""Seconds that a command has to clean up; who asks again afterwards is obeyed there and then."""

_heeded: list[float] = []
"""When what ends this process was raised."""


def interrupt(*_: object) -> None:
    """What a command does at Ctrl-C. Raises KeyboardInterrupt, once: what comes while it cleans up breaks nothing."""
    _once(KeyboardInterrupt, b"interrupted\n", INTERRUPTED)


def terminate(*_: object) -> None:
    """What a command does at a request to end. Raises Terminated, once."""
    _once(Terminated, b"terminated\n", TERMINATED)


def _once(kind: type[KeyboardInterrupt], says: bytes, code: int) -> None:
    """Raise what ends the command, unless it has been raised: then nothing, or, once PATIENCE is over, the end."""
    if not _heeded:
        _heeded.append(time.monotonic())
        raise kind
    if time.monotonic() - _heeded[0] > PATIENCE:
        os.write(2, says)
        os._exit(code)


def send_again() -> None:
    """From here on an interrupt, or a request to end, that Python drops is sent again: it drops what is raised while an object
    is being removed (`__del__`, the callback of a weak reference)."""
    usual = sys.unraisablehook

    def dropped(lost: sys.UnraisableHookArgs) -> None:
        if not issubclass(lost.exc_type, KeyboardInterrupt):
            usual(lost)
            return
        _heeded.clear()
        number = signal.SIGTERM if issubclass(lost.exc_type, Terminated) else signal.SIGINT
        threading.Thread(target=_send, args=(number,), daemon=True).start()

    sys.unraisablehook = dropped


def _send(number: int) -> None:
    """Send this process a signal a moment later: whatever is being removed now is removed then."""
    time.sleep(0.01)
    if hasattr(signal, "pthread_kill") and (main := threading.main_thread().ident) is not None:
        signal.pthread_kill(main, number)
    else:
        signal.raise_signal(number)


@contextmanager
def uninterrupted(*, whole: bool = False) -> Iterator[None]:
    """Start processes that no interrupt reaches from their first moment on, or end them in peace. `whole`: no request to end either, until
    they call `ignore_interrupts`. One that went before it had read what it is given would leave us writing to it for ever: where the
    whole group is asked to end, and what it is given is longer than a pipe.

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
    blocked = {signal.SIGINT, signal.SIGTERM} if whole and ends else {signal.SIGINT}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, blocked)  # a worker heeds requests to end, or will
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
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


def end_with_parent() -> None:
    """What a worker process that waits for work does next: it ends when its parent does, however that ends."""
    import multiprocessing

    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)
