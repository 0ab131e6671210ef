"""Ctrl-C during a search: the first one asks for the best so far, the second one ends it at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from shardmeter.core.interrupts import INTERRUPTED

__all__ = ["INTERRUPTED", "stoppable"]


@contextmanager
def stoppable() -> Iterator[Callable[[], bool]]:
    """Whether an interrupt has come: the first one ends the search after the block it is at, the second one ends it at once."""
    asked = threading.Event()

    def ask(number: int, frame: FrameType | None) -> None:
        if asked.is_set():
            before(number, frame) if callable(before) else signal.default_int_handler(number, frame)
        asked.set()

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield asked.is_set
    finally:
        signal.signal(signal.SIGINT, before)
