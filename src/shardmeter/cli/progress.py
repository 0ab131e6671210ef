"""A sign of life on standard error, for work that takes more than a second and where a person looks."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

QUIET = 1.0
"""Seconds before anything is shown."""


@contextmanager
def progress(label: str) -> Iterator[None]:
    """Show a moving bar and the seconds gone while the body runs; nothing off a terminal, nothing left behind."""
    if not sys.stderr.isatty():
        yield
        return
    done = threading.Event()
    ticker = threading.Thread(target=_tick, args=(label, done), daemon=True)
    ticker.start()
    try:
        yield
    finally:
        done.set()
        ticker.join()


def _tick(label: str, done: threading.Event) -> None:
    start, shown = time.monotonic(), False
    while not done.wait(0.1 if shown else QUIET):
        gone = time.monotonic() - start
        at = int(gone * 10) % 20
        sys.stderr.write(f"\r{label} [{' ' * at}{'='}{' ' * (19 - at)}] {gone:.0f} s")
        sys.stderr.flush()
        shown = True
    if shown:
        sys.stderr.write("\r\033[K")
        sys.stderr.flush()
