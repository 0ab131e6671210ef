"""A sign of life on standard error, for work that takes more than a second and where a person looks."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

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
    start, width = time.monotonic(), 0
    while not done.wait(0.1 if width else QUIET):
        gone = time.monotonic() - start
        at = int(gone * 10) % 20
        line = f"{label} [{' ' * at}={' ' * (19 - at)}] {gone:.0f} s"
        width = max(width, len(line))
        _show(f"\r{line}")
    if width:
        _show(f"\r{' ' * width}\r")


def _show(text: str) -> None:
    """Write without a line end; a terminal that has gone is no reason to stop."""
    with suppress(OSError, ValueError):
        sys.stderr.write(text)
        sys.stderr.flush()
