"""Searches: each in a process of its own that can be ended, one at a time a client, results kept for a while."""

from __future__ import annotations

import json
import secrets
import threading
import time
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from shardmeter.core.errors import UnknownName
from shardmeter.ui import work
from shardmeter.ui.crew import BusyError, ended, started

LIMIT_S = 600.0
"""How long a search may take."""
KEPT_S = 600.0
"""How long a result is kept."""
MOST_KEPT, MOST_BYTES = 64, 64 * 1024**2
"""Results that are kept at once."""
FORSAKEN_S = 180.0
"""How long a search goes on of which nobody asks how far it is: a page in the background asks about once a minute."""


class RunningError(Exception):
    """A client may have one search running, and has."""


class Job:
    """One search. Its thread reads what its process tells; everything else asks the fields."""

    def __init__(self, client: str, query: str, setup: work.Setup, limit: float) -> None:
        self.client, self.limit = client, limit
        self.state, self.done, self.total, self.rate = "running", 0, 0, 0.0
        self.result: bytes | None = None
        self.error: dict[str, Any] | None = None
        self.began = self.looked = time.monotonic()
        self.finished: float | None = None
        self.process: BaseProcess
        self.link: Connection
        self.process, self.link = started(work.search, setup, query)
        self._thread = threading.Thread(target=self._read, name="shardmeter-search", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        """Take what the process tells until it has told its last, ends or is out of time."""
        found: tuple[Any, ...] | None = None
        try:
            while found is None or found[0] == "progress":
                if not self.link.poll(max(0.0, self.began + self.limit - time.monotonic())):
                    found = (
                        "failed",
                        {"says": f"a search may take {self.limit:.0f} s; narrow an axis", "violations": []},
                    )
                    break
                found = self.link.recv()
                if found[0] == "progress":
                    _, self.done, self.total, self.rate = found
        except (EOFError, OSError):
            found = ("failed", {"says": "the search was ended from outside (short of memory?)", "violations": []})
        ended(self.process, self.link)
        self.finished = time.monotonic()
        if self.state != "running":
            return
        if found[0] == "done":
            self.result, self.done = found[1], self.total
        else:
            self.error = found[1]
        self.state = found[0]

    def cancel(self, why: str = "cancelled") -> None:
        """End the search; it is gone when this returns."""
        if self.state == "running":
            self.state = why
            try:
                self.process.kill()
            except ValueError:  # it is gone already
                return
        self._thread.join()

    def text(self) -> bytes:
        """The JSON of how far it is, with the result where there is one."""
        self.looked = time.monotonic()
        seconds = (self.finished or self.looked) - self.began
        said = {
            "state": self.state, "done": self.done, "total": self.total, "rate": self.rate, "seconds": seconds, "error": self.error,
        }  # fmt: skip
        return json.dumps(said).encode()[:-1] + b', "result": ' + (self.result or b"null") + b"}"


class Searches:
    """All searches of a server. Methods that end a process block until it is gone."""

    def __init__(self, setup: work.Setup, *, most: int, limit: float = LIMIT_S) -> None:
        self.setup, self.most, self.limit = setup, most, limit
        self._jobs: dict[str, Job] = {}
        self._lock = threading.Lock()

    def start(self, client: str, query: str) -> str:
        """Start one and give its name. Raises RunningError where this client has one running, BusyError where too many run."""
        self.sweep()
        with self._lock:
            running = [job for job in self._jobs.values() if job.state == "running"]
            if any(job.client == client for job in running):
                raise RunningError
            if len(running) >= self.most:
                raise BusyError
            name = secrets.token_urlsafe(16)
            self._jobs[name] = Job(client, query, self.setup, self.limit)
        return name

    def job(self, name: str) -> Job:
        """One by its name. Raises UnknownName for what is none, or none any more."""
        self.sweep()
        found = self._jobs.get(name)
        if found is None:
            raise UnknownName("search", name, (), "results are kept for ten minutes")
        return found

    def sweep(self) -> None:
        """End what nobody asks about, forget what is old or too much."""
        now = time.monotonic()
        with self._lock:
            jobs = list(self._jobs.items())
        for _, job in jobs:
            if job.state == "running" and now - job.looked > FORSAKEN_S:
                job.cancel()
        over = [(name, job) for name, job in jobs if job.finished is not None]
        over.sort(key=lambda one: one[1].finished or 0.0)
        size, kept = sum(len(job.result or b"") for _, job in over), len(over)
        for name, job in over:
            if now - (job.finished or 0.0) > KEPT_S or kept > MOST_KEPT or size > MOST_BYTES:
                with self._lock:
                    self._jobs.pop(name, None)
                size, kept = size - len(job.result or b""), kept - 1

    def close(self) -> None:
        """End all."""
        with self._lock:
            jobs = list(self._jobs.values())
            self._jobs.clear()
        for job in jobs:
            job.cancel()
