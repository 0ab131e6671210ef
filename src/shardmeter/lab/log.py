"""What a worker writes down: one JSON object a line, flushed at once, all processes by one clock. And what the kernel knows of it."""

from __future__ import annotations

import json
import resource
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from shardmeter.core.units import Bytes

DEVICES = Path("/proc/self/net/dev")
"""Counters of the interfaces in the reader's own network namespace."""


class Log:
    """`rank-K.jsonl` of a folder, written anew."""

    def __init__(self, folder: str | Path, rank: int) -> None:
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        self._file = (path / f"rank-{rank}.jsonl").open("w", encoding="utf-8")

    def event(self, event: str, **fields: Any) -> float:
        """Write a line; its time, in seconds of the monotonic clock, which all processes of a machine share."""
        now = time.monotonic()
        line = json.dumps({"event": event, "t": now, **fields}, ensure_ascii=False)
        self._file.write(line + "\n")
        self._file.flush()
        return now

    def close(self) -> None:
        """No line comes after this."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def events(folder: str | Path, rank: int) -> list[dict[str, Any]]:
    """The lines that a worker has written so far; a last one that is not whole yet is left."""
    path = Path(folder) / f"rank-{rank}.jsonl"
    if not path.exists():
        return []
    whole = path.read_text(encoding="utf-8").rpartition("\n")[0]
    return [json.loads(line) for line in whole.splitlines() if line]


def sent(interface: str, devices: Path = DEVICES) -> Bytes | None:
    """Bytes that an interface of this namespace has sent, with IP headers; None on loopback, where nothing is told apart, and where
    there is no such interface."""
    if interface == "lo":
        return None
    for line in devices.read_text(encoding="ascii").splitlines():
        name, _, counts = line.partition(":")
        if name.strip() == interface:
            return float(counts.split()[8])
    return None


def peak_memory() -> Bytes:
    """The most memory that this process ever had resident.

    Leaves out: what it shares with the server that it was forked from, which counts here as its own."""
    return 1024.0 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
