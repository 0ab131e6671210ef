"""Who of a run lives, told without a byte on any line: a worker holds a lock on a file of the run's folder, which the kernel frees when it
ends, however it ends. Linux and one machine only, as the lab is."""

from __future__ import annotations

import fcntl
from contextlib import suppress
from pathlib import Path
from typing import IO, Any


def hold(folder: str, rank: int) -> IO[Any]:
    """Be there, for as long as the file that is given back stays open."""
    file = _path(folder, rank).open("w")
    fcntl.flock(file, fcntl.LOCK_EX)
    return file


def lives(folder: str, rank: int) -> bool:
    """Whether a worker holds its lock; one that has not begun yet does not."""
    with suppress(FileNotFoundError), _path(folder, rank).open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _path(folder: str, rank: int) -> Path:
    return Path(folder) / f"lives-{rank}"
