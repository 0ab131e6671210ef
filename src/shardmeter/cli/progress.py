"""A sign of life on standard error, for work that takes more than a second and where a person looks."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Protocol

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


@contextmanager
def counter(label: str, *, shortens: bool = False) -> Iterator[Callable[[Counted], None]]:
    """A function to call with how far the work is: a line with rate and remaining time, kept moving on a terminal, now and
    then elsewhere; nothing for what takes less than a second. `shortens`: the rest goes faster than what is done."""
    person, most = sys.stderr.isatty(), "at most " if shortens else ""
    every, last, width = (0.1 if person else 10.0), time.monotonic() + QUIET, 0

    def report(now: Counted) -> None:
        nonlocal last, width
        if time.monotonic() < last or not now.rate:
            return
        left = (now.total - now.rows) / now.rate
        line = f"{label}: {now.rows:,} done ({now.rows / now.total:.0%}), {now.rate:,.0f}/s, {most}{_left(left)} left"
        width = max(width, len(line))
        _show(f"\r{line.ljust(width)}" if person else f"{line}\n")
        last = time.monotonic() + every

    try:
        yield report
    finally:
        if person and width:
            _show(f"\r{' ' * width}\r")


def took(space: Mapping[str, Any], what: str = "plans") -> None:
    """Say how long a search took that took more than a second, where a person looks: the answer itself is the same every time."""
    if space["seconds"] >= QUIET and sys.stderr.isatty():
        _show(f"searched {space['evaluated']:,} {what} in {space['seconds']:.1f} s\n")


def _left(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


class Counted(Protocol):
    """How far some work is."""

    @property
    def rows(self) -> int:
        """What is done."""

    @property
    def total(self) -> int:
        """What there is to do."""

    @property
    def rate(self) -> float:
        """A second."""


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
