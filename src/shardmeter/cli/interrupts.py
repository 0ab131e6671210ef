"""Ctrl-C during a search: the first one asks for the best so far, the second one ends it at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

INTERRUPTED = 130
"""Exit code of what was interrupted."""


@contextmanager
def stoppable() -> Iterator[Callable[[], bool]]:
    """Whether an interrupt has come: the first one ends the search after the block it is at, the second one ends it at once."""
    asked = threading.Event()

    def interrupt(*_: object) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield asked.is_set
    finally:
        signal.signal(signal.SIGINT, before)
